/* Threads of our own that share the blocks of one piece of work: plain C11 and the system's threads, no Python.
 *
 * OpenMP is asked how many threads to take, and starts none.  GNU's ends the process where a thread cannot be had, waits for
 * ever in a forked child, keeps threads for each calling thread, and at the end of a region turns in a loop until the last
 * thread was given a processor.  Here the caller takes blocks from the first moment on, and waits only for helpers that are
 * in the midst of one: a helper that gets no processor costs nothing, nor does one that cannot be had.
 */
#ifndef POSENC_TEAM_H
#define POSENC_TEAM_H

#include <stddef.h>

enum { MAX_THREADS = 64 };

typedef struct {
    void (*block)(void *context, ptrdiff_t which, int member);
    void *context;
    ptrdiff_t blocks;
    ptrdiff_t next;              /* the first block that nobody has taken; 0 at the start */
    ptrdiff_t end;               /* no block from here on is taken now */
} work_t;

/* To be called once, when the library is loaded. */
void team_found(void);

/* Whether this process is a forked copy of the one that loaded the library.  A copy has none of its helpers and may have
 * locks that nobody will open, so it works alone. */
int team_is_forked(void);

/* Runs blocks from work->next on, until none is left or `seconds` have passed, by the caller as member 0 and at most
 * `threads` - 1 helpers as members 1, 2 ...; returns when all that were begun are done.
 *
 * There is one team in a process.  A caller that finds it at work does its blocks alone, and one that finds other callers at
 * work asks for as many helpers fewer. */
void team_run(work_t *work, int threads, double seconds);

#endif
