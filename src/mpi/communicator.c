/* Groups from communicators.
 *
 * All ranks exchange their tickets over a duplicate of the communicator, then the group is made from tickets, with MPI as the
 * link between those that share no memory.  With its ticket each rank sends whether it failed so far, and why: a rank that
 * cannot go on tells the others before it returns.  Both steps that wait for peers, the duplication and the exchange, are
 * requests that are tested until the deadline.
 *
 * An MPI that was initialised here is finalised at exit, if that cannot hang: MPI_Finalize waits for all ranks, and a rank that
 * failed, or left a group behind, has peers who wait for its end instead.  Leaving without it tells the launcher to end them. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mpi/mpi_link.h"

/* What each rank tells all others. */
typedef struct card {
    int32_t status;
    char text[764];
    unsigned char ticket[ZRO_TICKET_BYTES];
} card;

_Static_assert(sizeof(card) == 1024, "no padding travels");

static atomic_int process; /* the process that uses MPI: a child that it forks may not */

/* ---- checks ---- */

static zro_status check_process(void)
{
    int self = (int)getpid(), first = 0;

    if (!atomic_compare_exchange_strong(&process, &first, self) && first != self)
        return zro__mpi_error(ZRO_ERR_STATE, "mpi_group_create: a child forked by a rank is not a rank");
    return ZRO_OK;
}

