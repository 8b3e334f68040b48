/* Affinity masks during a parallel region, so that the threads of a team run beside the calling thread and not after it.
 *
 * Linux often starts a woken thread on the processor of the thread that wakes it, and leaves both there for milliseconds,
 * although another processor is idle: in a virtual machine, a halted processor does not count as idle.  So while a team starts,
 * the masks of its threads do not contain the caller's processor.  A thread that must wait for another processor may be late:
 * it has not started when the caller finds no more work.  It then moves to the caller's processor, because the caller would
 * wait for it. */
#ifndef POSENC_AFFINITY_H
#define POSENC_AFFINITY_H

/* A system call that sets a mask takes about 5 us.  A large team loses little if one of its threads starts late. */
enum { MOST_PLACED = 8 };

#if defined(__linux__) && defined(_OPENMP)

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    cpu_set_t allowed, current; /* the thread's mask before the region, and its mask in the region */
    int is_changed;
    atomic_int state; /* INITIAL, then STARTED by the thread or LATE by the caller */
} affinity_t;

enum { INITIAL, STARTED, LATE };

typedef struct {
    pid_t numbers[MOST_PLACED]; /* of its threads, 0 if unknown */
    int processor;              /* of the caller when the last region began; -1 if a thread may be on the same one */
    int64_t region_end;         /* time in nanoseconds */
} placed_team_t;

static _Thread_local placed_team_t placed; /* the caller's team */

/* LLVM's runtime has this function, and GNU's does not.  LLVM's moves threads between teams, so the numbers may be out of date. */
extern int kmp_get_blocktime(void) __attribute__((weak));

static int64_t nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Stores the number of the calling thread, a member of the team. */
static void store_number(placed_team_t *team, int member) {
    if (member < MOST_PLACED) team->numbers[member] = (pid_t)syscall(SYS_gettid);
}

static void set_mask(affinity_t *a, pid_t thread, const cpu_set_t *mask) {
    a->current = *mask;
    a->is_changed = !sched_setaffinity(thread, sizeof *mask, mask);
}

/* Called by the caller before a region: removes the caller's processor from the masks of the other threads.
 *
 * Masks remain if the caller has not moved since the last region and the threads still spin, because then they need no waking.
 * The caller may have moved to a thread's processor when that thread woke it at the end of the last region. */
static void region_begins(affinity_t *affinity, int team) {
    enum { SPINNING_NANOSECONDS = 20000 };
    const int here = sched_getcpu();
    const int awake = here == placed.processor && nanoseconds() - placed.region_end < SPINNING_NANOSECONDS;
    placed.processor = here;
    for (int i = 1; i < team && i < MOST_PLACED; i++) {
        affinity_t *const a = &affinity[i];
        const pid_t thread = team <= MOST_PLACED && here >= 0 && !kmp_get_blocktime ? placed.numbers[i] : 0;
        cpu_set_t reduced;
        a->is_changed = 0;
        a->state = thread ? INITIAL : STARTED;
        if (awake || !thread || sched_getaffinity(thread, sizeof a->allowed, &a->allowed)) continue;
        reduced = a->allowed;
        CPU_CLR(here, &reduced);
        if (!CPU_EQUAL(&reduced, &a->allowed) && CPU_COUNT(&reduced)) set_mask(a, thread, &reduced);
    }
}

/* Restores a mask, unless another program has changed it during the region.
 *
 * Linux remembers a mask that was set, and keeps to it if the control group gets more processors.  So if all processors of the
 * control group were allowed, all processors of the system are set. */
static void restore_mask(const affinity_t *a, pid_t thread) {
    cpu_set_t mask;
    if (!a->is_changed || sched_getaffinity(thread, sizeof mask, &mask) || !CPU_EQUAL(&mask, &a->current)) return;
    memset(&mask, -1, sizeof mask);
    if (sched_setaffinity(thread, sizeof mask, &mask) || sched_getaffinity(thread, sizeof mask, &mask)
        || !CPU_EQUAL(&mask, &a->allowed))
        sched_setaffinity(thread, sizeof a->allowed, &a->allowed);
}

/* Called by each other thread when it starts. */
static void thread_begins(affinity_t *affinity, int member) {
    int expected = INITIAL;
    if (member < MOST_PLACED) atomic_compare_exchange_strong(&affinity[member].state, &expected, STARTED);
}

/* Called by each other thread when it finds no more work. */
static void thread_ends(affinity_t *affinity, int member) {
    if (member < MOST_PLACED && affinity[member].state == STARTED) restore_mask(&affinity[member], 0);
}

/* Called by the caller when it finds no more work: moves late threads to the caller's processor. */
static void caller_ends(affinity_t *affinity, int team) {
    const int here = sched_getcpu();
    for (int i = 1; i < team && i < MOST_PLACED; i++) {
        affinity_t *const a = &affinity[i];
        int expected = INITIAL;
        cpu_set_t mask;
        if (!atomic_compare_exchange_strong(&a->state, &expected, LATE)) continue;
        if (!a->is_changed && sched_getaffinity(placed.numbers[i], sizeof a->allowed, &a->allowed)) continue;
        if (!CPU_ISSET(here, &a->allowed)) continue;
        CPU_ZERO(&mask);
        CPU_SET(here, &mask);
        set_mask(a, placed.numbers[i], &mask);
    }
}

/* Called by the caller after a region. */
static void region_ends(affinity_t *affinity, int team) {
    for (int i = 1; i < team && i < MOST_PLACED; i++) {
        if (affinity[i].state != LATE) continue;
        restore_mask(&affinity[i], placed.numbers[i]);
        placed.processor = -1;
    }
    placed.region_end = nanoseconds();
}

#else

typedef int affinity_t;
typedef int placed_team_t;
static placed_team_t placed;
static void store_number(placed_team_t *team, int member) { (void)team, (void)member; }
static void region_begins(affinity_t *affinity, int team) { (void)affinity, (void)team; }
static void thread_begins(affinity_t *affinity, int member) { (void)affinity, (void)member; }
static void thread_ends(affinity_t *affinity, int member) { (void)affinity, (void)member; }
static void caller_ends(affinity_t *affinity, int team) { (void)affinity, (void)team; }
static void region_ends(affinity_t *affinity, int team) { (void)affinity, (void)team; }

#endif

#endif
