/* Plans: how the rows of a call are computed and written, the number of threads, and the blocks into which
 * the work is divided.
 *
 * A value that is evaluated directly takes about ten times as long as one that is advanced from an anchor. */
#ifndef POSENC_PLAN_H
#define POSENC_PLAN_H

#include "kernel.h"
#if !defined(_WIN32)
#include <sys/mman.h>
#include <unistd.h>
#endif

enum {
    /* PER_THREAD: values that justify another thread.  IN_BLOCK: most values in a block; the clock is
     * checked after each block. */
    COPIED_PER_THREAD = 1 << 20, /* from a span table */
    ADVANCED_PER_THREAD = 1 << 19,
    ROTATED_PER_THREAD = 1 << 18,
    DIGITS_PER_THREAD = 1 << 17,
    ADVANCED_IN_BLOCK = 1 << 24,
    DIRECT_PER_THREAD = 1 << 14,
    DIRECT_IN_BLOCK = 1 << 13,
    /* Fewest rows for which an offset table is built.  Building it takes as long as the direct evaluation of tens
     * of rows in double-double (float64), or of hundreds in double.  A kept table also speeds up later calls. */
    ROWS_FOR_KEPT_TABLE = 32,
    ROWS_FOR_TABLE_FLOAT64 = 128, /* if the table is for one call, and direct evaluation is in double-double */
    ROWS_FOR_TABLE = 512, /* if the table is for one call, and direct evaluation is in double */
    KEPT_COLUMNS = 1 << 13, /* most columns of a kept table; a column takes 1.3 kB */
    MAX_SHORT = 1 << 10, /* most values of a call that keeps the GIL: they take a few us */
    ENTRIES = 64, /* batch entries in a block of a call with one thread; each block computes its rows again */
    MIN_ENTRIES = 16, /* fewest batch entries in a block of a call with several threads, and ... */
    MIN_HEADS = 8, /* ... fewest heads */
    STREAM_BYTES = 1 << 23, /* outputs of at least this size exceed the caches and use non-temporal stores */
    L2_BYTES = 1 << 19, /* if the size of L2 is unknown */
    MOST_PANEL_BYTES = 1 << 20, /* of an addition; with a smaller panel, x is read in shorter parts, more slowly */
    TILES_PER_BLOCK = 16, /* tiles of an offset table in a block; a tile takes 20 us */
    TABLE_BYTES = 1 << 17, /* size of the cosines and sines that a thread keeps in L2 during a rotation */
    MIN_TABLE_ROWS = 4, /* fewest rows of cosines and sines that a thread computes together */
    DIRECT_HEADS = 6, /* heads rotated in the time that a direct evaluation of the cosines and sines of a row takes */
    MOST_SHORT_TILES = 4, /* most tiles of rows that use a panel because they end with a part of a tile */
    MAX_LIMBS = 20, /* most fraction limbs with digit tables: no frequency is below 2**-383 turns per position */
    RISKY_LIMBS = 10, /* fewest fraction limbs of frequencies below 2**-31 turns per position */
    RISKY_IN_BLOCK = 1 << 16,
    ROTATED_IN_BLOCK = 1 << 20 /* to limit the time of a block if all values are evaluated exactly */
};

typedef struct {
    int threads, keeps_gil;
    ptrdiff_t rows, entries; /* rows, and batch entries or heads, in a block */
    ptrdiff_t row_blocks, blocks; /* number of blocks for one batch entry, and for the whole batch */
} plan_t;

static inline ptrdiff_t divided_up(ptrdiff_t a, ptrdiff_t b) { return (a + b - 1) / b; }

/* Divides `rows` and `entries` into blocks of plan->rows rows and at most `most` entries.  With several threads,
 * there are about four blocks for each thread, unless a block would have fewer than `fewest` entries. */
static inline void divide(plan_t *plan, ptrdiff_t rows, ptrdiff_t entries, ptrdiff_t fewest, ptrdiff_t most) {
    const ptrdiff_t parts = divided_up(4 * plan->threads * plan->rows, rows); /* of the entries */
    if (plan->threads > 1) most = min_size(most, max_size(fewest, divided_up(entries, parts)));
    plan->entries = min_size(entries, most);
    plan->row_blocks = divided_up(rows, plan->rows);
    plan->blocks = plan->row_blocks * divided_up(entries, plan->entries);
}

/* Returns the index of the block that is run as number `which`.  Successive blocks come from different ranges, one
 * for each thread, so that threads do not wait for the same new huge page. */
