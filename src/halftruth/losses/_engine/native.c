/* The frame of a generated loop, which replaces the line GENERATED below. First exp and log in a form
   that a compiler vectorises (it does not vectorise library calls), and Triton's names for the rest;
   then the function that Python calls. Compiled with single precision constants, and without
   options that reorder sums or ignore NaN. */
#include <math.h>
#include <pthread.h>
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

/* exp(x) = 2^n exp(r), |r| <= log(2)/2, by the polynomial of sixth degree that is nearest to it
   (1 + r fixed, error 3e-9). Below the smallest normal number, 1.2e-38, the result stays there:
   numbers smaller still are slow. */
static inline float ht_exp(float x) {
    x = ht_minimum(ht_maximum(x, -87.3), 88.7);
    float n = rintf(x * 1.44269504088896341);
    float r = fmaf(n, -LOG2_LOW, fmaf(n, -LOG2_HIGH, x));
    float s = 1.3950489161e-03;
    s = fmaf(s, r, 8.3688895581e-03);
    s = fmaf(s, r, 4.1666205829e-02);
    s = fmaf(s, r, 1.6666518837e-01);
    s = fmaf(s, r, 5.0000000952e-01);
    s = fmaf(s, r, 1.0);
    s = fmaf(s, r, 1.0);
    return as_float(as_int(s) + ((int32_t)n << 23));
}

/* log(1 + e), 0 <= e <= 1: 2 artanh(t), t = e/(2 + e) <= 1/3, by the polynomial in t^2 that is
   nearest to it (error 4e-9). */
static inline float ht_LOG1P(float e, float unused) {
    float t = e / (2.0 + e), q = t * t;
    float s = 2.8191537894e-01;
    s = fmaf(s, q, 2.7957667874e-01);
    s = fmaf(s, q, 4.0025114179e-01);
    s = fmaf(s, q, 6.6666310148e-01);
    s = fmaf(s, q, 2.0000000081e+00);
    return s * t;
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

/*GENERATED*/

/* The function that Python calls: parts of a batch, one thread per part, each running `walk`. */
typedef struct {
    const float *z_at; const int8_t *y_at; float *slope_at;
    int64_t first, last, columns; float scale; const float *c; void *const *t; double sum;
} part;

static void *work(void *given)
{
    part *p = given;
    if (p->slope_at)
        p->sum = walk(p->z_at, p->y_at, p->slope_at, p->first, p->last, p->columns, p->scale,
                      p->c, p->t, 1);
    else
        p->sum = walk(p->z_at, p->y_at, 0, p->first, p->last, p->columns, p->scale, p->c, p->t, 0);
    return 0;
}

double run(
    const float *z_at, const int8_t *y_at, float *slope_at, int64_t count, int64_t columns,
    double scale, const float *c, void *const *t, int64_t hands)
{
    part parts[MOST];
    pthread_t threads[MOST];
    int started[MOST];
    double sum = 0;
    for (int64_t i = 0; i < hands; i++) {
        part one = {z_at, y_at, slope_at, count * i / hands, count * (i + 1) / hands, columns,
                    scale, c, t, 0};
        parts[i] = one;
    }
    for (int64_t i = 1; i < hands; i++)
        started[i] = !pthread_create(&threads[i], 0, work, &parts[i]);
    work(&parts[0]);
    for (int64_t i = 1; i < hands; i++) {
        if (started[i]) pthread_join(threads[i], 0);
        else work(&parts[i]);
    }
    for (int64_t i = 0; i < hands; i++) sum += parts[i].sum;
    return sum;
}
