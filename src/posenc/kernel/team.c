#include "team.h"

#include <stdbool.h>

/* ---- the system's threads -------------------------------------------------------------------------------------------- */

enum { STACK_BYTES = 1 << 20 };     /* the kernels take a few kB */

static void help(void);

#if defined(_WIN32)

#include <process.h>
#include <windows.h>

static SRWLOCK mutex = SRWLOCK_INIT;
static CONDITION_VARIABLE called = CONDITION_VARIABLE_INIT, left = CONDITION_VARIABLE_INIT;

static void lock(void) { AcquireSRWLockExclusive(&mutex); }
static void unlock(void) { ReleaseSRWLockExclusive(&mutex); }
static void await(CONDITION_VARIABLE *condition) { SleepConditionVariableSRW(condition, &mutex, INFINITE, 0); }
static void wake(CONDITION_VARIABLE *condition) { WakeConditionVariable(condition); }
static double now(void) { return 1e-3 * (double)GetTickCount64(); }

static unsigned __stdcall helper(void *unused) {
    (void)unused;
    help();
    return 0;
}

static bool start_helper(void) {
    const uintptr_t thread = _beginthreadex(NULL, STACK_BYTES, helper, NULL, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    if (thread) CloseHandle((HANDLE)thread);
    return thread != 0;
}

void team_found(void) {}
int team_is_forked(void) { return 0; }

#else

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t called = PTHREAD_COND_INITIALIZER, left = PTHREAD_COND_INITIALIZER;

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }
static void await(pthread_cond_t *condition) { pthread_cond_wait(condition, &mutex); }
static void wake(pthread_cond_t *condition) { pthread_cond_signal(condition); }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *helper(void *unused) {
    (void)unused;
    help();
    return NULL;
}

/* Signals are for the threads of the host program, but for those that a thread itself gives rise to. */
static bool start_helper(void) {
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    sigset_t others, host;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&others, own[i]);
    pthread_attr_t detached;
    if (pthread_attr_init(&detached)) return false;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&detached, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &others, &host);
    pthread_t thread;
    const int error = pthread_create(&thread, &detached, helper, NULL);
    pthread_sigmask(SIG_SETMASK, &host, NULL);
    pthread_attr_destroy(&detached);
    return !error;
}

static pid_t home;

static void leave_home(void) { home = -1; }

void team_found(void) {
    home = getpid();
    pthread_atfork(NULL, NULL, leave_home);     /* a process number may repeat in another namespace */
}

/* The number is compared, too, for what makes a copy past the handlers, such as _Fork or a bare system call. */
int team_is_forked(void) { return home != getpid(); }

#endif

/* ---- the team -------------------------------------------------------------------------------------------------------- */

/* All under the mutex.  It is held for a few instructions at a time, but while threads are started. */
static int callers;             /* at work on something that is worth more than one thread */
static bool taken;              /* one of them has the helpers */
static int helpers;             /* threads that exist */
static work_t *shared;          /* what they work on */
static int seats;               /* that it has left */
static int seated;
static int present;             /* helpers that have not left it */

/* Takes blocks until none is left. */
static void take_blocks(work_t *work, int member) {
    while (work->next < work->end) {
        const ptrdiff_t which = work->next++;
        unlock();
        work->block(work->context, which, member);
        lock();
    }
}

static void help(void) {
    lock();
    for (;;) {
        while (seats == 0) await(&called);
        seats--;
        present++;
        take_blocks(shared, ++seated);
        if (--present == 0) wake(&left);
    }
}

/* Gives the work to as many helpers as are wanted and can be had, and says how many. */
static int invite(work_t *work, int wanted) {
    if (taken || wanted < 1) return 0;
    while (helpers < wanted && start_helper()) helpers++;
    if (wanted > helpers) wanted = helpers;
    taken = wanted > 0;
    shared = work;
    seated = 0;
    return seats = wanted;
}

/* Waits for those that came. */
static void dismiss(void) {
    seats = 0;
    while (present) await(&left);
    taken = false;
}

void team_run(work_t *work, int threads, double seconds) {
    const double begun = work->blocks - work->next > 1 ? now() : 0;
    const bool large = threads > 1 && !team_is_forked();
    int invited = 0;
    work->end = work->blocks;
    if (large) {
        lock();
        invited = invite(work, threads - 1 - callers++);
        unlock();
        for (int i = 0; i < invited; i++) wake(&called);
        lock();
    }
    while (work->next < work->end) {
        const ptrdiff_t which = work->next++;
        if (large) unlock();
        work->block(work->context, which, 0);
        if (large) lock();
        if (work->next < work->end && now() - begun >= seconds) work->end = work->next;
    }
    if (large) {
        if (invited) dismiss();
        callers--;
        unlock();
    }
}
