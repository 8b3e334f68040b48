/* The contract between the crossing (_kernel.pyx) and the kernels: plain C11, no Python.
 *
 * A column of the table is scale * sin(2 pi (position * turns + quarter / 4)): a cosine is a sine a quarter turn ahead, a
 * zero column turns nowhere.  Layout, order and odd d_model are decided by the order of the columns, in _encoding.py; the
 * kernels know columns only.
 */
#ifndef POSENC_KERNEL_H
#define POSENC_KERNEL_H

#include <float.h>
#include <stddef.h>
#include <stdint.h>

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "posenc needs float and double arithmetic in their own precision (on i686: -msse2 -mfpmath=sse)"
#endif

enum {
    TILE = 32,                   /* columns handled together: their offsets stay in L1, their anchors in registers */
    FINE = 64,                   /* rows rotated from one anchor in their middle */
    HALF = FINE / 2,
    COARSE = 8,                  /* anchors rotated from one direct evaluation */
    BLOCK = FINE * COARSE,       /* rows of one unit of work */
    POSITION_LIMBS = 38          /* [-2**63, 2**63) down to 2**-1074, in limbs of 32 bits: 36 at most */
};

typedef enum { FLOAT64, FLOAT32, FLOAT16, BFLOAT16 } dtype_t;
/* STREAM: past the caches, where rows begin on cache lines; SHIFT: where they do not */
typedef enum { STORE, STREAM, SHIFT, ADD } delivery_t;
/* Whether columns 2 i and 2 i + 1 are sin and cos, or cos and sin, of one frequency. */
typedef enum { UNPAIRED, SIN_FIRST, COS_FIRST } order_t;

/* |position + position_offset|, exact: the sum of limb[i] * 2**(32 * (exponent + i)). */
typedef struct {
    int negative;
    int finite;
    int padding;                 /* 1: the padding position, whose row is all zeros */
    int limbs;                   /* 0: the position is zero */
    int exponent;
    uint32_t limb[POSITION_LIMBS];
} position_t;

/* The value of a column at a finite position, correctly rounded to dtype, where exact.c's width does not decide it. */
typedef double (*decide_t)(void *context, const position_t *, ptrdiff_t column, dtype_t);

/* The specification of an encoding as the kernels read it.  `columns` is d_model rounded up to whole tiles. */
typedef struct {
    ptrdiff_t d_model;
    ptrdiff_t columns;
    int integer_limbs;           /* limbs of `turns` before and ... */
    int fraction_limbs;          /* ... after the point */
    const uint32_t *turns;       /* (limbs, columns): |frequency| / 2 pi in turns a position, highest limb first */
    const uint64_t *sign;        /* (columns): the sign bit of the frequency */
    const uint64_t *quarter;     /* (columns): all ones for a cosine, 0 for a sine */
    order_t order;
    double scale;
    double position_offset;
    int has_padding;
    int64_t padding;             /* before the offset */
    double padding_real;         /* the same, or NaN where no float64 equals it */
    int fast;                    /* 0: |scale| is beyond 2**-400 .. 2**400, all is evaluated exactly */
    int quick;                   /* 0: |scale| is beyond 2**10, where the quick test's threshold would overflow */
    decide_t decide;
    void *context;               /* of decide */
} spec_t;

/* sin and cos of the angles of 1/2, 3/2 ... HALF - 1/2 steps, and of the anchors in the middle of rows 0 .. FINE - 1,
 * FINE .. 2 FINE - 1 ..., in double-double.
 * Packed as they are read: (tile, row, {cos, sin}, TILE) of high parts, the same of low parts. */
typedef struct {
    void *memory;                /* what to free; the tables begin on a cache line */
    double *fine, *fine_low, *coarse, *coarse_low;
    double *reach;               /* (columns): no less than |sin| of any fine row; 0 where nothing turns */
    double *turning;             /* (columns): 1, or 0 where nothing turns */
} offsets_t;

/* What to write where.  A row r of the table goes to out + r * row_stride, and for ADD onto `batch` such places,
 * batch_stride apart: x * x_scale + value. */
typedef struct {
    dtype_t dtype;
    delivery_t delivery;
    char *out;
    ptrdiff_t row_stride;
    ptrdiff_t batch, batch_stride;
    double x_scale;
    /* positions: evenly spaced (start + row * step, modulo 2**64), or integers, or reals */
    uint64_t start, step;
    const int64_t *integers;
    const double *reals;
    offsets_t offsets;           /* of this step; not read for scattered positions */
    int trust;                   /* 1: the fast path's values are taken as they are; for tests that show they must not be */
} job_t;

/* Counters of the slow paths, for the tests: how many rows of a tile were looked at again, each value with its own error
 * bound, and how many values had to be evaluated exactly (exact.c). */
typedef struct {
    uint64_t doubted, exact;
} tally_t;

typedef struct {
    const char *name;
    int (*runs_here)(void);
    void (*tabulate)(const spec_t *, uint64_t step, const offsets_t *, ptrdiff_t first_tile, ptrdiff_t last_tile);
    size_t (*stage_size)(const spec_t *, const job_t *);            /* of memory for even_rows, may be 0 */
    void (*even_rows)(const spec_t *, const job_t *, ptrdiff_t first, ptrdiff_t count, void *stage, tally_t *);
    void (*scattered_rows)(const spec_t *, const job_t *, ptrdiff_t first, ptrdiff_t count, tally_t *);
    void (*fill)(double *out, ptrdiff_t count, double value);       /* out on a cache line */
} kernel_t;

extern const kernel_t *const posenc_kernels[];      /* best first, the baseline last, then NULL */

#endif
