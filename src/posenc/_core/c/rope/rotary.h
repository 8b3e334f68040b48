/* Rotates the pairs of columns of rows and heads; each value is rounded once.
 *
 * The cosines and sines of a few rows are computed in float64, and stay in the cache while all heads are rotated.  float32
 * and float16 values are rotated in double; bfloat16 values in float, where each cosine and sine is split into two floats. */
#ifndef POSENC_ROTARY_H
#define POSENC_ROTARY_H

#include "rope/factors.h"
#include "rope/uncertain_pairs.h"

enum {
    ROWS_TOGETHER = 16,                         /* rows whose factors stay in L1 while all heads are rotated */
    HEADS_TOGETHER = 64
};

/* ---- a row --------------------------------------------------------------------------------------------------------------- */

INLINE void rotate_pairs(const head_row_t *h, ptrdiff_t pair, int width, const char *in_a, const char *in_b, char *a, char *b,
                         dtype_t dtype, int interleaved) {
    const double *factors = h->factors + 2 * pair;
    pairs_t v = load_pairs(in_a, in_b, dtype, interleaved);
    const int uncertain = dtype == BFLOAT16 ? rotate_in_float(&v, (const float *)(const void *)factors, h->limits, dtype)
                                            : rotate_in_double(&v, in_a, in_b, factors, h->limits, dtype, interleaved);
    if (UNLIKELY(uncertain) && !h->rotation->skip_rounding_test) settle_bunch(h, pair, width, in_a, in_b, a, b);
    else store_pairs(a, b, &v, dtype, interleaved);
}

/* Copies the last pairs of a row, fewer than BUNCH; their second columns are `to_second` and `second` bytes after the first. */
static void copy_last_pairs(const rotation_t *r, ptrdiff_t pair, char *to, ptrdiff_t to_second, const char *from,
                            ptrdiff_t second) {
    const size_t bytes = (size_t)((r->pairs - pair) * size_of(r->dtype));
    memcpy(to, from, r->interleaved ? 2 * bytes : bytes);
    if (!r->interleaved) memcpy(to + to_second, from + second, bytes);
}

/* Copies the last pairs to a buffer, and sets the rest of it to 1; these values pass the tests. */
NOINLINE void load_last_pairs(const rotation_t *r, ptrdiff_t pair, const char *x, ptrdiff_t second,
                              char buffer[2 * BUNCH * sizeof(float)]) {
    const uint64_t ones = r->dtype == FLOAT32   ? 0x3f8000003f800000
                          : r->dtype == FLOAT16 ? 0x3c003c003c003c00
                                                : 0x3f803f803f803f80;
    for (size_t i = 0; i < 2 * BUNCH * sizeof(float); i += sizeof ones) memcpy(buffer + i, &ones, sizeof ones);
    copy_last_pairs(r, pair, buffer, BUNCH * size_of(r->dtype), x, second);
}

INLINE void rotate_head_row(const head_row_t *h, dtype_t dtype, int interleaved) {
    const rotation_t *r = h->rotation;
    const ptrdiff_t size = size_of(dtype), half = interleaved ? 0 : r->pairs * size, step = (interleaved ? 2 : 1) * size;
    ALIGNED char buffer[2 * BUNCH * sizeof(float)];
    for (ptrdiff_t pair = 0; pair < r->pairs; pair += BUNCH) {
        const char *a = h->x + pair * step, *b = a + half;
        char *to_a = h->out + pair * step, *to_b = to_a + half;
        const int width = minimum(r->pairs - pair, BUNCH);
        if (UNLIKELY(width < BUNCH)) {
            load_last_pairs(r, pair, a, half, buffer);
            a = to_a = buffer;
            b = to_b = buffer + BUNCH * size;
        } else {
            for (ptrdiff_t i = 0; i < BUNCH * step; i += LINE) {
                PREFETCH(h->ahead + pair * step + i);
                if (!interleaved) PREFETCH(h->ahead + half + pair * step + i);
            }
        }
        rotate_pairs(h, pair, width, a, b, to_a, to_b, dtype, interleaved);
        if (UNLIKELY(width < BUNCH)) copy_last_pairs(r, pair, h->out + pair * step, half, buffer, BUNCH * size);
    }
    if (r->rest && h->out != h->x) memcpy(h->out + 2 * r->pairs * size, h->x + 2 * r->pairs * size, (size_t)(r->rest * size));
}

/* ---- rows of all heads --------------------------------------------------------------------------------------------------- */

/* Computes the offsets, in bytes, of the indices first .. first + count - 1 of an extent. */
static void offsets_of(const extent_t *e, ptrdiff_t first, ptrdiff_t count, ptrdiff_t *x, ptrdiff_t *out) {
    for (ptrdiff_t i = 0; i < count; i++) {
        ptrdiff_t rest = first + i;
        x[i] = out[i] = 0;
        for (int axis = e->axes - 1; axis >= 0; axis--) {
            const ptrdiff_t index = rest % e->shape[axis];
            rest /= e->shape[axis];
            x[i] += index * e->x_strides[axis];
            out[i] += index * e->out_strides[axis];
        }
    }
}

