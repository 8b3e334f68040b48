/* Sets the affinity mask of the other thread in a team of two during a parallel region, so that both run at the same time.
 *
 * Linux often starts a woken thread on the processor of the thread that wakes it, and leaves both there for milliseconds,
 * even if another processor is idle.  One reason is that in a virtual machine, a halted processor does not count as idle.
 * Therefore, the mask of the other thread excludes the caller's processor during a region.
 *
 * The region ends only when the other thread has started.  If it still waits for another processor when the caller finds no
 * more work, it is moved to the caller's processor.
 *
 * The masks of larger teams are not changed: a late thread delays a large team less, and they were not measured. */
#ifndef POSENC_AFFINITY_H
#define POSENC_AFFINITY_H

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
static int thread_id(void) { return (int)syscall(SYS_gettid); }
#else
static inline int thread_id(void) { return 0; }
#endif

#if !defined(_WIN32)
static _Thread_local int second_thread; /* ID of the first additional thread of the caller's team, 0 if unknown */
#endif

#if defined(__linux__) && defined(_OPENMP)

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct {
    cpu_set_t allowed; /* mask of both threads before the region */
    cpu_set_t mask; /* of the other thread during the region */
    pid_t thread; /* ID of the other thread, 0 if its mask is not changed */
    atomic_int has_started;
} affinity_t;

static int placement_is_off;

/* Only LLVM's runtime has this function.  That runtime moves threads between teams, so `second_thread` may be out of date. */
extern int kmp_get_blocktime(void) __attribute__((weak));

__attribute__((constructor)) static void read_placement(void) {
    const char *const setting = getenv("POSENC_NO_PLACEMENT");
    placement_is_off = (setting && *setting) || kmp_get_blocktime;
}

static int has_mask(pid_t thread, const cpu_set_t *expected) {
    cpu_set_t mask;
    return !sched_getaffinity(thread, sizeof mask, &mask) && CPU_EQUAL(&mask, expected);
}

/* The calling thread calls this function before a region. */
static void leave_processor(affinity_t *affinity, int team) {
    affinity->thread = 0;
    affinity->has_started = 0;
    if (team != 2 || !second_thread || placement_is_off) return;
    const int here = sched_getcpu();
    if (here < 0 || sched_getaffinity(0, sizeof affinity->allowed, &affinity->allowed)) return;
    if (!has_mask(second_thread, &affinity->allowed)) return;
    affinity->mask = affinity->allowed;
    CPU_CLR(here, &affinity->mask);
    if (CPU_COUNT(&affinity->mask) && !sched_setaffinity(second_thread, sizeof affinity->mask, &affinity->mask))
        affinity->thread = second_thread;
}

/* The other threads call this function when they start. */
static void thread_started(affinity_t *affinity) { affinity->has_started = 1; }

/* The calling thread calls this function when it finds no more work. */
static void fetch_late_thread(affinity_t *affinity) {
    if (!affinity->thread || affinity->has_started) return;
    const int here = sched_getcpu();
    if (here < 0 || !CPU_ISSET(here, &affinity->allowed) || !has_mask(affinity->thread, &affinity->mask)) return;
    CPU_ZERO(&affinity->mask);
    CPU_SET(here, &affinity->mask);
    sched_setaffinity(affinity->thread, sizeof affinity->mask, &affinity->mask);
}

/* Restores the mask after a region, unless another program has changed it.  If another program has given the calling thread the
 * mask that the other one has during the region, it has given this mask to all threads (`taskset -a`, in the order of thread
 * IDs), and the thread keeps it. */
static void restore_mask(const affinity_t *affinity) {
    if (affinity->thread && has_mask(affinity->thread, &affinity->mask) && !has_mask(0, &affinity->mask))
        sched_setaffinity(affinity->thread, sizeof affinity->allowed, &affinity->allowed);
}

#else

typedef int affinity_t;
static inline void leave_processor(affinity_t *affinity, int team) { (void)affinity, (void)team; }
static inline void thread_started(affinity_t *affinity) { (void)affinity; }
static inline void fetch_late_thread(affinity_t *affinity) { (void)affinity; }
static inline void restore_mask(const affinity_t *affinity) { (void)affinity; }

#endif

#endif
