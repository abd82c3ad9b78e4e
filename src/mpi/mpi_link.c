/* The MPI link: see mpi_link.h.
 *
 * A channel is a tag: messages of one source and tag are ordered, and each tag of a duplicate belongs to one group for ever.
 * Held sends are synchronous ones (MPI_Issend), which end when the receive was posted: eager sends would fill the memory of a
 * receiver that is busy elsewhere.  Whoever polls tests all open requests with MPI_Testsome, so that nothing ever blocks inside
 * MPI.
 *
 * MPI's silence about a dead rank means nothing, its errors mean that the request failed.  Open MPI gives errors to the
 * duplicate's handler, which returns them; MPICH asks the world's handler when a request ends with an error, which is the
 * program's to choose.  The one error that peers could cause, a message longer than its receive, is ruled out by the protocol
 * above: nobody sends data before everybody's headers were compared.
 *
 * A duplicate that carried messages is never freed: peers may still send to it (that they left, say), and an MPI that gave its
 * number to another communicator would deliver there.  One that carried none, because all ranks share memory, is freed by a
 * later create, because only there is it known that this thread may call MPI. */
#include "mpi/mpi_link.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MESSAGE_BYTES = 1 << 20, BATCH = 64 };

/* One per process, because MPI is.  All but the atomics are protected by the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int wanted; /* how many threads wait for the lock; pollers stand back for them */
static atomic_int groups; /* how many tables of links were given to creates and not closed since */
static zro__mpi_link *links;
static int keyval = MPI_KEYVAL_INVALID; /* of our attribute of the program's communicators */
static int ended;                       /* MPI_Finalize has begun: no call may be made any more */

/* ---- lock and errors ---- */

void zro__mpi_lock(void)
{
    atomic_fetch_add_explicit(&wanted, 1, memory_order_relaxed);
    pthread_mutex_lock(&lock);
    atomic_fetch_sub_explicit(&wanted, 1, memory_order_relaxed);
}

void zro__mpi_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

zro_status zro__mpi_error(zro_status status, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return zro_error_set(status, text);
}

static const char *text_of(int code, char *text)
{
    int length = 0;

    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        snprintf(text, MPI_MAX_ERROR_STRING, "MPI error %d", code);
    return text;
}

zro_status zro__mpi_fail(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];

    return zro__mpi_error(ZRO_ERR_SYSTEM, "mpi_group_create: %s: %s", what, text_of(code, text));
}

/* ---- requests ---- */

/* The state is written last: whoever sees it, perhaps under the lock of another group, sees the bytes and all else. */
static void settle(zro_link_request *request, zro_link_state state)
{
    __atomic_store_n(&request->state, state, __ATOMIC_RELEASE);
}

static void refuse(zro_link_request *request, const char *text)
{
    request->text = text;
    settle(request, ZRO_LINK_FAILED);
}

/* Why a new request is refused, or NULL: then there is memory for it. */
static const char *why_not(zro__mpi_link *l, uint64_t channel, size_t bytes)
{
    zro__mpi_open *opens;

    if (ended)
        return "MPI is finalised; destroy groups before that";
    if (channel >= l->channels)
        return "this MPI has no tags left for more groups (MPI_TAG_UB)";
    if (bytes > MESSAGE_BYTES)
        return "the message is longer than message_bytes";
    if (l->n < l->capacity)
        return NULL;
    opens = realloc(l->opens, (size_t)(l->capacity + BATCH) * sizeof *opens);
    if (opens == NULL)
        return "out of memory: the MPI link's requests";
    l->opens = opens;
    l->capacity += BATCH;
    return NULL;
}

enum { SEND, SEND_HELD, RECEIVE };