/* A group of rows and heads, with their offsets in bytes; `factors` and `table` have `pitch` numbers for each row. */
typedef struct {
    const rotation_t *rotation;
    const limits_t *limits;
    ptrdiff_t row, rows, heads, pitch;
    const ptrdiff_t *row_x, *row_out;
    ptrdiff_t head_x[HEADS_TOGETHER], head_out[HEADS_TOGETHER];
    const double *factors, *table;
    tally_t *tally;
} patch_t;

INLINE void rotate_at(const patch_t *p, ptrdiff_t i, ptrdiff_t head, dtype_t dtype, int interleaved) {
    const head_row_t h = {.rotation = p->rotation,
                          .limits = p->limits,
                          .row = p->row + i,
                          .factors = p->factors + i * p->pitch,
                          .table = p->table + i * p->pitch,
                          .x = p->rotation->x + p->row_x[i] + p->head_x[head],
                          .ahead = p->rotation->x + p->row_x[i] + p->head_x[head + 1 < p->heads ? head + 1 : head],
                          .out = p->rotation->out + p->row_out[i] + p->head_out[head],
                          .tally = p->tally};
    rotate_head_row(&h, dtype, interleaved);
}

INLINE ptrdiff_t last_stride(const extent_t *e) {
    const ptrdiff_t stride = e->axes ? e->x_strides[e->axes - 1] : 0;
    return stride < 0 ? -stride : stride;
}

/* The inner loop runs over heads or rows, whichever have the smaller stride. */
INLINE void rotate_patch(const patch_t *p, dtype_t dtype, int interleaved) {
    const int heads_inside = last_stride(&p->rotation->heads) < last_stride(&p->rotation->rows);
    const ptrdiff_t outside = heads_inside ? p->rows : p->heads, inside = heads_inside ? p->heads : p->rows;
    for (ptrdiff_t i = 0; i < outside; i++)
        for (ptrdiff_t j = 0; j < inside; j++) rotate_at(p, heads_inside ? i : j, heads_inside ? j : i, dtype, interleaved);
}

NOINLINE void patch_of_order(const patch_t *p) { FOR_ORDER(p->rotation, rotate_patch(p, DTYPE, INTERLEAVED)) }

/* ---- entry points -------------------------------------------------------------------------------------------------------- */

static size_t rotation_memory(const rotation_t *r) {
    const int has_parts = r->position_axes > 1 || (r->position_axes && r->axis->pair);
    const ptrdiff_t numbers = pitch_of(r) * ((1 + has_parts) * r->most_rows + ROWS_TOGETHER);
    const ptrdiff_t offsets = 2 * r->most_rows;
    return (size_t)numbers * sizeof(double) + (size_t)offsets * sizeof(ptrdiff_t) + LINE;
}

static void rotation(const rotation_t *r, ptrdiff_t row, ptrdiff_t count, ptrdiff_t head, ptrdiff_t heads, char *memory,
                     tally_t *tally) {
    const environment_t host = environment_enter();
    const ptrdiff_t pitch = pitch_of(r), end = head + heads;
    double *const table = (double *)(void *)memory, *const factors = table + pitch * r->most_rows;
    ptrdiff_t *const row_x = (ptrdiff_t *)(void *)(factors + pitch * ROWS_TOGETHER), *const row_out = row_x + r->most_rows;
    double *const part = (double *)(void *)(row_out + r->most_rows);
    double direct_scale = 0;
    for (int i = 0; i < r->position_axes; i++)
        if (is_direct(r, &r->axis[i])) direct_scale = magnitude_of(r->axis[i].spec->scale);
    const limits_t limits = limits_of(r->dtype, direct_scale);
    tally_t table_tally = {0};
    fill_table(r, row, count, table, part, &table_tally);
    offsets_of(&r->rows, row, count, row_x, row_out);
    for (ptrdiff_t first = 0; first < count; first += ROWS_TOGETHER) {
        patch_t p = {.rotation = r,
                     .limits = &limits,
                     .row = row + first,
                     .rows = minimum(count - first, ROWS_TOGETHER),
                     .pitch = pitch,
                     .row_x = row_x + first,
                     .row_out = row_out + first,
                     .factors = factors,
                     .table = table + first * pitch,
                     .tally = tally};
        for (ptrdiff_t i = 0; i < p.rows; i++) spread(r, p.table + i * pitch, factors + i * pitch);
        for (ptrdiff_t h = head; h < end; h += HEADS_TOGETHER) {
            p.heads = minimum(end - h, HEADS_TOGETHER);
            offsets_of(&r->heads, h, p.heads, p.head_x, p.head_out);
            patch_of_order(&p);
        }
    }
    environment_leave(host);
}

#endif
