// Rows a vector at a time: the sums that limit.cpp fits with.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define INLINE __attribute__((always_inline))

namespace {

typedef double f64x8 __attribute__((vector_size(64)));
typedef int64_t i64x8 __attribute__((vector_size(64)));
typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));

template <typename T> struct Simd;

template <> struct Simd<double> {
    typedef f64x8 V;
    typedef i64x8 I;
    static constexpr double eps = 2.2e-16, tol = 1e-8, most = 700, round = 0x1.8p52;
    static constexpr double log2e = 1.4426950408889634, ln2 = 0x1.62e42fefa39efp-1,
                            ln2_rest = 0x1.abc9e3b39803fp-56;
    static constexpr int mantissa = 52, log_terms = 15;
    // exp(r) for |r| <= ln(2) / 2, from Taylor's series; the first term left out is 1e-16.
    static inline V series(V r) {
        V s = r * (1.0 / 39916800) + 1.0 / 3628800;
        for (double c : {1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24,
                         1.0 / 6, 0.5, 1.0, 1.0})
            s = s * r + c;
        return s;
    }
};

template <> struct Simd<float> {
    typedef f32x16 V;
    typedef i32x16 I;
    static constexpr float eps = 1.2e-7f, tol = 1e-4f, most = 80, round = 0x1.8p23f;
    static constexpr float log2e = 1.44269504f, ln2 = 0x1.62e43p-1f, ln2_rest = -0x1.05c61p-29f;
    static constexpr int mantissa = 23, log_terms = 7;
    static inline V series(V r) {
        V s = r * (1.0f / 720) + 1.0f / 120;
        for (float c : {1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) s = s * r + c;
        return s;
    }
};

// exp(z) for |z| <= most; the caller sees to it.
template <typename T, typename S = Simd<T>>
inline typename S::V vector_exp(typename S::V z) {
    typename S::V shifted = z * S::log2e + S::round, n = shifted - S::round;
    typename S::V e = S::series(z - n * S::ln2 - n * S::ln2_rest);
    return (typename S::V)((typename S::I)e + ((typename S::I)shifted << S::mantissa));
}

template <typename T> constexpr int64_t LANES = 64 / sizeof(T);
constexpr int64_t BLOCK = 4096;  // rows whose sums are kept in T; blocks are added up in double

struct Sums {
    double v[5] = {0, 0, 0, 0, 0};
    void operator+=(const Sums& other) {
        for (int i = 0; i < 5; i++) v[i] += other.v[i];
    }
};

template <typename T> struct Problem {
    int64_t n;
    const T *f, *w;
    const int8_t* y;
    T center;
    double total, low, high;  // weight of the rows; range of f - center
    double sum_t, sum_tf;     // sums of t and t (f - center)
};

struct Point {
    double A, B;
};

template <typename T, typename V = typename Simd<T>::V>
inline V load(const T* from, int64_t count, T fill) {
    V v = fill - V{};
    std::memcpy(&v, from, count * sizeof(T));
    return v;
}

// Runs visit(rows, weights or ones, whether they matter) over the vectors of a range of rows.
template <bool WEIGHTED, typename T, typename Visit>
inline void each_vector(const Problem<T>& at, int64_t from, int64_t to, Visit visit) {
    typedef typename Simd<T>::V V;
    constexpr int64_t L = LANES<T>;
    int64_t i = from;
    for (; i + L <= to; i += L)
        visit(load<T>(at.f + i, L, 0) - at.center,
              WEIGHTED ? load<T>(at.w + i, L, 0) : V{} + T(1), WEIGHTED);
    if (i < to) {
        T ones[L] = {};
        std::fill(ones, ones + (to - i), T(1));
        visit(load<T>(at.f + i, to - i, at.center) - at.center,
              load<T>(WEIGHTED ? at.w + i : ones, to - i, 0), true);
    }
}

template <typename T> inline double total(const typename Simd<T>::V& v) {
    T sum = 0;
    for (int64_t i = 0; i < LANES<T>; i++) sum += v[i];
    return sum;
}

// Over rows with z = A (f - center) + B: sums of p, f p, h, f h and f f h with h = p (1 - p).
template <bool WEIGHTED, typename T>
Sums derivative_block(const Problem<T>& at, int64_t from, int64_t to, T A, T B) {
    typedef Simd<T> S;
    typename S::V p_sum{}, fp_sum{}, h_sum{}, fh_sum{}, ffh_sum{};
    each_vector<WEIGHTED>(at, from, to, [&](auto f, auto w, bool weigh) INLINE {
        auto z = f * A + B;
        z = z > S::most ? S::most - typename S::V{} : z;
        z = z < -S::most ? -S::most - typename S::V{} : z;
        auto e = vector_exp<T>(z), p = T(1) / (T(1) + e), wp = weigh ? w * p : p;
        auto h = (e * p) * wp, fh = f * h;
        p_sum += wp, fp_sum += f * wp, h_sum += h, fh_sum += fh, ffh_sum += f * fh;
    });
    return {total<T>(p_sum), total<T>(fp_sum), total<T>(h_sum), total<T>(fh_sum),
            total<T>(ffh_sum)};
}

// Sum of log(1 + exp(-z)) in v[0]. Without weights that takes one logarithm for the product of many
// 1 / (1 + e); with weights, the series of log(1 + e) = 2 artanh(e / (2 + e)).
template <bool WEIGHTED, typename T>
Sums loss_block(const Problem<T>& at, int64_t from, int64_t to, T A, T B) {
    typedef Simd<T> S;
    typename S::V sum{}, product = typename S::V{} + T(1);
    double logs = 0;
    int count = 0;
    auto flush = [&] {
        for (int64_t i = 0; i < LANES<T>; i++) logs -= std::log(product[i]);
        product = typename S::V{} + T(1);
    };
    each_vector<WEIGHTED>(at, from, to, [&](auto f, auto w, bool weigh) INLINE {
        auto z = f * A + B, size = z < 0 ? -z : z, below = z < 0 ? size : typename S::V{};
        auto e = vector_exp<T>(size > S::most ? -S::most - typename S::V{} : -size);
        if (weigh) {
            auto x = e / (T(2) + e), xx = x * x, s = typename S::V{};
            for (int k = S::log_terms; k >= 0; k--) s = s * xx + T(1) / (2 * k + 1);
            sum += w * (below + T(2) * x * s);
        } else {
            sum += below, product *= T(1) / (T(1) + e);
            if (++count % 64 == 0) flush();
        }
    });
    flush();
    Sums out;
    out.v[0] = total<T>(sum) + logs;
    return out;
}

// All blocks of a problem, shared among the threads if asked to; in a fixed order either way.
template <typename Block> Sums all_blocks(int64_t n, bool split, Block block) {
    Sums sums;
    if (!split) {
        for (int64_t i = 0; i < n; i += BLOCK) sums += block(i, std::min(i + BLOCK, n));
        return sums;
    }
    const int64_t blocks = (n + BLOCK - 1) / BLOCK;
    std::vector<Sums> parts(blocks);
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < blocks; b++) parts[b] = block(b * BLOCK, std::min((b + 1) * BLOCK, n));
    for (const Sums& part : parts) sums += part;
    return sums;
}

}  // namespace
