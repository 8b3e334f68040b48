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
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct {
    pid_t numbers[MOST_PLACED]; /* IDs of the threads, 0 if unknown */
} placed_team_t;

typedef struct {
    pid_t thread;               /* ID of the thread, 0 if its mask is not changed */
    cpu_set_t allowed, current; /* masks of the thread before and during the region */
    atomic_int has_started;
} affinity_t;

static _Thread_local placed_team_t placed; /* the team of the calling thread */

/* Only LLVM's runtime has this function.  That runtime moves threads between teams, so `numbers` may be out of date. */
extern int kmp_get_blocktime(void) __attribute__((weak));

/* Each additional thread of a new team calls this function. */
static void store_number(placed_team_t *team, int member) {
    if (member < MOST_PLACED) team->numbers[member] = (pid_t)syscall(SYS_gettid);
}

/* The calling thread calls this function before a region. */
static void leave_processor(affinity_t *affinity, int team) {
    const int here = sched_getcpu();
    for (int i = 1; i < MOST_PLACED; i++) {
        affinity_t *const a = &affinity[i];
        const pid_t thread = i < team && team <= MOST_PLACED && here >= 0 && !kmp_get_blocktime ? placed.numbers[i] : 0;
        a->thread = 0;
        a->has_started = 0;
        if (!thread || sched_getaffinity(thread, sizeof a->allowed, &a->allowed)) continue;
        a->current = a->allowed;
        CPU_CLR(here, &a->current);
        if (CPU_EQUAL(&a->current, &a->allowed) || !CPU_COUNT(&a->current)) continue;
        if (!sched_setaffinity(thread, sizeof a->current, &a->current)) a->thread = thread;
    }
}

/* Every thread other than the calling thread calls this function when it starts. */
static void thread_started(affinity_t *affinity, int member) {
    if (member < MOST_PLACED) affinity[member].has_started = 1;
}

/* The calling thread calls this function when it finds no more work. */
static void fetch_late_threads(affinity_t *affinity) {
    const int here = sched_getcpu();
    for (int i = 1; i < MOST_PLACED; i++) {
        affinity_t *const a = &affinity[i];
        if (!a->thread || a->has_started || !CPU_ISSET(here, &a->allowed)) continue;
        CPU_ZERO(&a->current);
        CPU_SET(here, &a->current);
        sched_setaffinity(a->thread, sizeof a->current, &a->current);
    }
}

/* Restores the masks after a region, unless another program has changed them.
 *
 * A mask that was set explicitly does not grow if the control group gets more processors later.  Therefore, a mask that allowed
 * all processors of the control group is replaced by a mask of all processors of the system. */
static void restore_masks(const affinity_t *affinity) {
    for (int i = 1; i < MOST_PLACED; i++) {
        const affinity_t *const a = &affinity[i];
        cpu_set_t mask;
        if (!a->thread || sched_getaffinity(a->thread, sizeof mask, &mask) || !CPU_EQUAL(&mask, &a->current)) continue;
        memset(&mask, -1, sizeof mask);
        if (sched_setaffinity(a->thread, sizeof mask, &mask) || sched_getaffinity(a->thread, sizeof mask, &mask) ||
            !CPU_EQUAL(&mask, &a->allowed))
            sched_setaffinity(a->thread, sizeof a->allowed, &a->allowed);
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
