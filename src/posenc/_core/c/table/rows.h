/* Writes the rows of a table.
 *
 * Runs of evenly spaced positions are computed in blocks: the first row is evaluated directly, the anchors
 * are advanced from this row, and all rows from the anchors (advance.h).  The outer loop is over strips of a
 * few tiles, whose offsets stay in the caches.  Other rows are copied from the span table, computed from digits, or
 * evaluated directly; several narrow rows share a tile.
 */
#ifndef POSENC_ROWS_H
#define POSENC_ROWS_H

#include "table/digit_rows.h"

/* ---- blocks -------------------------------------------------------------------------------------------- */

static ptrdiff_t columns_of_this_row(const run_block_t *b) { return b->spec->d_model - b->spec->first; }

static int ends_in_next_row(const run_block_t *b, ptrdiff_t tile) {
    return b->spec->first && (tile + 1) * TILE > columns_of_this_row(b);
}

NOINLINE void block_origin(const run_block_t *b, ptrdiff_t tile, origin_t *o) {
    origin_of(b->spec, b->job, &b->position, tile, o);
    if (ends_in_next_row(b, tile)) {
        origin_t next;
        origin_of(b->spec, b->job, &b->next, tile, &next);
        const ptrdiff_t from = min_int(TILE, columns_of_this_row(b) - tile * TILE), begin = from < 0 ? 0 : from;
        /* copies columns begin .. TILE - 1 of each array of `next` */
        for (ptrdiff_t at = begin; at < (ptrdiff_t)(offsetof(origin_t, addend) / sizeof(double)); at += TILE)
            memcpy((double *)(void *)o + at, (double *)(void *)&next + at, (size_t)(TILE - begin) * sizeof(double));
    }
    if (b->job->dtype != FLOAT64) store_addends(o->addend, o->smallest, TILE, b->job->dtype);
}

/* Writes the rows below an anchor, then the rows above it, which are those below the anchor of the mirrored group.
 * On Zen 3, non-temporal stores take three times as long if they alternate between rows with the same offset in a
 * page.  On Zen 4, which has AVX-512, they take less time if they alternate.  Computing 16-bit values takes longer
 * than either order of the stores. */
static void write_sides(const group_t *g, anchor_t *a) {
    group_t below = *g, above = *g;
    below.rows = min_int(g->rows, g->middle);
    WRITE_GROUP[g->output][g->block->job->dtype](&below, a);
    above.rows = above.middle = g->rows - below.rows;
    above.row_step = -1;
    above.row += (g->rows - 1) * g->block->joined;
    above.out += (g->rows - 1) * g->row_stride;
    above.row_stride = -g->row_stride;
    for (int i = 0; i < TILE; i++) a->q[i] = -a->q[i], a->q_low[i] = -a->q_low[i];
    WRITE_GROUP[g->output][g->block->job->dtype](&above, a);
}

/* Writes the rows of anchor k in a tile, row i to out + i * row_stride.  A tile that ends in the next row has
 * one row fewer; write_edges writes the missing part. */
NOINLINE void advance_group(const run_block_t *b, const origin_t *origin, ptrdiff_t tile, int k, output_t output, int whole,
                            char *out, ptrdiff_t row_stride) {
    anchor_t a;
    const ptrdiff_t rows = b->count - ends_in_next_row(b, tile) - k * FINE;
    if (rows <= 0) return;
    /* the anchor of a single group is in the middle of its rows: a row takes longer if there is none at the same
     * distance on the other side */
    const int is_single = b->count <= FINE, middle = is_single ? (int)(rows + 1) / 2 : HALF;
    const offsets_t *const o = b->job->offsets;
    if (is_single)
        anchor_of(b->job, &origin->first, offsets_at(o->fine, tile, HALF, middle - 1),
                  offsets_at(o->fine_low, tile, HALF, middle - 1), &a);
    else
        anchor_of(b->job, &origin->first, offsets_at(o->coarse, tile, COARSE, k), offsets_at(o->coarse_low, tile, COARSE, k),
                  &a);
    const int width = min_int(b->spec->d_model - tile * TILE, TILE);
    const group_t g = {.block = b,
                       .origin = origin,
                       .output = output,
                       .row = b->row + k * FINE * b->joined,
                       .column = tile * TILE,
                       .rows = min_int(rows, FINE),
                       .middle = middle,
                       .width = width,
                       .whole = whole || width == TILE,
                       .row_step = 1,
                       .out = out,
                       .row_stride = row_stride,
                       .fine = offsets_at(o->fine, tile, HALF, 0),
                       .fine_low = offsets_at(o->fine_low, tile, HALF, 0)};
    if (LANES < 8 && output == STREAM && row_stride % PAGE == 0 && size_of(b->job->dtype) > 2) write_sides(&g, &a);
    else WRITE_GROUP[output][b->job->dtype](&g, &a);
}

