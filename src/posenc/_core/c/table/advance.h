/* Computes offset tables (offsets_t in kernel.h), and rows from an anchor by angle addition: in double-double
 * for float64, and in double for the other dtypes.
 *
 * P is the value at the anchor, and Q the value a quarter turn ahead.  The cos and sin of one offset give two rows,
 * one above the anchor and one below it:
 *     P cos + Q sin,   P cos - Q sin.
 *
 * Bounds (docs/numerics.md, section 5): the error of a value is below 13.5 * 2**-53 M in double, and below
 * 2**-94 M + 2**-110 |scale| in double-double, where M = |P0| + |Q0| farthest + (|P0| + |Q0|) reach.  P0 and Q0
 * are P and Q of the block's first row; offsets_t explains `reach` and `farthest`.  If position and frequency are both small, the M of a sine is also small, so the
 * sine loses no relative precision.
 */
#ifndef POSENC_ADVANCE_H
#define POSENC_ADVANCE_H

#include "table/decide_rounding.h"

/* ---- offset tables ------------------------------------------------------------------------------------- */

/* Returns the spec of joined narrow rows, or of rows shifted by offsets->first columns: a shifted row has columns
 * first .. d_model - 1 of a row and the first columns of the next row.  Rows that bypass the caches (STREAM) are
 * shifted if they are contiguous, begin inside a cache line, and are a whole number of cache lines long.  Column
 * `first` is then at the start of a cache line, so every tile stores whole lines. */
INLINE spec_t spec_from(const spec_t *spec, const offsets_t *offsets) {
    const ptrdiff_t first = offsets->first;
    spec_t shifted = *spec;
    if (offsets->joined > 1) shifted.order = order_of_joined(spec);
    shifted.d_model *= offsets->joined;
    if (first == 0) return shifted;
    shifted.first = first;
    shifted.turns += first;
    shifted.sign += first;
    shifted.quarter += first;
    shifted.order = UNPAIRED;
    return shifted;
}

INLINE double *offsets_at(double *table, ptrdiff_t tile, int rows, int row) { return table + (tile * rows + row) * 2 * TILE; }

/* Computes cos and sin of offsets of `first` + 2 r * `spacing` half positions; the scale of `spec` must be 1. */
COLD void tabulate_rows(const spec_t *spec, uint64_t first, uint64_t spacing, double *high, double *low, ptrdiff_t tile,
                        int rows) {
    const int paired = spec->order != UNPAIRED, angles = paired ? TILE / 2 : TILE;
    ALIGNED uint64_t all[TILE];
    memset(all, 0xff, sizeof all);
    for (int r = 0; r < rows; r++) {
        const uint64_t halves = first + 2 * (uint64_t)r * spacing;
        const position_t position = position_of_fixed((fixed_t){halves >> 1, halves << 63, 0});
        double *const to = offsets_at(high, tile, rows, r), *const to_low = offsets_at(low, tile, rows, r);
        double factor[4 * TILE];
        direct_factor(spec, &position, tile * TILE, 1, factor);
        for (int i = 0; i < TILE; i += LANES) {
            for (int k = 0; k < 2; k++) {
                const double *const from = factor + k * angles;
                f64_store(to + k * TILE + i, columns_from(from, from, all, paired, i));
                f64_store(to_low + k * TILE + i, columns_from(from + 2 * angles, from + 2 * angles, all, paired, i));
            }
        }
    }
}

/* Returns the largest |sin| of a column in some rows of a tile. */
COLD double largest_sine(const double *from, int rows) {
    double largest = 0;
    for (int r = 0; r < rows; r++) {
        const double sine = magnitude_of(from[(2 * r + 1) * TILE]);
        if (sine > largest) largest = sine;
    }
    return largest;
}

