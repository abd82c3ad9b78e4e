/* Threads of the library's own: they get none of the program's signals. */
#ifndef ZRO_BASE_THREAD_H
#define ZRO_BASE_THREAD_H

#include <pthread.h>

#include "zro.h"

/* Starts a thread.  small = 1: its stack has 64 KiB if the program's thread-local storage fits into that, too.  SYSTEM: it
 * could not be started; the text names `what`. */
zro_status zro__thread_start(pthread_t *thread, void *(*run)(void *), void *user, int small, const char *what);

#endif
