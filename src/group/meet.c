/* The meeting table: see meet.h.
 *
 * Each rank has an entry that it alone writes: two places for what it brings, used in turn, and the number of exchanges that it
 * has come to.  As with the slots of a group, a rank that writes for exchange k + 2 has seen everybody come to k + 1, so
 * everybody has read k, and two places are enough. */
#include "group/meet.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/point.h"

static const char magic[8] = "zromeet1";

typedef struct offer {
    int32_t code;
    char text[ZRO__TEXT_BYTES];
    unsigned char ticket[ZRO_TICKET_BYTES];
} offer;

typedef struct entry {
    zro__word came; /* number of exchanges */
    _Alignas(64) _Atomic uint32_t gone;
    _Atomic int32_t pid;
    _Atomic int32_t finished; /* 1 + the code with which the rank's function returned */
    int32_t report;           /* read by the supervisor when the rank has ended */
    char report_text[ZRO__TEXT_BYTES];
    offer offers[2];
} entry;

struct zro__meet {
    char magic[8];
    int32_t size;
    _Alignas(64) entry entries[];
};

size_t zro__meet_bytes(int size)
{
    return sizeof(zro__meet) + (size_t)size * sizeof(entry);
}

void zro__meet_init(zro__meet *meet, int size)
{
    memcpy(meet->magic, magic, sizeof magic);
    meet->size = size;
}

int zro__meet_check(const zro__meet *meet, int size, size_t bytes)
{
    return bytes >= zro__meet_bytes(size) && memcmp(meet->magic, magic, sizeof magic) == 0 && meet->size == size;
}

typedef struct absentee {
    zro__meet *meet;
    int rank;
    uint64_t timeout_ms;
} absentee;

static zro_status check_absentee(void *user, uint64_t waited_ms)
{
    absentee *a = user;

    if (atomic_load_explicit(&a->meet->entries[a->rank].gone, memory_order_acquire)) /* pairs with zro__meet_gone */
        return zro__fail(ZRO_ERR_LOST, "group_create: rank %d ended before the group was formed", a->rank);
    if (waited_ms > a->timeout_ms)
        return zro__fail(ZRO_ERR_TIMEOUT, "group_create: rank %d did not come within %" PRIu64 " ms", a->rank, a->timeout_ms);
    return ZRO_OK;
}

zro_status zro__meet_exchange(zro__meet *meet, int rank, uint64_t timeout_ms, zro_status mine, const void *ticket,
                              void *tickets)
{
    entry *own = &meet->entries[rank];
    uint64_t number = atomic_load_explicit(&own->came.value, memory_order_relaxed) + 1;
    offer *o = &own->offers[number % 2];
    zro_status st, result = ZRO_OK;

    o->code = (int32_t)mine;
    snprintf(o->text, sizeof o->text, "%s", mine == ZRO_OK ? "" : zro_last_error());
    memcpy(o->ticket, ticket, sizeof o->ticket);
    (void)ZRO__POINT("meet.come");
    zro__post(&own->came, number);
    if (mine != ZRO_OK)
        return mine; /* the others need not be waited for */
    for (int r = 0; r < meet->size; r++) {
        absentee a = { meet, r, timeout_ms };
        const offer *theirs = &meet->entries[r].offers[number % 2];

        st = zro__word_wait(&meet->entries[r].came, number, check_absentee, &a, NULL);
        if (st != ZRO_OK)
            return st;
        if (theirs->code != ZRO_OK && result == ZRO_OK)
            result = zro__fail(ZRO_ERR_PEER, "rank %d: %s: %s", r, zro_status_name((zro_status)theirs->code), theirs->text);
        memcpy((char *)tickets + (size_t)r * ZRO_TICKET_BYTES, theirs->ticket, ZRO_TICKET_BYTES);
    }
    return result;
}

zro_status zro__meet_claim(zro__meet *meet, int rank)
{
    entry *e = &meet->entries[rank];
    int32_t self = (int32_t)getpid(), other = 0;

    while (!atomic_compare_exchange_strong(&e->pid, &other, self)) {
        if (other == self)
            return ZRO_OK;
        if (kill((pid_t)other, 0) == 0 || errno == EPERM)
            return zro__fail(ZRO_ERR_STATE, "rank %d of this job is process %d already", rank, (int)other);
    }
    return ZRO_OK;
}

void zro__meet_gone(zro__meet *meet, int rank)
{
    atomic_store_explicit(&meet->entries[rank].gone, 1, memory_order_release); /* pairs with check_absentee */
}

void zro__meet_finish(zro__meet *meet, int rank, int code)
{
    atomic_store(&meet->entries[rank].finished, 1 + (code & 255));
}

int zro__meet_finished(const zro__meet *meet, int rank, int *code)
{
    int32_t finished = atomic_load(&((zro__meet *)(uintptr_t)meet)->entries[rank].finished);

    *code = finished - 1;
    return finished != 0;
}

void zro__meet_report(zro__meet *meet, int rank, zro_status st)
{
    entry *e = &meet->entries[rank];

    snprintf(e->report_text, sizeof e->report_text, "%s", zro_last_error());
    e->report = (int32_t)st;
}

zro_status zro__meet_reported(const zro__meet *meet, int rank)
{
    const entry *e = &meet->entries[rank];

    return e->report == ZRO_OK ? ZRO_OK : zro__fail((zro_status)e->report, "rank %d: %s", rank, e->report_text);
}
