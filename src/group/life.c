/* Life words: see life.h.
 *
 * The holder replaces its own thread's robust list (a thread of ours, so nobody's mutexes are on it) by a list of one entry,
 * the life.  The kernel walks that list when the thread ends without having emptied it, which happens only if the process
 * dies or execs.  A child made by fork has no such thread, and the kernel clears its list: its exit marks nothing. */
#define _GNU_SOURCE
#include "group/life.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/status.h"

static void *hold(void *user)
{
    zro__holder *holder = user;
    zro__life *life = holder->life;
    struct robust_list_head head = {
        .list = { &life->link },
        .futex_offset = (long)offsetof(zro__life, word) - (long)offsetof(zro__life, link),
    };

    life->link.next = &head.list;
    syscall(SYS_set_robust_list, &head, sizeof head);
    /* pairs with the acquire in zro__life_is_dead */
    atomic_store_explicit(&life->word, (uint32_t)syscall(SYS_gettid), memory_order_release);
    pthread_mutex_lock(&holder->lock);
    holder->held = 1;
    pthread_cond_broadcast(&holder->changed);
    while (!holder->end)
        pthread_cond_wait(&holder->changed, &holder->lock);
    pthread_mutex_unlock(&holder->lock);
    head.list.next = &head.list;
    atomic_store_explicit(&life->word, ZRO__LIFE_LEFT, memory_order_release);
    return NULL;
}

zro_status zro__life_hold(zro__holder *holder, zro__life *life)
{
    sigset_t all, old;
    pthread_attr_t attr;
    int err;

    holder->life = life;
    pthread_mutex_init(&holder->lock, NULL);
    pthread_cond_init(&holder->changed, NULL);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 64 * 1024);
    /* The program's signals are for the program's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(&holder->thread, &attr, hold, holder);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (err != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, err, "cannot start the thread that holds a rank's life word");
    holder->started = 1;
    pthread_mutex_lock(&holder->lock);
    while (!holder->held)
        pthread_cond_wait(&holder->changed, &holder->lock);
    pthread_mutex_unlock(&holder->lock);
    return ZRO_OK;
}

void zro__life_release(zro__holder *holder)
{
    if (!holder->started)
        return;
    pthread_mutex_lock(&holder->lock);
    holder->end = 1;
    pthread_cond_broadcast(&holder->changed);
    pthread_mutex_unlock(&holder->lock);
    pthread_join(holder->thread, NULL);
    pthread_cond_destroy(&holder->changed);
    pthread_mutex_destroy(&holder->lock);
    holder->started = 0;
}

void zro__life_mark_alive(zro__life *life)
{
    atomic_store_explicit(&life->word, 1, memory_order_release);
}

void zro__life_mark_dead(zro__life *life)
{
    atomic_store_explicit(&life->word, FUTEX_OWNER_DIED, memory_order_release);
}

int zro__life_is_taken(zro__life *life)
{
    return atomic_load_explicit(&life->word, memory_order_acquire) != 0;
}

/* Gone, or dead and not yet reaped.  Without /proc nobody is. */
static int process_ended(int32_t pid)
{
    char path[64], text[512] = "", *state;
    int fd, err;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    err = errno;
    if (fd < 0)
        return err == ENOENT && access("/proc/self/stat", R_OK) == 0;
    if (read(fd, text, sizeof text - 1) < 0)
        text[0] = '\0';
    close(fd);
    state = strrchr(text, ')'); /* "PID (NAME) STATE ...": the name may contain anything */
    return state != NULL && (state[2] == 'Z' || state[2] == 'X');
}

int zro__life_is_dead(zro__life *life)
{
    uint32_t word = atomic_load_explicit(&life->word, memory_order_acquire);
    int32_t pid = atomic_load_explicit(&life->pid, memory_order_relaxed);

    if (word == 0 && pid != 0 && process_ended(pid))
        word = atomic_load_explicit(&life->word, memory_order_acquire) == 0 ? FUTEX_OWNER_DIED : word;
    return (word & FUTEX_OWNER_DIED) != 0;
}