static void start(zro__mpi_link *l, int kind, int peer, uint64_t channel, void *data, size_t bytes, zro_link_request *request)
{
    const char *refusal;
    zro__mpi_open *o;
    int code = MPI_SUCCESS, n = (int)bytes, tag = (int)channel;

    zro__mpi_lock();
    l->used = 1;
    refusal = why_not(l, channel, bytes);
    o = &l->opens[l->n];
    if (refusal == NULL)
        code = kind == RECEIVE     ? MPI_Irecv(data, n, MPI_BYTE, peer, tag, l->comm, &o->handle)
               : kind == SEND_HELD ? MPI_Issend(data, n, MPI_BYTE, peer, tag, l->comm, &o->handle)
                                   : MPI_Isend(data, n, MPI_BYTE, peer, tag, l->comm, &o->handle);
    if (code != MPI_SUCCESS)
        refusal = text_of(code, l->text);
    if (refusal != NULL) {
        refuse(request, refusal);
    } else {
        o->request = request;
        o->is_receive = kind == RECEIVE;
        o->is_cancelled = 0;
        request->state = ZRO_LINK_OPEN;
        request->own[0] = (void *)(uintptr_t)l->n++;
    }
    zro__mpi_unlock();
}

static void send_to(void *self, int peer, uint64_t channel, const void *data, size_t bytes, zro_switch held,
                    zro_link_request *request)
{
    start(self, held == ZRO_ON ? SEND_HELD : SEND, peer, channel, (void *)(uintptr_t)data, bytes, request);
}

static void receive_from(void *self, int peer, uint64_t channel, void *data, size_t bytes, zro_link_request *request)
{
    start(self, RECEIVE, peer, channel, data, bytes, request);
}

/* MPI is done with the i-th request, which `compact` then removes from the array. */
static void end(zro__mpi_link *l, int i, int code, MPI_Status *status)
{
    zro_link_request *request = l->opens[i].request;
    int cancelled = 0, bytes = 0;

    l->opens[i].request = NULL;
    if (code == MPI_SUCCESS && l->opens[i].is_cancelled)
        MPI_Test_cancelled(status, &cancelled);
    if (code != MPI_SUCCESS) {
        refuse(request, text_of(code, l->text));
    } else if (cancelled) {
        refuse(request, "cancelled");
    } else {
        if (l->opens[i].is_receive)
            MPI_Get_count(status, MPI_BYTE, &bytes);
        request->bytes = (size_t)bytes;
        settle(request, ZRO_LINK_DONE);
    }
}

static void compact(zro__mpi_link *l)
{
    int kept = 0;

    for (int i = 0; i < l->n; i++) {
        if (l->opens[i].request == NULL)
            continue;
        if (kept < i) {
            l->opens[kept] = l->opens[i];
            l->opens[kept].request->own[0] = (void *)(uintptr_t)kept;
        }
        kept++;
    }
    l->n = kept;
}

static void test_one(zro__mpi_link *l, int i)
{
    MPI_Status status;
    int done = 0, code = MPI_Test(&l->opens[i].handle, &done, &status);

    if (code != MPI_SUCCESS || done)
        end(l, i, code, &status);
}

/* Tests requests first, first + 1, ... with one call. */
static void test_batch(zro__mpi_link *l, int first, int count)
{
    MPI_Request handles[BATCH];
    MPI_Status statuses[BATCH];
    int indices[BATCH], n = 0, class = MPI_SUCCESS, code;

    for (int k = 0; k < count; k++)
        handles[k] = l->opens[first + k].handle;
    code = MPI_Testsome(count, handles, &n, indices, statuses);
    for (int k = 0; k < count; k++)
        l->opens[first + k].handle = handles[k];
    if (code != MPI_SUCCESS)
        MPI_Error_class(code, &class);
    if (code == MPI_SUCCESS || class == MPI_ERR_IN_STATUS) {
        for (int k = 0; n != MPI_UNDEFINED && k < n; k++)
            end(l, first + indices[k], code == MPI_SUCCESS ? code : statuses[k].MPI_ERROR, &statuses[k]);
    } else { /* it did not say whose error it is */
        for (int k = 0; k < count; k++)
            test_one(l, first + k);
    }
}

static void test_all(zro__mpi_link *l)
{
    int flag;

    if (ended)
        return;
    if (l->n == 0) /* what MPI took from us may still be on its way, and only calls move it */
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, l->comm, &flag, MPI_STATUS_IGNORE);
    for (int first = 0; first < l->n; first += BATCH)
        test_batch(l, first, l->n - first < BATCH ? l->n - first : BATCH);
    compact(l);
}

