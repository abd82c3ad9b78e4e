/* Threads of the library's own: see thread.h. */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>

#include "base/status.h"

enum { SMALL_STACK = 64 << 10 };

zro_status zro__thread_start(pthread_t *thread, void *(*run)(void *), void *user, int small, const char *what)
{
    pthread_attr_t attr;
    sigset_t all, old;
    int err = EINVAL;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (small && pthread_attr_init(&attr) == 0) {
        pthread_attr_setstacksize(&attr, SMALL_STACK);
        err = pthread_create(thread, &attr, run, user);
        pthread_attr_destroy(&attr);
    }
    if (err == EINVAL) /* not small, or the thread-local storage does not fit into a small stack */
        err = pthread_create(thread, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return err == 0 ? ZRO_OK : zro__fail_errno(ZRO_ERR_SYSTEM, err, "cannot start %s", what);
}
