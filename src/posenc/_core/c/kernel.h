/* The interface between kernel.pyx and the kernels, which are written in C11 without Python.
 *
 * A value is scale * sin(2 pi (position * turns + quarter / 4)), where `turns` is the column's frequency in
 * turns per position, and the quarter is 1 for a cosine, else 0.  A column of zeros has 0 turns.  Python puts the
 * columns in their final order, which depends on `layout`, `order`, `odd` and d_model.
 */
#ifndef POSENC_KERNEL_H
#define POSENC_KERNEL_H

#include <float.h>
#include <stddef.h>
#include <stdint.h>

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "posenc needs arithmetic without excess precision (on i686: -msse2 -mfpmath=sse)"
#endif
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) || defined(__ASSOCIATIVE_MATH__) || \
    defined(__RECIPROCAL_MATH__) || defined(__NO_SIGNED_ZEROS__) || defined(_M_FP_FAST)
#error "posenc needs exact arithmetic (-fno-fast-math, /fp:precise)"
#endif
_Static_assert(sizeof 0x1p0 == sizeof(double), "posenc needs constants of type double (-fno-single-precision-constant)");

enum {
    TILE = 32,                   /* columns computed together: their offsets stay in L1 */
    FINE = 64,                   /* most rows advanced from one anchor, which is in their middle */
    HALF = FINE / 2,
    COARSE = 8,                  /* anchors advanced from one direct evaluation */
    BLOCK = FINE * COARSE,       /* rows computed from one direct evaluation */
    MIN_ADVANCED = 4,            /* fewest rows of a block; fewer rows are evaluated one by one, which is faster */
    STRIP = 32,                  /* most tiles of a panel: see job_t */
    LINE = 64,                   /* bytes of a cache line */
    PAGE = 1 << 12,              /* bytes after which offsets in a page repeat */
    RADIX = 64,                  /* of the digits of positions */
    WHOLE = 3,                   /* the level of the digit of weight 1: see digits_t */
    LEVELS = WHOLE + 11,
    GROUP_ROWS = 1 << 13,        /* most rows whose digits are sorted together */
    UNSORTED_ROWS = 256,         /* most rows from digits that are written together without sorting */
    GROUP_BYTES = 1 << 19,       /* memory of a group of rows from digits, without ... */
    GROUP_ROW_BYTES = 36,        /* ... the memory of each row */
    SORTED_COLUMNS = 256,        /* fewest columns of rows that are sorted */
    MOST_NARROW = TILE / 2,      /* most columns of narrow rows, which share a tile */
    NO_PHASE_BITS = 1 << 20,     /* phase_bits of frequencies that are not rational */
    POSITION_LIMBS = 38          /* limbs of 32 bits; 36 limbs hold the bits from 2**63 down to 2**-1074 */
};

static inline ptrdiff_t min_size(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }
static inline ptrdiff_t max_size(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }
static inline int min_int(ptrdiff_t a, ptrdiff_t b) { return (int)min_size(a, b); } /* must fit an int */

typedef enum { FLOAT64, FLOAT32, FLOAT16, BFLOAT16 } dtype_t;
static inline ptrdiff_t size_of(dtype_t dtype) { return dtype == FLOAT64 ? 8 : dtype == FLOAT32 ? 4 : 2; }

/* STORE stores values, STREAM stores whole cache lines with non-temporal stores, ADD adds values to x. */
typedef enum { STORE, STREAM, ADD } output_t;
/* Columns 2 i and 2 i + 1 are sin and cos (SIN_FIRST), or cos and sin (COS_FIRST), of one frequency. */
typedef enum { UNPAIRED, SIN_FIRST, COS_FIRST } order_t;

/* position + position_offset, exactly.  The magnitude is 2**-shift times the sum of limb[i] * 2**(32 * (exponent +
 * i)). */
typedef struct {
    int negative;
    int finite;
    int padding;                 /* 1 for the padding position, whose row is all zeros */
    int limbs;                   /* 0 if the position is 0 */
    int exponent;
    int shift;                   /* not 0 for a tiny position: phases are below 1/16 before the factor 2**-shift */
    const struct lanes *lanes;   /* if not NULL, the positions of the lanes of a tile: see narrow_rows */
    uint32_t limb[POSITION_LIMBS];
} position_t;

/* The specification of an encoding.  The arrays end with a copy of the first columns, so a row can begin at
 * column `first`. */