COLD void tabulate(const spec_t *spec, const offsets_t *offsets, ptrdiff_t first_tile, ptrdiff_t last_tile) {
    const environment_t host = environment_enter();
    spec_t shifted = spec_from(spec, offsets);
    shifted.scale = 1;
    for (ptrdiff_t tile = first_tile; tile < last_tile; tile++) {
        tabulate_rows(&shifted, offsets->step, offsets->step, offsets->fine, offsets->fine_low, tile, HALF);
        tabulate_rows(&shifted, offsets->step * (FINE - 1), offsets->step * FINE, offsets->coarse, offsets->coarse_low, tile,
                      COARSE);
        for (ptrdiff_t column = tile * TILE; column < (tile + 1) * TILE; column++) {
            const double reach = largest_sine(offsets_at(offsets->fine, tile, HALF, 0) + column % TILE, HALF);
            const double farthest = largest_sine(offsets_at(offsets->coarse, tile, COARSE, 0) + column % TILE, COARSE);
            const int has_turns = f64_lane(f64_of_bits(turns_of(&shifted, column)), 0) != 0;
            /* origin_of multiplies a sum that includes `reach` by DOUBLE_ERROR; with 2**-36, the product also
             * covers the absolute errors of direct evaluation: see docs/numerics.md, section 5 */
            offsets->reach[column] = has_turns ? reach + 0x1p-36 : 0;
            offsets->farthest[column] = farthest > reach ? farthest : reach;
        }
    }
    environment_leave(host);
}

/* ---- anchors ------------------------------------------------------------------------------------------- */

/* An anchor in a tile. */
typedef struct {
    ALIGNED double p[TILE], q[TILE], p_low[TILE], q_low[TILE];
} anchor_t;

/* The first row of a block in a tile, from which the anchors are advanced, with the error bound of all rows, the
 * smallest |value| that may pass the fast test, and the addends of this test (not for float64). */
typedef struct {
    anchor_t first;
    ALIGNED double error[TILE], smallest[TILE];
    ALIGNED uint64_t addend[TILE / 2];
} origin_t;

NOINLINE void origin_of(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t tile, origin_t *o) {
    const vf64 absolute_term = job->dtype == FLOAT64 ? f64_mul(f64_abs(f64_set(spec->scale)), f64_set(DIRECT_DD_FLOOR))
                                                     : f64_set(2 * smallest_normal(job->dtype));
    /* for descending positions, the angles of the offsets are negative, which is equivalent to a negated Q */
    const vu64 down = u64_set((uint64_t)((int64_t)job->step < 0) << 63);
    const int paired = spec->order != UNPAIRED, angles = paired ? TILE / 2 : TILE, is_dd = job->dtype == FLOAT64;
    const uint64_t *const quarter = spec->quarter + tile * TILE;
    anchor_t *const a = &o->first;
    double factor[4 * TILE];
    direct_factor(spec, position, tile * TILE, is_dd, factor);
    for (int i = 0; i < TILE; i += LANES) {
        const ptrdiff_t column = tile * TILE + i;
        /* Q is the cosine of a sine, and minus the sine of a cosine */
        const vu64 sign = u64_xor(down, u64_and(u64_load(quarter + i), u64_set((uint64_t)1 << 63)));
        for (int low = 0; low <= is_dd; low++) {
            const double *const c = factor + low * 2 * angles, *const s = c + angles;
            const vf64 q = columns_from(s, c, quarter, paired, i);
            f64_store((low ? a->p_low : a->p) + i, f64_add(columns_from(c, s, quarter, paired, i), f64_set(0)));
            f64_store((low ? a->q_low : a->q) + i, f64_of_bits(u64_xor(bits_of_f64(q), sign)));
        }
        const vf64 abs_p = f64_abs(f64_load(a->p + i)), abs_q = f64_abs(f64_load(a->q + i));
        const vf64 reach = f64_load(job->offsets->reach + column), farthest = f64_load(job->offsets->farthest + column);
        const vf64 magnitude = f64_muladd(f64_add(abs_p, abs_q), reach, f64_muladd(abs_q, farthest, abs_p));
        /* no absolute term for columns of zeros, which are sines with frequency 0 */
        const vu64 has_values = u64_or(u64_load(quarter + i), u64_xor(zeros_of(reach), u64_set(UINT64_MAX)));
        const vf64 absolute = f64_of_bits(u64_and(has_values, bits_of_f64(absolute_term)));
        f64_store(o->smallest + i, f64_muladd(magnitude, f64_set(smallest_share(job->dtype)), absolute));
        f64_store(o->error + i,
                  is_dd ? f64_muladd(magnitude, f64_set(DD_ERROR), absolute) : f64_mul(magnitude, f64_set(DOUBLE_ERROR)));
    }
}

