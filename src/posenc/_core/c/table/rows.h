/* Writes the rows of a table.  Runs of evenly spaced positions are computed in blocks, other rows one by one. */
#ifndef POSENC_ROWS_H
#define POSENC_ROWS_H

#include "table/blocks.h"

enum { FEWEST_ROWS = 4 };       /* fewer rows are evaluated one by one, which is faster than a block */

/* Returns how many of `count` evenly spaced rows, from `row` on, come before the position `special`.
 * The distance from `row` to `special` is computed modulo 2**64.  If `special` is before `row`, this distance is larger than
 * the distance to the last row, because the positions of all rows are in the range of int64.  If `special` is between two
 * rows, the result does not count the first of these rows, which is then evaluated directly. */
static ptrdiff_t rows_before(const job_t *job, ptrdiff_t row, ptrdiff_t count, int64_t special) {
    const uint64_t at = job->start + (uint64_t)row * job->step;
    const int down = (int64_t)job->step < 0;
    const uint64_t ahead = (down ? at - (uint64_t)special : (uint64_t)special - at) / (down ? -job->step : job->step);
    return ahead < (uint64_t)count ? (ptrdiff_t)ahead : count;
}

/* Writes evenly spaced rows.  The blocks leave out the padding position and the position whose angles are 0. */
static void even_rows(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t count, char *panel, tally_t *tally) {
    const ptrdiff_t end = row + count;
    while (row < end) {
        ptrdiff_t rows = minimum(end - row, BLOCK);
        if (spec->has_padding) rows = rows_before(job, row, rows, spec->padding);
        if (spec->has_zero) rows = rows_before(job, row, rows, spec->zero);
        if (rows < FEWEST_ROWS) scattered_row(spec, job, row++, tally);
        else block(spec, job, row, rows, panel, tally), row += rows;
    }
}

/* Writes rows at integer positions.  Long runs of positions that rise or fall by job->offsets->step are computed in blocks. */
static void integer_rows(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t count, char *panel, tally_t *tally) {
    const int64_t *const p = job->integers;
    const ptrdiff_t end = row + count;
    while (row < end) {
        const uint64_t step = row + 1 < end ? (uint64_t)p[row + 1] - (uint64_t)p[row] : 0;
        const int up = step == job->offsets->step;
        ptrdiff_t rows = 1;
        if (up || -step == job->offsets->step)
            while (row + rows < end && (uint64_t)p[row + rows] - (uint64_t)p[row + rows - 1] == step &&
                   (p[row + rows] > p[row + rows - 1]) == up)
                rows++;
        if (rows < FEWEST_ROWS) {
            for (const ptrdiff_t next = row + rows; row < next; row++) scattered_row(spec, job, row, tally);
            continue;
        }
        job_t run = *job;
        run.integers = NULL;
        run.out += row * job->row_stride;
        run.start = (uint64_t)p[row];
        run.step = step;
        even_rows(spec, &run, 0, rows, panel, tally);
        row += rows;
    }
}

static void rows(const spec_t *spec, const job_t *job, ptrdiff_t first, ptrdiff_t count, char *panel, tally_t *tally) {
    const environment_t host = environment_enter();
    if (job->offsets == NULL)
        for (ptrdiff_t row = first; row < first + count; row++) scattered_row(spec, job, row, tally);
    else if (job->integers) integer_rows(spec, job, first, count, panel, tally);
    else even_rows(spec, job, first, count, panel, tally);
    if (job->output == STREAM) flush_fence();
    environment_leave(host);
}

#endif