/* Writes the columns that no tile covers: those before the first cache line of the first row, and those after
 * the last whole tile of the last row. */
COLD void write_edges(const spec_t *spec, const run_block_t *b) {
    const job_t *job = b->job;
    const ptrdiff_t size = size_of(job->dtype), first = b->spec->first, last = b->row + b->count - 1;
    const ptrdiff_t end = columns_of_this_row(b), column = end / TILE * TILE;
    const position_t position = position_of(spec, job, last);
    direct_columns(spec, job, &b->position, b->row, 0, first, job->out + b->row * job->row_stride, b->tally);
    direct_columns(b->spec, job, &position, last, column, end, job->out + last * job->row_stride + (first + column) * size,
                   b->tally);
}

/* ---- strip by strip, and anchor by anchor within a strip ----------------------------------------------- */

/* Returns the number of tiles in a strip.  With non-temporal stores, smaller strips are slower, because fewer
 * adjacent cache lines are written together.  With plain stores, the offsets of a single tile stay in L1. */
INLINE int strip_tiles(const job_t *job) { return job->panel ? STRIP : job->output == STREAM ? 4 : 1; }

/* Writes the rows of a panel, or adds them to each batch entry.  A row of the panel has `bytes` bytes, which are
 * `joined` rows of the table. */
static void flush_panel(const job_t *job, char *out, char *panel, ptrdiff_t pitch, ptrdiff_t bytes, ptrdiff_t rows,
                        ptrdiff_t joined) {
    ptrdiff_t stride = job->row_stride;
    if (stride * joined == bytes) {
        for (ptrdiff_t r = 1; r < rows && pitch != bytes; r++) memmove(panel + r * bytes, panel + r * pitch, (size_t)bytes);
        bytes *= rows;
        rows = joined = 1;
    }
    bytes /= joined;
    rows *= joined;
    const int is_batch_inside = job->batch_stride < stride; /* in memory, as if positions are the first axis */
    for (ptrdiff_t i = 0; i < (is_batch_inside ? rows : job->batch); i++) {
        for (ptrdiff_t j = 0; j < (is_batch_inside ? job->batch : rows); j++) {
            const ptrdiff_t r = is_batch_inside ? i : j, b = is_batch_inside ? j : i;
            const char *const from = panel + r / joined * pitch + r % joined * bytes;
            char *const to = out + b * job->batch_stride + r * stride;
            if (job->output == ADD) add_to_batch(job, to, from, bytes / size_of(job->dtype), 1);
            else if (job->output == STREAM) flush_bytes(to, from, bytes);
            else memcpy(to, from, (size_t)bytes);
        }
    }
}

/* Writes a strip, to `out` or to a panel.
 *
 * With a panel, the rows of some anchors are stored in the panel, which stays in the cache, then flushed to
 * `out`, or added to it.  A panel is used for additions, for streamed rows that do not begin on cache lines
 * (unless spec->first is set), for short rows that end with a part of a tile, and for joined rows with gaps.  If
 * the rows of `out` are contiguous and fit in one strip, the rows of the panel are also contiguous, and most cache
 * lines are flushed whole.  The spare columns of the last tile then overwrite the first columns of the next row,
 * so the last tile is computed first; a single tile stores only its own columns. */