/* Computes the anchor whose angles from the first row of the block have the cosines and sines `high` + `low`. */
NOINLINE void anchor_of(const job_t *job, const anchor_t *o, const double *high, const double *low, anchor_t *a) {
    for (int i = 0; i < TILE; i += LANES) {
        const vdd c = dd_load(high + i, low + i), s = dd_load(high + TILE + i, low + TILE + i);
        const vdd p0 = dd_load(o->p + i, o->p_low + i), q0 = dd_load(o->q + i, o->q_low + i);
        if (job->dtype == FLOAT64) {
            dd_store(a->p + i, a->p_low + i, dd_product_sum(p0, c, q0, s));
            dd_store(a->q + i, a->q_low + i, dd_product_sum(q0, c, dd_negated(p0), s));
        } else {
            f64_store(a->p + i, f64_muladd(p0.high, c.high, f64_mul(q0.high, s.high)));
            f64_store(a->q + i, f64_sub(f64_mul(q0.high, c.high), f64_mul(p0.high, s.high)));
        }
    }
}

/* ---- the rows of an anchor ----------------------------------------------------------------------------- */

/* `count` rows from `row` of the job on, or the same number of joined rows.  `next` is the position of row + 1, for
 * shifted rows (spec->first > 0), which end with the first columns of the next row (spec_from). */
typedef struct {
    const spec_t *spec;
    const job_t *job;
    ptrdiff_t row, count;
    int joined; /* as in offsets_t */
    position_t position, next;
    tally_t *tally;
} run_block_t;

/* At most FINE rows of a block, from `row` of the job on, in the tile that begins at `column`.  Row i of the group
 * is row + i * row_step of the job, and is written to out + i * row_stride.  `middle` rows, or all if there are
 * fewer, are below the anchor.  If `whole` is set, all TILE columns may be stored, including those beyond
 * `width`. */
typedef struct {
    const run_block_t *block;
    const origin_t *origin;
    output_t output;
    ptrdiff_t row, column;
    int rows, middle, width, whole, row_step;
    char *out;
    ptrdiff_t row_stride;
    const double *fine, *fine_low;
} group_t;

INLINE int row_above(const group_t *g, int r) { return g->middle + r; }
INLINE int row_below(const group_t *g, int r) { return g->middle - 1 - r; }

/* Returns the number of columns of a pass over the rows of a group.  With this number, P, Q and the addends
 * for float32 fit in 32 registers (AVX-512, NEON).  With AVX2, large outputs take longer if the two lines of
 * a row are not written together.  For the other dtypes, fewer columns would not fill a cache line, or would not
 * be faster. */
INLINE int pass_columns(dtype_t dtype) { return dtype == FLOAT32 ? PASS_COLUMNS : TILE; }

typedef struct {
    vf64 p[TILE_VECTORS], q[TILE_VECTORS];
    vu64 addend[TILE_VECTORS / 2];
} registers_t;

/* Advances LANES columns to the two rows at one offset. */
INLINE void advance(vf64 p, vf64 q, const double *fine, vf64 *above, vf64 *below) {
    const vf64 cosine = f64_load(fine), y = f64_mul(q, f64_load(fine + TILE));
    *above = f64_muladd(p, cosine, y);
    *below = f64_mulsub(p, cosine, y);
}

