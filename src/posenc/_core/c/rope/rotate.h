/* Rotates the pairs of columns of all rows and heads; each value is rounded once.
 *
 * The factors are computed during the call or before it (rotation_t).  The factors of a few rows stay in the cache
 * while all heads are rotated.  float32 values are rotated in double, float16 and bfloat16 values in float. */
#ifndef POSENC_ROTATE_H
#define POSENC_ROTATE_H

#include "rope/factors.h"

enum {
    ROWS_TOGETHER = 16,                         /* rows whose factors stay in L1 while all heads are rotated */
    HEADS_TOGETHER = 64,
    ROWS_AHEAD = 8                              /* distance from the row in use to the row that is prefetched */
};

/* ---- a row --------------------------------------------------------------------------------------------- */

/* Copies the last pairs of a row, fewer than BUNCH.  The second columns are `second` bytes after the first columns
 * in `from`, and `to_second` bytes after them in `to`. */
static void copy_last_pairs(const rotation_t *r, ptrdiff_t pair, char *to, ptrdiff_t to_second, const char *from,
                            ptrdiff_t second) {
    const size_t bytes = (size_t)((r->pairs - pair) * size_of(r->dtype));
    memcpy(to, from, r->interleaved ? 2 * bytes : bytes);
    if (!r->interleaved) memcpy(to + to_second, from + second, bytes);
}

/* Copies the last pairs to a buffer, and fills the rest of the buffer with ones, which pass the tests. */
NOINLINE void load_last_pairs(const rotation_t *r, ptrdiff_t pair, const char *x, ptrdiff_t second,
                              char buffer[2 * BUNCH * sizeof(float)]) {
    const uint64_t ones = r->dtype == FLOAT32   ? 0x3f8000003f800000
                          : r->dtype == FLOAT16 ? 0x3c003c003c003c00
                                                : 0x3f803f803f803f80;
    for (size_t i = 0; i < 2 * BUNCH * sizeof(float); i += sizeof ones) memcpy(buffer + i, &ones, sizeof ones);
    copy_last_pairs(r, pair, buffer, BUNCH * size_of(r->dtype), x, second);
}

/* Rotates a row.  If its last pairs are fewer than BUNCH, they are rotated in a buffer. */
INLINE void rotate_head_row(const head_row_t *h, dtype_t dtype, int interleaved) {
    const rotation_t *r = h->rotation;
    const ptrdiff_t size = size_of(dtype), half = interleaved ? 0 : r->pairs * size, step = (interleaved ? 2 : 1) * size;
    const ptrdiff_t pairs = r->pairs, whole = pairs - pairs % BUNCH;
    ALIGNED char buffer[2 * BUNCH * sizeof(float)];
    const char *from = h->x;
    char *to = h->out;
    ptrdiff_t second = half;
    for (ptrdiff_t pair = 0; pair < pairs; pair += BUNCH, from += BUNCH * step, to += BUNCH * step) {
        if (UNLIKELY(pair == whole)) {
            load_last_pairs(r, pair, from, half, buffer);
            from = to = buffer;
            second = BUNCH * size;
        }
        for (ptrdiff_t i = 0; i < BUNCH * step; i += LINE) {
            PREFETCH(h->ahead + pair * step + i);
            if (!interleaved) PREFETCH(h->ahead + half + pair * step + i);
        }
        const vu64 failed =
            rotate_pairs(h->factors, pair, h->limits, from, from + second, to, to + second, dtype, interleaved, 0);
        if (UNLIKELY(!u64_is_zero(failed)))
            settle_bunch(h, pair, min_int(pairs - pair, BUNCH), from, from + second, to, to + second, failed);
    }
    if (UNLIKELY(whole < pairs)) copy_last_pairs(r, whole, h->out + whole * step, half, buffer, BUNCH * size);
    if (r->rest && h->out != h->x) memcpy(h->out + 2 * r->pairs * size, h->x + 2 * r->pairs * size, (size_t)(r->rest * size));
}

/* ---- rows of all heads --------------------------------------------------------------------------------- */

/* Some rows of some heads.  `factors` has `pitch` numbers for each position, from the index `first_position`
 * on. */