COLD void write_strip(const run_block_t *b, ptrdiff_t first_tile, ptrdiff_t last_tile, char *panel) {
    const job_t *job = b->job;
    const ptrdiff_t size = size_of(job->dtype), column = first_tile * TILE, tiles = last_tile - first_tile;
    const ptrdiff_t bytes = min_int(b->spec->d_model - column, STRIP * TILE) * size, stride = job->row_stride * b->joined;
    const int contiguous = bytes == stride && bytes >= TILE * size;
    const ptrdiff_t pitch = contiguous ? bytes : tiles * TILE * size + LINE;
    origin_t origins[STRIP];
    for (ptrdiff_t t = 0; t < tiles; t++) block_origin(b, first_tile + t, &origins[t]);
    for (int k = 0; k * FINE < b->count; k++) {
        char *const out = job->out + b->row * job->row_stride + k * FINE * stride + (b->spec->first + column) * size;
        if (!job->panel) {
            for (ptrdiff_t t = 0; t < tiles; t++)
                advance_group(b, &origins[t], first_tile + t, k, job->output, 0, out + t * TILE * size, stride);
            continue;
        }
        const ptrdiff_t at = k * FINE % job->panel_rows; /* in the panel */
        char *const start = out - at * stride, *const held = panel + (contiguous ? (uintptr_t)start % LINE : 0);
        for (ptrdiff_t i = 0; i < tiles; i++) {
            const ptrdiff_t t = i ? i - 1 : tiles - 1;
            advance_group(b, &origins[t], first_tile + t, k, STORE, !contiguous || tiles > 1,
                          held + at * pitch + t * TILE * size, pitch);
        }
        const ptrdiff_t rows = min_int(at + b->count - k * FINE, at + FINE);
        if (rows == job->panel_rows || (k + 1) * FINE >= b->count) flush_panel(job, start, held, pitch, bytes, rows, b->joined);
    }
}

/* ---- a block ------------------------------------------------------------------------------------------- */

/* Writes `count` (at most BLOCK) evenly spaced rows from `row` on, or the same number of joined rows.  No row may be
 * at the padding position, or at the position whose angles are 0. */
