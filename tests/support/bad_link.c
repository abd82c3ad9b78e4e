/* A link that misbehaves: see bad_link.h.
 *
 * Every request of the library has a node with a request of the link behind it, whose outcome a poll passes on. */
#include "bad_link.h"

#include <stdlib.h>
#include <string.h>

#include "zt/foreign.h"

struct bad_node {
    bad_node *next;
    zro_link_request inner, *outer; /* NULL: nobody waits for it */
    int is_held, is_posted;         /* a send that is held is posted when it is released */
    int peer;
    uint64_t channel;
    char *into; /* of a receive that is held: the library's memory */
    const void *from;
    size_t bytes;
    char copy[]; /* what goes instead, or comes first */
};

static bad_node *add_node(bad_link *b, size_t copied, zro_link_request *outer)
{
    bad_node *n = calloc(1, sizeof *n + copied);

    CHECK(n != NULL);
    n->outer = outer;
    n->next = b->nodes;
    b->nodes = n;
    if (outer != NULL) {
        outer->state = ZRO_LINK_OPEN;
        outer->own[0] = n;
    }
    return n;
}

/* Whether this message is the one; counts. */
static int is_chosen(bad_link *b, bad_fault first, bad_fault last, int peer, uint64_t channel)
{
    if (b->fault < first || b->fault > last || channel % BAD_CHANNELS != b->channel || (b->peer >= 0 && peer != b->peer)
        || b->skip-- > 0)
        return 0;
    b->n_wrong++;
    return 1;
}

static void fail_once(bad_link *b, zro_link_request *request)
{
    b->fault = BAD_NOTHING;
    request->text = "no such luck";
    request->state = ZRO_LINK_FAILED;
}

static void post(bad_link *b, bad_node *n)
{
    n->is_posted = 1;
    b->link.send(b->link.self, n->peer, n->channel, n->from, n->bytes, ZRO_OFF, &n->inner);
}

/* A copy of a message, changed as the fault says, that is sent instead of it. */
static void send_wrong(bad_link *b, bad_node *n, const char *data, size_t bytes)
{
    long at = b->bytes < 0 ? (long)bytes + b->bytes : b->bytes;
    bad_fault fault = b->fault;

    b->fault = BAD_NOTHING;
    memcpy(n->copy, data, bytes);
    n->from = n->copy;
    n->bytes = bytes;
    if (fault == BAD_SHORTER)
        n->bytes = (size_t)b->bytes < bytes ? bytes - (size_t)b->bytes : 0;
    if (fault == BAD_LONGER)
        n->bytes += (size_t)b->bytes;
    if (fault == BAD_GARBLED && at >= 0 && (size_t)at < bytes)
        n->copy[at] = (char)~n->copy[at];
    if (fault == BAD_DROPPED)
        n->inner.state = ZRO_LINK_DONE;
    else if (fault == BAD_SWAPPED)
        b->swapped = n;
    else
        post(b, n);
    if (fault == BAD_TWICE) {
        bad_node *again = add_node(b, bytes, NULL);

        memcpy(again->copy, data, bytes);
        again->from = again->copy;
        again->bytes = bytes;
        again->peer = n->peer;
        again->channel = n->channel;
        post(b, again);
    }
}

static void bad_send(void *self, int peer, uint64_t channel, const void *data, size_t bytes, zro_switch held,
                     zro_link_request *request)
{
    bad_link *b = self;
    bad_node *n;

    if (is_chosen(b, BAD_SEND_FAILS, BAD_SEND_FAILS, peer, channel)) {
        fail_once(b, request);
        return;
    }
    n = add_node(b, bytes + (b->fault == BAD_LONGER ? (size_t)b->bytes : 0), request);
    n->peer = peer;
    n->channel = channel;
    n->from = data;
    n->bytes = bytes;
    if (is_chosen(b, BAD_SEND_HELD, BAD_SEND_HELD, peer, channel)) {
        n->is_held = 1;
    } else if (is_chosen(b, BAD_SHORTER, BAD_SWAPPED, peer, channel)) {
        send_wrong(b, n, data, bytes);
    } else {
        n->is_posted = 1;
        b->link.send(b->link.self, peer, channel, data, bytes, held, &n->inner);
        if (b->swapped != NULL && b->swapped->peer == peer && b->swapped->channel == channel) {
            post(b, b->swapped);
            b->swapped = NULL;
        }
    }
}

