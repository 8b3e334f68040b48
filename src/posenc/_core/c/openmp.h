/* The parts of the parallel loop in parallel.pxi that need C: OpenMP threads, the counter of blocks, and forks.
 *
 * GNU's runtime ends the process if the system refuses a thread or the memory for a team.  In a forked child,
 * the runtime waits forever for threads that exist only in the parent.  Both cases are detected before
 * threads start. */
#ifndef POSENC_OPENMP_H
#define POSENC_OPENMP_H

#include <stddef.h>
#include <time.h>

#include "stack.h"

/* ---- threads ------------------------------------------------------------------------------------------- */

enum { MAX_THREADS = 64 };

#if defined(_OPENMP)
#include <omp.h>
#define POSENC_OPENMP _OPENMP
#if _OPENMP >= 200805
static int openmp_threads(void) {
    const int most = omp_get_max_threads(), limit = omp_get_thread_limit();
    return most < limit ? most : limit;
}
#else
static int openmp_threads(void) { return omp_get_max_threads(); }
#endif
static int openmp_thread_number(void) { return omp_get_thread_num(); }
static int openmp_in_parallel(void) { return omp_in_parallel(); }
#else
#define POSENC_OPENMP 0
static int openmp_threads(void) { return 0; }
static int openmp_thread_number(void) { return 0; }
static int openmp_in_parallel(void) { return 0; }
#endif

#if defined(_WIN32)

static void openmp_loaded(size_t stack) { (void)stack; }
static int openmp_is_forked(void) { return 0; }
static int openmp_team(int requested) { return requested; }

#else

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static pid_t home;                  /* the process that loaded the library */
static size_t stack_size;
static pthread_key_t team_member;   /* its destructor counts the threads that end */
static atomic_int ended;            /* threads that have ended, in all teams */
/* held while a team grows; a forked child never grows a team */
static pthread_mutex_t growing = PTHREAD_MUTEX_INITIALIZER;

static void leave_home(void) { home = -1; }

static void count_ended(void *unused) { (void)unused, ended++; }

/* Must be called once, when the library is loaded.  `stack` is the stack size of OpenMP threads in bytes, or 0 if
 * it is not set. */
static void openmp_loaded(size_t stack) {
    openmp_threads(); /* LLVM's runtime reads its settings when it is first called */
    home = getpid();
    stack_size = stack;
    pthread_atfork(NULL, NULL, leave_home); /* a child in another PID namespace may have the same process ID */
    pthread_key_create(&team_member, count_ended);
}

/* Returns whether this process is a forked copy of the one that loaded the library, even if no fork handler ran. */
static int openmp_is_forked(void) { return home != getpid(); }

typedef struct {
    pthread_t thread;
    pthread_mutex_t *gate;
    pid_t number; /* of the thread on Linux */
} probe_t;

static void *wait_at_gate(void *argument) {
    probe_t *const probe = argument;
#if defined(__linux__)
    probe->number = (pid_t)syscall(SYS_gettid);
#endif
    pthread_mutex_lock(probe->gate);
    pthread_mutex_unlock(probe->gate);
    return NULL;
}

/* Waits until a joined thread no longer counts towards its user's limit: on Linux, it does for a few
 * microseconds. */
static void wait_until_uncounted(pid_t number) {
#if defined(__linux__)
    for (int i = 0; i < 10000 && syscall(SYS_tgkill, getpid(), number, 0) == 0; i++) sched_yield();
#else
    (void)number;
#endif
}

/* Returns the number of threads with a sufficient stack that the system grants together, at most `requested`. */
static int probe_threads(int requested) {
    enum { BYTES_PER_THREAD = 1 << 12 }; /* more than GNU's runtime allocates for a thread */
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    probe_t probes[MAX_THREADS];
    pthread_attr_t attributes;
    int granted = 0;
    size_t stack = 0;
    if (pthread_attr_init(&attributes)) return 0;
    if (stack_size) pthread_attr_setstacksize(&attributes, stack_size);
    pthread_attr_getstacksize(&attributes, &stack);
    void *const memory = malloc((size_t)requested * BYTES_PER_THREAD);
    pthread_mutex_lock(&gate);
    while (memory && stack >= STACK_BYTES && granted < requested) {
        probes[granted] = (probe_t){.gate = &gate};
        if (pthread_create(&probes[granted].thread, &attributes, wait_at_gate, &probes[granted])) break;
        granted++;
    }
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < granted; i++) pthread_join(probes[i].thread, NULL);
    for (int i = 0; i < granted; i++) wait_until_uncounted(probes[i].number);
    free(memory);
    pthread_attr_destroy(&attributes);
    return granted;
}

/* Adds threads to a team of `existing` threads, and returns the new size, at most `requested`.  New threads
 * inherit a signal mask that leaves all signals but the synchronous ones to the threads of the host program. */
static int grow_team(int existing, int requested) {
    static const int synchronous[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    sigset_t blocked, host;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof synchronous / sizeof *synchronous; i++) sigdelset(&blocked, synchronous[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &host);
    pthread_mutex_lock(&growing);
    const int team = existing + probe_threads(requested - existing);
#if defined(_OPENMP)
#pragma omp parallel num_threads(team)
    if (openmp_thread_number()) pthread_setspecific(team_member, &team_member);
#endif
    pthread_mutex_unlock(&growing);
    pthread_sigmask(SIG_SETMASK, &host, NULL);
    return team;
}

/* Returns the number of threads for the caller's next region, at most `requested`.  GNU's runtime keeps the
 * threads of the caller's last region, and ends those that the next region does not need.  So the team of the
 * last call still exists unless a thread of any team has ended since. */
static int openmp_team(int requested) {
    static _Thread_local int last, last_ended;
    const int now_ended = ended, existing = last && now_ended == last_ended ? last : 1;
    if (requested > existing) requested = grow_team(existing, requested);
    last = requested;
    last_ended = now_ended;
    return requested;
}

#endif

/* ---- blocks and time ----------------------------------------------------------------------------------- */

/* The number of the next block of a loop, which each thread reads and increments until none is left. */
#if defined(_MSC_VER)
#include <intrin.h>
typedef volatile __int64 counter_t;
static ptrdiff_t next_block(counter_t *counter) { return (ptrdiff_t)_InterlockedExchangeAdd64(counter, 1); }
#else
#include <stdatomic.h>
typedef atomic_ptrdiff_t counter_t;
static ptrdiff_t next_block(counter_t *counter) { return atomic_fetch_add(counter, 1); }
#endif
static void set_counter(counter_t *counter, ptrdiff_t value) { *counter = value; }

/* Returns the wall-clock time.  If the clock is reset, only the lengths of a few pieces of a call change. */
static double seconds(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
