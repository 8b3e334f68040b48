/* Blocks of evenly spaced rows: a block's first row is evaluated directly, its anchors are rotated from it, and its rows from
 * them (rotate.h).  Tiles of columns are the outer loop and rows the inner one, so that a tile's offsets stay in L1, at any
 * d_model.
 */
#ifndef POSENC_BLOCKS_H
#define POSENC_BLOCKS_H

#include "scattered.h"

/* One block.  `end` is `count`, or one row less in the tiles whose last columns belong to the next row. */
typedef struct {
    const spec_t *spec;
    const job_t *job;
    ptrdiff_t row, count;
    position_t position, next;
    tally_t *tally;
} block_t;

static ptrdiff_t columns_of_this_row(const block_t *b) { return b->spec->d_model - b->spec->first; }

static int goes_on_in_next_row(const block_t *b, ptrdiff_t tile) {
    return b->spec->first && (tile + 1) * TILE > columns_of_this_row(b);
}

static ptrdiff_t rows_of_tile(const block_t *b, ptrdiff_t tile) { return b->count - goes_on_in_next_row(b, tile); }

static void first_row(const block_t *b, ptrdiff_t tile, first_row_t *first) {
    first_row_of(b->spec, b->job, &b->position, tile, first);
    if (!goes_on_in_next_row(b, tile)) return;
    first_row_t next;
    first_row_of(b->spec, b->job, &b->next, tile, &next);
    for (ptrdiff_t i = columns_of_this_row(b) - tile * TILE < 0 ? 0 : columns_of_this_row(b) - tile * TILE; i < TILE; i++) {
        first->p[i] = next.p[i];
        first->q[i] = next.q[i];
        first->p_low[i] = next.p_low[i];
        first->q_low[i] = next.q_low[i];
        first->fixed[i] = next.fixed[i];
    }
}

/* The rows of anchor k in a tile: row i to out + i * row_stride. */
static void group(const block_t *b, const first_row_t *first, ptrdiff_t tile, int k, output_t output, int whole, char *out,
                  ptrdiff_t row_stride, prefetch_t *prefetch) {
    anchor_t a;
    const ptrdiff_t rows = rows_of_tile(b, tile) - k * FINE;
    if (rows <= 0) return;
    anchor_of(b->job, first, tile, k, &a);
    const int width = smaller(b->spec->d_model - tile * TILE, TILE);
    const group_t g = {.spec = b->spec,
                       .job = b->job,
                       .output = output,
                       .row = b->row + k * FINE,
                       .column = tile * TILE,
                       .rows = smaller(rows, FINE),
                       .width = width,
                       .whole = whole || width == TILE,
                       .out = out,
                       .row_stride = row_stride,
                       .fine = offsets_at(b->job->offsets->fine, tile, HALF, 0),
                       .fine_low = offsets_at(b->job->offsets->fine_low, tile, HALF, 0),
                       .prefetch = prefetch,
                       .tally = b->tally};
    GROUP[output][b->job->dtype](&g, &a);
}

/* ---- straight to `out` ----------------------------------------------------------------------------------------------------- */

/* What the tiles leave: the columns of the first row before its first line, and those of the last row behind its last one. */
static void edges(const spec_t *spec, const block_t *b) {
    const job_t *job = b->job;
    const ptrdiff_t size = size_of(job->dtype), last = b->row + b->count - 1;
    TILE_ROW[job->dtype](spec, job, &b->position, b->row, 0, (int)b->spec->first, job->out + b->row * job->row_stride,
                         b->tally);
    const position_t position = position_of(spec, job, last);
    for (ptrdiff_t tile = 0; tile < spec->columns / TILE; tile++) {
        const int width = smaller(columns_of_this_row(b) - tile * TILE, TILE);
        if (goes_on_in_next_row(b, tile) && width > 0)
            TILE_ROW[job->dtype](b->spec, job, &position, last, tile * TILE, width,
                                 job->out + last * job->row_stride + (b->spec->first + tile * TILE) * size, b->tally);
    }
}

static void straight_block(const block_t *b) {
    const job_t *job = b->job;
    char *const out = job->out + b->row * job->row_stride + b->spec->first * size_of(job->dtype);
    for (ptrdiff_t tile = 0; tile < b->spec->columns / TILE; tile++) {
        first_row_t first;
        first_row(b, tile, &first);
        for (int k = 0; k * FINE < b->count; k++)
            group(b, &first, tile, k, job->output, 0, out + k * FINE * job->row_stride + tile * TILE * size_of(job->dtype),
                  job->row_stride, NULL);
    }
}

/* ---- strips of tiles, all rows of an anchor before those of the next --------------------------------------------------------- */