static void bad_recv(void *self, int peer, uint64_t channel, void *data, size_t bytes, zro_link_request *request)
{
    bad_link *b = self;
    bad_node *n;

    if (is_chosen(b, BAD_RECV_FAILS, BAD_RECV_FAILS, peer, channel)) {
        fail_once(b, request);
        return;
    }
    b->is_paused |= is_chosen(b, BAD_PAUSED, BAD_PAUSED, peer, channel);
    n = add_node(b, bytes, request);
    n->is_posted = 1;
    n->bytes = bytes;
    n->is_held = is_chosen(b, BAD_RECV_HELD, BAD_RECV_HELD, peer, channel);
    n->into = n->is_held ? data : NULL;
    b->link.recv(b->link.self, peer, channel, n->is_held ? n->copy : data, bytes, &n->inner);
}

static int is_over(const bad_link *b, const bad_node *n)
{
    return n->inner.state != ZRO_LINK_OPEN && (n->is_posted || n->inner.state == ZRO_LINK_DONE) && (!n->is_held || b->released);
}

static void pass_on(bad_node *n)
{
    if (n->inner.state == ZRO_LINK_DONE && n->into != NULL)
        memcpy(n->into, n->copy, n->inner.bytes);
    if (n->outer == NULL)
        return;
    n->outer->bytes = n->inner.bytes;
    n->outer->text = n->inner.text;
    n->outer->state = n->inner.state;
}

static void pass_all(bad_link *b)
{
    for (bad_node **at = &b->nodes; *at != NULL;) {
        bad_node *n = *at;

        if (n->is_held && !n->is_posted && b->released)
            post(b, n);
        if (!is_over(b, n)) {
            at = &n->next;
            continue;
        }
        pass_on(n);
        *at = n->next;
        free(n);
    }
}

static void bad_poll(void *self)
{
    bad_link *b = self;

    if (b->is_paused)
        zt_await(b->t, &b->t->shared->flag[0], 1);
    b->link.poll(b->link.self);
    pass_all(b);
}

void bad_link_poll(bad_link *b)
{
    bad_poll(b);
}

static void bad_cancel(void *self, zro_link_request *request)
{
    bad_link *b = self;
    bad_node *n = request->own[0];

    if (request->state != ZRO_LINK_OPEN || n->is_held || b->never_cancels)
        return;
    if (n->is_posted)
        b->link.cancel(b->link.self, &n->inner);
    else
        n->inner.state = ZRO_LINK_FAILED;
    n->is_posted = 1;
    if (b->swapped == n)
        b->swapped = NULL;
    pass_all(b);
}

static uint64_t bad_number(void *self)
{
    bad_link *b = self;

    return b->link.number(b->link.self);
}

static void bad_close(void *self)
{
    bad_link *b = self;

    b->link.close(b->link.self);
    while (b->nodes != NULL) {
        bad_node *n = b->nodes;

        b->nodes = n->next;
        free(n);
    }
    free(b);
}

bad_link *bad_link_open(zt_rank *t, zro_link *out)
{
    bad_link *b = calloc(1, sizeof *b);

    CHECK(b != NULL);
    b->t = t;
    b->peer = -1;
    zt_foreign_open(t, &b->link);
    *out = b->link;
    out->self = b;
    out->send = bad_send;
    out->recv = bad_recv;
    out->poll = bad_poll;
    out->cancel = bad_cancel;
    out->number = bad_number;
    out->close = bad_close;
    return b;
}

zro_group *bad_link_group(zt_rank *t, int never_cancels, uint64_t timeout_ms, bad_link **out)
{
    unsigned char ticket[ZRO_TICKET_BYTES], tickets[ZT_MAX_RANKS][ZRO_TICKET_BYTES];
    zro_group_config config = zt_config();
    zro_link link;
    zro_group *group;

    *out = bad_link_open(t, &link);
    (*out)->never_cancels = never_cancels;
    config.timeout_ms = timeout_ms;
    config.link = &link;
    config.machine = t->rank;
    CHECK_OK(zro_group_ticket(&config, t->rank, t->size, ticket));
    zt_exchange(t, ticket, sizeof ticket, tickets);
    CHECK_OK(zro_group_create_tickets(&config, t->rank, t->size, tickets, &group));
    return group;
}
