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

/* rows of whole cache lines in every dtype; the arrays repeat the columns for one tile more */
enum { D_MODEL = 96, COLUMNS = D_MODEL, PITCH = COLUMNS + TILE, LIMBS = 9 };
enum { ROWS = 1200, UNIT = 192, CALLERS = 3, MEMBERS = 3 };
enum { BLOCKS = (ROWS + UNIT - 1) / UNIT };

static uint32_t turns[LIMBS * PITCH];
static uint64_t sign[PITCH], quarter[PITCH];
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
    char *panels;
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
    share->kernel->rows(share->spec, &share->job, first, count, share->panels + (size_t)member * share->job.panel, tally);
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
        for (int c = 0; c < PITCH; c += 2) {
            uint32_t *const limb = turns + i * PITCH + c;
            x = 1664525u * x + 1013904223u;
            limb[0] = limb[1] = c >= D_MODEL ? limb[-D_MODEL] : i == 0 ? 0 : i == 1 ? x >> 3 >> c / 4 : x;
        }
    for (int c = 1; c < PITCH; c += 2) quarter[c] = ~(uint64_t)0;
    for (int r = 0; r < ROWS; r++) {
        integers[r] = r % 100 < 60 ? r % 100 : (int64_t)r * 1000003 - 500;      /* runs, and single rows */
        reals[r] = r * 0.37 - 100;
    }
    return (spec_t){.d_model = D_MODEL,
                    .columns = COLUMNS,
                    .pitch = PITCH,
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

typedef struct {
    const kernel_t *kernel;
    const spec_t *spec;
    int caller, failed;
} caller_t;

static size_t size_of_dtype(dtype_t dtype) { return dtype == FLOAT64 ? 8 : dtype == FLOAT32 ? 4 : 2; }

/* The ways to memory that _kernel.pyx chooses from.  SHIFTED: rows of whole lines that do not begin on one. */
typedef enum { STORED, ON_LINES, SHIFTED, BY_PANEL, ADDED, CASES } case_t;
typedef enum { EVEN, INTEGERS, REALS, KINDS } kind_t;

static void try_case(caller_t *c, dtype_t dtype, case_t which, kind_t kind) {
    const size_t size = size_of_dtype(dtype), row = size * D_MODEL, bytes = row * ROWS, past = which == SHIFTED ? 16 : 0;
    const ptrdiff_t first = past ? (LINE - (ptrdiff_t)past) / (ptrdiff_t)size : 0;
    char *expected = must(aligned_alloc(LINE, bytes + LINE)), *out = must(aligned_alloc(LINE, bytes + LINE));
    char *memory = must(aligned_alloc(LINE, OFFSETS_PER_COLUMN * COLUMNS * sizeof(double)));
    const offsets_t offsets = offsets_in((double *)(void *)memory, COLUMNS, 1, first);
    c->kernel->tabulate(c->spec, &offsets, 0, COLUMNS / TILE);
    share_t share = {.kernel = c->kernel, .spec = c->spec};
    share.job = (job_t){.dtype = dtype,
                        .output = which == ADDED    ? ADD
                                  : which == STORED ? STORE
                                                    : STREAM,
                        .out = expected + past,
                        .row_stride = (ptrdiff_t)row,
                        .batch = 1,
                        .x_scale = 1,
                        .start = (uint64_t)c->caller,
                        .step = 1,
                        .integers = kind == INTEGERS ? integers : NULL,
                        .reals = kind == REALS ? reals : NULL,
                        .offsets = kind == REALS ? NULL : &offsets};
    if (which == BY_PANEL || (which == ADDED && size == 2)) share.job.panel = FINE * (row + LINE) + 2 * LINE + TILE * size;
    if (share.job.panel) share.panels = must(malloc(MEMBERS * share.job.panel));
    memset(expected, 0, bytes + LINE);
    run_alone(&share);
    share.job.out = out + past;
    for (int way = 0; way < COUNT_OF_WAYS; way++) {
        memset(out, 0, bytes + LINE);
        WAYS[way](&share);
        if (memcmp(out, expected, bytes + LINE)) {
            fprintf(stderr, "%s: other bits: dtype %d, case %d, kind %d, way %d\n", c->kernel->name, dtype, which, kind, way);
            c->failed = 1;
        }
    }
    free(share.panels);
    free(memory);
    free(expected);
    free(out);
}

static void *run_caller(void *argument) {
    for (int dtype = FLOAT64; dtype <= BFLOAT16; dtype++)
        for (int which = STORED; which < CASES; which++)
            for (int kind = EVEN; kind < KINDS; kind++) try_case(argument, (dtype_t)dtype, (case_t)which, (kind_t)kind);
    return NULL;
}

int main(void) {
    const spec_t spec = make_spec();
    int failed = 0;
    for (int k = 0; posenc_kernels[k]; k++) {
        if (!posenc_kernels[k]->runs_here()) continue;
        pthread_t threads[CALLERS];
        caller_t callers[CALLERS];
        for (int i = 0; i < CALLERS; i++) {
            callers[i] = (caller_t){posenc_kernels[k], &spec, i, 0};
            if (pthread_create(&threads[i], NULL, run_caller, &callers[i])) return 2;
        }
        for (int i = 0; i < CALLERS; i++) {
            pthread_join(threads[i], NULL);
            failed |= callers[i].failed;
        }
        printf("%s: %d callers, %d ways of threads\n", posenc_kernels[k]->name, CALLERS, COUNT_OF_WAYS);
    }
    return failed;
}
