/* Links that do something wrong: whatever it is, calls end with an error that says what, and arrays that a program has back are
 * its own. */
#include <string.h>

#include "bad_link.h"
#include "zt/list.h"

enum { COUNT = 3000, SHORT = 8, LONG_MS = 20000, SHORT_MS = 300 };

/* ---- what goes wrong once, on rank 0's link ---- */

typedef struct trouble {
    bad_fault fault;
    unsigned channel;
    long bytes;
    size_t count;      /* elements of the all-reduce: SHORT travels with its header */
    zro_status status; /* on rank `sees` */
    int sees;
    const char *text; /* part of what that rank says */
} trouble;

static const char NO_MESSAGE[] = "what is no message of this library";

/* The head of a control message has 8 bytes of its own, and then a header (board/slot.h). */
static const trouble troubles[] = {
    { BAD_SHORTER, BAD_CONTROL, 1, COUNT, ZRO_ERR_LOST, 1, NO_MESSAGE },
    { BAD_SHORTER, BAD_CONTROL, 1000, COUNT, ZRO_ERR_LOST, 1, NO_MESSAGE },
    { BAD_SHORTER, BAD_CONTROL, 1, SHORT, ZRO_ERR_LOST, 1, NO_MESSAGE },
    { BAD_LONGER, BAD_CONTROL, 1, COUNT, ZRO_ERR_LOST, 1, NO_MESSAGE },
    { BAD_GARBLED, BAD_CONTROL, 0, COUNT, ZRO_ERR_LOST, 1, NO_MESSAGE },
    { BAD_GARBLED, BAD_CONTROL, 0, SHORT, ZRO_ERR_LOST, 1, "of unknown kind" },
    { BAD_GARBLED, BAD_CONTROL, 4, COUNT, ZRO_ERR_LOST, 1, NO_MESSAGE },
    { BAD_GARBLED, BAD_CONTROL, 7, COUNT, ZRO_ERR_LOST, 1, NO_MESSAGE },
    { BAD_GARBLED, BAD_CONTROL, 8, COUNT, ZRO_ERR_LOST, 1, "an arrival out of turn" },
    { BAD_GARBLED, BAD_CONTROL, 32, COUNT, ZRO_ERR_MISMATCH, 1, "different things" },
    { BAD_TWICE, BAD_CONTROL, 0, COUNT, ZRO_ERR_LOST, 1, "an arrival out of turn" },
    { BAD_SHORTER, BAD_PIECES, 4, COUNT, ZRO_ERR_MISMATCH, 1, "bytes where" },
    { BAD_SHORTER, BAD_RESULTS, 1, COUNT, ZRO_ERR_MISMATCH, 1, "bytes where" },
    { BAD_LONGER, BAD_PIECES, 1, COUNT, ZRO_ERR_MISMATCH, 1, "bytes where" },
    { BAD_LONGER, BAD_RESULTS, 1000, COUNT, ZRO_ERR_LOST, 1, "longer than its receive" },
    { BAD_SEND_FAILS, BAD_CONTROL, 0, COUNT, ZRO_ERR_LOST, 0, "no such luck" },
    { BAD_SEND_FAILS, BAD_PIECES, 0, COUNT, ZRO_ERR_LOST, 0, "no such luck" },
    { BAD_SEND_FAILS, BAD_RESULTS, 0, COUNT, ZRO_ERR_LOST, 0, "no such luck" },
    { BAD_RECV_FAILS, BAD_CONTROL, 0, COUNT, ZRO_ERR_LOST, 0, "no such luck" },
    { BAD_RECV_FAILS, BAD_PIECES, 0, COUNT, ZRO_ERR_LOST, 0, "no such luck" },
    { BAD_RECV_FAILS, BAD_RESULTS, 0, COUNT, ZRO_ERR_LOST, 0, "no such luck" },
    { BAD_DROPPED, BAD_CONTROL, 0, COUNT, ZRO_ERR_TIMEOUT, 1, "no answer from rank" },
    { BAD_DROPPED, BAD_PIECES, 0, COUNT, ZRO_ERR_TIMEOUT, 1, "no answer from rank" },
    { BAD_SWAPPED, BAD_RESULTS, 0, COUNT, ZRO_ERR_TIMEOUT, 1, "no answer from rank" },
};