/* Advances columns i .. i + LANES - 1 to the two rows at one offset.  The results are not renormalised. */
INLINE void advance_dd(const anchor_t *a, const double *fine, const double *fine_low, int i, vdd *above, vdd *below) {
    const vdd p = dd_load(a->p + i, a->p_low + i), q = dd_load(a->q + i, a->q_low + i);
    const vdd c = dd_load(fine + i, fine_low + i), s = dd_load(fine + TILE + i, fine_low + TILE + i);
    const vdd x = two_product(p.high, c.high), y = two_product(q.high, s.high);
    const vf64 x_rest = f64_muladd(p.high, c.low, f64_muladd(p.low, c.high, x.low));
    const vf64 y_rest = f64_muladd(q.high, s.low, f64_muladd(q.low, s.high, y.low));
    *above = two_sum(x.high, y.high);
    *below = two_difference(x.high, y.high);
    above->low = f64_add_fma(above->low, f64_add_fma(x_rest, y_rest));
    below->low = f64_add_fma(below->low, f64_sub(x_rest, y_rest));
}

/* Recomputes a row of the pass that begins at column `pass`, and rounds each value using its error bound. */
NOINLINE void write_uncertain(const group_t *g, const anchor_t *a, int pass, int r, int is_above) {
    const dtype_t dtype = g->block->job->dtype;
    const int row = is_above ? row_above(g, r) : row_below(g, r), width = min_int(g->width - pass, pass_columns(dtype));
    const double *fine = g->fine + r * 2 * TILE, *fine_low = g->fine_low + r * 2 * TILE;
    const ptrdiff_t joined = g->block->joined, columns = g->block->spec->d_model / joined;
    values_t v;
    if (width <= 0) return; /* the pass has only spare columns */
    for (int i = 0; i < pass_columns(dtype); i += LANES) {
        const int column = pass + i;
        vdd above = {f64_set(0), f64_set(0)}, below = above;
        if (dtype == FLOAT64) advance_dd(a, fine, fine_low, column, &above, &below);
        else advance(f64_load(a->p + column), f64_load(a->q + column), fine + column, &above.high, &below.high);
        dd_store(v.high + i, v.low + i, is_above ? above : below);
        f64_store(v.error + i, f64_load(g->origin->error + column));
    }
    for (int i = 0; i < width;) { /* joined rows one by one */
        const ptrdiff_t column = g->column + pass + i, at = g->row + row * g->row_step * joined + column / columns;
        const tile_t t = {.row = &at,
                          .column = column % columns,
                          .rows = 1,
                          .width = min_int(columns - column % columns, width - i),
                          .output = g->output,
                          .out = g->out + row * g->row_stride + (pass + i) * size_of(dtype)};
        values_t part;
        if (t.width < TILE) {
            for (int k = 0; k < t.width; k++)
                part.high[k] = v.high[i + k], part.low[k] = v.low[i + k], part.error[k] = v.error[i + k];
            for (int k = t.width; k < TILE; k++) part.high[k] = part.low[k] = part.error[k] = 0;
        }
        write_settled(g->block->spec, g->block->job, &t, t.width < TILE ? &part : &v, g->block->tally);
        i += t.width;
    }
}

typedef enum { FAST, ERROR_BOUNDS } test_t;

/* Computes the columns of a pass in a row below the anchor and, if `with_above`, in the row above it.  Each cache
 * line is written before all values are tested, because the values of a row would fill the registers.  Returns
 * whether a value fails the test. */