typedef struct {
    ptrdiff_t d_model;
    ptrdiff_t columns;           /* d_model rounded up to whole tiles */
    ptrdiff_t pitch;             /* columns of the arrays: `columns` and one more tile */
    ptrdiff_t first;             /* first column of a row: see spec_from in advance.h */
    int integer_limbs;           /* limbs of `turns` before and ... */
    int fraction_limbs;          /* ... after the binary point */
    const uint32_t *turns;       /* (limbs, pitch): |frequency| in turns per position, highest limb first */
    const uint64_t *sign;        /* (pitch): the sign bit of the frequency */
    const uint64_t *quarter;     /* (pitch): all ones for a cosine, 0 for a sine */
    order_t order;
    ptrdiff_t half;              /* if not 0, a multiple of TILE: columns i and half + i are sin and cos, in
                                  * either order, of one frequency */
    double scale;
    int phase_bits;              /* see has_exact_phases in direct.h */
    double position_offset;
    int has_padding;
    int64_t padding;             /* the padding position, before the offset */
    int padding_is_nan;          /* whether the row of the padding position is NaN instead of zeros */
    double padding_real;         /* the float64 that is equal to `padding`, or NaN if there is none */
    int has_zero;
    int64_t zero;                /* the position whose angles are 0, if it is an int64 */
    int has_fast_path;           /* 0 if |scale| is outside 2**-400 .. 2**400: every value is evaluated exactly */
    int has_fast_test;           /* 0 if |scale| is outside 2**-400 .. 2**10: above 2**10, the threshold of the
                                  * fast test could overflow */
    void *context;               /* of the caller: see undecided_t */
} spec_t;

/* An offset table, in double-double: cos and sin of the angles between an anchor and its rows, 1/2, 3/2 ...
 * HALF - 1/2 steps away (fine), and between the first row of a block and its anchors (coarse).  Each array has
 * the shape (tiles, rows, {cos, sin}, TILE). */
typedef struct {
    uint64_t step; /* absolute step between the positions of (joined) rows */
    int first; /* first column of the tables */
    int joined; /* consecutive narrow rows that make a row of a tile; otherwise 1 */
    double *fine, *fine_low, *coarse, *coarse_low;
    double *reach; /* (columns): >= |sin| of all fine rows; 0 if the frequency is 0 */
    double *farthest; /* (columns): the same for all fine and coarse rows */
} offsets_t;

enum { OFFSETS_PER_COLUMN = 4 * (HALF + COARSE) + 2 }; /* doubles */

/* Returns an offset table with its arrays in `memory`, which must begin on a cache line. */
static inline offsets_t offsets_in(double *memory, ptrdiff_t columns, uint64_t step, int first, int joined) {
    double *const fine = memory, *const coarse = fine + 2 * HALF * columns;
    double *const fine_low = coarse + 2 * COARSE * columns, *const coarse_low = fine_low + 2 * HALF * columns;
    double *const reach = coarse_low + 2 * COARSE * columns;
    return (offsets_t){step, first, joined, fine, fine_low, coarse, coarse_low, reach, reach + columns};
}

/* Tables of the cosines and sines of d * 64**(k - WHOLE) positions, for the digits d = 0 .. 63 of level k.  A
 * level has the shape (RADIX, tiles, {cos, sin}, angles of a tile), or, for float64, (RADIX, tiles, {cos, sin,
 * cos_low, sin_low}, angles of a tile).  The columns of a pair share one angle.  All levels from the lowest one in
 * use to levels - 1 are set. */
typedef struct {
    int fractions; /* levels below WHOLE that real positions use */
    int levels;
    const double *level[LEVELS];
    /* (tiles, angles of a tile): frequencies in radians per position, in double-double */
    const double *radians, *radians_low;
} digits_t;

/* Returns the order of the columns of rows that share tiles: if d_model is odd, the last column of a row and the
 * first column of the next row are not a pair. */
static inline order_t order_of_joined(const spec_t *spec) { return spec->d_model % 2 ? UNPAIRED : spec->order; }

static inline int angles_of_tile(const spec_t *spec) { return spec->order == UNPAIRED ? TILE : TILE / 2; }

/* Returns the number of tiles with angles of their own. */
static inline ptrdiff_t angle_tiles(const spec_t *spec) { return (spec->half ? spec->half : spec->columns) / TILE; }

/* Row r of the table is stored at out + r * row_stride.  For ADD, it is added to the rows at `batch`
 * addresses, which are batch_stride apart: x is replaced by x * x_scale + value. */
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
    /* the offset table for positions that ascend or descend by offsets->step, or NULL */
    const offsets_t *offsets;
    const digits_t *digits; /* the levels for other positions, or NULL */
    /* the span table, or NULL: span_rows rows of span_pitch bytes, at the positions from span_start on */
    const char *span;
    int64_t span_start;
    ptrdiff_t span_rows, span_pitch;
    /* the size of the panel, a buffer from which rows are flushed to `out`, in bytes, and its number of rows, a
     * multiple of FINE; both are 0 without a panel */
    size_t panel;
    ptrdiff_t panel_rows;
    /* the most rows of a group (digit_rows.h), and the size of the panel and of a group in bytes */
    ptrdiff_t group_rows;
    size_t memory;
} job_t;

/* The axes over which a call iterates, the last one fastest.  The strides of x and `out` are in bytes.  The
 * strides of positions are in elements, and 0 for heads. */
enum {
    MAX_DIMENSIONS = 64, /* NumPy's limit */
    MAX_POSITION_AXES = 16 /* of a rotation */
};
typedef struct {
    int axes;
    ptrdiff_t shape[MAX_DIMENSIONS], x_strides[MAX_DIMENSIONS], out_strides[MAX_DIMENSIONS];
    ptrdiff_t position_strides[MAX_DIMENSIONS];
} extent_t;

