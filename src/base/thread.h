/* Threads of the library's own: they get none of the program's signals. */
#ifndef ZRO_BASE_THREAD_H
#define ZRO_BASE_THREAD_H

#include <pthread.h>

#include "zro.h"

/* Starts one.  `small`: a stack of 64 KiB if the program's thread-local storage leaves room for that.  SYSTEM, naming `what`. */
zro_status zro__thread_start(pthread_t *thread, void *(*run)(void *), void *user, int small, const char *what);

#endif