INLINE int advance_pass(const registers_t *loaded, const double *error, const double *fine, char *above, char *below,
                        int with_above, test_t test, dtype_t dtype, output_t output) {
    const int vectors = pass_columns(dtype) / LANES, per_store = vectors_per_store(dtype);
    const int per_line = LINE / (int)size_of(dtype) / LANES;
    mask16 passed = mask16_all();
    vu64 undecided = u64_set(0);
    for (int line = 0; line < vectors; line += per_line) {
        vu64 bits_above[LINE / sizeof(vu64)], bits_below[LINE / sizeof(vu64)];
        for (int store = 0; store < per_line; store += per_store) {
            vf32 f_above[2], f_below[2];
            for (int i = 0; i < per_store; i += 2) {
                const int v = line + store + i;
                vf64 x_above[2], x_below[2];
                for (int j = 0; j < 2; j++)
                    advance(loaded->p[v + j], loaded->q[v + j], fine + (v + j) * LANES, &x_above[j], &x_below[j]);
                if (test == ERROR_BOUNDS) {
                    const vf64 bound[2] = {f64_load(error + v * LANES), f64_load(error + (v + 1) * LANES)};
                    if (with_above) undecided = u64_or(undecided, undecided_values(x_above, bound, dtype));
                    undecided = u64_or(undecided, undecided_values(x_below, bound, dtype));
                }
                f_above[i / 2] = f32_of_f64(x_above[0], x_above[1]);
                f_below[i / 2] = f32_of_f64(x_below[0], x_below[1]);
                if (with_above) passed = fast_test(passed, x_above, f_above[i / 2], loaded->addend[v / 2], dtype);
                passed = fast_test(passed, x_below, f_below[i / 2], loaded->addend[v / 2], dtype);
            }
            bits_above[store / per_store] = bits_of(f_above, dtype);
            bits_below[store / per_store] = bits_of(f_below, dtype);
        }
        if (test == ERROR_BOUNDS && dtype == FLOAT32) continue; /* the pass with FAST has written the values */
        if (with_above) write_line(above + line * LANES * size_of(dtype), bits_above, output);
        write_line(below + line * LANES * size_of(dtype), bits_below, output);
    }
    return test == ERROR_BOUNDS ? !u64_is_zero(undecided) : !mask16_is_all(passed);
}

/* Does the same for float64, whose tiles have a single pass.  Returns whether a value is undecided. */
INLINE int advance_pass_dd(const anchor_t *a, const double *error, const double *fine, const double *fine_low, char *above,
                           char *below, int with_above, output_t output) {
    const int per_line = LINE / (int)sizeof(vf64);
    vu64 undecided = u64_set(0);
    for (int line = 0; line < TILE_VECTORS; line += per_line) {
        vu64 bits_above[LINE / sizeof(vu64)], bits_below[LINE / sizeof(vu64)];
        for (int v = 0; v < per_line; v++) {
            const vf64 bound = f64_load(error + (line + v) * LANES);
            vdd x_above, x_below;
            advance_dd(a, fine, fine_low, (line + v) * LANES, &x_above, &x_below);
            if (with_above) bits_above[v] = bits_of_f64(rounded_dd(x_above, bound, &undecided));
            bits_below[v] = bits_of_f64(rounded_dd(x_below, bound, &undecided));
        }
        if (with_above) write_line(above + line * (int)sizeof(vf64), bits_above, output);
        write_line(below + line * (int)sizeof(vf64), bits_below, output);
    }
    return !u64_is_zero(undecided);
}

/* Writes the columns of a pass, at the offsets r .. last - 1, in the rows below the anchor and, if
 * `with_above`, also in those above it.  Stops at the first offset with an undecided value and returns this
 * offset; otherwise, returns `last`.  If `whole`, the loop calls no function, so `loaded` can stay in
 * registers. */