static inline ptrdiff_t block_at(const plan_t *plan, ptrdiff_t which) {
    const ptrdiff_t range = which % plan->threads, blocks = plan->blocks / plan->threads, longer = plan->blocks % plan->threads;
    return range * blocks + min_size(range, longer) + which / plan->threads;
}

/* ---- tables -------------------------------------------------------------------------------------------- */

/* Returns whether the system has not yet provided the page at an address.  The system clears a page when it
 * provides it, so the page is then in the cache, and plain stores are faster. */
static inline int is_new_page(const char *address) {
#if defined(_WIN32)
    return 0;
#else
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)address / page * page;
    unsigned char resident = 1;
    return mincore((void *)start, page, (void *)&resident) == 0 && !(resident & 1);
#endif
}

/* Returns whether the rows of a table are written with non-temporal stores.  The job of a rotation has no
 * `out`. */
static inline int is_streamed(const job_t *job, const spec_t *spec, ptrdiff_t rows) {
    return job->output != ADD && job->out && rows * spec->d_model * size_of(job->dtype) >= STREAM_BYTES &&
           !is_new_page(job->out + rows / 2 * job->row_stride);
}

/* Returns how many rows of a job make a row of a tile: see offsets_t. */
static inline int joined_rows(const job_t *job) { return job->offsets ? job->offsets->joined : 1; }

/* Returns whether (joined) rows end with a part of a tile, and are so short that writing this part takes longer
 * than flushing a panel. */
static inline int has_short_end(const spec_t *spec, int joined) {
    return spec->d_model * joined % TILE && spec->columns <= MOST_SHORT_TILES * TILE;
}

/* Returns the column at which the offset table of a job begins: see spec_from in advance.h. */
static inline ptrdiff_t first_column(const job_t *job, const spec_t *spec, ptrdiff_t rows) {
    const ptrdiff_t itemsize = size_of(job->dtype), row_bytes = spec->d_model * itemsize;
    const int shifts =
        job->row_stride == row_bytes && row_bytes % LINE == 0 && !has_short_end(spec, 1) && is_streamed(job, spec, rows);
    return shifts ? (ptrdiff_t)(-(uintptr_t)job->out % LINE) / itemsize : 0;
}

/* Chooses the output mode of a job with an offset table, and the panel with which whole cache lines are
 * written, or long parts of each batch entry are read. */
static inline void choose_output(job_t *job, const spec_t *spec, ptrdiff_t rows) {
    const ptrdiff_t itemsize = size_of(job->dtype), pitch = min_size(spec->columns * itemsize, STRIP * TILE * itemsize) + LINE;
    const int joined = joined_rows(job), has_lines = job->row_stride % LINE == 0 && (uintptr_t)job->out % LINE == 0;
    const ptrdiff_t in_tiles = divided_up(rows, joined); /* rows of tiles */
    if (job->offsets && job->output == ADD) {
        ptrdiff_t l2 = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
        l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
        const ptrdiff_t most = min_size(l2 > 0 ? l2 : L2_BYTES, MOST_PANEL_BYTES) / pitch / FINE * FINE;
        job->panel_rows = min_size(max_size(most, FINE), min_size(divided_up(in_tiles, FINE) * FINE, BLOCK));
    } else if (job->output != ADD) {
        const int streamed = is_streamed(job, spec, rows), is_run = job->offsets && !job->offsets->first;
        const int has_gaps = joined > 1 && job->row_stride != spec->d_model * itemsize;
        if (streamed) job->output = STREAM;
        if (is_run && ((streamed && !has_lines) || has_gaps || (has_short_end(spec, joined) && in_tiles >= FINE)))
            job->panel_rows = FINE;
    }
    /* includes a start inside a cache line, and the spare columns of the last row */
    const ptrdiff_t bytes = pitch * min_size(job->panel_rows, in_tiles) + LINE + TILE * itemsize;
    if (job->panel_rows) job->panel = (size_t)(divided_up(bytes, LINE) * LINE);
}

/* Returns whether most rows of a job, for which `arrange` has chosen tables, are computed from them. */
static inline int uses_tables(const job_t *job, const spec_t *spec) {
    return (job->offsets || job->digits || job->span_rows) && spec->has_fast_path &&
           (spec->has_fast_test || job->dtype == FLOAT64);
}

static inline ptrdiff_t table_per_thread(const job_t *job, const spec_t *spec) {
    if (!uses_tables(job, spec)) return DIRECT_PER_THREAD;
    if (job->span_rows && job->output != ADD) return COPIED_PER_THREAD;
    return job->digits ? DIGITS_PER_THREAD : ADVANCED_PER_THREAD;
}