/* The offsets of a row or a head: in bytes for x and `out`, as an index for the positions. */
typedef struct {
    ptrdiff_t x, out, position;
} place_t;

static inline place_t place_at(const extent_t *e, ptrdiff_t index) {
    place_t at = {0, 0, 0};
    for (int axis = e->axes - 1; axis >= 0; axis--) {
        const ptrdiff_t i = index % e->shape[axis];
        index /= e->shape[axis];
        at.x += i * e->x_strides[axis];
        at.out += i * e->out_strides[axis];
        at.position += i * e->position_strides[axis];
    }
    return at;
}

/* The pairs whose angles depend on one axis of positions: columns 2 j and 2 j + 1 of `spec` are the cosine
 * and the sine of pair[j], or of pair j if `pair` is NULL.  The job `table` gives the positions of the rows;
 * its dtype is FLOAT64. */
typedef struct {
    const spec_t *spec;
    const ptrdiff_t *pair;
    job_t table;
} rotary_axis_t;

/* A rotation of each pair (a, b) of x by the pair's angle t at the position of the row, or by -t if `inverse` is
 * set.  With the scale m (spec->scale of the pair's rotary_axis_t), the results are
 *     m (a cos t - b sin t), m (b cos t + a sin t).
 * The results are written to `out`, which may be x itself.
 * A row of x has 2 * pairs columns and `rest` further ones, which are copied.  Pair i is columns i and i + pairs,
 * or, if `interleaved`, columns 2 i and 2 i + 1.  All heads of a row have the same position.
 *
 * The kernel multiplies by factors, which are the cosines and sines of a position in the form that `dtype`
 * needs (factors.h).  `factors` contains the factors of all positions; if it is NULL, each call of `rotate`
 * computes the factors of its rows. */
typedef struct {
    dtype_t dtype; /* not FLOAT64 */
    int interleaved, inverse, has_fast_path;
    double direct_scale; /* |m| if cosines and sines are evaluated directly, 0 if they are correctly rounded */
    ptrdiff_t pairs, rest;
    const double *factors;
    ptrdiff_t first_position; /* index of the first row's position */
    const char *x;
    char *out;
    extent_t rows, heads;
    int position_axes;
    const rotary_axis_t *axis;
    ptrdiff_t most_rows; /* largest number of rows in a call of `rotate` */
} rotation_t;

enum {
    FACTOR_PAIRS = 32 /* a row of factors is padded to a multiple of this number of pairs */
};

/* Returns the number of doubles that hold the factors of a row. */
static inline ptrdiff_t factor_pitch(ptrdiff_t pairs) { return 2 * ((pairs + FACTOR_PAIRS - 1) / FACTOR_PAIRS * FACTOR_PAIRS); }

/* A value whose rounding the kernels leave undecided: that of a column at a finite position or, if
 * `is_combined`, factors[0] * value(column) + factors[1] * value(column + 1).  The kernels write -0 in its
 * place or, for ADD, add -0, which changes nothing.  The caller evaluates the value, then `write` stores it in
 * job.out or, for ADD, adds it to the batch of `job`. */
typedef struct {
    void *context; /* of the specification */
    position_t position;
    ptrdiff_t column;
    int is_combined;
    double factors[2];
    job_t job;
} undecided_t;

/* The counts and the undecided values of a thread.  `uncertain` counts the rows of a tile, or bunches of rotated
 * pairs, that the main loop could not round completely; `exact` counts the values that were then evaluated
 * one by one. */
typedef struct {
    uint64_t uncertain, exact;
    undecided_t *undecided; /* memory that the caller frees */
    ptrdiff_t count, capacity; /* of `undecided` */
    int is_full; /* whether there was no memory for a further value */
    int is_approximate; /* whether undecided values are approximated instead: see decide_rounding.h */
    char padding[LINE]; /* so that threads do not write to the same cache line */
} tally_t;

typedef struct {
    const char *name;
    void (*tabulate)(const spec_t *, const offsets_t *, ptrdiff_t first_tile, ptrdiff_t last_tile);
    void (*tabulate_level)(const spec_t *, int level, int parts, double *table, ptrdiff_t first_tile, ptrdiff_t last_tile);
    void (*write_rows)(const spec_t *, const job_t *, ptrdiff_t first, ptrdiff_t count, char *panel, tally_t *);
    size_t (*rotation_memory)(const rotation_t *); /* bytes of `memory`, which begins on a cache line */
    void (*write_factors)(const rotation_t *, ptrdiff_t position, ptrdiff_t count, double *factors, char *memory);
    void (*rotate)(const rotation_t *, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t head, ptrdiff_t heads, char *memory, tally_t *);
    void (*write)(const job_t *, double value); /* of an undecided_t */
} kernel_t;

extern const kernel_t *const posenc_kernels[]; /* best first, the baseline last, then NULL */
/* Returns whether the processor and the operating system support the instruction set of a kernel. */
int posenc_is_supported(const kernel_t *);

/* Every arm64 processor has NEON.  Big-endian processors use the baseline, and so do builds by MSVC, which defines
 * none of these macros. */
#if defined(__aarch64__) && defined(__ARM_NEON) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define POSENC_NEON 1
#endif

#endif
