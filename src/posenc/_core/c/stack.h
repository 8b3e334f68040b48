/* The stack that the kernels need, whose largest frames take 50 kB. */
#ifndef POSENC_STACK_H
#define POSENC_STACK_H

#include <stdint.h>
#if defined(__linux__)
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { STACK_BYTES = 5 << 14 };

/* Returns whether the calling thread has at least STACK_BYTES left.  Only glibc reports how far the stack of the
 * main thread may grow; with other libraries, that stack is not checked. */
static int has_stack(void) {
#if defined(__linux__)
    static _Thread_local uintptr_t lowest; /* address of the stack; 1 if it is unknown */
    const char here = 0;
    pthread_attr_t attributes;
    if (!lowest) {
        void *address = (void *)1;
        size_t size;
#if !defined(__GLIBC__)
        if (syscall(SYS_gettid) != getpid())
#endif
            if (!pthread_getattr_np(pthread_self(), &attributes)) {
                pthread_attr_getstack(&attributes, &address, &size);
                pthread_attr_destroy(&attributes);
            }
        lowest = (uintptr_t)address;
    }
    return (uintptr_t)&here >= lowest + STACK_BYTES;
#else
    return 1;
#endif
}

#endif
