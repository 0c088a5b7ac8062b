// The practical limit: what a person would write by hand for this machine. It is the algorithm of
// platt_jax's defaults: Newton steps from the Gaussian start, corrected for how the Hessian changed
// along the last one, one fused pass over the rows per trial, a step accepted when its derivatives
// prove the decrease, a stop on the Newton decrement.
// Rows are taken a vector at a time (AVX-512 where there is one; the compiler splits the vectors
// elsewhere), with exp as a polynomial. OpenMP runs over the problems, or over the rows of one
// problem after the other when there are fewer problems than threads.
//
// No pass but the first reads a label: they enter the gradient only by sum t and sum t f, which do
// not depend on A and B.
//
// Build: g++ -O3 -march=native -fopenmp -fno-math-errno -ffinite-math-only -fno-signed-zeros
//            -shared -fPIC

#include <omp.h>

#include "limit_rows.h"

namespace {

// Reads the labels, fills in what the passes need, and gives the Gaussian start.
template <bool WEIGHTED, typename T>
Point prepare(Problem<T>& at, bool split) {
    const double shift = at.n ? at.f[0] : 0;
    std::vector<Point> ranges(split ? (at.n + BLOCK - 1) / BLOCK : 1, {INFINITY, -INFINITY});
    Sums m = all_blocks(at.n, split, [&](int64_t from, int64_t to) {
        double ones = 0, all = 0, f_ones = 0, f_all = 0, ff = 0, low = INFINITY, high = -INFINITY;
#pragma omp simd reduction(+ : ones, all, f_ones, f_all, ff) reduction(min : low) \
    reduction(max : high)
        for (int64_t i = from; i < to; i++) {
            double f = at.f[i] - shift, w = WEIGHTED ? at.w[i] : 1, one = at.y[i] > 0 ? w : 0;
            ones += one, all += w, f_ones += one * f, f_all += w * f, ff += w * f * f;
            low = f < low ? f : low, high = f > high ? f : high;
        }
        Point& range = ranges[split ? from / BLOCK : 0];
        range = {std::min(range.A, low), std::max(range.B, high)};
        return Sums{{ones, all, f_ones, f_all, ff}};
    });
    const double pos = m.v[0], neg = m.v[1] - pos, mean = m.v[3] / m.v[1];
    const double high_t = (pos + 1) / (pos + 2), low_t = 1 / (neg + 2);
    at.total = m.v[1];
    at.center = T(shift + mean);
    const double back = shift - at.center;  // from f - shift to f - center
    at.low = INFINITY, at.high = -INFINITY;
    for (const Point& range : ranges)
        at.low = std::min(at.low, range.A + back), at.high = std::max(at.high, range.B + back);
    const double f_pos = m.v[2] + pos * back, f_neg = m.v[3] - m.v[2] + neg * back;
    at.sum_t = high_t * pos + low_t * neg;
    at.sum_tf = high_t * f_pos + low_t * f_neg;

    // Rows belong to the classes by their targets.
    const double ones = at.sum_t, zeros = at.total - ones, f_zeros = f_pos + f_neg - at.sum_tf;
    const double mean_one = at.sum_tf / ones, mean_zero = f_zeros / zeros;
    const double offset = back + mean;  // what rounding the center left
    const double within = m.v[4] / at.total - mean * mean + offset * offset -
                          (ones * mean_one * mean_one + zeros * mean_zero * mean_zero) / at.total;
    const double apart = mean_one - mean_zero, steep = std::log((pos + 1) * (neg + 1));
    double A = 0;
    if (pos > 0 && neg > 0 && apart != 0) {
        const double most = steep / std::fabs(apart);
        const double slope = within > 0 ? apart / within : std::copysign(most, apart);
        A = -std::max(-most, std::min(most, slope));
    }
    return {A, std::log(zeros / ones) - A * (mean_one + mean_zero) / 2};
}

struct Answer {
    double A, B, loss;
    int iterations, passes;
};

template <bool WEIGHTED, typename T>
Answer fit(Problem<T> at, bool split) {
    const double eps = Simd<T>::eps, tol = Simd<T>::tol;
    auto [A, B] = prepare<WEIGHTED>(at, split);
    double dA = 0, dB = 0, length = 0, decrement = INFINITY, slope = 0, noise = 10 * tol;
    double old_gA = 0, old_gB = 0, old_hAA = 0, old_hAB = 0, old_hBB = 0;
    int iterations = -1, passes = 0;
    while (iterations < 100 && passes < 500) {
        const double newA = A + length * dA, newB = B + length * dB;
        const Sums s = all_blocks(at.n, split, [&](int64_t from, int64_t to) {
            return derivative_block<WEIGHTED, T>(at, from, to, newA, newB);
        });
        const double gA = at.sum_tf - s.v[1], gB = at.sum_t - s.v[0];
        const double hBB = s.v[2] + 1e-300, hAB = s.v[3], hAA = s.v[4];
        passes++;
        if (iterations >= 0) {
            // The decrease of the paper, proved from the derivatives at the trial (newton.py).
            const double reach = length * std::max(std::fabs(dA * at.low + dB),
                                                   std::fabs(dA * at.high + dB));
            const double share = (30 + 2 * reach) / (60 + reach * (24 + 3 * reach));
            const double curvature = dA * (dA * hAA + 2 * dB * hAB) + dB * dB * hBB;
            if (gA * dA + gB * dB - length * curvature * share > 1e-4 * slope) {
                length /= 2;
                if (decrement <= noise || length < 1e-10) break;
                continue;
            }
        }
        const double before = decrement;
        A = newA, B = newB, iterations++;
        const double ratio = hAB / hBB, floor = 4 * eps * hAA + 1e-300, g = gA - ratio * gB;
        const double pivot = std::max(hAA - ratio * hAB, floor);
        const double lastA = length * dA, lastB = length * dB;
        const auto descend = [&](double tA, double tB) {
            dA = -(gA + tA - ratio * (gB + tB)) / pivot, dB = -(gB + tB) / hBB - ratio * dA;
        };
        descend(0, 0);
        decrement = std::sqrt(g * g / pivot + gB * gB / hBB);
        if (length > 0) {
            // The third derivative along the last step (direction.py).
            const double a = (dA * lastA + dB * lastB) / (lastA * lastA + lastB * lastB);
            const double restA = 3 * (old_gA - gA) + (hAA + 2 * old_hAA) * lastA +
                                 (hAB + 2 * old_hAB) * lastB;
            const double restB = 3 * (old_gB - gB) + (hAB + 2 * old_hAB) * lastA +
                                 (hBB + 2 * old_hBB) * lastB;
            const double tA = a * ((hAA - old_hAA) * dA + (hAB - old_hAB) * dB + a * restA);
            const double tB = a * ((hAB - old_hAB) * dA + (hBB - old_hBB) * dB + a * restB);
            if (std::fabs(tA * dA + tB * dB) <= decrement * decrement / 2) descend(tA, tB);
        }
        old_gA = gA, old_gB = gB, old_hAA = hAA, old_hAB = hAB, old_hBB = hBB;
        slope = gA * dA + gB * dB;
        // Rows err by about eps each, which no further step can mend.
        noise = eps * std::max(4 * std::sqrt(at.total), at.total / std::sqrt(hBB));
        noise = std::max(10 * tol, noise);
        if (decrement <= tol) {
            A += dA, B += dB;
            break;
        }
        if (length == 1 && decrement <= noise && decrement > before / 2) break;
        length = 1;
    }
    const Sums rest = all_blocks(at.n, split, [&](int64_t from, int64_t to) {
        return loss_block<WEIGHTED, T>(at, from, to, A, B);
    });
    const double loss = A * at.sum_tf + B * at.sum_t + rest.v[0];
    return {A, B - A * at.center, loss, iterations, passes};
}

template <typename T>
void fit_all(int64_t problems, const int64_t* offset, const T* scores, const int8_t* labels,
             const T* weights, double* A, double* B, double* loss, int32_t* iterations,
             int32_t* passes) {
    const bool split = problems < omp_get_max_threads();
#pragma omp parallel for schedule(dynamic, 1 + problems / 1024) if (!split)
    for (int64_t k = 0; k < problems; k++) {
        const int64_t first = offset[k];
        Problem<T> at{};
        at.n = offset[k + 1] - first, at.f = scores + first, at.y = labels + first;
        if (weights) at.w = weights + first;
        const Answer x = weights ? fit<true, T>(at, split) : fit<false, T>(at, split);
        A[k] = x.A, B[k] = x.B, loss[k] = x.loss;
        iterations[k] = x.iterations, passes[k] = x.passes;
    }
}

}  // namespace

#define ENTRY(name, T)                                                                             \
    extern "C" void name(int64_t problems, const int64_t* offset, const T* scores,                 \
                         const int8_t* labels, const T* weights, double* A, double* B,             \
                         double* loss, int32_t* iterations, int32_t* passes) {                     \
        fit_all<T>(problems, offset, scores, labels, weights, A, B, loss, iterations, passes);     \
    }

ENTRY(limit_float64, double)
ENTRY(limit_float32, float)
