/* Run the kernels in threads that share tables and write to adjacent memory.  `tools/sanitize.sh tsan` runs
 * this program with ThreadSanitizer; it does not use Python.
 *
 * Several callers run at the same time.  Each computes blocks of rows in several threads, as encode.pxi does,
 * and compares the result with that of one thread.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernel.h"

/* A row is a whole number of cache lines in every dtype.  The arrays of the spec end with a copy of their
 * first tile. */
enum { D_MODEL = 96, COLUMNS = D_MODEL, PITCH = COLUMNS + TILE, LIMBS = 9 };
enum { ROWS = 1200, BLOCK_ROWS = 192, CALLERS = 3, MEMBERS = 3 };
enum { HEADS = 4, PAIRS = 45, REST = 3 };           /* of a rotation; the last pairs do not fill a vector */

static uint32_t turns[LIMBS * PITCH];
static uint64_t sign[PITCH], quarter[PITCH + 1];
static int64_t integers[ROWS];
static double reals[ROWS];

/* A job that threads share: an encoding or, if `rotation` is not NULL, a rotation of heads. */
typedef struct {
    const kernel_t *kernel;
    const spec_t *spec;
    job_t job;
    const rotation_t *rotation;
    ptrdiff_t rows, heads;
    char *panels;
    tally_t tallies[MEMBERS];
} share_t;

typedef struct {
    share_t *share;
    int member;
} member_t;

static void *checked(void *memory) {
    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    return memory;
}

static void run_block(share_t *share, ptrdiff_t block, int member) {
    const ptrdiff_t first = block / share->heads * BLOCK_ROWS, rest = share->rows - first;
    const ptrdiff_t count = rest < BLOCK_ROWS ? rest : BLOCK_ROWS;
    tally_t *tally = &share->tallies[member];
    char *panel = share->panels + (size_t)member * share->job.panel;
    if (share->rotation) share->kernel->rotate(share->rotation, first, count, block % share->heads, 1, panel, tally);
    else share->kernel->write_rows(share->spec, &share->job, first, count, panel, tally);
}

static ptrdiff_t blocks_of(const share_t *share) { return (share->rows + BLOCK_ROWS - 1) / BLOCK_ROWS * share->heads; }

static void *run_member(void *argument) {
    const member_t *m = argument;
    for (ptrdiff_t block = m->member; block < blocks_of(m->share); block += MEMBERS) run_block(m->share, block, m->member);
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

/* ---- encoding ------------------------------------------------------------------------------------------ */

/* Return a spec with pseudo-random frequencies below an eighth of a turn. */
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
        integers[r] = r % 100 < 60 ? r % 100 : (int64_t)r * 1000003 - 500; /* ranges, and scattered positions */
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
                    .has_fast_path = 1,
                    .phase_bits = NO_PHASE_BITS,
                    .has_fast_test = 1};
}

/* ---- cases --------------------------------------------------------------------------------------------- */

typedef struct {
    const kernel_t *kernel;
    const spec_t *spec;
    int caller, failed;
} caller_t;

static size_t size_of_dtype(dtype_t dtype) { return dtype == FLOAT64 ? 8 : dtype == FLOAT32 ? 4 : 2; }

/* The output modes of encode.pxi.  SHIFTED: the size of a row is a multiple of a cache line, but its address
 * is not. */
typedef enum { STORED, ON_LINES, SHIFTED, BY_PANEL, ADDED, MODES } write_mode_t;
typedef enum { EVEN, INTEGERS, REALS, TYPES } positions_t;

static void run_case(caller_t *c, dtype_t dtype, write_mode_t mode, positions_t positions) {
    const size_t size = size_of_dtype(dtype), row = size * D_MODEL, bytes = row * ROWS, past = mode == SHIFTED ? 16 : 0;
    const ptrdiff_t first = past ? (LINE - (ptrdiff_t)past) / (ptrdiff_t)size : 0;
    char *expected = checked(aligned_alloc(LINE, bytes + LINE)), *out = checked(aligned_alloc(LINE, bytes + LINE));
    char *memory = checked(aligned_alloc(LINE, OFFSETS_PER_COLUMN * COLUMNS * sizeof(double)));
    const offsets_t offsets = offsets_in((double *)(void *)memory, COLUMNS, 1, first, 1);
    c->kernel->tabulate(c->spec, &offsets, 0, COLUMNS / TILE);
    share_t share = {.kernel = c->kernel, .spec = c->spec, .rows = ROWS, .heads = 1};
    share.job = (job_t){.dtype = dtype,
                        .output = mode == ADDED    ? ADD
                                  : mode == STORED ? STORE
                                                   : STREAM,
                        .out = expected + past,
                        .row_stride = (ptrdiff_t)row,
                        .batch = 1,
                        .x_scale = 1,
                        .start = (uint64_t)c->caller,
                        .step = 1,
                        .integers = positions == INTEGERS ? integers : NULL,
                        .reals = positions == REALS ? reals : NULL,
                        .offsets = positions == REALS ? NULL : &offsets};
    if (mode >= BY_PANEL) {
        share.job.panel = FINE * (row + LINE) + 2 * LINE + TILE * size;
        share.job.panel_rows = FINE;
    }
    if (share.job.panel) share.panels = checked(malloc(MEMBERS * share.job.panel));
    memset(expected, 0, bytes + LINE);
    for (ptrdiff_t block = 0; block < blocks_of(&share); block++) run_block(&share, block, 0);
    share.job.out = out + past;
    memset(out, 0, bytes + LINE);
    run_threads(&share);
    if (memcmp(out, expected, bytes + LINE)) {
        fprintf(stderr, "%s: wrong bits: dtype %d, mode %d, positions %d\n", c->kernel->name, dtype, mode, positions);
        c->failed = 1;
    }
    free(share.panels);
    free(memory);
    free(expected);
    free(out);
}