INLINE int advance_offsets(const group_t *g, const anchor_t *a, int pass, int r, int last, int with_above, int whole,
                           dtype_t dtype, output_t output) {
    const ptrdiff_t row_stride = g->row_stride;
    const int vectors = dtype == FLOAT64 ? 0 : pass_columns(dtype) / LANES;
    const size_t bytes = (size_t)(min_int(g->width - pass, pass_columns(dtype)) * size_of(dtype)); /* of a part of a tile */
    ALIGNED char staged_above[TILE * sizeof(double)], staged_below[TILE * sizeof(double)];
    char *const out = g->out + pass * size_of(dtype);
    char *out_above = out + row_above(g, r) * row_stride, *out_below = out + row_below(g, r) * row_stride;
    const double *fine = g->fine + r * 2 * TILE + pass,
                 *fine_low = g->fine_low + r * 2 * TILE, *const error = g->origin->error + pass;
    registers_t loaded;
    for (int v = 0; v < vectors; v++) {
        loaded.p[v] = f64_load(a->p + pass + v * LANES);
        loaded.q[v] = f64_load(a->q + pass + v * LANES);
        if (v % 2 == 0) loaded.addend[v / 2] = u64_load(g->origin->addend + (pass + v * LANES) / 2);
    }
    for (; r < last; r++, fine += 2 * TILE, fine_low += 2 * TILE, out_above += row_stride, out_below -= row_stride) {
        char *const above = whole ? out_above : staged_above, *const below = whole ? out_below : staged_below;
        if (dtype == FLOAT64) {
            if (UNLIKELY(advance_pass_dd(a, error, fine, fine_low, above, below, with_above, output))) return r;
        } else if (UNLIKELY(advance_pass(&loaded, error, fine, above, below, with_above, FAST, dtype, output))) {
            /* computes the values again, because keeping them would take registers from the loop */
            const double *same_fine = fine;
            OPAQUE(same_fine);
            if (advance_pass(&loaded, error, same_fine, above, below, with_above, ERROR_BOUNDS, dtype, output)) return r;
        }
        if (!whole && with_above) memcpy(out_above, staged_above, bytes);
        if (!whole) memcpy(out_below, staged_below, bytes);
    }
    return r;
}

INLINE void advance_rows(const group_t *g, const anchor_t *a, int first, int last, int with_above, int whole, dtype_t dtype,
                         output_t output) {
    for (int pass = 0; pass < (whole ? TILE : g->width); pass += pass_columns(dtype)) {
        for (int r = first; r < last; r++) {
            r = advance_offsets(g, a, pass, r, last, with_above, whole, dtype, output);
            if (r == last) break;
            write_uncertain(g, a, pass, r, 0);
            if (with_above) write_uncertain(g, a, pass, r, 1);
        }
    }
}

/* Advances rows of a tile narrower than TILE, and the few rows below the anchor that have no counterpart above it. */
COLD void advance_narrow_rows(const group_t *g, const anchor_t *a, int first, int last, int with_above) {
    FOR_DTYPE(g->block->job->dtype, advance_rows(g, a, first, last, with_above, 0, DTYPE, STORE))
}

/* ---- groups: one function for each dtype and output mode ----------------------------------------------- */

#define DEFINE_GROUP(T, OUTPUT) \
    NOINLINE void group_##T##_##OUTPUT(const group_t *g, const anchor_t *a) { \
        const int above = g->rows - g->middle; \
        if (g->whole) advance_rows(g, a, 0, above, 1, 1, T, OUTPUT); \
        else advance_narrow_rows(g, a, 0, above, 1); \
        const int alone = above < 0 ? -above : above; \
        if (alone == g->middle) return; \
        if (OUTPUT == STREAM && size_of(T) > 2 && g->whole) advance_rows(g, a, alone, g->middle, 0, 1, T, OUTPUT); \
        else advance_narrow_rows(g, a, alone, g->middle, 0); \
    }
#define DEFINE_GROUPS(OUTPUT) \
    DEFINE_GROUP(FLOAT64, OUTPUT) \
    DEFINE_GROUP(FLOAT32, OUTPUT) \
    DEFINE_GROUP(FLOAT16, OUTPUT) \
    DEFINE_GROUP(BFLOAT16, OUTPUT)
DEFINE_GROUPS(STORE)
DEFINE_GROUPS(STREAM)

/* ADD has no functions here: rows are added from a panel. */
static void (*const WRITE_GROUP[][4])(const group_t *, const anchor_t *) = {
    [STORE] = {group_FLOAT64_STORE, group_FLOAT32_STORE, group_FLOAT16_STORE, group_BFLOAT16_STORE},
    [STREAM] = {group_FLOAT64_STREAM, group_FLOAT32_STREAM, group_FLOAT16_STREAM, group_BFLOAT16_STREAM},
};

#endif