/* A rank that sees nothing wrong gets the verdict, at this call or at the next. */
static void suffer(zt_rank *t, const trouble *o)
{
    bad_link *link;
    zro_group *group = bad_link_group(t, 0, o->status == ZRO_ERR_TIMEOUT ? SHORT_MS : LONG_MS, &link);
    float x[COUNT];
    zro_status st = ZRO_OK;

    zt_meet(t);
    if (t->rank == 0) {
        link->channel = o->channel;
        link->bytes = o->bytes;
        link->fault = o->fault;
    }
    for (int i = 0; i < 3 && st == ZRO_OK; i++) {
        memset(x, 0, sizeof x);
        st = zro_all_reduce(group, x, o->count, ZRO_F32, ZRO_SUM);
    }
    if (t->rank == 0 && link->n_wrong != 1)
        zt_fail(__FILE__, __LINE__, "trouble %d: %d times wrong", (int)(o - troubles), link->n_wrong);
    if (st == ZRO_OK || (t->rank == o->sees && (st != o->status || strstr(zro_last_error(), o->text) == NULL)))
        zt_fail(__FILE__, __LINE__, "trouble %d: %s", (int)(o - troubles), zro_status_name(st));
    CHECK(zro_group_status(group) == st);
    zt_meet(t);
    zro_group_destroy(group);
}

static void link_troubles(zt_rank *t)
{
    for (size_t i = 0; i < sizeof troubles / sizeof *troubles; i++)
        suffer(t, &troubles[i]);
}

/* ---- arrays of the program, after a call that failed ---- */

static float *new_array(zro_group *group, zro_memory **memory)
{
    CHECK_OK(zro_memory_alloc(group, ZRO_MEMORY_EACH, COUNT * sizeof(float), memory));
    return zro_memory_data(*memory);
}

static void fill(float *x, float value)
{
    for (int i = 0; i < COUNT; i++)
        x[i] = value;
}

static int holds(const float *x, float value)
{
    for (int i = 0; i < COUNT; i++)
        if (x[i] != value)
            return 0;
    return 1;
}

static void poll_often(bad_link *link)
{
    for (int i = 0; i < 100; i++)
        bad_link_poll(link);
}

/* What rank 0 waits for comes when its call is long over: because its link, which cannot cancel, holds it back or, with t->arg, because
 * the link of rank 1 does. */
static void written_late(zt_rank *t)
{
    bad_link *link;
    zro_group *group = bad_link_group(t, !t->arg, SHORT_MS, &link);
    zro_memory *memory;
    float *x = new_array(group, &memory);

    fill(x, 1);
    zt_meet(t);
    link->channel = BAD_RESULTS;
    if (t->rank == t->arg)
        link->fault = t->arg ? BAD_SEND_HELD : BAD_RECV_HELD;
    if (t->rank == 0)
        CHECK_STATUS(zro_broadcast(group, x, COUNT, ZRO_F32, 1), ZRO_ERR_TIMEOUT);
    else
        (void)!zro_broadcast(group, x, COUNT, ZRO_F32, 1);
    CHECK(link->n_wrong > 0 || t->rank != t->arg);
    fill(x, t->rank == 0 ? 2 : 3);
    link->released = 1;
    zt_meet(t);
    if (t->rank == 1)
        poll_often(link);
    zt_meet(t);
    if (t->rank == 0)
        poll_often(link);
    CHECK(t->rank == 1 || holds(x, 2));
    zt_meet(t);
    zro_group_destroy(group);
    zro_memory_free(memory);
}

/* Rank 0's piece leaves its array when its call is over, and other numbers are there; rank 1, which has not looked at its link
 * meanwhile, finds that piece and the verdict at once. */
static void read_late(zt_rank *t)
{
    bad_link *link;
    zro_group *group = bad_link_group(t, 0, t->rank == 0 ? SHORT_MS : LONG_MS, &link);
    zro_memory *memory;
    float *x = new_array(group, &memory);

    fill(x, 1);
    zt_meet(t);
    link->channel = BAD_PIECES;
    link->fault = t->rank == 0 ? BAD_SEND_HELD : BAD_PAUSED;
    if (t->rank == 0) {
        CHECK_STATUS(zro_reduce(group, x, x, COUNT, ZRO_F32, ZRO_SUM, 1), ZRO_ERR_TIMEOUT);
        fill(x, 5);
        link->released = 1;
        CHECK(link->n_wrong > 0);
        poll_often(link);
        zro_group_destroy(group);
        atomic_store(&t->shared->flag[0], 1);
    } else {
        CHECK_STATUS(zro_reduce(group, x, x, COUNT, ZRO_F32, ZRO_SUM, 1), ZRO_ERR_TIMEOUT);
        zro_group_destroy(group);
    }
    zro_memory_free(memory);
}

const zt_case cases_fail_bad_link[] = {
    { "link_troubles", link_troubles, ZT_WORLD(2), ZT_FOREIGN, 0, 0, 0, 0 },
    { "written_late", written_late, ZT_WORLD(2), ZT_FOREIGN, 0, 0, 0, 0 },
    { "written_late_sent_late", written_late, ZT_WORLD(2), ZT_FOREIGN, 0, 0, 0, 1 },
    { "read_late", read_late, ZT_WORLD(2), ZT_FOREIGN, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