static void poll_link(void *self)
{
    if (atomic_load_explicit(&wanted, memory_order_relaxed) > 0 || pthread_mutex_trylock(&lock) != 0)
        return;
    test_all(self);
    zro__mpi_unlock();
}

/* Only receives can be cancelled: a send may be half way into the peer's memory. */
static void cancel(void *self, zro_link_request *request)
{
    zro__mpi_link *l = self;
    int i;

    zro__mpi_lock();
    if (request->state == ZRO_LINK_OPEN && ended) {
        refuse(request, "MPI is finalised");
    } else if (request->state == ZRO_LINK_OPEN) {
        i = (int)(uintptr_t)request->own[0];
        if (l->opens[i].is_receive && !l->opens[i].is_cancelled)
            l->opens[i].is_cancelled = MPI_Cancel(&l->opens[i].handle) == MPI_SUCCESS;
        test_one(l, i);
        compact(l);
    }
    zro__mpi_unlock();
}

static uint64_t number(void *self)
{
    zro__mpi_link *l = self;
    uint64_t result;

    zro__mpi_lock();
    result = l->numbers++ * (uint64_t)l->size + (uint64_t)l->rank;
    zro__mpi_unlock();
    return result;
}

/* May be called on any thread: calls no MPI. */
static void close_link(void *self)
{
    atomic_fetch_sub(&((zro__mpi_link *)self)->refs, 1); /* pairs with the load in `sweep` */
    atomic_fetch_sub(&groups, 1);
}

void zro__mpi_link_table(zro__mpi_link *link, zro_switch one_thread, zro_link *table)
{
    *table = (zro_link)ZRO_LINK_INIT;
    table->self = link;
    table->message_bytes = MESSAGE_BYTES;
    table->channels = link->channels;
    table->one_thread = one_thread;
    table->send = send_to;
    table->recv = receive_from;
    table->poll = poll_link;
    table->cancel = cancel;
    table->number = number;
    table->close = close_link;
    atomic_fetch_add(&groups, 1);
}

/* ---- the end ---- */

int zro__mpi_is_quiet(void)
{
    for (int naps = 0; naps < 1000 && atomic_load(&groups) == 0; naps++) {
        int open = 0;

        if (pthread_mutex_trylock(&lock) == 0) {
            for (zro__mpi_link *l = links; l != NULL; l = l->next) {
                if (l->n > 0)
                    test_all(l);
                open += l->n + l->busy;
            }
            zro__mpi_unlock();
            if (open == 0)
                return 1;
        }
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    return 0;
}

/* Receives and drops what nobody will ask for.  Only small messages, which have come whole: others could make us wait. */
static void drain(zro__mpi_link *l)
{
    char dropped[16384]; /* more than a control message */
    MPI_Status status;
    int found = 0, bytes = 0;

    while (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, l->comm, &found, &status) == MPI_SUCCESS && found) {
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        if (bytes < 0 || bytes > (int)sizeof dropped
            || MPI_Recv(dropped, bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, l->comm, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return;
    }
}

/* MPI calls this first in MPI_Finalize.  Peers may have sent to groups that this rank had left, if only that they left too, and
 * some transports complain about messages that nobody took.  All ranks of a link come here, so a barrier tells when nothing
 * more will be sent; those who do not come within a second have failed, and nobody waits for them. */
static int mpi_ends(MPI_Comm comm, int key, void *value, void *extra)
{
    int open, done, used = 0;

    (void)comm, (void)key, (void)value, (void)extra;
    if (pthread_mutex_trylock(&lock) != 0)
        return MPI_SUCCESS;
    ended = 1;
    for (zro__mpi_link *l = atomic_load(&groups) == 0 ? links : NULL; l != NULL; l = l->next) {
        l->used = l->used && !l->busy && MPI_Ibarrier(l->comm, &l->last) == MPI_SUCCESS;
        used += l->used;
    }
    /* The barrier may overtake messages: hence some more rounds after it. */
    for (int naps = 0, more = 20; used > 0 && naps < 10000 && more > 0; naps++) {
        open = 0;
        for (zro__mpi_link *l = links; l != NULL; l = l->next) {
            if (!l->used)
                continue;
            done = 1;
            (void)MPI_Test(&l->last, &done, MPI_STATUS_IGNORE);
            open += !done;
            drain(l);
        }
        more -= open == 0;
        nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
    }
    zro__mpi_unlock();
    return MPI_SUCCESS;
}

/* ---- duplicates ---- */

/* MPI calls this when the program frees its communicator, and for the world in MPI_Finalize. */
static int attribute_ends(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)extra;
    atomic_fetch_sub(&((zro__mpi_link *)value)->refs, 1);
    return MPI_SUCCESS;
}

/* Frees the duplicates that nobody holds and that carried nothing. */
static void sweep(void)
{
    for (zro__mpi_link **at = &links; *at != NULL;) {
        zro__mpi_link *l = *at;

        if (atomic_load(&l->refs) > 0 || l->busy || l->used) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        MPI_Comm_free(&l->comm);
        free(l); /* it never had a request */
    }
}

/* The first time: our attribute, and one of MPI_COMM_SELF, whose end is the beginning of MPI_Finalize. */
static int begin_process(void)
{
    int finalize = MPI_KEYVAL_INVALID, code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, mpi_ends, &finalize, NULL);

    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_attr(MPI_COMM_SELF, finalize, NULL);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, attribute_ends, &keyval, NULL);
    return code;
}