/* Rotate HEADS heads that share the positions of ROWS / HEADS rows or, if `is_shared` is 0, one head of ROWS
 * rows. */
static void run_rotation(caller_t *c, dtype_t dtype, int interleaved, int inverse, positions_t positions, int is_shared) {
    const ptrdiff_t size = (ptrdiff_t)size_of_dtype(dtype), row = size * (2 * PAIRS + REST);
    const ptrdiff_t heads = is_shared ? HEADS : 1, rows = ROWS / heads, head = row * rows;
    const size_t bytes = (size_t)(row * ROWS);
    char *expected = checked(malloc(bytes)), *x = checked(malloc(bytes));
    char *memory = checked(aligned_alloc(LINE, OFFSETS_PER_COLUMN * COLUMNS * sizeof(double)));
    const offsets_t offsets = offsets_in((double *)(void *)memory, COLUMNS, 1, 0, 1);
    spec_t spec = *c->spec;
    spec.d_model = 2 * PAIRS;
    spec.order = COS_FIRST;
    spec.quarter = quarter + 1;
    c->kernel->tabulate(&spec, &offsets, 0, COLUMNS / TILE);
    const rotary_axis_t axis = {.spec = &spec,
                                .table = {.output = STORE,
                                          .batch = 1,
                                          .start = (uint64_t)c->caller,
                                          .step = 1,
                                          .integers = positions == INTEGERS ? integers : NULL,
                                          .offsets = positions == INTEGERS ? NULL : &offsets}};
    rotation_t r = {.dtype = dtype,
                    .interleaved = interleaved,
                    .inverse = inverse,
                    .has_fast_path = 1,
                    .pairs = PAIRS,
                    .rest = REST,
                    .x = x,
                    .out = expected,
                    .rows = {1, {rows}, {row}, {row}, {1}},
                    .heads = {1, {heads}, {head}, {head}, {0}},
                    .position_axes = 1,
                    .axis = &axis,
                    .most_rows = BLOCK_ROWS};
    share_t share = {.kernel = c->kernel, .rotation = &r, .rows = rows, .heads = heads};
    share.job.panel = (c->kernel->rotation_memory(&r) + LINE - 1) / LINE * LINE;
    share.panels = checked(aligned_alloc(LINE, MEMBERS * share.job.panel));
    for (size_t i = 0; i < bytes; i++) x[i] = (char)(0x30 + i * i % 11); /* moderate numbers in every dtype */
    for (ptrdiff_t block = 0; block < blocks_of(&share); block++) run_block(&share, block, 0);
    r.out = x;
    run_threads(&share);
    if (memcmp(x, expected, bytes)) {
        fprintf(stderr, "%s: wrong bits: rotation, dtype %d, interleaved %d, positions %d, shared %d\n", c->kernel->name, dtype,
                interleaved, positions, is_shared);
        c->failed = 1;
    }
    free(share.panels);
    free(memory);
    free(expected);
    free(x);
}

static void *run_caller(void *argument) {
    for (int dtype = FLOAT64; dtype <= BFLOAT16; dtype++)
        for (int mode = STORED; mode < MODES; mode++)
            for (int positions = EVEN; positions < TYPES; positions++)
                run_case(argument, (dtype_t)dtype, (write_mode_t)mode, (positions_t)positions);
    for (int dtype = FLOAT32; dtype <= BFLOAT16; dtype++)
        for (int bits = 0; bits < 16; bits++)
            run_rotation(argument, (dtype_t)dtype, bits & 1, bits >> 1 & 1, bits >> 2 & 1 ? INTEGERS : EVEN, bits >> 3);
    return NULL;
}

int main(void) {
    const spec_t spec = make_spec();
    int failed = 0;
    for (int k = 0; posenc_kernels[k]; k++) {
        if (!posenc_is_supported(posenc_kernels[k])) continue;
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
        printf("%s: %d callers of %d threads\n", posenc_kernels[k]->name, CALLERS, MEMBERS);
    }
    return failed;
}
