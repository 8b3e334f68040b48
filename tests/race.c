/* Threads that share the kernels' tables and write side by side, without Python, for ThreadSanitizer: tools/sanitize.sh tsan.
 *
 * Several callers at once each have blocks of rows done: by threads of their own, and by OpenMP where it is there, as
 * _kernel.pyx does.  Every result is compared with that of one thread.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernel.h"

enum { D_MODEL = 70, COLUMNS = (D_MODEL + TILE - 1) / TILE * TILE, LIMBS = 9 };
enum { ROWS = 1200, UNIT = 192, CALLERS = 3, MEMBERS = 3 };
enum { BLOCKS = (ROWS + UNIT - 1) / UNIT };

static uint32_t turns[LIMBS * COLUMNS];
static uint64_t sign[COLUMNS], quarter[COLUMNS];
static int64_t integers[ROWS];
static double reals[ROWS];

/* on a cache line of its own */
typedef struct {
    tally_t tally;
    char padding[48];
} slot_t;

/* One piece of work, with what its threads share. */
typedef struct {
    const kernel_t *kernel;
    const spec_t *spec;
    job_t job;
    int even;
    char *stages;
    size_t stage_size;
    slot_t slots[MEMBERS];
} share_t;

typedef struct {
    share_t *share;
    int member;
} member_t;

static void *must(void *memory) {
    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    return memory;
}

static void run_block(share_t *share, ptrdiff_t block, int member) {
    const ptrdiff_t first = block * UNIT, count = ROWS - first < UNIT ? ROWS - first : UNIT;
    tally_t *tally = &share->slots[member].tally;
    char *stage = share->stages + (size_t)member * share->stage_size;
    if (share->even) share->kernel->even_rows(share->spec, &share->job, first, count, stage, tally);
    else share->kernel->scattered_rows(share->spec, &share->job, first, count, tally);
}

static void *run_member(void *argument) {
    const member_t *m = argument;
    for (ptrdiff_t block = m->member; block < BLOCKS; block += MEMBERS) run_block(m->share, block, m->member);
    return NULL;
}

static void run_threads(share_t *share) {
    pthread_t threads[MEMBERS];
    member_t members[MEMBERS];
    for (int i = 0; i < MEMBERS; i++) {
        members[i] = (member_t){share, i};
        if (pthread_create(&threads[i], NULL, run_member, &members[i])) exit(2);
    }
    for (int i = 0; i < MEMBERS; i++) pthread_join(threads[i], NULL);
}

static void run_alone(share_t *share) {
    for (ptrdiff_t block = 0; block < BLOCKS; block++) run_block(share, block, 0);
}

#if defined(_OPENMP)
#include <omp.h>
static void run_openmp(share_t *share) {
#pragma omp parallel for schedule(dynamic) num_threads(MEMBERS)
    for (ptrdiff_t block = 0; block < BLOCKS; block++) run_block(share, block, omp_get_thread_num());
}
#endif

static void (*const WAYS[])(share_t *) = {
    run_threads,
#if defined(_OPENMP)
    run_openmp,
#endif
};
enum { COUNT_OF_WAYS = sizeof WAYS / sizeof *WAYS };

/* ---- what they work on ------------------------------------------------------------------------------------------------- */

/* Without Python there is nobody to ask, and no value here is so near a half-way point. */
static double decide(void *context, const position_t *position, ptrdiff_t column, dtype_t dtype) {
    (void)context, (void)position;
    fprintf(stderr, "undecided: column %td, dtype %d\n", column, dtype);
    exit(2);
}

/* Frequencies below an eighth of a turn; the low limbs of a linear congruential generator. */
static spec_t make_spec(void) {
    uint32_t x = 1;
    for (int i = 0; i < LIMBS; i++)
        for (int c = 0; c < COLUMNS; c += 2) {
            x = 1664525u * x + 1013904223u;
            turns[i * COLUMNS + c] = turns[i * COLUMNS + c + 1] = i == 0 ? 0 : i == 1 ? x >> 3 >> c / 4 : x;
        }
    for (int c = 1; c < COLUMNS; c += 2) quarter[c] = ~(uint64_t)0;
    for (int r = 0; r < ROWS; r++) {
        integers[r] = (int64_t)r * 1000003 - 500;
        reals[r] = r * 0.37 - 100;
    }
    return (spec_t){.d_model = D_MODEL,
                    .columns = COLUMNS,
                    .integer_limbs = 1,
                    .fraction_limbs = LIMBS - 1,
                    .turns = turns,
                    .sign = sign,
                    .quarter = quarter,
                    .order = SIN_FIRST,
                    .scale = 1,
                    .fast = 1,
                    .quick = 1,
                    .decide = decide};
}

