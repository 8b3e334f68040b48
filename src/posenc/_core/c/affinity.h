/* Affinity masks that keep the threads of a team off the processor of the calling thread while they start.
 *
 * Linux often starts a woken thread on the processor of the thread that wakes it, and leaves both there for milliseconds,
 * although another processor is idle: in a virtual machine, a halted processor does not count as idle. */
#ifndef POSENC_AFFINITY_H
#define POSENC_AFFINITY_H

/* A system call that sets a mask takes about 5 us.  A large team loses little if one of its threads starts late. */
enum { MOST_PLACED = 8 };

#if defined(__linux__) && defined(_OPENMP)

#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    cpu_set_t allowed, reduced;
    int is_reduced;
} affinity_t;

typedef struct {
    pid_t numbers[MOST_PLACED]; /* of its threads, 0 if unknown */
    int processor;              /* of the caller when the last region began */
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

/* Removes the caller's processor from the masks of the team's other threads, if their masks have another processor.
 *
 * Does nothing if the caller has not moved since the last region and the threads still spin, because then they need no waking.
 * The caller may have moved to a thread's processor when that thread woke it at the end of the last region. */
static void reduce_affinity(affinity_t *affinity, int team) {
    enum { SPINNING_NANOSECONDS = 20000 };
    const int here = sched_getcpu(), moved = here != placed.processor;
    for (int i = 0; i < MOST_PLACED; i++) affinity[i].is_reduced = 0;
    placed.processor = here;
    if (team > MOST_PLACED || here < 0 || kmp_get_blocktime) return;
    if (!moved && nanoseconds() - placed.region_end < SPINNING_NANOSECONDS) return;
    for (int i = 1; i < team; i++) {
        affinity_t *const a = &affinity[i];
        if (!placed.numbers[i] || sched_getaffinity(placed.numbers[i], sizeof a->allowed, &a->allowed)) continue;
        a->reduced = a->allowed;
        CPU_CLR(here, &a->reduced);
        if (CPU_EQUAL(&a->reduced, &a->allowed) || !CPU_COUNT(&a->reduced)) continue;
        a->is_reduced = !sched_setaffinity(placed.numbers[i], sizeof a->reduced, &a->reduced);
    }
}

/* Restores the mask of a member of the team, which calls it, unless another program has changed the mask.
 *
 * Linux remembers a mask that was set, and keeps to it if the control group gets more processors.  So if all processors of the
 * control group were allowed, all processors of the system are set. */
static void restore_affinity(const affinity_t *affinity, int member) {
    if (member >= MOST_PLACED || !affinity[member].is_reduced) return;
    const affinity_t *const a = &affinity[member];
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) || !CPU_EQUAL(&mask, &a->reduced)) return;
    memset(&mask, -1, sizeof mask);
    if (sched_setaffinity(0, sizeof mask, &mask) || sched_getaffinity(0, sizeof mask, &mask) || !CPU_EQUAL(&mask, &a->allowed))
        sched_setaffinity(0, sizeof a->allowed, &a->allowed);
}

static void region_ended(void) { placed.region_end = nanoseconds(); }

#else

typedef int affinity_t;
typedef int placed_team_t;
static placed_team_t placed;
static void store_number(placed_team_t *team, int member) { (void)team, (void)member; }
static void reduce_affinity(affinity_t *affinity, int team) { (void)affinity, (void)team; }
static void restore_affinity(const affinity_t *affinity, int member) { (void)affinity, (void)member; }
static void region_ended(void) {}

#endif

#endif
