/* Computes blocks of evenly spaced rows: the first row is evaluated directly, the anchors are advanced from this row, and all
 * rows from the anchors (advance.h).  The outer loop is over strips of a few tiles, whose offsets stay in the caches.
 */
#ifndef POSENC_BLOCKS_H
#define POSENC_BLOCKS_H

#include "table/direct_rows.h"

static ptrdiff_t columns_of_this_row(const block_t *b) { return b->spec->d_model - b->spec->first; }

static int ends_in_next_row(const block_t *b, ptrdiff_t tile) {
    return b->spec->first && (tile + 1) * TILE > columns_of_this_row(b);
}

NOINLINE void block_origin(const block_t *b, ptrdiff_t tile, origin_t *o) {
    origin_of(b->spec, b->job, &b->position, tile, o);
    if (!ends_in_next_row(b, tile)) return;
    origin_t next;
    origin_of(b->spec, b->job, &b->next, tile, &next);
    const ptrdiff_t from = minimum(TILE, columns_of_this_row(b) - tile * TILE), begin = from < 0 ? 0 : from;
    for (ptrdiff_t at = begin; at < (ptrdiff_t)(sizeof next / sizeof(double)); at += TILE) /* in each array of `next` */
        memcpy((double *)(void *)o + at, (double *)(void *)&next + at, (size_t)(TILE - begin) * sizeof(double));
}

/* Writes the rows of anchor k in a tile, row i to out + i * row_stride.  A tile that ends in the next row has one row fewer. */
NOINLINE void advance_group(const block_t *b, const origin_t *origin, ptrdiff_t tile, int k, output_t output, int whole,
                            char *out, ptrdiff_t row_stride, prefetch_t *prefetch) {
    anchor_t a;
    const ptrdiff_t rows = b->count - ends_in_next_row(b, tile) - k * FINE;
    if (rows <= 0) return;
    /* the anchor of a single group is in the middle of its rows, because rows without a counterpart take longer */
    const int is_single = b->count <= FINE, middle = is_single ? (int)(rows + 1) / 2 : HALF;
    const offsets_t *const o = b->job->offsets;
    if (is_single)
        anchor_of(b->job, origin, offsets_at(o->fine, tile, HALF, middle - 1), offsets_at(o->fine_low, tile, HALF, middle - 1),
                  &a);
    else anchor_of(b->job, origin, offsets_at(o->coarse, tile, COARSE, k), offsets_at(o->coarse_low, tile, COARSE, k), &a);
    const int width = minimum(b->spec->d_model - tile * TILE, TILE);
    const group_t g = {.block = b,
                       .output = output,
                       .row = b->row + k * FINE,
                       .column = tile * TILE,
                       .rows = minimum(rows, FINE),
                       .middle = middle,
                       .width = width,
                       .whole = whole || width == TILE,
                       .out = out,
                       .row_stride = row_stride,
                       .fine = offsets_at(o->fine, tile, HALF, 0),
                       .fine_low = offsets_at(o->fine_low, tile, HALF, 0),
                       .prefetch = prefetch};
    GROUP[output][b->job->dtype](&g, &a);
}

/* Writes the columns that no tile covers: those before the first cache line of the first row, and those after the last whole
 * tile of the last row. */
static void write_edges(const spec_t *spec, const block_t *b) {
    const job_t *job = b->job;
    const ptrdiff_t size = size_of(job->dtype), first = b->spec->first, last = b->row + b->count - 1;
    const ptrdiff_t end = columns_of_this_row(b), column = end / TILE * TILE;
    const position_t position = position_of(spec, job, last);
    direct_columns(spec, job, &b->position, b->row, 0, first, job->out + b->row * job->row_stride, b->tally);
    direct_columns(b->spec, job, &position, last, column, end, job->out + last * job->row_stride + (first + column) * size,
                   b->tally);
}

/* ---- strip by strip, and anchor by anchor within a strip ----------------------------------------------------------------- */

/* Returns the number of tiles in a strip.  With non-temporal stores, smaller strips are slower, because fewer adjacent lines
 * are written together.  With plain stores, the offsets of a single tile stay in L1. */
INLINE int strip_tiles(const job_t *job) { return job->panel || job->output == ADD ? STRIP : job->output == STREAM ? 4 : 1; }