NOINLINE void write_block(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t count, char *panel, tally_t *tally) {
    const int joined = job->offsets->joined;
    const spec_t shifted = spec_from(spec, job->offsets);
    const ptrdiff_t tiles = spec->columns / TILE;
    position_lanes_t lanes;
    const run_block_t b = {&shifted,
                           job,
                           row,
                           count,
                           joined,
                           joined > 1 ? joined_position(spec, job, row, joined, &lanes) : position_of(spec, job, row),
                           shifted.first ? position_of(spec, job, row + 1) : (position_t){0},
                           tally};
    if (!is_fast(spec, &b.position) || (shifted.first && !is_fast(spec, &b.next)) ||
        (job->dtype != FLOAT64 && !spec->has_fast_test)) {
        direct_rows(spec, job, row, count * joined, tally);
    } else {
        const int strip = strip_tiles(job);
        if (shifted.first) write_edges(spec, &b);
        for (ptrdiff_t tile = 0; tile < tiles; tile += strip) write_strip(&b, tile, min_int(tile + strip, tiles), panel);
    }
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

enum {
    MIN_APART = FINE / 8 /* fewest remaining rows that are faster as a separate block: see `is_single` */
};

/* Returns the number of rows, of `count` evenly spaced rows from `row` on, before the position `special`.  The
 * distance from `row` to `special` is computed modulo 2**64.  If `special` is before `row`, this distance is
 * larger than the distance to the last row, because the positions of all rows are in the range of int64.  If
 * `special` is between two rows, the result does not count the first of these rows, which is then evaluated
 * directly. */
static ptrdiff_t rows_before(const job_t *job, ptrdiff_t row, ptrdiff_t count, int64_t special) {
    const uint64_t at = job->start + (uint64_t)row * job->step;
    const int down = (int64_t)job->step < 0;
    const uint64_t ahead = (down ? at - (uint64_t)special : (uint64_t)special - at) / (down ? -job->step : job->step);
    return ahead < (uint64_t)count ? (ptrdiff_t)ahead : count;
}

/* Writes evenly spaced rows.  No block includes the padding position or the position whose angles are 0. */
static void even_rows(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t count, char *panel, tally_t *tally) {
    const ptrdiff_t end = row + count;
    const int joined = job->offsets->joined;
    while (row < end) {
        ptrdiff_t rows = min_int(end - row, BLOCK * joined);
        if (spec->has_padding) rows = rows_before(job, row, rows, spec->padding);
        if (spec->has_zero) rows = rows_before(job, row, rows, spec->zero);
        if (rows > FINE * joined && rows % (FINE * joined) >= MIN_APART * joined) rows -= rows % (FINE * joined);
        if (rows < MIN_ADVANCED * joined) direct_rows(spec, job, row, rows = max_size(rows, 1), tally);
        else write_block(spec, job, row, rows / joined, panel, tally), rows -= rows % joined;
        row += rows;
    }
}

enum { MIN_IN_RUN = 16 }; /* shorter runs are computed from digits, which is about as fast */

/* Returns the number of rows from `row` on whose integer positions all rise or all fall by job->offsets->step. */
static ptrdiff_t run_at(const job_t *job, ptrdiff_t row, ptrdiff_t end) {
    const int64_t *const p = job->integers;
    const uint64_t step = row + 1 < end ? (uint64_t)p[row + 1] - (uint64_t)p[row] : 0;
    const int up = step == job->offsets->step;
    ptrdiff_t rows = 1;
    if (up || -step == job->offsets->step)
        while (row + rows < end && (uint64_t)p[row + rows] - (uint64_t)p[row + rows - 1] == step &&
               (p[row + rows] > p[row + rows - 1]) == up)
            rows++;
    return rows;
}

/* Writes the rows from `row` on that are contiguous in the span table and in `out`, and returns their number, which
 * is 0 if the first position is outside the span.  Padding rows are skipped if only zeros would be added. */
static ptrdiff_t copy_rows(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t end) {
    const uint64_t at = (uint64_t)job->integers[row] - (uint64_t)job->span_start;
    if (at >= (uint64_t)job->span_rows) return 0;
    const char *const from = job->span + (ptrdiff_t)at * job->span_pitch;
    char *const out = job->out + row * job->row_stride;
    ptrdiff_t rows = 1;
    if (leaves_padding(spec, job)) {
        const uint64_t ahead = (uint64_t)spec->padding - (uint64_t)job->integers[row];
        if (ahead == 0) return 1;
        if (ahead < (uint64_t)(end - row)) end = row + (ptrdiff_t)ahead;
    }
    while (job->row_stride == job->span_pitch && row + rows < end && at + (uint64_t)rows < (uint64_t)job->span_rows &&
           (uint64_t)job->integers[row + rows] - (uint64_t)job->integers[row] == (uint64_t)rows)
        rows++;
    if (job->output == ADD) add_to_batch(job, out, from, rows * spec->d_model, job->batch);
    else memcpy(out, from, (size_t)(rows * job->span_pitch));
    return rows;
}

/* Writes rows at any positions: from the span table, in runs, from digits, or directly. */
static void uneven_rows(const spec_t *spec, const job_t *job, ptrdiff_t first, ptrdiff_t count, char *panel, tally_t *tally) {
    digit_group_t *const group = job->digits ? (digit_group_t *)(void *)(panel + job->panel) : NULL;
    ptrdiff_t rows;
    if (is_narrow(spec)) {
        narrow_rows(spec, job, first, count, tally);
        return;
    }
    if (group) group->count = 0;
    for (ptrdiff_t row = first; row < first + count; row += rows) {
        rows = job->span ? copy_rows(spec, job, row, first + count) : 0;
        if (rows) continue;
        rows = job->offsets ? run_at(job, row, first + count) : 1;
        if (rows >= MIN_IN_RUN) {
            job_t run = *job;
            run.integers = NULL;
            run.out += row * job->row_stride;
            run.start = (uint64_t)job->integers[row];
            run.step = (uint64_t)job->integers[row + 1] - run.start;
            even_rows(spec, &run, 0, rows, panel, tally);
            continue;
        }
        rows = 1;
        if (!group || !add_digit_row(spec, job, row, group, tally)) scattered_row(spec, job, row, tally);
    }
    if (group && group->count) write_digit_rows(spec, job, group, tally);
}

static void write_rows(const spec_t *spec, const job_t *job, ptrdiff_t first, ptrdiff_t count, char *panel, tally_t *tally) {
    const environment_t host = environment_enter();
    if (job->offsets && !job->integers) even_rows(spec, job, first, count, panel, tally);
    else uneven_rows(spec, job, first, count, panel, tally);
    if (job->output == STREAM) store_fence();
    environment_leave(host);
}

#endif