typedef struct {
    head_row_t shared; /* without the members that depend on the row */
    ptrdiff_t rows, heads, pitch, first_position;
    const place_t *row;
    place_t head[HEADS_TOGETHER];
    const double *factors;
} patch_t;

INLINE ptrdiff_t last_stride(const extent_t *e) {
    const ptrdiff_t stride = e->axes ? e->x_strides[e->axes - 1] : 0;
    return stride < 0 ? -stride : stride;
}

/* Rotates a patch.  The inner loop is over the heads or over the rows, whichever have the smaller stride. */
INLINE void rotate_patch(const patch_t *p, dtype_t dtype, int interleaved) {
    const rotation_t *const r = p->shared.rotation;
    const int heads_inside = last_stride(&r->heads) < last_stride(&r->rows);
    const ptrdiff_t outside = heads_inside ? p->rows : p->heads, inside = heads_inside ? p->heads : p->rows;
    const place_t *const outer = heads_inside ? p->row : p->head, *const inner = heads_inside ? p->head : p->row;
    head_row_t h = p->shared;
    for (ptrdiff_t i = 0; i < outside; i++) {
        for (ptrdiff_t j = 0; j < inside; j++) {
            const ptrdiff_t far = j + ROWS_AHEAD, beyond = far < inside ? i : i + 1 < outside ? i + 1 : i;
            const ptrdiff_t ahead = far < inside ? far : min_int(far - inside, inside - 1);
            h.position = outer[i].position + inner[j].position;
            h.factors = p->factors + (h.position - p->first_position) * p->pitch;
            h.x = r->x + outer[i].x + inner[j].x;
            h.out = r->out + outer[i].out + inner[j].out;
            h.ahead = r->x + outer[beyond].x + inner[ahead].x;
            rotate_head_row(&h, dtype, interleaved);
        }
    }
}

NOINLINE void patch_of_order(const patch_t *p) { FOR_ORDER(p->shared.rotation, rotate_patch(p, DTYPE, INTERLEAVED)) }

/* ---- entry points -------------------------------------------------------------------------------------- */

static void write_factors(const rotation_t *r, ptrdiff_t position, ptrdiff_t count, double *to, char *memory) {
    const environment_t host = environment_enter();
    factors_of(r, position, count, to, memory);
    environment_leave(host);
}

static size_t rotation_memory(const rotation_t *r) {
    const ptrdiff_t rows = r->most_rows, own = r->factors ? 0 : factor_pitch(r->pairs) * rows + factors_memory(r, rows);
    return (size_t)own * sizeof(double) + (size_t)rows * sizeof(place_t);
}

static void rotate(const rotation_t *r, ptrdiff_t row, ptrdiff_t count, ptrdiff_t head, ptrdiff_t heads, char *memory,
                   tally_t *tally) {
    const environment_t host = environment_enter();
    const ptrdiff_t pitch = factor_pitch(r->pairs), end = head + heads;
    const limits_t limits = limits_of(r);
    double *const own = (double *)(void *)memory, *const part = own + (r->factors ? 0 : pitch * r->most_rows);
    place_t *const row_places = (place_t *)(void *)(part + (r->factors ? 0 : factors_memory(r, r->most_rows)));
    if (!r->factors) factors_of(r, row, count, own, (char *)part);
    for (ptrdiff_t i = 0; i < count; i++) {
        row_places[i] = place_at(&r->rows, row + i);
        row_places[i].position += r->first_position;
    }
    for (ptrdiff_t first = 0; first < count; first += ROWS_TOGETHER) {
        patch_t p = {.shared = {.rotation = r, .limits = &limits, .tally = tally},
                     .rows = min_int(count - first, ROWS_TOGETHER),
                     .pitch = pitch,
                     .first_position = r->factors ? 0 : row,
                     .row = row_places + first,
                     .factors = r->factors ? r->factors : own};
        for (ptrdiff_t h = head; h < end; h += HEADS_TOGETHER) {
            p.heads = min_int(end - h, HEADS_TOGETHER);
            for (ptrdiff_t i = 0; i < p.heads; i++) p.head[i] = place_at(&r->heads, h + i);
            patch_of_order(&p);
        }
    }
    environment_leave(host);
}

#endif
