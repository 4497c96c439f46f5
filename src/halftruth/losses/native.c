/* What the generated loops stand on: exp and log that a compiler turns into vector instructions
   (a library call in a loop would not be), and Triton's names for the rest. Compiled with single
   precision constants and without any licence to reorder sums or to ignore NaN. */
#include <math.h>
#include <stdint.h>

#define True 1
#define False 0
#define ht_where(c, a, b) ((c) ? (a) : (b))
#define ht_cast(a, type) ((float)(a))
#define ht_abs(a) fabsf(a)
/* The first operand where it is NaN, so that a broken logit is seen in the loss. */
#define ht_maximum(a, b) ((b) > (a) ? (b) : (a))
#define ht_minimum(a, b) ((b) < (a) ? (b) : (a))

/* log(2) in two parts, the first with so few bits that small multiples of it are exact. */
#define LOG2_HIGH 0.693145751953125
#define LOG2_LOW 1.42860682030941723e-06

typedef union { float f; int32_t i; } bits;

static inline float as_float(int32_t i) { bits b; b.i = i; return b.f; }
static inline int32_t as_int(float f) { bits b; b.f = f; return b.i; }

/* exp(x) = 2^n exp(r), |r| <= log(2)/2, by seven terms of the series (error 5e-9). 2^n is
   multiplied in two halves, so that results below the smallest normal number come out right. */
static inline float ht_exp(float x) {
    x = ht_minimum(ht_maximum(x, -104.0), 89.0);
    float n = rintf(x * 1.44269504088896341);
    float r = fmaf(n, -LOG2_LOW, fmaf(n, -LOG2_HIGH, x));
    float s = 1.0 / 5040;
    s = fmaf(s, r, 1.0 / 720);
    s = fmaf(s, r, 1.0 / 120);
    s = fmaf(s, r, 1.0 / 24);
    s = fmaf(s, r, 1.0 / 6);
    s = fmaf(s, r, 0.5);
    s = fmaf(s, r, 1.0);
    s = fmaf(s, r, 1.0);
    int32_t whole = (int32_t)n, half = whole >> 1;
    return s * as_float((half + 127) << 23) * as_float((whole - half + 127) << 23);
}

/* log(x) = n log(2) + log(m), sqrt(1/2) <= m < sqrt(2), by the series of 2 artanh((m-1)/(m+1)). */
static inline float ht_log(float x) {
    int tiny = x < 1.17549435e-38;
    int32_t i = as_int(tiny ? x * 8388608.0 : x);
    int32_t n = (i - 0x3f3504f3) >> 23;
    float m = as_float(i - (n << 23)), f = m - 1.0, s = f / (m + 1.0), q = s * s;
    float t = fmaf(q, fmaf(q, fmaf(q, fmaf(q, 2.0 / 9, 2.0 / 7), 2.0 / 5), 2.0 / 3), 2.0) * s;
    float whole = (float)(tiny ? n - 23 : n);
    t = fmaf(whole, LOG2_HIGH, fmaf(whole, LOG2_LOW, t));
    t = x == INFINITY ? x : t;
    return x > 0 ? t : (x == 0 ? -INFINITY : NAN);
}
