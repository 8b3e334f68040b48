"""The C contract of kernel/kernel.h as Cython sees it."""

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef extern from "environment.h" nogil:
    ctypedef struct environment_t:
        pass

    environment_t environment_enter()
    void environment_leave(environment_t host)


cdef extern from "kernel.h" nogil:
    enum:
        TILE
        FINE
        HALF
        COARSE
        BLOCK

    ctypedef enum dtype_t:
        FLOAT64
        FLOAT32
        FLOAT16
        BFLOAT16

    ctypedef enum delivery_t:
        STORE
        STREAM
        SHIFT
        ADD

    ctypedef enum order_t:
        UNPAIRED
        SIN_FIRST
        COS_FIRST

    ctypedef struct spec_t:
        ptrdiff_t d_model
        ptrdiff_t columns
        int integer_limbs
        int fraction_limbs
        const uint32_t *turns
        const uint64_t *sign
        const uint64_t *quarter
        order_t order
        double scale
        double position_offset
        int has_padding
        int64_t padding
        double padding_real
        int fast
        int quick

    ctypedef struct offsets_t:
        void *memory
        double *fine
        double *fine_low
        double *coarse
        double *coarse_low
        double *reach
        double *turning

    ctypedef struct job_t:
        dtype_t dtype
        delivery_t delivery
        char *out
        ptrdiff_t row_stride
        ptrdiff_t batch
        ptrdiff_t batch_stride
        double x_scale
        uint64_t start
        uint64_t step
        const int64_t *integers
        const double *reals
        offsets_t offsets
        int trust

    ctypedef struct tally_t:
        uint64_t doubted
        uint64_t exact

    ctypedef struct kernel_t:
        const char *name
        int (*runs_here)() noexcept nogil
        void (*tabulate)(const spec_t *, uint64_t, const offsets_t *, ptrdiff_t, ptrdiff_t) noexcept nogil
        size_t (*stage_size)(const spec_t *, const job_t *) noexcept nogil
        void (*even_rows)(const spec_t *, const job_t *, ptrdiff_t, ptrdiff_t, void *, tally_t *) noexcept nogil
        void (*scattered_rows)(const spec_t *, const job_t *, ptrdiff_t, ptrdiff_t, tally_t *) noexcept nogil
        void (*fill)(double *, ptrdiff_t, double) noexcept nogil

    const kernel_t *const *posenc_kernels


cdef extern from "exact.h" nogil:
    enum:
        MAX_TURN_LIMBS

    double posenc_rounded(dtype_t dtype, double x)


cdef extern from "openmp.h" nogil:
    enum:
        MAX_THREADS

    int POSENC_OPENMP
    int openmp_threads()
    int openmp_in_parallel()
    void openmp_found(size_t stack)
    int openmp_is_forked()
    int openmp_team(int wanted)


cdef extern from "<time.h>" nogil:
    enum:
        TIME_UTC

    struct timespec:
        int64_t tv_sec
        long tv_nsec

    int timespec_get(timespec *now, int base)