static zro_status check_mpi(zro_switch *one_thread)
{
    int initialised = 0, finalised = 0, level = MPI_THREAD_SINGLE, is_main = 0;
    zro_status st = check_process();

    if (st != ZRO_OK)
        return st;
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    if (!initialised || finalised)
        return zro__mpi_error(ZRO_ERR_STATE, "mpi_group_create: MPI is %s",
                              finalised ? "finalised already" : "not initialised; call MPI_Init_thread first");
    MPI_Query_thread(&level);
    MPI_Is_thread_main(&is_main);
    *one_thread = level < MPI_THREAD_SERIALIZED ? ZRO_ON : ZRO_OFF;
    if (*one_thread == ZRO_ON && !is_main)
        return zro__mpi_error(ZRO_ERR_STATE,
                              "mpi_group_create: MPI was initialised for the main thread alone (%s), and this is another; call "
                              "MPI_Init_thread with MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE",
                              level == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED");
    return ZRO_OK;
}

static zro_status check_comm(MPI_Comm comm)
{
    int inter = 0, code;

    if (comm == MPI_COMM_NULL)
        return zro__mpi_error(ZRO_ERR_INVALID, "mpi_group_create: comm is MPI_COMM_NULL");
    code = MPI_Comm_test_inter(comm, &inter);
    if (code != MPI_SUCCESS)
        return zro__mpi_fail(code, "the communicator");
    if (inter)
        return zro__mpi_error(ZRO_ERR_UNSUPPORTED,
                              "mpi_group_create: comm is an intercommunicator; merge it first (MPI_Intercomm_merge)");
    return ZRO_OK;
}

/* The config with its defaults.  The library itself checks everything but the size. */
static zro_status read_config(const zro_group_config *config, zro_group_config *c)
{
    size_t bytes = config == NULL ? 0 : config->struct_size;

    *c = (zro_group_config)ZRO_GROUP_CONFIG_INIT;
    if (config == NULL)
        return ZRO_OK;
    if (bytes < offsetof(zro_group_config, settings) + sizeof c->settings || bytes > 4096)
        return zro__mpi_error(ZRO_ERR_INVALID, "zro_group_config: struct_size = %zu; begin with its initializer", bytes);
    memcpy(c, config, bytes < sizeof *c ? bytes : sizeof *c);
    c->struct_size = sizeof *c;
    return ZRO_OK;
}

/* ---- waiting ---- */

/* Drives a request to its end.  The lock is free between two tests, so that the groups that exist go on.  As in all waits, a
 * test counts for at most 100 ms: a job that was stopped and continued does not expire. */
static zro_status drive(MPI_Request *request, int size, uint64_t timeout_ms, const char *what)
{
    double waited = 0, last = MPI_Wtime(), now; /* seconds */
    int done = 0, code;

    for (int tests = 0; waited * 1e3 < (double)timeout_ms; tests++) {
        zro__mpi_lock();
        code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        zro__mpi_unlock();
        if (code != MPI_SUCCESS)
            return zro__mpi_fail(code, what);
        if (done)
            return ZRO_OK;
        if (tests >= 100)
            nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
        now = MPI_Wtime();
        waited += now - last < 0.1 ? now - last : 0.1;
        last = now;
    }
    return zro__mpi_error(ZRO_ERR_TIMEOUT,
                          "mpi_group_create: %s: not all %d ranks of the communicator came within %" PRIu64
                          " ms (MPI does not say who is missing)",
                          what, size, timeout_ms);
}

/* ---- the group ---- */

/* A link that was not brought to its end stays busy, with whatever MPI still writes to. */
static zro_status open_link(MPI_Comm comm, uint64_t timeout_ms, zro__mpi_link **out)
{
    MPI_Request making;
    zro_status st;

    zro__mpi_lock();
    st = check_comm(comm);
    if (st == ZRO_OK)
        st = zro__mpi_link_get(comm, out, &making);
    zro__mpi_unlock();
    if (st != ZRO_OK || making == MPI_REQUEST_NULL)
        return st;
    st = drive(&making, (*out)->size, timeout_ms, "duplicating the communicator");
    if (st != ZRO_OK)
        return st;
    zro__mpi_lock();
    st = zro__mpi_link_ready(*out);
    zro__mpi_unlock();
    return st;
}

/* The status and text of the lowest rank that failed; a rank that failed keeps its own. */
static zro_status count(const card *cards, int rank, int size)
{
    if (cards[rank].status != ZRO_OK)
        return zro_error_set((zro_status)cards[rank].status, cards[rank].text);
    for (int r = 0; r < size; r++)
        if (cards[r].status != ZRO_OK)
            return zro__mpi_error(cards[r].status == ZRO_ERR_MISMATCH ? ZRO_ERR_MISMATCH : ZRO_ERR_PEER, "rank %d: %s: %s", r,
                                  zro_status_name((zro_status)cards[r].status), cards[r].text);
    return ZRO_OK;
}

/* All ranks' cards, in rank order; *out is to be freed.  If not all came, they are not: MPI may write to them later. */
static zro_status exchange(zro__mpi_link *link, const card *own, uint64_t timeout_ms, card **out)
{
    card *cards = calloc((size_t)link->size + 1, sizeof *cards); /* the last is what is sent */
    MPI_Request request;
    zro_status st;
    int code;

    if (cards == NULL)
        return zro__mpi_error(ZRO_ERR_MEMORY, "mpi_group_create: out of memory: the tickets of %d ranks", link->size);
    cards[link->size] = *own;
    zro__mpi_lock();
    code = MPI_Iallgather(&cards[link->size], sizeof *cards, MPI_BYTE, cards, sizeof *cards, MPI_BYTE, link->comm, &request);
    zro__mpi_unlock();
    st = code == MPI_SUCCESS ? drive(&request, link->size, timeout_ms, "exchanging tickets")
                             : zro__mpi_fail(code, "exchanging tickets");
    if (st != ZRO_OK)
        return st;
    zro__mpi_lock();
    link->busy = 0;
    zro__mpi_unlock();
    *out = cards;
    return count(cards, link->rank, link->size);
}

/* This rank's card: its ticket, or why it has none; `st` is how it fared before. */
static void write_card(const zro_group_config *config, zro_status st, int rank, int size, card *own)
{
    if (st == ZRO_OK)
        st = zro_group_ticket(config, rank, size, own->ticket);
    if (st != ZRO_OK)
        snprintf(own->text, sizeof own->text, "%s", zro_last_error());
    own->status = (int32_t)st;
}

/* A rank that failed `before` still brings that to the others.  The table is the core's from zro_group_create_tickets on; before
 * that it is closed here. */
static zro_status create(const zro_group_config *config, MPI_Comm comm, zro_status before, zro_group **out)
{
    const zro_group_config defaults = ZRO_GROUP_CONFIG_INIT;
    zro_group_config c;
    zro_switch one_thread = ZRO_OFF;
    zro__mpi_link *link = NULL;
    zro_link table;
    card own = { 0 }, *cards = NULL;
    uint64_t timeout_ms;
    zro_status st = read_config(config, &c);

    *out = NULL;
    before = before == ZRO_OK ? st : before;
    timeout_ms = c.timeout_ms > 0 ? c.timeout_ms : defaults.timeout_ms;
    st = check_mpi(&one_thread);
    if (st == ZRO_OK)
        st = open_link(comm, timeout_ms, &link);
    if (st != ZRO_OK)
        return st;
    zro__mpi_link_table(link, one_thread, &table);
    if (before == ZRO_OK && c.link != NULL)
        before = zro__mpi_error(ZRO_ERR_INVALID, "mpi_group_create: config.link is set, but MPI is this group's link");
    c.link = &table;
    write_card(&c, before, link->rank, link->size, &own);
    st = exchange(link, &own, timeout_ms, &cards);
    if (st == ZRO_OK) {
        for (int r = 0; r < link->size; r++) /* the tickets, one behind the other, in the memory of the cards */
            memmove((char *)cards + (size_t)r * ZRO_TICKET_BYTES, cards[r].ticket, ZRO_TICKET_BYTES);
        st = zro_group_create_tickets(&c, link->rank, link->size, cards, out);
    } else {
        if (own.status == ZRO_OK)
            zro_group_ticket_drop(own.ticket);
        table.close(table.self);
    }
    free(cards);
    return st;
}

zro_status zro_mpi_group_create(const zro_group_config *config, MPI_Comm comm, zro_group **out)
{
    if (out == NULL)
        return zro__mpi_error(ZRO_ERR_INVALID, "mpi_group_create: out is NULL");
    return create(config, comm, ZRO_OK, out);
}

/* ---- for zro_group_create_env ---- */

static void finalise(int status, void *unused)
{
    int finalised = 1, is_main = 0;

    (void)unused;
    if (status != 0 || (int)getpid() != atomic_load(&process) || !zro__mpi_is_quiet())
        return;
    MPI_Finalized(&finalised);
    if (!finalised)
        MPI_Is_thread_main(&is_main);
    if (is_main)
        MPI_Finalize();
}

#ifdef __GLIBC__
#define CALL_AT_EXIT() on_exit(finalise, NULL)
#else
static void finalise_any(void)
{
    finalise(0, NULL); /* the status is not known here */
}
#define CALL_AT_EXIT() atexit(finalise_any)
#endif

static zro_status initialise(void)
{
    int level = MPI_THREAD_SINGLE, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);

    if (code != MPI_SUCCESS)
        return zro__mpi_fail(code, "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* it is ours; mpi_link.c says why the world's matters */
    if (CALL_AT_EXIT() != 0)
        return zro__mpi_error(ZRO_ERR_MEMORY, "mpi_start: out of memory: a function to be called at exit");
    return ZRO_OK;
}

zro_status zro_mpi_start(zro_switch launched, int *size)
{
    int initialised = 0, finalised = 0, code;
    zro_status st;

    *size = 0;
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    if (finalised && launched == ZRO_ON)
        return zro__mpi_error(ZRO_ERR_STATE, "group_create_env: MPI is finalised already");
    if (finalised || (!initialised && launched == ZRO_OFF))
        return ZRO_OK;
    st = check_process();
    if (st == ZRO_OK && !initialised)
        st = initialise();
    if (st != ZRO_OK)
        return st;
    code = MPI_Comm_size(MPI_COMM_WORLD, size);
    return code == MPI_SUCCESS ? ZRO_OK : zro__mpi_fail(code, "the world");
}

zro_status zro_mpi_create_world(const zro_group_config *config, zro_status before, zro_group **out)
{
    return create(config, MPI_COMM_WORLD, before, out);
}
