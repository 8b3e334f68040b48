/* Plans: the blocks into which the rows of a call are divided, and the number of threads for which there is enough work.
 *
 * A value takes 0.3 to 2 ns if it is advanced from an anchor, 3 to 20 ns if it is evaluated directly, and 3 to 15 us if it is
 * evaluated exactly. */
#ifndef POSENC_PLAN_H
#define POSENC_PLAN_H


#include "kernel.h"

enum {
    /* PER_THREAD: values that justify another thread.  IN_BLOCK: most values in a block, after which time is measured. */
    ADVANCED_PER_THREAD = 1 << 18,
    ADVANCED_IN_BLOCK = 1 << 24,
    DIRECT_PER_THREAD = 1 << 14,
    DIRECT_IN_BLOCK = 1 << 13,
    MIN_ENTRIES = 64, /* fewest batch entries in a block, because each block computes its rows again */
    STREAM_BYTES = 1 << 23, /* outputs of at least this size exceed the caches and use non-temporal stores */
    TILES_PER_BLOCK = 16, /* tiles of an offset table in a block; a tile takes 20 us */
    TABLE_BYTES = 1 << 17, /* size of the cosines and sines that a thread keeps in L2 during a rotation */
    FEWEST_TABLE_ROWS = 4, /* fewest rows of cosines and sines that a thread computes together */
    FEWEST_HEADS = 8, /* fewest heads in a block, if a rotation is divided among threads */
    DIRECT_HEADS = 6, /* heads that are rotated in the time that the cosines and sines of a row take directly */
    MOST_LIMBS = 20, /* of frequencies above 2**-320 */
    ROTATED_IN_BLOCK = 1 << 20 /* to limit the time of a block if all values are evaluated exactly */
};

typedef struct {
    ptrdiff_t values; /* work of the call */
    ptrdiff_t per_thread; /* values that justify another thread */
    ptrdiff_t most_threads; /* largest number of threads that can share the work */
    ptrdiff_t in_block; /* most values in a block of a table */
    ptrdiff_t rows, entries; /* rows, and batch entries or heads, in a block */
    ptrdiff_t row_blocks, blocks; /* number of blocks for one batch entry, and for the whole batch */
} plan_t;

static inline ptrdiff_t least(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }
static inline ptrdiff_t largest(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }
static inline ptrdiff_t divided_up(ptrdiff_t a, ptrdiff_t b) { return (a + b - 1) / b; }

/* Divides `rows` and `entries` into blocks; plan->rows and plan->entries are set. */
static inline void divide(plan_t *plan, ptrdiff_t rows, ptrdiff_t entries) {
    plan->row_blocks = divided_up(rows, plan->rows);
    plan->blocks = plan->row_blocks * divided_up(entries, plan->entries);
}

/* ---- tables ------------------------------------------------------------------------------------------------------------- */

/* Chooses the output mode of a job with an offset table, and a panel or a first column with which whole cache lines are
 * written.  The job of a rotation has no `out`.  Returns the first column of the offset table. */
static inline ptrdiff_t choose_output(job_t *job, const spec_t *spec, ptrdiff_t rows) {
    const ptrdiff_t itemsize = size_of(job->dtype), row_bytes = spec->d_model * itemsize;
    const ptrdiff_t pitch = least(spec->columns * itemsize, STRIP * TILE * itemsize) + LINE;
    const ptrdiff_t past = (ptrdiff_t)((uintptr_t)job->out % LINE);
    ptrdiff_t panel = 0, first = 0;
    if (job->output == ADD) {
        if (job->batch > 1 || itemsize == 2) panel = pitch * least(rows, FINE);
    } else if (job->out && rows * row_bytes >= STREAM_BYTES) {
        job->output = STREAM;
        if (job->row_stride == row_bytes && row_bytes % LINE == 0) first = (LINE - past) % LINE / itemsize;
        else if (job->row_stride % LINE || past) panel = pitch * FINE;
    }
    /* bytes for a start inside a cache line and for the spare columns of the last row */
    if (panel) panel = divided_up(panel + LINE + TILE * itemsize, LINE) * LINE;
    job->panel = (size_t)panel;
    return first;
}

