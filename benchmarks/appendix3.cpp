// Appendix 3 of Lin, Lin & Weng (2007), "A note on Platt's probabilistic outputs for support vector
// machines", as plain C++: what LIBSVM runs, one problem after the other, here with OpenMP over the
// problems. All arithmetic is double. Two liberties, both in its favour: exp is called once per row
// where the pseudo code writes it several times, and rows may be float, which halves what is read.
// Weights, which the paper does not have, count rows.
//
// Build: g++ -O3 -march=native -fopenmp -shared -fPIC

#include <cmath>
#include <cstdint>
#include <vector>

namespace {

enum { CONVERGED = 0, MAX_ITERATIONS = 1, LINE_SEARCH_FAILED = 2 };

struct Answer {
    double A, B, loss;
    int iterations, status;
};

template <bool WEIGHTED, typename T>
double objective(int64_t len, const T* deci, const double* t, const T* w, double A, double B) {
    double fval = 0.0;
    for (int64_t i = 0; i < len; i++) {
        double fApB = deci[i] * A + B, term;
        if (fApB >= 0)
            term = t[i] * fApB + std::log(1 + std::exp(-fApB));
        else
            term = (t[i] - 1) * fApB + std::log(1 + std::exp(fApB));
        fval += WEIGHTED ? w[i] * term : term;
    }
    return fval;
}

template <bool WEIGHTED, typename T>
Answer fit(int64_t len, const T* deci, const int8_t* label, const T* w) {
    const int maxiter = 100;
    const double minstep = 1e-10, sigma = 1e-12;
    double prior1 = 0, prior0 = 0;
    for (int64_t i = 0; i < len; i++)
        (label[i] > 0 ? prior1 : prior0) += WEIGHTED ? w[i] : 1.0;
    const double hiTarget = (prior1 + 1.0) / (prior1 + 2.0), loTarget = 1 / (prior0 + 2.0);
    std::vector<double> t(len);
    for (int64_t i = 0; i < len; i++) t[i] = label[i] > 0 ? hiTarget : loTarget;

    double A = 0.0, B = std::log((prior0 + 1.0) / (prior1 + 1.0));
    double fval = objective<WEIGHTED>(len, deci, t.data(), w, A, B);
    for (int it = 0; it < maxiter; it++) {
        double h11 = sigma, h22 = sigma, h21 = 0.0, g1 = 0.0, g2 = 0.0;
        for (int64_t i = 0; i < len; i++) {
            double fApB = deci[i] * A + B, p, q;
            if (fApB >= 0) {
                double e = std::exp(-fApB);
                p = e / (1.0 + e), q = 1.0 / (1.0 + e);
            } else {
                double e = std::exp(fApB);
                p = 1.0 / (1.0 + e), q = e / (1.0 + e);
            }
            double d2 = p * q, d1 = t[i] - p;
            if (WEIGHTED) d2 *= w[i], d1 *= w[i];
            h11 += deci[i] * (deci[i] * d2), h22 += d2, h21 += deci[i] * d2;
            g1 += deci[i] * d1, g2 += d1;
        }
        if (std::fabs(g1) < 1e-5 && std::fabs(g2) < 1e-5) return {A, B, fval, it, CONVERGED};

        double det = h11 * h22 - h21 * h21;
        double dA = -(h22 * g1 - h21 * g2) / det, dB = -(-h21 * g1 + h11 * g2) / det;
        double gd = g1 * dA + g2 * dB, stepsize = 1;
        while (stepsize >= minstep) {
            double newA = A + stepsize * dA, newB = B + stepsize * dB;
            double newf = objective<WEIGHTED>(len, deci, t.data(), w, newA, newB);
            if (newf < fval + 0.0001 * stepsize * gd) {
                A = newA, B = newB, fval = newf;
                break;
            }
            stepsize /= 2.0;
        }
        if (stepsize < minstep) return {A, B, fval, it, LINE_SEARCH_FAILED};
    }
    return {A, B, fval, maxiter, MAX_ITERATIONS};
}

template <typename T>
void fit_all(int64_t problems, const int64_t* offset, const T* scores, const int8_t* labels,
             const T* weights, double* A, double* B, double* loss, int32_t* iterations,
             int32_t* status) {
#pragma omp parallel for schedule(dynamic, 1 + problems / 1024)
    for (int64_t k = 0; k < problems; k++) {
        const int64_t first = offset[k], len = offset[k + 1] - first;
        const Answer x = weights ? fit<true>(len, scores + first, labels + first, weights + first)
                                 : fit<false>(len, scores + first, labels + first, weights);
        A[k] = x.A, B[k] = x.B, loss[k] = x.loss;
        iterations[k] = x.iterations, status[k] = x.status;
    }
}

}  // namespace

#define ENTRY(name, T)                                                                            \
    extern "C" void name(int64_t problems, const int64_t* offset, const T* scores,                \
                         const int8_t* labels, const T* weights, double* A, double* B,            \
                         double* loss, int32_t* iterations, int32_t* status) {                    \
        fit_all<T>(problems, offset, scores, labels, weights, A, B, loss, iterations, status);    \
    }

ENTRY(appendix3_float64, double)
ENTRY(appendix3_float32, float)
