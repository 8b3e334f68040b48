/* The interface between _kernel.pyx and the kernels: C11 without Python.
 *
 * A column of the table is scale * sin(2 pi (position * turns + quarter / 4)): a cosine is a sine a quarter turn ahead, and a
 * column of zeros has 0 turns.  Python implements layout, order and odd d_model by the order of the columns.
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
    TILE = 32,                   /* columns computed together: their offsets stay in L1, their anchors in registers */
    FINE = 64,                   /* rows rotated from one anchor in their middle */
    HALF = FINE / 2,
    COARSE = 8,                  /* anchors rotated from one direct evaluation */
    BLOCK = FINE * COARSE,       /* rows that one direct evaluation serves */
    STRIP = 32,                  /* tiles of a panel */
    LINE = 64,                   /* bytes of a cache line */
    POSITION_LIMBS = 38          /* [-2**63, 2**63) down to 2**-1074, in limbs of 32 bits: 36 at most */
};

typedef enum { FLOAT64, FLOAT32, FLOAT16, BFLOAT16 } dtype_t;
/* STREAM: non-temporal stores of whole cache lines */
typedef enum { STORE, STREAM, ADD } output_t;
/* Columns 2 i and 2 i + 1 are sin and cos (SIN_FIRST), or cos and sin (COS_FIRST), of one frequency. */
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

/* Returns the value of a column at a finite position, rounded to dtype, if the 320 bits of exact.c do not decide it; with two
 * factors, the value that combination.c does not decide: factors[0] * value(column) + factors[1] * value(column + 1). */
typedef double (*decide_t)(void *context, const position_t *, ptrdiff_t column, const double *factors, dtype_t);

/* The specification of an encoding.  The arrays end with a copy of the first columns, so any of these can be the first. */
typedef struct {
    ptrdiff_t d_model;
    ptrdiff_t columns;           /* d_model rounded up to whole tiles */
    ptrdiff_t pitch;             /* columns of the arrays: one tile more */
    ptrdiff_t first;             /* 0, or see spec_from in offset_tables.h */
    int integer_limbs;           /* limbs of `turns` before and ... */
    int fraction_limbs;          /* ... after the point */
    const uint32_t *turns;       /* (limbs, pitch): |frequency| / 2 pi in turns per position, highest limb first */
    const uint64_t *sign;        /* (pitch): the sign bit of the frequency */
    const uint64_t *quarter;     /* (pitch): all ones for a cosine, 0 for a sine */
    order_t order;
    double scale;
    double position_offset;
    int has_padding;
    int64_t padding;             /* the padding position, before the offset */
    double padding_real;         /* the same as a float64, or NaN if none equals it */
    int has_zero;
    int64_t zero;                /* the position whose angles are 0, if it is an int64 */
    int has_fast_path;           /* 0: |scale| is outside 2**-400 .. 2**400: every value is evaluated exactly */
    int fast_test;               /* 0: |scale| is above 2**10: the threshold of the fast test could overflow */
    decide_t decide;
    void *context;               /* argument of `decide` */
} spec_t;

/* An offset table, in double-double: sin and cos of the angles of 1/2, 3/2 ... HALF - 1/2 steps (fine), and of the anchors in
 * the middle of rows 0 .. FINE - 1, FINE .. 2 FINE - 1 ... (coarse).
 * Each array has the order in which it is read: (tile, row, {cos, sin}, TILE). */
typedef struct {
    uint64_t step;               /* between rows, positive */
    ptrdiff_t first;             /* first column of the tables */
    double *fine, *fine_low, *coarse, *coarse_low;
    double *reach;               /* (columns): >= |sin| of all fine rows; 0 if the frequency is 0 */
    double *has_frequency;             /* (columns): 1, or 0 if the frequency is 0 */
} offsets_t;

enum { OFFSETS_PER_COLUMN = 4 * (HALF + COARSE) + 2 };       /* doubles */

/* The arrays for `columns` columns, in memory that begins on a cache line. */
static inline offsets_t offsets_in(double *memory, ptrdiff_t columns, uint64_t step, ptrdiff_t first) {
    double *const fine = memory, *const coarse = fine + 2 * HALF * columns;
    double *const fine_low = coarse + 2 * COARSE * columns, *const coarse_low = fine_low + 2 * HALF * columns;
    double *const reach = coarse_low + 2 * COARSE * columns;
    return (offsets_t){step, first, fine, fine_low, coarse, coarse_low, reach, reach + columns};
}

/* Row r of the table is stored at out + r * row_stride.  For ADD, x * x_scale + value is stored at `batch` such addresses,
 * batch_stride apart. */
typedef struct {
    dtype_t dtype;
    output_t output;
    char *out;
    ptrdiff_t row_stride;
    ptrdiff_t batch, batch_stride;
    double x_scale;
    /* positions: evenly spaced (start + row * step, modulo 2**64), or integers, or reals */
    uint64_t start, step;
    const int64_t *integers;
    const double *reals;
    const offsets_t *offsets;    /* the table for |step| between rows; NULL: each row is evaluated directly */
    size_t panel;                /* bytes of the buffer from which rotated rows are flushed to `out`, or 0 */
    int skip_rounding_test;      /* for tests */
} job_t;

/* Axes over which a rotation runs, the last one fastest, and the distances between neighbours in bytes. */
enum { MOST_AXES = 64 };        /* NumPy's limit */
typedef struct {
    int axes;
    ptrdiff_t shape[MOST_AXES], x_strides[MOST_AXES], out_strides[MOST_AXES];
} extent_t;

/* The pairs that turn with one axis of positions: columns 2 j and 2 j + 1 of `spec` are the cosine and the sine of pair[j]
 * (NULL: of pair j).  `table` has the position of each row, and writes float64. */
typedef struct {
    const spec_t *spec;
    const ptrdiff_t *pair;
    job_t table;
} turning_t;

/* Rotates each pair (a, b) of x by the angle t of its row, with scale m = spec->scale, and writes the pair to `out`, which may
 * be x itself:
 *     m (a cos t - b sin t), m (b cos t + a sin t), or with `inverse` by -t.
 * A row of x has 2 * pairs columns and `rest` further ones, which are copied.  Pair i is columns i and i + pairs, or, if
 * `interleaved`, columns 2 i and 2 i + 1.  All heads of a row have its position. */
typedef struct {
    dtype_t dtype;               /* not FLOAT64 */
    int interleaved, inverse, has_fast_path;
    ptrdiff_t pairs, rest;
    const char *x;
    char *out;
    extent_t rows, heads;
    int turnings;
    const turning_t *turning;
    ptrdiff_t most_rows;         /* in a call of `rotate`: its memory holds the cosines and sines of so many rows */
    int skip_rounding_test;      /* for tests */
} rotation_t;

/* Counters for tests: `uncertain` tile rows, in which each value was tested with its own error bound, and values that exact.c
 * evaluated. */
typedef struct {
    uint64_t uncertain, exact;
} tally_t;

typedef struct {
    const char *name;
    int (*is_supported)(void);
    void (*tabulate)(const spec_t *, const offsets_t *, ptrdiff_t first_tile, ptrdiff_t last_tile);
    void (*rows)(const spec_t *, const job_t *, ptrdiff_t first, ptrdiff_t count, char *panel, tally_t *);
    size_t (*rotation_memory)(const rotation_t *);      /* bytes that `rotate` needs, from the start of a cache line */
    void (*rotate)(const rotation_t *, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t head, ptrdiff_t heads, char *memory, tally_t *);
} kernel_t;

extern const kernel_t *const posenc_kernels[];      /* best first, the baseline last, then NULL */

#endif
