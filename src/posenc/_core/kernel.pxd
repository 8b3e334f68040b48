"""Declarations of the C headers."""

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef extern from "kernel.h" nogil:
    enum:
        TILE, LINE, HALF, COARSE, OFFSETS_PER_COLUMN, RADIX, WHOLE, LEVELS, MIN_ADVANCED, MOST_NARROW, NO_PHASE_BITS

    ctypedef enum dtype_t:
        FLOAT64, BFLOAT16

    ptrdiff_t size_of(dtype_t dtype)

    ctypedef enum output_t:
        STORE, ADD

    ctypedef struct position_t:
        int negative, limbs, exponent, shift
        uint32_t *limb

    ctypedef struct spec_t:
        ptrdiff_t d_model, columns, pitch
        int integer_limbs, fraction_limbs
        const uint32_t *turns
        const uint64_t *sign
        const uint64_t *quarter
        int order, phase_bits, padding_is_nan
        ptrdiff_t half
        double scale, position_offset, padding_real
        int64_t padding, zero
        int has_padding, has_zero, has_fast_path, has_fast_test
        void *context

    ctypedef struct offsets_t:
        pass

    offsets_t offsets_in(double *memory, ptrdiff_t columns, uint64_t step, int first, int joined)

    ctypedef struct digits_t:
        int fractions, levels
        const double *level[LEVELS]
        const double *radians
        const double *radians_low

    int angles_of_tile(const spec_t *spec)
    ptrdiff_t angle_tiles(const spec_t *spec)

    ctypedef struct job_t:
        dtype_t dtype
        output_t output
        char *out
        ptrdiff_t row_stride, batch, batch_stride
        double x_scale
        uint64_t start, step
        const int64_t *integers
        const double *reals
        const offsets_t *offsets
        const digits_t *digits
        const char *span
        int64_t span_start
        ptrdiff_t span_rows, span_pitch
        size_t memory

    enum:
        MAX_DIMENSIONS, MAX_POSITION_AXES

    ctypedef struct extent_t:
        int axes
        ptrdiff_t shape[MAX_DIMENSIONS]
        ptrdiff_t out_strides[MAX_DIMENSIONS]

    ctypedef struct place_t:
        ptrdiff_t out

    place_t place_at(const extent_t *extent, ptrdiff_t index)

    ctypedef struct rotary_axis_t:
        const spec_t *spec
        const ptrdiff_t *pair
        job_t table

    ctypedef struct rotation_t:
        dtype_t dtype
        int interleaved, inverse, has_fast_path, position_axes
        double direct_scale
        ptrdiff_t pairs, rest, first_position, most_rows
        const double *factors
        const char *x
        char *out
        extent_t rows, heads
        const rotary_axis_t *axis

    ptrdiff_t factor_pitch(ptrdiff_t pairs)

    ctypedef struct undecided_t:
        void *context
        position_t position
        ptrdiff_t column
        int is_combined
        double factors[2]
        job_t job

    ctypedef struct tally_t:
        uint64_t uncertain, exact
        undecided_t *undecided
        ptrdiff_t count
        int is_full

    ctypedef struct kernel_t:
        const char *name
        void (*tabulate)(const spec_t *, const offsets_t *, ptrdiff_t, ptrdiff_t) noexcept nogil
        void (*tabulate_level)(const spec_t *, int, int, double *, ptrdiff_t, ptrdiff_t) noexcept nogil
        void (*write_rows)(const spec_t *, const job_t *, ptrdiff_t, ptrdiff_t, char *, tally_t *) noexcept nogil
        size_t (*rotation_memory)(const rotation_t *) noexcept nogil
        void (*write_factors)(const rotation_t *, ptrdiff_t, ptrdiff_t, double *, char *) noexcept nogil
        void (*rotate)(const rotation_t *, ptrdiff_t, ptrdiff_t, ptrdiff_t, ptrdiff_t, char *, tally_t *) noexcept nogil
        void (*write)(const job_t *, double) noexcept nogil

    const kernel_t *const *posenc_kernels
    int posenc_is_supported(const kernel_t *kernel)


cdef extern from "rounding.h" nogil:
    ctypedef struct environment_t:
        pass

    environment_t environment_enter()
    void environment_leave(environment_t host)
    double rounded_in_default(dtype_t dtype, double x)


cdef extern from "openmp.h" nogil:
    enum:
        MAX_THREADS

    ctypedef struct counter_t:
        pass

    int POSENC_OPENMP
    bint has_stack()
    int openmp_threads()
    int openmp_thread_number()
    int openmp_in_parallel()
    void openmp_loaded(size_t stack)
    int openmp_is_forked()
    int openmp_team(int requested)
    void set_counter(counter_t *counter, ptrdiff_t value)
    ptrdiff_t next_block(counter_t *counter)
    double seconds()


cdef extern from "positions.h" nogil:
    bint is_inside(int64_t lowest, int64_t highest, double offset)
    bint are_integers_inside(const int64_t *positions, ptrdiff_t rows, double offset)
    bint are_reals_inside(const double *positions, ptrdiff_t rows, double offset)
    int64_t *integers_of(const double *positions, ptrdiff_t rows)
    int radians_of_columns(const spec_t *spec, double *radians, double *radians_low)
    uint64_t even_step(job_t *job, ptrdiff_t rows)
    void choose_span(const spec_t *spec, job_t *job, ptrdiff_t rows)
    ptrdiff_t count_digits(const spec_t *spec, const job_t *job, ptrdiff_t rows, int fractions, ptrdiff_t *with_digits)


cdef extern from "strides.h" nogil:
    ctypedef struct layout_t:
        int axes
        const ptrdiff_t *shape
        const ptrdiff_t *strides

    ctypedef struct memory_range_t:
        pass

    bint rows_are_apart(layout_t rows, ptrdiff_t row_bytes)
    bint has_shape(layout_t array, int axes, const ptrdiff_t *shape)
    memory_range_t memory_range_of(const void *memory, layout_t array, ptrdiff_t itemsize)
    bint ranges_overlap(memory_range_t a, memory_range_t b)
    void append_axis(extent_t *extent, ptrdiff_t length, ptrdiff_t x_stride, ptrdiff_t out_stride, ptrdiff_t position_stride)
    bint divide_axes(rotation_t *r, layout_t x, const ptrdiff_t *out_strides, layout_t positions, int several)
    ptrdiff_t elements_of(const extent_t *extent)


cdef extern from "plan.h" nogil:
    enum:
        DIRECT_PER_THREAD, DIRECT_HEADS, KEPT_COLUMNS, ROWS_FOR_KEPT_TABLE,
        ROWS_FOR_TABLE_FLOAT64, ROWS_FOR_TABLE, MAX_LIMBS

    ctypedef struct plan_t:
        int threads, keeps_gil
        ptrdiff_t rows, entries, row_blocks, blocks

    ptrdiff_t block_at(const plan_t *plan, ptrdiff_t which)
    ptrdiff_t first_column(const job_t *job, const spec_t *spec, ptrdiff_t rows)
    ptrdiff_t table_per_thread(const job_t *job, const spec_t *spec)
    plan_t plan_table(job_t *job, const spec_t *spec, ptrdiff_t rows, int most_threads)
    plan_t plan_tiles(ptrdiff_t tiles, int most_threads)
    ptrdiff_t rotation_per_thread(const rotation_t *r)
    plan_t plan_rotation(const rotation_t *r, ptrdiff_t rows, ptrdiff_t heads, int most_threads)
