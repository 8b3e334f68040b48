/* Sets affinity masks during a parallel region, so that the threads of a team run at the same time as the calling thread.
 *
 * Linux often starts a woken thread on the processor of the thread that wakes it, and leaves both there for milliseconds,
 * even if another processor is idle.  One reason is that in a virtual machine, a halted processor does not count as idle.
 * Therefore, the masks of the other threads exclude the caller's processor during a region.
 *
 * The region ends only when every thread has started.  If a thread still waits for another processor when the caller finds no
 * more work, this late thread is moved to the caller's processor. */
#ifndef POSENC_AFFINITY_H
#define POSENC_AFFINITY_H

/* The masks of larger teams are not changed: a change takes about 10 us, and a late thread delays a large team less. */
enum { MOST_PLACED = 4 };

#if defined(__linux__) && defined(_OPENMP)

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct {
    pid_t numbers[MOST_PLACED]; /* IDs of the threads, 0 if unknown */
} placed_team_t;

typedef struct {
    cpu_set_t allowed; /* mask of the calling thread, and before the region also of each thread whose mask is changed */
    struct {
        pid_t thread; /* ID of the thread, 0 if its mask is not changed */
        cpu_set_t mask; /* during the region */
        atomic_int has_started;
    } members[MOST_PLACED];
} affinity_t;

static _Thread_local placed_team_t placed; /* the team of the calling thread */
static int placement_is_off;

/* Only LLVM's runtime has this function.  That runtime moves threads between teams, so `numbers` may be out of date. */
extern int kmp_get_blocktime(void) __attribute__((weak));

__attribute__((constructor)) static void read_placement(void) {
    const char *const setting = getenv("POSENC_NO_PLACEMENT");
    placement_is_off = (setting && *setting) || kmp_get_blocktime;
}

/* Each additional thread of a new team calls this function. */
static void store_number(placed_team_t *team, int member) {
    if (member < MOST_PLACED) team->numbers[member] = (pid_t)syscall(SYS_gettid);
}

static int has_mask(pid_t thread, const cpu_set_t *expected) {
    cpu_set_t mask;
    return !sched_getaffinity(thread, sizeof mask, &mask) && CPU_EQUAL(&mask, expected);
}

/* The calling thread calls this function before a region. */
static void leave_processor(affinity_t *affinity, int team) {
    const int here = sched_getcpu();
    const int is_placed = team <= MOST_PLACED && here >= 0 && !placement_is_off &&
                          !sched_getaffinity(0, sizeof affinity->allowed, &affinity->allowed);
    for (int i = 1; i < MOST_PLACED; i++) {
        const pid_t thread = is_placed && i < team ? placed.numbers[i] : 0;
        cpu_set_t *const mask = &affinity->members[i].mask;
        affinity->members[i].thread = 0;
        affinity->members[i].has_started = 0;
        if (!thread || !has_mask(thread, &affinity->allowed)) continue;
        *mask = affinity->allowed;
        CPU_CLR(here, mask);
        if (CPU_COUNT(mask) && !sched_setaffinity(thread, sizeof *mask, mask)) affinity->members[i].thread = thread;
    }
}

/* Every thread other than the calling thread calls this function when it starts. */
static void thread_started(affinity_t *affinity, int member) {
    if (member < MOST_PLACED) affinity->members[member].has_started = 1;
}

/* The calling thread calls this function when it finds no more work. */
static void fetch_late_threads(affinity_t *affinity) {
    const int here = sched_getcpu();
    for (int i = 1; i < MOST_PLACED; i++) {
        const pid_t thread = affinity->members[i].thread;
        cpu_set_t *const mask = &affinity->members[i].mask;
        if (!thread || affinity->members[i].has_started || !CPU_ISSET(here, &affinity->allowed) || !has_mask(thread, mask))
            continue;
        CPU_ZERO(mask);
        CPU_SET(here, mask);
        sched_setaffinity(thread, sizeof *mask, mask);
    }
}

/* Restores the masks after a region, unless another program has changed them.  If another program has given the calling thread
 * the mask that a thread has during the region, it has given this mask to all threads (`taskset -a`, in the order of thread
 * IDs), and the thread keeps it. */
static void restore_masks(const affinity_t *affinity) {
    for (int i = 1; i < MOST_PLACED; i++) {
        const pid_t thread = affinity->members[i].thread;
        const cpu_set_t *const mask = &affinity->members[i].mask;
        if (thread && has_mask(thread, mask) && !has_mask(0, mask))
            sched_setaffinity(thread, sizeof affinity->allowed, &affinity->allowed);
    }
}

#else

typedef int placed_team_t, affinity_t;
static placed_team_t placed;
static inline void store_number(placed_team_t *team, int member) { (void)team, (void)member; }
static inline void leave_processor(affinity_t *affinity, int team) { (void)affinity, (void)team; }
static inline void thread_started(affinity_t *affinity, int member) { (void)affinity, (void)member; }
static inline void fetch_late_threads(affinity_t *affinity) { (void)affinity; }
static inline void restore_masks(const affinity_t *affinity) { (void)affinity; }

#endif

#endif