static void added_strip(const block_t *b, ptrdiff_t first_tile, ptrdiff_t last_tile) {
    const job_t *job = b->job;
    const ptrdiff_t size = size_of(job->dtype), column = first_tile * TILE;
    const ptrdiff_t row_bytes = smaller(b->spec->d_model - column, STRIP * TILE) * size;
    first_row_t first[STRIP];
    for (ptrdiff_t tile = first_tile; tile < last_tile; tile++) first_row(b, tile, &first[tile - first_tile]);
    for (int k = 0; k * FINE < b->count; k++) {
        char *const out = job->out + (b->row + k * FINE) * job->row_stride + column * size;
        prefetch_t prefetch = {out + FINE * job->row_stride, 0, row_bytes, job->row_stride};
        for (ptrdiff_t tile = first_tile; tile < last_tile; tile++)
            group(b, &first[tile - first_tile], tile, k, ADD, 0, out + (tile - first_tile) * TILE * size, job->row_stride,
                  &prefetch);
    }
}

/* Writes or adds the rows of a panel, `bytes` each, to all of the batch. */
static void flush(const job_t *job, char *out, const char *panel, ptrdiff_t pitch, ptrdiff_t bytes, ptrdiff_t rows) {
    if (pitch == job->row_stride && bytes == pitch) {
        bytes *= rows;
        rows = 1;
    }
    for (ptrdiff_t b = 0; b < job->batch; b++, out += job->batch_stride) {
        for (ptrdiff_t r = 0; r < rows; r++) {
            char *const to = out + r * job->row_stride;
            if (job->output == ADD) add_to_batch(job, to, panel + r * pitch, bytes / size_of(job->dtype), 1);
            else stream_bytes(to, panel + r * pitch, bytes);
        }
    }
}

/* Rows go through a panel, a copy of `rows` x `bytes` of them in the cache, where they are wanted several times or do not
 * begin on cache lines.  Where the rows of `out` follow one another the panel is as contiguous, and then most of its lines
 * are whole.  There the spare columns of the last tile are stored over the first columns of the next row, which are computed
 * later: that tile goes first. */
static void panel_strip(const block_t *b, ptrdiff_t first_tile, ptrdiff_t last_tile, char *panel) {
    const job_t *job = b->job;
    const ptrdiff_t size = size_of(job->dtype), column = first_tile * TILE, tiles = last_tile - first_tile;
    const ptrdiff_t bytes = smaller(b->spec->d_model - column, STRIP * TILE) * size;
    const int contiguous = bytes == job->row_stride;
    const ptrdiff_t pitch = contiguous ? bytes : tiles * TILE * size + LINE;
    const int whole = !contiguous || tiles > 1;
    char *const out = job->out + b->row * job->row_stride + column * size;
    first_row_t first[STRIP];
    for (ptrdiff_t tile = first_tile; tile < last_tile; tile++) first_row(b, tile, &first[tile - first_tile]);
    for (int k = 0; k * FINE < b->count; k++) {
        char *const to = out + k * FINE * job->row_stride;
        char *const rows = panel + (contiguous ? (uintptr_t)to % LINE : 0);
        for (ptrdiff_t i = 0; i < tiles; i++) {
            const ptrdiff_t t = i ? i - 1 : tiles - 1;
            group(b, &first[t], first_tile + t, k, STORE, whole, rows + t * TILE * size, pitch, NULL);
        }
        flush(job, to, rows, pitch, bytes, smaller(b->count - k * FINE, FINE));
    }
}

/* ---- all kinds --------------------------------------------------------------------------------------------------------------- */

/* Rows row .. row + count - 1 of an evenly spaced job, at most BLOCK, none of them padding or of position 0. */
static void block(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t count, char *panel, tally_t *tally) {
    const spec_t shifted = spec_from(spec, job->offsets->first);
    const ptrdiff_t tiles = spec->columns / TILE;
    const block_t b = {&shifted, job, row, count, position_of(spec, job, row), position_of(spec, job, row + 1), tally};
    if (!is_fast(spec, &b.position) || (shifted.first && !is_fast(spec, &b.next)) || (job->dtype != FLOAT64 && !spec->quick)) {
        for (ptrdiff_t r = row; r < row + count; r++) scattered_row(spec, job, r, tally);
    } else if (job->panel || job->output == ADD) {
        for (ptrdiff_t tile = 0; tile < tiles; tile += STRIP) {
            const ptrdiff_t last = smaller(tile + STRIP, tiles);
            if (job->panel) panel_strip(&b, tile, last, panel);
            else added_strip(&b, tile, last);
        }
    } else {
        if (shifted.first) edges(spec, &b);
        straight_block(&b);
    }
}

#endif