/* Writes the rows of a panel, or adds them to each batch entry.  Each row has `bytes` bytes. */
static void flush_panel(const job_t *job, char *out, const char *panel, ptrdiff_t pitch, ptrdiff_t bytes, ptrdiff_t rows) {
    if (pitch == job->row_stride && bytes == pitch) {
        bytes *= rows;
        rows = 1;
    }
    for (ptrdiff_t b = 0; b < job->batch; b++, out += job->batch_stride) {
        for (ptrdiff_t r = 0; r < rows; r++) {
            char *const to = out + r * job->row_stride;
            if (job->output == ADD) add_to_batch(job, to, panel + r * pitch, bytes / size_of(job->dtype), 1);
            else flush_bytes(to, panel + r * pitch, bytes);
        }
    }
}

/* Writes a strip.  Without a panel, the rows are written to `out`, or added while the rows of the next anchor are prefetched.
 *
 * With a panel, the rows of an anchor are stored in the panel, which stays in the cache, then flushed to `out`.  A panel is
 * used for additions to a batch, for additions in float16 or bfloat16, and for streamed rows that do not begin on cache lines
 * (unless spec->first is set).  If the rows of `out` are contiguous and fit in one strip, the rows of the panel are contiguous,
 * too, and most cache lines are flushed whole.  The spare columns of the last tile then overwrite the first columns of the next
 * row, so the last tile is computed first. */
NOINLINE void write_strip(const block_t *b, ptrdiff_t first_tile, ptrdiff_t last_tile, char *panel) {
    const job_t *job = b->job;
    const ptrdiff_t size = size_of(job->dtype), column = first_tile * TILE, tiles = last_tile - first_tile;
    const ptrdiff_t bytes = minimum(b->spec->d_model - column, STRIP * TILE) * size;
    const int contiguous = bytes == job->row_stride;
    const ptrdiff_t pitch = contiguous ? bytes : tiles * TILE * size + LINE;
    origin_t origins[STRIP];
    for (ptrdiff_t t = 0; t < tiles; t++) block_origin(b, first_tile + t, &origins[t]);
    for (int k = 0; k * FINE < b->count; k++) {
        char *const out = job->out + (b->row + k * FINE) * job->row_stride + (b->spec->first + column) * size;
        if (!job->panel) {
            prefetch_t prefetch = {out + FINE * job->row_stride, 0, bytes, job->row_stride};
            for (ptrdiff_t t = 0; t < tiles; t++)
                advance_group(b, &origins[t], first_tile + t, k, job->output, 0, out + t * TILE * size, job->row_stride,
                              &prefetch);
            continue;
        }
        char *const rows = panel + (contiguous ? (uintptr_t)out % LINE : 0);
        for (ptrdiff_t i = 0; i < tiles; i++) {
            const ptrdiff_t t = i ? i - 1 : tiles - 1;
            advance_group(b, &origins[t], first_tile + t, k, STORE, !contiguous || tiles > 1, rows + t * TILE * size, pitch,
                          NULL);
        }
        flush_panel(job, out, rows, pitch, bytes, minimum(b->count - k * FINE, FINE));
    }
}

/* ---- a block ------------------------------------------------------------------------------------------------------------- */

/* Writes `count` (at most BLOCK) evenly spaced rows from `row` on.  No row may be a padding row or have only angles of 0. */
NOINLINE void block(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t count, char *panel, tally_t *tally) {
    const spec_t shifted = spec_from(spec, job->offsets->first);
    const ptrdiff_t tiles = spec->columns / TILE;
    const block_t b = {&shifted, job, row, count, position_of(spec, job, row), position_of(spec, job, row + 1), tally};
    if (!is_fast(spec, &b.position) || (shifted.first && !is_fast(spec, &b.next)) ||
        (job->dtype != FLOAT64 && !spec->fast_test)) {
        for (ptrdiff_t r = row; r < row + count; r++) scattered_row(spec, job, r, tally);
    } else {
        const int strip = strip_tiles(job);
        if (shifted.first) write_edges(spec, &b);
        for (ptrdiff_t tile = 0; tile < tiles; tile += strip) write_strip(&b, tile, minimum(tile + strip, tiles), panel);
    }
}

#endif