/* As Columns.tabulate of _kernel.pyx lays them out. */
static offsets_t make_offsets(const kernel_t *kernel, const spec_t *spec) {
    const size_t fine = 2 * HALF * COLUMNS, coarse = 2 * COARSE * COLUMNS;
    offsets_t o = {.memory = must(malloc((2 * fine + 2 * coarse + 2 * COLUMNS) * sizeof(double) + 64))};
    o.fine = (double *)(((uintptr_t)o.memory + 63) / 64 * 64);
    o.coarse = o.fine + fine;
    o.fine_low = o.coarse + coarse;
    o.coarse_low = o.fine_low + fine;
    o.reach = o.coarse_low + coarse;
    o.turning = o.reach + COLUMNS;
    kernel->tabulate(spec, 1, &o, 0, COLUMNS / TILE);
    return o;
}

typedef struct {
    const kernel_t *kernel;
    const spec_t *spec;
    offsets_t offsets;
    int caller, failed;
} caller_t;

static size_t size_of_dtype(dtype_t dtype) { return dtype == FLOAT64 ? 8 : dtype == FLOAT32 ? 4 : 2; }

static void try_ways(const caller_t *c, dtype_t dtype, delivery_t delivery, int kind, int *failed) {
    /* STREAM asks for rows on cache lines, the others may have them anywhere */
    const size_t row = size_of_dtype(dtype) * D_MODEL, stride = delivery == STREAM ? (row + 63) / 64 * 64 : row;
    const size_t bytes = (stride * ROWS + 63) / 64 * 64;
    char *expected = must(aligned_alloc(64, bytes)), *out = must(aligned_alloc(64, bytes));
    memset(expected, 0, bytes);
    share_t share = {.kernel = c->kernel, .spec = c->spec, .even = kind == 0};
    share.job = (job_t){.dtype = dtype,
                        .delivery = delivery,
                        .out = expected,
                        .row_stride = (ptrdiff_t)stride,
                        .batch = 1,
                        .x_scale = 1,
                        .start = (uint64_t)c->caller,
                        .step = 1,
                        .integers = kind == 1 ? integers : NULL,
                        .reals = kind == 2 ? reals : NULL,
                        .offsets = c->offsets};
    share.stage_size = c->kernel->stage_size(c->spec, &share.job);
    if (share.stage_size) share.stages = must(malloc(MEMBERS * share.stage_size));
    run_alone(&share);
    share.job.out = out;
    for (int way = 0; way < COUNT_OF_WAYS; way++) {
        memset(out, 0, bytes);
        WAYS[way](&share);
        if (memcmp(out, expected, bytes)) {
            fprintf(stderr, "%s: other bits: dtype %d, delivery %d, kind %d, way %d\n", c->kernel->name, dtype, delivery, kind,
                    way);
            *failed = 1;
        }
    }
    free(share.stages);
    free(expected);
    free(out);
}

static void *run_caller(void *argument) {
    caller_t *c = argument;
    for (int dtype = FLOAT64; dtype <= BFLOAT16; dtype++)
        for (int kind = 0; kind < 3; kind++)
            for (int delivery = STORE; delivery <= ADD; delivery++)
                if (kind == 0 || delivery == STORE || delivery == ADD)
                    try_ways(c, (dtype_t)dtype, (delivery_t)delivery, kind, &c->failed);
    return NULL;
}

int main(void) {
    const spec_t spec = make_spec();
    int failed = 0;
    for (int k = 0; posenc_kernels[k]; k++) {
        if (!posenc_kernels[k]->runs_here()) continue;
        pthread_t threads[CALLERS];
        caller_t callers[CALLERS];
        const offsets_t offsets = make_offsets(posenc_kernels[k], &spec);
        for (int i = 0; i < CALLERS; i++) {
            callers[i] = (caller_t){posenc_kernels[k], &spec, offsets, i, 0};
            if (pthread_create(&threads[i], NULL, run_caller, &callers[i])) return 2;
        }
        for (int i = 0; i < CALLERS; i++) {
            pthread_join(threads[i], NULL);
            failed |= callers[i].failed;
        }
        free(offsets.memory);
        printf("%s: %d callers, %d ways of threads\n", posenc_kernels[k]->name, CALLERS, COUNT_OF_WAYS);
    }
    return failed;
}