/* Plans a job whose tables are set, and chooses its output mode. */
static inline plan_t plan_table(job_t *job, const spec_t *spec, ptrdiff_t rows, int most_threads) {
    const int fast = uses_tables(job, spec);
    /* sines of tiny angles may be next to half-way points; an undecided value takes 384 bytes, and a thread
     * limits their number only between blocks */
    const int risky = spec->fraction_limbs >= RISKY_LIMBS && spec->phase_bits == NO_PHASE_BITS;
    const ptrdiff_t joined = joined_rows(job), columns = spec->columns / joined; /* includes spare columns */
    const ptrdiff_t in_block = !fast ? DIRECT_IN_BLOCK : risky ? RISKY_IN_BLOCK : ADVANCED_IN_BLOCK;
    /* without a fast path, Python evaluates the values, in one thread at a time */
    const ptrdiff_t parts = spec->has_fast_path ? divided_up(rows * job->batch, FINE) : 1;
    /* In a larger block, more of the sorted rows share upper digits, and the parts of x are longer, which are then
     * read faster. */
    const int is_sorted = fast && job->digits && columns >= SORTED_COLUMNS;
    const ptrdiff_t most = is_sorted ? GROUP_ROWS : BLOCK * joined, share = is_sorted || job->output == ADD ? 1 : 4;
    plan_t plan = {.rows = fast ? most : max_size(1, min_size(BLOCK, DIRECT_IN_BLOCK / columns))};
    job->panel = job->panel_rows = 0;
    if (job->offsets || job->digits) choose_output(job, spec, rows);
    plan.threads = min_int(most_threads, parts);
    plan.keeps_gil = rows * columns * job->batch <= MAX_SHORT;
    while (plan.rows > (risky ? 1 : FINE) && ((plan.threads > 1 && rows < share * plan.threads * plan.rows) ||
                                              plan.rows * columns * min_size(job->batch, ENTRIES) > in_block))
        plan.rows /= 2;
    job->group_rows = min_size(is_sorted ? plan.rows : UNSORTED_ROWS, rows);
    const ptrdiff_t lines = divided_up(GROUP_BYTES + job->group_rows * GROUP_ROW_BYTES, LINE);
    job->memory = job->panel + (job->digits ? (size_t)(lines * LINE) : 0);
    divide(&plan, rows, job->batch, MIN_ENTRIES, max_size(ENTRIES, in_block / (plan.rows * columns)));
    return plan;
}

/* Plans an offset table or a level of digit tables; a block is a number of tiles. */
static inline plan_t plan_tiles(ptrdiff_t tiles, int most_threads) {
    plan_t plan = {.rows = TILES_PER_BLOCK, .threads = min_int(most_threads, divided_up(tiles, TILES_PER_BLOCK))};
    divide(&plan, tiles, 1, 1, 1);
    return plan;
}

/* ---- rotations ----------------------------------------------------------------------------------------- */

static inline ptrdiff_t rotation_per_thread(const rotation_t *r) {
    return r->has_fast_path ? ROTATED_PER_THREAD : DIRECT_PER_THREAD;
}

/* Plans a rotation, or, with one head, the factors of a rotation. */
static inline plan_t plan_rotation(const rotation_t *r, ptrdiff_t rows, ptrdiff_t heads, int most_threads) {
    const ptrdiff_t columns = 2 * r->pairs + r->rest, in_block = r->has_fast_path ? ROTATED_IN_BLOCK : DIRECT_IN_BLOCK / 2;
    const ptrdiff_t evaluated = !r->factors && r->direct_scale != 0 ? DIRECT_HEADS : 0;
    plan_t plan = {.rows = min_size(rows, max_size(MIN_TABLE_ROWS, min_size(FINE, TABLE_BYTES / (2 * r->pairs * 8 + 1))))};
    /* Waking a thread takes longer than a small rotation, and the call must wait for the thread.  So the number of
     * values limits the number of threads, even if the caller requests a number. */
    const ptrdiff_t values = r->has_fast_path ? rows * (heads + evaluated) * columns : PTRDIFF_MAX;
    const ptrdiff_t parts = min_size(divided_up(rows * heads, FINE), values / rotation_per_thread(r));
    plan.threads = min_int(most_threads, max_size(1, parts));
    while (plan.threads > 1 && plan.rows > MIN_TABLE_ROWS && divided_up(rows, plan.rows) < 4 * plan.threads) plan.rows /= 2;
    divide(&plan, rows, heads, MIN_HEADS, max_size(1, in_block / (plan.rows * columns)));
    return plan;
}

#endif
