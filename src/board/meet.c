/* The meeting table: see meet.h.
 *
 * Each rank has an entry that it alone writes: two offers, used in turn, and the number of exchanges that it has come to.  As
 * with the slots of a group, a rank that writes its offer for exchange k + 2 has seen all ranks come to k + 1; so all have read
 * the offers of k, and two are enough. */
#include "board/meet.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/build.h"
#include "base/hash.h"
#include "base/point.h"

static const char magic[8] = "zromeet2";

/* What a rank brings to an exchange. */
typedef struct offer {
    int32_t code;               /* ZRO_OK, or the status with which the rank failed */
    char text[ZRO__TEXT_BYTES]; /* why it failed */
    unsigned char ticket[ZRO_TICKET_BYTES];
} offer;

typedef struct entry {
    zro__word came;                     /* number of exchanges that the rank has come to */
    _Alignas(64) _Atomic uint32_t gone; /* 1: the rank will not come any more */
    _Atomic int32_t pid;                /* the process that claimed the rank, or 0 */
    _Atomic int32_t finished;           /* 1 + the code with which the rank ends; 0: it has not come to its end */
    _Atomic uint32_t loss;              /* 0, or 2 * its place among the ranks that were lost, from 1, + 1 if it is dead */
    zro_status status;                  /* how its create went; read by the supervisor once the rank has ended */
    char text[ZRO__TEXT_BYTES];         /* why its create failed */
    offer offers[2];                    /* for exchange k: offers[k % 2] */
} entry;

struct zro__meet {
    /* This much is the same in all builds. */
    zro__build build;          /* of the supervisor */
    char version[16];          /* of a rank that has another build ... */
    _Atomic uint32_t stranger; /* ... and 2 + its number; 1: the version is being written; 0: there is none */

    int32_t size;
    _Atomic uint32_t losses; /* how many places have been given to ranks that were lost */
    _Alignas(64) entry entries[];
};

size_t zro__meet_bytes(int size)
{
    return sizeof(zro__meet) + (size_t)size * sizeof(entry);
}

static uint64_t layout_of_build(void)
{
    const uint64_t numbers[] = { sizeof(zro__meet),     offsetof(zro__meet, entries), sizeof(entry), offsetof(entry, gone),
                                 offsetof(entry, loss), offsetof(entry, offers),      sizeof(offer), offsetof(offer, ticket) };

    return zro__hash(ZRO__HASH_START, numbers, sizeof numbers);
}

void zro__meet_init(zro__meet *meet, int size)
{
    zro__build_write(&meet->build, magic, layout_of_build());
    meet->size = size;
}

static zro_status differs(const zro__meet *meet, int rank, const char *version)
{
    return zro__build_differs("group_create", rank, version, "`zro run`", meet->build.version);
}

/* Tells the ranks that have the supervisor's build, and would wait for this one, and fails. */
static zro_status be_stranger(zro__meet *meet, int rank)
{
    uint32_t none = 0;

    if (atomic_compare_exchange_strong(&meet->stranger, &none, 1)) {
        snprintf(meet->version, sizeof meet->version, "%s", zro_version());
        atomic_store(&meet->stranger, 2 + (uint32_t)rank);
    }
    return differs(meet, rank, zro_version());
}

zro_status zro__meet_check(zro__meet *meet, int rank, int size, size_t bytes)
{
    if (bytes < sizeof *meet || !zro__build_check(&meet->build, magic))
        return zro__fail(ZRO_ERR_INVALID, "not a table at which ranks meet");
    if (meet->build.layout != layout_of_build())
        return be_stranger(meet, rank);
    if (meet->size != size || bytes < zro__meet_bytes(size))
        return zro__fail(ZRO_ERR_INVALID, "a table for %d ranks, not for %d", (int)meet->size, size);
    return ZRO_OK;
}

typedef struct absentee {
    zro__meet *meet;
    int rank;
    uint64_t timeout_ms;
} absentee;

static zro_status check_absentee(void *user, uint64_t waited_ms)
{
    absentee *a = user;
    uint32_t stranger = atomic_load(&a->meet->stranger);

    if (stranger >= 2)
        return differs(a->meet, (int)stranger - 2, a->meet->version);
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
        return mine; /* this rank need not wait for the others */
    for (int r = 0; r < meet->size; r++) {
        absentee a = { meet, r, timeout_ms };
        const offer *theirs = &meet->entries[r].offers[number % 2];

        st = zro__word_wait(&meet->entries[r].came, number, check_absentee, &a, NULL, NULL);
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

int zro__meet_used(const zro__meet *meet)
{
    zro__meet *m = (zro__meet *)(uintptr_t)meet;

    for (int r = 0; r < m->size; r++)
        if (atomic_load(&m->entries[r].pid) != 0)
            return 1;
    return atomic_load(&m->stranger) != 0;
}

void zro__meet_gone(zro__meet *meet, int rank)
{
    atomic_store_explicit(&meet->entries[rank].gone, 1, memory_order_release); /* pairs with check_absentee */
}

void zro__meet_lost(zro__meet *meet, int rank, int is_dead)
{
    uint32_t none = 0;

    if (meet != NULL && atomic_load(&meet->entries[rank].loss) == 0)
        atomic_compare_exchange_strong(&meet->entries[rank].loss, &none,
                                       2 * (atomic_fetch_add(&meet->losses, 1) + 1) + (uint32_t)(is_dead != 0));
}

uint32_t zro__meet_losses(const zro__meet *meet)
{
    return atomic_load(&((zro__meet *)(uintptr_t)meet)->losses);
}

uint32_t zro__meet_loss(const zro__meet *meet, int rank, int *is_dead)
{
    uint32_t loss = atomic_load(&((zro__meet *)(uintptr_t)meet)->entries[rank].loss);

    *is_dead = loss & 1;
    return loss / 2;
}

void zro__meet_finish(zro__meet *meet, int rank, zro_status st, int code)
{
    entry *e = &meet->entries[rank];

    snprintf(e->text, sizeof e->text, "%s", st == ZRO_OK ? "" : zro_last_error());
    e->status = st;
    atomic_store(&e->finished, 1 + (code & 255));
}

int zro__meet_finished(const zro__meet *meet, int rank, int *code)
{
    int32_t finished = atomic_load(&((zro__meet *)(uintptr_t)meet)->entries[rank].finished);

    *code = finished - 1;
    return finished != 0;
}

zro_status zro__meet_status(const zro__meet *meet, int rank)
{
    const entry *e = &meet->entries[rank];

    return e->status == ZRO_OK ? ZRO_OK : zro__fail(e->status, "rank %d: %s", rank, e->text);
}
