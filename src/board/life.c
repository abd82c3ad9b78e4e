/* Life words: see life.h.
 *
 * The holder replaces its own thread's robust list (a thread of ours, so nobody's mutexes are on it) by a list of one entry,
 * the life.  The kernel walks that list when the thread ends without having emptied it, which happens only if the process
 * dies or execs.  A child made by fork has no such thread, and the kernel clears its list: its exit marks nothing. */
#define _GNU_SOURCE
#include "board/life.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"

static void wait_for(sem_t *event)
{
    while (sem_wait(event) != 0 && errno == EINTR)
        ;
}

/* The list outlives the thread, which the kernel looks at after this function has returned: so it lies in the holder. */
static void *hold(void *user)
{
    zro__holder *holder = user;
    zro__life *life = holder->life;

    life->link.next = &holder->list.list;
    syscall(SYS_set_robust_list, &holder->list, sizeof holder->list);
    /* pairs with the acquire in zro__life_is_dead */
    atomic_store_explicit(&life->word, (uint32_t)syscall(SYS_gettid), memory_order_release);
    sem_post(&holder->held);
    wait_for(&holder->end);
    holder->list.list.next = &holder->list.list;
    atomic_store_explicit(&life->word, ZRO__LIFE_LEFT, memory_order_release);
    return NULL;
}

zro_status zro__life_hold(zro__holder *holder, zro__life *life)
{
    zro_status st;

    holder->life = life;
    holder->list.list.next = &life->link;
    holder->list.futex_offset = (long)offsetof(zro__life, word) - (long)offsetof(zro__life, link);
    sem_init(&holder->held, 0, 0);
    sem_init(&holder->end, 0, 0);
    st = zro__thread_start(&holder->thread, hold, holder, 1, "the thread that holds a rank's life word");
    if (st != ZRO_OK)
        return st;
    holder->started = 1;
    wait_for(&holder->held);
    return ZRO_OK;
}

void zro__life_release(zro__holder *holder)
{
    if (!holder->started)
        return;
    sem_post(&holder->end);
    pthread_join(holder->thread, NULL);
    sem_destroy(&holder->held);
    sem_destroy(&holder->end);
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

int zro__process_ended(int32_t pid)
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

    if (word == 0 && pid != 0 && zro__process_ended(pid))
        word = atomic_load_explicit(&life->word, memory_order_acquire) == 0 ? FUTEX_OWNER_DIED : word;
    return (word & FUTEX_OWNER_DIED) != 0;
}