/* Starts the plan of a job: its work.  The offset table of the job is set, or NULL. */
static inline void plan_job(plan_t *plan, const spec_t *spec, const job_t *job, ptrdiff_t rows) {
    /* float64 values below 2**-900 are undecided; frequencies of more than MOST_LIMBS limbs may give many */
    const int advanced =
        (job->offsets || job->digits) && spec->has_fast_path && (spec->fast_test || job->dtype == FLOAT64) && spec->fraction_limbs <= MOST_LIMBS;
    plan->values = rows * spec->columns * job->batch;
    plan->per_thread = advanced ? ADVANCED_PER_THREAD : DIRECT_PER_THREAD;
    plan->in_block = advanced ? ADVANCED_IN_BLOCK : DIRECT_IN_BLOCK;
    /* without a fast path, Python evaluates the values, in one thread at a time */
    plan->most_threads = spec->has_fast_path ? divided_up(rows * job->batch, FINE) : 1;
    plan->rows = advanced ? BLOCK : largest(1, least(BLOCK, DIRECT_IN_BLOCK / spec->columns));
}

/* Ends the plan of a job: its blocks. */
static inline void divide_job(plan_t *plan, const spec_t *spec, const job_t *job, ptrdiff_t rows, int threads) {
    const ptrdiff_t columns = spec->columns, entries = least(job->batch, MIN_ENTRIES);
    while (plan->rows > FINE &&
           ((threads > 1 && rows < 4 * threads * plan->rows) || plan->rows * columns * entries > plan->in_block))
        plan->rows /= 2;
    plan->entries = least(job->batch, largest(MIN_ENTRIES, plan->in_block / (plan->rows * columns)));
    divide(plan, rows, job->batch);
}

/* Plans an offset table; a block is a number of tiles. */
static inline plan_t plan_offsets(const spec_t *spec) {
    plan_t plan = {.rows = TILES_PER_BLOCK, .entries = 1, .per_thread = DIRECT_PER_THREAD};
    divide(&plan, spec->columns / TILE, 1);
    plan.values = (HALF + COARSE) * spec->columns;
    plan.most_threads = plan.blocks;
    return plan;
}

/* ---- rotations ---------------------------------------------------------------------------------------------------------- */

/* Sets the work of a rotation or of its factors.  A thread that sleeps takes longer to start than a small rotation takes, and
 * the call must wait for it.  So the values limit the number of threads even if the caller gives a number. */
static inline void set_rotation_work(plan_t *plan, const rotation_t *r, ptrdiff_t values, ptrdiff_t parts) {
    plan->values = values;
    plan->per_thread = r->has_fast_path ? ADVANCED_PER_THREAD : DIRECT_PER_THREAD;
    plan->most_threads = r->has_fast_path ? least(parts, values / ADVANCED_PER_THREAD) : parts;
}

/* Plans the factors of a rotation at `rows` positions. */
static inline plan_t plan_factors(const rotation_t *r, ptrdiff_t rows) {
    const ptrdiff_t columns = 2 * largest(1, r->pairs), in_block = r->has_fast_path ? ADVANCED_IN_BLOCK : DIRECT_IN_BLOCK;
    plan_t plan = {.rows = largest(1, least(FINE, in_block / columns)), .entries = 1};
    divide(&plan, rows, 1);
    set_rotation_work(&plan, r, rows * columns, plan.blocks);
    return plan;
}

/* Starts the plan of a rotation: its work. */
static inline plan_t plan_rotation(const rotation_t *r, ptrdiff_t rows, ptrdiff_t heads) {
    const ptrdiff_t evaluated = !r->factors && r->direct_scale != 0 ? DIRECT_HEADS : 0;
    plan_t plan = {0};
    set_rotation_work(&plan, r, rows * (heads + evaluated) * (2 * r->pairs + r->rest), divided_up(rows * heads, FINE));
    return plan;
}

/* Ends the plan of a rotation: its blocks. */
static inline void divide_rotation(plan_t *plan, const rotation_t *r, ptrdiff_t rows, ptrdiff_t heads, int threads) {
    const ptrdiff_t columns = 2 * r->pairs + r->rest, in_block = r->has_fast_path ? ROTATED_IN_BLOCK : DIRECT_IN_BLOCK / 2;
    plan->rows = least(rows, largest(FEWEST_TABLE_ROWS, least(FINE, TABLE_BYTES / (2 * r->pairs * 8 + 1))));
    plan->entries = least(heads, largest(1, in_block / (plan->rows * columns)));
    if (threads > 1) {
        while (plan->rows > FEWEST_TABLE_ROWS && divided_up(rows, plan->rows) < 4 * threads) plan->rows /= 2;
        const ptrdiff_t head_blocks = divided_up(4 * threads * plan->rows, rows); /* the fewest */
        plan->entries = least(plan->entries, largest(FEWEST_HEADS, divided_up(heads, head_blocks)));
    }
    divide(plan, rows, heads);
}

#endif