static zro_status begin_link(MPI_Comm comm, zro__mpi_link *l, MPI_Request *making)
{
    int code = MPI_SUCCESS;

    MPI_Comm_rank(comm, &l->rank);
    MPI_Comm_size(comm, &l->size);
    if (keyval == MPI_KEYVAL_INVALID)
        code = begin_process();
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_attr(comm, keyval, l);
    if (code != MPI_SUCCESS)
        return zro__mpi_fail(code, "an attribute of the communicator");
    /* From here on the attribute holds the link. */
    l->busy = 1;
    l->next = links;
    links = l;
    code = MPI_Comm_idup(comm, &l->comm, making);
    return code == MPI_SUCCESS ? ZRO_OK : zro__mpi_fail(code, "duplicating the communicator");
}

zro_status zro__mpi_link_get(MPI_Comm comm, zro__mpi_link **out, MPI_Request *making)
{
    zro__mpi_link *l = NULL;
    int found = 0, code = MPI_SUCCESS;
    zro_status st;

    *making = MPI_REQUEST_NULL;
    *out = NULL;
    sweep();
    if (keyval != MPI_KEYVAL_INVALID)
        code = MPI_Comm_get_attr(comm, keyval, &l, &found);
    if (code != MPI_SUCCESS)
        return zro__mpi_fail(code, "an attribute of the communicator");
    if (found) {
        if (l->busy)
            return zro__mpi_error(ZRO_ERR_STATE,
                                  "mpi_group_create: another create on this communicator is under way or did not end in time; "
                                  "use a new communicator (MPI_Comm_dup)");
        l->busy = 1;
        atomic_fetch_add(&l->refs, 1);
        *out = l;
        return ZRO_OK;
    }
    l = calloc(1, sizeof *l);
    if (l == NULL)
        return zro__mpi_error(ZRO_ERR_MEMORY, "mpi_group_create: out of memory: the MPI link");
    l->comm = MPI_COMM_NULL;
    atomic_init(&l->refs, 2); /* the attribute's and the caller's */
    st = begin_link(comm, l, making);
    if (st != ZRO_OK && !l->busy)
        free(l);
    if (st == ZRO_OK)
        *out = l;
    return st;
}

zro_status zro__mpi_link_ready(zro__mpi_link *l)
{
    int *bound = NULL, found = 0, code;

    code = MPI_Comm_set_errhandler(l->comm, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
    l->channels = found ? (uint64_t)*bound + 1 : 32768; /* the standard's least */
    return code == MPI_SUCCESS ? ZRO_OK : zro__mpi_fail(code, "the duplicate of the communicator");
}
