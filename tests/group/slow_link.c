/* Links that take their time: whoever has everything may leave while others wait for the link.  And what groups cost their parent
 * does not grow with their number. */
#include <stdlib.h>
#include <string.h>

#include "zt/foreign.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { SLOW_PEER = 2, POLLS = 2000, MOST_HELD = 64, GROUPS = 40 };

/* A link that delivers at once, but does not say for a while that what went to SLOW_PEER has gone. */
typedef struct slow_link {
    zro_link link;
    zt_rank *t;
    int slow, polls; /* since flag[0] was set */
    int n;
    struct {
        zro_link_request inner, *outer;
    } held[MOST_HELD];
} slow_link;

static void slow_send(void *self, int peer, uint64_t channel, const void *data, size_t bytes, zro_switch held,
                      zro_link_request *request)
{
    slow_link *s = self;

    if (!s->slow || peer != SLOW_PEER) {
        s->link.send(s->link.self, peer, channel, data, bytes, held, request);
        return;
    }
    CHECK(s->n < MOST_HELD);
    memset(&s->held[s->n].inner, 0, sizeof s->held[s->n].inner);
    s->held[s->n].outer = request;
    s->link.send(s->link.self, peer, channel, data, bytes, held, &s->held[s->n++].inner);
}

static void slow_recv(void *self, int peer, uint64_t channel, void *data, size_t bytes, zro_link_request *request)
{
    slow_link *s = self;

    s->link.recv(s->link.self, peer, channel, data, bytes, request);
}

static void release(slow_link *s)
{
    for (int i = 0; i < s->n; i++) {
        CHECK(s->held[i].inner.state == ZRO_LINK_DONE);
        s->held[i].outer->state = ZRO_LINK_DONE;
    }
    s->n = 0;
    s->slow = 0;
}

static void slow_poll(void *self)
{
    slow_link *s = self;

    s->link.poll(s->link.self);
    s->polls += s->slow && atomic_load(&s->t->shared->flag[0]) != 0;
    if (s->polls > POLLS)
        release(s);
}

static void slow_cancel(void *self, zro_link_request *request)
{
    slow_link *s = self;

    s->link.cancel(s->link.self, request);
}

static uint64_t slow_number(void *self)
{
    slow_link *s = self;

    return s->link.number(s->link.self);
}

static void slow_close(void *self)
{
    slow_link *s = self;

    s->link.close(s->link.self);
    free(s);
}

static slow_link *open_slow(zt_rank *t, zro_link *out)
{
    slow_link *s = calloc(1, sizeof *s);

    CHECK(s != NULL);
    s->t = t;
    zt_foreign_open(t, &s->link);
    *out = s->link;
    out->self = s;
    out->send = slow_send;
    out->recv = slow_recv;
    out->poll = slow_poll;
    out->cancel = slow_cancel;
    out->number = slow_number;
    out->close = slow_close;
    return s;
}

/* Rank 1 has everybody's arrival, and leaves, before rank 0 knows that its own has gone to rank 2. */
static void leaves_early(zt_rank *t)
{
    unsigned char ticket[ZRO_TICKET_BYTES], tickets[3][ZRO_TICKET_BYTES];
    zro_group_config config = zt_config();
    zro_link link;
    slow_link *s = open_slow(t, &link);
    zro_group *group;

    config.link = &link;
    config.machine = t->rank;
    CHECK_OK(zro_group_ticket(&config, t->rank, t->size, ticket));
    zt_exchange(t, ticket, sizeof ticket, tickets);
    CHECK_OK(zro_group_create_tickets(&config, t->rank, t->size, tickets, &group));
    CHECK_OK(zro_barrier(group));
    s->slow = t->rank == 0;
    CHECK_OK(zro_barrier(group));
    if (t->rank == 0)
        atomic_store(&t->shared->flag[1], 1);
    else if (t->rank == SLOW_PEER)
        zt_await(t, &t->shared->flag[1], 1);
    zro_group_destroy(group);
    if (t->rank == 1)
        atomic_store(&t->shared->flag[0], 1);
}

static uint64_t control_bytes(const zro_group *group)
{
    zro_stats stats = ZRO_STATS_INIT;

    CHECK_OK(zro_group_stats(group, &stats));
    return stats.control_bytes;
}

static void parent_bytes(zt_rank *t)
{
    uint64_t first = 0, last = 0;

    for (int i = 0; i < GROUPS; i++) {
        zro_group *copy;

        CHECK_OK(zro_group_duplicate(t->group, &copy));
        zro_group_destroy(copy);
        zt_meet(t);
        last = control_bytes(t->group);
        first = i == 0 ? last : first;
        zt_meet(t);
    }
    CHECK(last == first);
}

const zt_case cases_group_slow_link[] = {
    { "leaves_early", leaves_early, ZT_WORLD(3), ZT_FOREIGN, 0, 0, 0, 0 },
    { "parent_bytes", parent_bytes, ZT_WORLD(2) | ZT_WORLD(4), ZT_ALL, ZT_TWO_MACHINES, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
