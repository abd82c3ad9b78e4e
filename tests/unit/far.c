/* Far ranks and their messages, two sides of a large group in one process, over a link in memory that can be told to lose what a
 * test wants lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "board/world.h"
#include "link/far_messages.h"
#include "link/far_ranks.h"

enum { SIZE = 256, SIDES = 3, MAIL = 256, POSTED = 2048, CHUNK = 8192, SHORT = 64, LONG = 8000, HEAD = 8 + 64 };

/* ---- the link ---- */

typedef struct mail {
    int from, to;
    uint64_t channel;
    size_t bytes;
    char *data; /* NULL: delivered */
} mail;

typedef struct posted {
    int at, from;
    uint64_t channel;
    char *data;
    size_t bytes;
    zro_link_request *request; /* NULL: done */
} posted;

typedef struct side {
    int rank;
    zro__program_link program_link;
    zro__control *control;
    zro__far *far;
    zro__carrier carrier;
    zro__counters counters;
} side;

static mail mails[MAIL];
static posted receives[POSTED];
static int n_mails, n_receives;
static zro__view *view;
static int never_cancels;
static int is_slow;            /* sends stay open; 2: those of long messages */
static zro_link_request *slow; /* the last of them */
static long shorten;           /* bytes that the next long message loses */
static side sides[SIDES];

static void fake_send(void *self, int peer, uint64_t channel, const void *data, size_t bytes, zro_switch held,
                      zro_link_request *request)
{
    mail *m = &mails[n_mails++];

    (void)held;
    assert_true(n_mails < MAIL);
    if (peer < SIDES) {
        *m = (mail){ ((side *)self)->rank, peer, channel, bytes, malloc(bytes + 1) };
        memcpy(m->data, data, bytes);
        if (shorten > 0 && bytes > 1000) {
            m->bytes -= (size_t)shorten;
            shorten = 0;
        }
    } else {
        n_mails--; /* nobody is there */
    }
    request->state = ZRO_LINK_DONE;
    if (peer < SIDES && (is_slow == 1 || (is_slow == 2 && bytes > 1000))) {
        request->state = ZRO_LINK_OPEN;
        slow = request;
    }
}

static void fake_recv(void *self, int peer, uint64_t channel, void *data, size_t bytes, zro_link_request *request)
{
    int i = 0;

    while (i < n_receives && receives[i].request != NULL)
        i++;
    assert_true(i < POSTED);
    n_receives = i == n_receives ? i + 1 : n_receives;
    /* Receives of one channel must be met in order; two are never posted at once but for data, which tests take one by one. */
    receives[i] = (posted){ ((side *)self)->rank, peer, channel, data, bytes, request };
    request->state = ZRO_LINK_OPEN;
}

static void meet(posted *p, mail *m)
{
    zro_link_request *request = p->request;

    p->request = NULL;
    request->text = m->bytes > p->bytes ? "too long" : NULL;
    request->bytes = m->bytes;
    if (m->bytes <= p->bytes)
        memcpy(p->data, m->data, m->bytes);
    request->state = m->bytes > p->bytes ? ZRO_LINK_FAILED : ZRO_LINK_DONE;
    free(m->data);
    m->data = NULL;
}

static void fake_poll(void *self)
{
    for (int k = 0; k < n_mails; k++) {
        mail *m = &mails[k];

        for (int i = 0; i < n_receives && m->data != NULL; i++)
            if (receives[i].request != NULL && m->to == ((side *)self)->rank && receives[i].at == m->to
                && receives[i].from == m->from && receives[i].channel == m->channel)
                meet(&receives[i], m);
    }
    while (n_mails > 0 && mails[n_mails - 1].data == NULL)
        n_mails--;
}

static void fake_cancel(void *self, zro_link_request *request)
{
    (void)self;
    if (never_cancels)
        return;
    for (int i = 0; i < n_receives; i++)
        if (receives[i].request == request)
            receives[i].request = NULL;
    request->state = ZRO_LINK_FAILED;
}

static uint64_t fake_number(void *self)
{
    (void)self;
    return 0;
}

static void fake_close(void *self)
{
    (void)self;
}

/* ---- the sides ---- */

static void open_side(int rank)
{
    zro_link link = ZRO_LINK_INIT;
    side *s = &sides[rank];
    zro__far_config config = { .program_link = &s->program_link, .number = 5, .chunk = CHUNK };
    size_t bytes = (zro__far_bytes(SIZE, SIZE - 1) + 63) & ~(size_t)63;
    void *memory = aligned_alloc(64, bytes);
    int far = 0;

    memset(s, 0, sizeof *s);
    s->rank = rank;
    link.self = s;
    link.channels = 1000;
    link.send = fake_send;
    link.recv = fake_recv;
    link.poll = fake_poll;
    link.cancel = fake_cancel;
    link.number = fake_number;
    link.close = fake_close;
    assert_true(zro__program_link_check_table(&link) == ZRO_OK);
    zro__program_link_init(&s->program_link, &link, link.message_bytes);
    s->control = aligned_alloc(64, (sizeof *s->control + 2 * SIZE * sizeof(int32_t) + 63) & ~(size_t)63);
    memset(s->control, 0, sizeof *s->control);
    s->control->size = SIZE;
    for (int r = 0; r < SIZE; r++) {
        s->control->member[r] = r;
        s->control->member[SIZE + r] = r == rank ? 0 : ~far++;
    }
    memset(memory, 0, bytes);
    config.control = s->control;
    config.view = view;
    s->far = zro__far_open(memory, &config, &s->carrier);
    zro__far_count(s->far, &s->counters);
}

static int open_all(void **unused)
{
    (void)unused;
    n_mails = n_receives = is_slow = never_cancels = 0;
    assert_int_equal(zro__view_create(&view), ZRO_OK);
    shorten = 0;
    for (int i = 0; i < SIDES; i++)
        open_side(i);
    return 0;
}

static int close_all(void **unused)
{
    (void)unused;
    for (int i = 0; i < SIDES; i++) {
        zro__far_close(sides[i].far);
        zro__program_link_close(&sides[i].program_link);
        assert_int_equal(atomic_load(&sides[i].control->buffer_bytes), 0);
        free(sides[i].far);
        free(sides[i].control);
    }
    for (int k = 0; k < n_mails; k++)
        free(mails[k].data);
    zro__view_drop(view, 1);
    return 0;
}

static void poll_sides(void)
{
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < SIDES; i++)
            zro__far_board(sides[i].far)->poller.poll(sides[i].far);
}

static int index_of(int at, int rank)
{
    return ~zro__slot_index(sides[at].control, rank);
}

static zro__mirror *mirror_of(int at, int rank)
{
    return zro__far_board(sides[at].far)->mirror(sides[at].far, index_of(at, rank));
}

static void arrive(int rank, uint64_t number, const void *payload, size_t bytes)
{
    zro__header header = { .number = number, .call = ZRO__CALL_BARRIER, .count = 7 * number, .root = -1 };

    zro__far_board(sides[rank].far)->send_arrival(sides[rank].far, &header, payload, bytes);
}

/* ---- control messages ---- */

/* Payloads of any length come whole, in turn, and the two last can be read; what they took is given back. */
static void arrivals_of_any_length(void **unused)
{
    static const size_t lengths[] = { LONG, 0, SHORT, SHORT + 1, LONG, LONG, 1, 8192 };
    static char payload[2][8192];

    (void)unused;
    assert_int_equal(zro__far_board(sides[0].far)->short_bytes, SHORT);
    for (uint64_t n = 1; n <= sizeof lengths / sizeof *lengths; n++) {
        size_t bytes = lengths[n - 1];
        zro__mirror *m = mirror_of(1, 0);

        memset(payload[n % 2], (int)n, sizeof payload[0]);
        arrive(0, n, payload[n % 2], bytes);
        arrive(1, n, payload[n % 2], 0);
        arrive(2, n, payload[n % 2], 0);
        poll_sides();
        assert_null(m->failure);
        assert_int_equal(zro__arrived(m->arrived), n);
        assert_int_equal(m->arrived[n % 2].header.count, 7 * n);
        assert_memory_equal(m->payload[n % 2], payload[n % 2], bytes);
        if (n > 1) /* the one before may still be read */
            assert_memory_equal(m->payload[(n - 1) % 2], payload[(n - 1) % 2], lengths[n - 2] <= SHORT ? lengths[n - 2] : 0);
        assert_true(zro__reached(&zro__far_board(sides[0].far)->told, n));
        assert_int_equal(m->told, n);
        assert_true(atomic_load(&sides[1].control->buffer_bytes) <= 8192 + 64);
    }
}

/* Nobody is told before the link says so, of head and body. */
static void told_when_sent(void **unused)
{
    char payload[LONG] = { 0 };

    (void)unused;
    for (int what = 1; what <= 2; what++) {
        is_slow = what;
        arrive(0, 1, payload, LONG);
        poll_sides();
        assert_false(zro__reached(&zro__far_board(sides[0].far)->told, 1));
        assert_int_equal(mirror_of(0, 1)->told, 0);
        assert_int_equal(mirror_of(0, SIDES)->told, 1);
        close_all(NULL);
        open_all(NULL);
    }
}

static void fails_with(int at, int from, const char *text)
{
    poll_sides();
    assert_non_null(mirror_of(at, from)->failure);
    assert_non_null(strstr(mirror_of(at, from)->failure, text));
}

static void body_without_end(void **unused)
{
    char payload[LONG] = { 0 };

    (void)unused;
    shorten = 1;
    arrive(0, 1, payload, LONG);
    fails_with(1, 0, "without its end");
    assert_int_equal(zro__arrived(mirror_of(1, 0)->arrived), 0);
}

/* What a rank does not send as it should: heads that lie about their bodies, and arrivals that are not the next. */
static void heads_that_lie(void **unused)
{
    static const struct {
        size_t at; /* of the head: kind, bytes, header */
        uint32_t value;
        const char *text;
    } lies[] = { { 0, 1, "no message" }, { 4, 8193, "no message" }, { 4, SHORT, "no message" }, { 8, 2, "out of turn" } };

    (void)unused;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        arrive(0, 1, "", 0);
        for (int k = 0; k < n_mails; k++)
            memcpy(mails[k].data + lies[i].at, &lies[i].value, sizeof lies[i].value);
        fails_with(1, 0, lies[i].text);
        fails_with(2, 0, lies[i].text);
        close_all(NULL);
        open_all(NULL);
    }
}

/* A text, short or long, must end. */
static void texts_must_end(void **unused)
{
    char text[200];

    (void)unused;
    memset(text, 'x', sizeof text);
    for (int is_long = 0; is_long < 2; is_long++) {
        text[is_long ? 199 : 20] = '\0';
        zro__far_notice(sides[0].far, index_of(0, 1), 1, 2, ZRO_ERR_PEER, text);
        for (int k = 0; k < n_mails; k++)
            mails[k].data[mails[k].bytes - 1] = mails[k].bytes == HEAD ? mails[k].data[HEAD - 1] : 'y';
        fails_with(1, 0, "no message");
        assert_int_equal(atomic_load(&mirror_of(1, 0)->noticed.value), 0);
        close_all(NULL);
        open_all(NULL);
        memset(text, 'x', sizeof text);
    }
}

static void notices_and_leaving(void **unused)
{
    char text[300];

    (void)unused;
    memset(text, 'x', sizeof text);
    text[299] = '\0';
    for (uint64_t n = 1; n <= 6; n++) {
        const zro__notice *got;

        zro__far_notice(sides[0].far, index_of(0, 1), 100 + n, 200 + n, n % 2 ? ZRO_OK : ZRO_ERR_MEMORY, n % 3 ? text : "");
        poll_sides();
        assert_int_equal(atomic_load(&mirror_of(1, 0)->noticed.value), n);
        got = &mirror_of(1, 0)->notices[n % ZRO__NOTICES];
        assert_int_equal(atomic_load(&((zro__notice *)(uintptr_t)got)->key), 100 + n);
        assert_int_equal(atomic_load(&((zro__notice *)(uintptr_t)got)->channel), 200 + n);
        assert_int_equal(atomic_load(&((zro__notice *)(uintptr_t)got)->code), n % 2 ? ZRO_OK : ZRO_ERR_MEMORY);
        assert_string_equal(got->text, n % 3 ? text : "");
    }
    assert_true(atomic_load(&sides[0].control->buffer_bytes) <= 2000); /* the last one that went */
    assert_int_equal(atomic_load(&mirror_of(1, 0)->left), 0);
    zro__far_leave(sides[0].far);
    poll_sides();
    assert_int_equal(atomic_load(&mirror_of(1, 0)->left), 1);
    assert_int_equal(atomic_load(&mirror_of(2, 0)->left), 1);
    assert_int_equal(atomic_load(&mirror_of(0, 1)->left), 0);
}

/* A verdict has its code and its whole text; the first one counts, and who sent it does not say that it leaves. */
static void verdicts(void **unused)
{
    char text[500];

    (void)unused;
    memset(text, 'v', sizeof text);
    text[499] = '\0';
    zro__far_board(sides[0].far)->send_verdict(sides[0].far, ZRO_ERR_MISMATCH, 1, text);
    poll_sides();
    zro__far_board(sides[2].far)->send_verdict(sides[2].far, ZRO_ERR_TIMEOUT, 1, "late");
    zro__far_leave(sides[0].far);
    poll_sides();
    assert_int_equal(zro__verdict_get(sides[1].control), ZRO_ERR_MISMATCH);
    assert_string_equal(zro_last_error(), text);
    assert_int_equal(atomic_load(&mirror_of(1, 0)->left), 0);
}

/* ---- data ---- */

static void take_one(int at, int from, zro__stream stream, char value, size_t bytes)
{
    const zro__carrier *c = &sides[at].carrier;
    const void *got;
    size_t n;
    uint64_t target;
    zro__word *word = c->recv_word(c->self, from, stream, &target);

    poll_sides();
    assert_true(zro__reached(word, target));
    assert_int_equal(c->recv(c->self, from, stream, &got, &n), ZRO_OK);
    assert_int_equal(n, bytes);
    assert_int_equal(((const char *)got)[0], value);
    assert_int_equal(((const char *)got)[bytes - 1], value);
    c->release(c->self, from, stream);
}

static void *buffer_for(int at, int to)
{
    const zro__carrier *c = &sides[at].carrier;
    void *buffer;
    uint64_t target;
    const zro__word *word;

    word = c->buffer_word(c->self, to, &target);
    assert_true(zro__reached(word, target));
    assert_int_equal(c->buffer(c->self, to, &buffer), ZRO_OK);
    return buffer;
}

static int all_sent(int at, int to)
{
    const zro__carrier *c = &sides[at].carrier;
    uint64_t target;
    const zro__word *word = c->sent_word(c->self, to, &target);

    return zro__reached(word, target);
}

/* Messages of both streams, one result for two ranks in one buffer, and afterwards next to nothing is held. */
static void messages(void **unused)
{
    const zro__carrier *c = &sides[0].carrier;

    (void)unused;
    for (int k = 1; k <= 10; k++) {
        size_t bytes = k % 2 ? 100 : CHUNK;
        void *buffer;

        for (int r = 1; r < SIDES; r++)
            assert_int_equal(sides[r].carrier.expect(sides[r].carrier.self, 0, ZRO__RESULTS, NULL, bytes), ZRO_OK);
        buffer = buffer_for(0, 1);
        assert_ptr_equal(buffer_for(0, 1), buffer);
        assert_ptr_equal(buffer_for(0, 2), buffer);
        memset(buffer, k, bytes);
        c->send(c->self, 1, ZRO__RESULTS, bytes);
        c->send(c->self, 2, ZRO__RESULTS, bytes);
        assert_true(atomic_load(&sides[0].control->buffer_bytes) < CHUNK + 4096);
        take_one(1, 0, ZRO__RESULTS, (char)k, bytes);
        take_one(2, 0, ZRO__RESULTS, (char)k, bytes);
        assert_true(all_sent(0, 1) && all_sent(0, 2));

        /* A piece is on its way in a short copy, while the long buffer is there for the next one. */
        assert_int_equal(c->expect(c->self, 1, ZRO__PIECES, NULL, 100), ZRO_OK);
        assert_true(atomic_load(&sides[0].control->buffer_bytes) < 2000);
        memset(buffer_for(1, 0), k, 100);
        sides[1].carrier.send(sides[1].carrier.self, 0, ZRO__PIECES, 100);
        assert_true(atomic_load(&sides[1].control->buffer_bytes) < 3000);
        take_one(0, 1, ZRO__PIECES, (char)k, 100);
        assert_true(all_sent(1, 0));
    }
    for (int r = 0; r < SIDES; r++) {
        (void)all_sent(r, SIDES);
        assert_true(atomic_load(&sides[r].control->buffer_bytes) <= zro__buffers_most_idle(SIZE));
    }
    assert_int_equal(atomic_load(&sides[0].counters.link_messages), 20);
    assert_int_equal(atomic_load(&sides[0].counters.link_bytes), 10 * (100 + CHUNK));
}

/* No more than DEPTH messages are under way; who waits for one waits for the oldest. */
static void no_more_than_depth(void **unused)
{
    const zro__carrier *c = &sides[0].carrier;
    zro_link_request *sent[ZRO__CARRIER_DEPTH];
    uint64_t target;
    zro__word *word;

    (void)unused;
    is_slow = 1;
    for (int k = 0; k < ZRO__CARRIER_DEPTH; k++) {
        memset(buffer_for(0, 1), k, CHUNK);
        c->send(c->self, 1, ZRO__PIECES, CHUNK);
        sent[k] = slow;
    }
    word = c->buffer_word(c->self, 1, &target);
    assert_false(zro__reached(word, target));
    sent[1]->state = ZRO_LINK_DONE; /* not its turn */
    poll_sides();
    assert_false(zro__reached(word, target));
    sent[0]->state = ZRO_LINK_DONE;
    poll_sides();
    assert_true(zro__reached(word, target));
    assert_false(all_sent(0, 1));
    (void)buffer_for(0, 1);
    sent[2]->state = sent[3]->state = ZRO_LINK_DONE;
    poll_sides();
    assert_true(all_sent(0, 1));
    is_slow = 0;
}

/* A failed request is the peer's failure, and the link's words are kept. */
static void failed_message(void **unused)
{
    const zro__carrier *c = &sides[0].carrier;
    char words[] = "out of rope";

    (void)unused;
    is_slow = 1;
    memset(buffer_for(0, 2), 1, CHUNK);
    c->send(c->self, 2, ZRO__PIECES, CHUNK);
    slow->text = words;
    slow->state = ZRO_LINK_FAILED;
    is_slow = 0;
    fails_with(0, 2, "out of rope");
    words[0] = '\0';
    fails_with(0, 2, "out of rope");
    assert_null(mirror_of(0, 1)->failure);
}

/* Another rank of the machine has found the verdict, and not told it yet.  A rank that cannot take back what it sends from an array
 * tells it itself; one that can leaves it to the other. */
static void abandoned_sends(void **unused)
{
    static const char array[CHUNK];

    (void)unused;
    for (int refuses = 0; refuses < 2; refuses++) {
        const zro__carrier *c = &sides[0].carrier;

        is_slow = 1;
        assert_int_equal(c->send_from(c->self, 1, ZRO__PIECES, array, CHUNK), ZRO_OK);
        is_slow = 0;
        never_cancels = refuses;
        assert_true(zro__control_break(sides[0].control, ZRO_ERR_LOST, 1, "somebody"));
        c->abandon(c->self);
        poll_sides();
        assert_int_equal(zro__verdict_get(sides[1].control), refuses ? ZRO_ERR_LOST : ZRO_OK);
        slow->state = ZRO_LINK_DONE;
        never_cancels = 0;
        close_all(NULL);
        open_all(NULL);
    }
}

/* ---- buffers ---- */

/* What comes once the group is broken may be anything, and is not handed to a transfer. */
static void messages_after_a_verdict(void **unused)
{
    const zro__carrier *c = &sides[1].carrier;
    uint64_t target;
    zro__word *word;

    (void)unused;
    assert_int_equal(c->expect(c->self, 0, ZRO__PIECES, NULL, 100), ZRO_OK);
    word = c->recv_word(c->self, 0, ZRO__PIECES, &target);
    assert_true(zro__control_break(sides[1].control, ZRO_ERR_LOST, 0, "somebody"));
    memset(buffer_for(0, 1), 'x', 100);
    sides[0].carrier.send(sides[0].carrier.self, 1, ZRO__PIECES, 100);
    poll_sides();
    assert_false(zro__reached(word, target));
    close_all(NULL);
    open_all(NULL);
}

static void buffers_by_size(void **unused)
{
    _Atomic uint64_t counter = 0;
    zro__buffers b = { .most_idle = 10000, .counter = &counter };
    void *a, *c, *again;

    (void)unused;
    a = zro__buffers_take(&b, 4097);
    assert_true(counter >= 4097 && counter < 4500);
    assert_int_equal((uintptr_t)a % 64, 0);
    memset(a, 1, 4097);
    zro__buffers_share(a);
    assert_int_equal(zro__buffer_users(a), 2);
    zro__buffers_give(&b, a);
    c = zro__buffers_take(&b, 4097); /* another one, because the first still has a user */
    assert_ptr_not_equal(a, c);
    zro__buffers_give(&b, a);
    again = zro__buffers_take(&b, 4000);
    assert_ptr_equal(again, a);
    zro__buffers_give(&b, again);
    zro__buffers_give(&b, c);
    assert_true(counter > 8194 && counter < 9000); /* both are kept */
    a = zro__buffers_take(&b, 5000);
    zro__buffers_give(&b, a);
    assert_true(counter < 9000); /* that one would have been too much */
    assert_null(zro__buffers_take(&b, (size_t)1 << 40));
    zro__buffers_close(&b);
    assert_int_equal(counter, 0);
    assert_true(zro__buffers_most_idle(2) >= 8 << 20);
    assert_true(zro__buffers_most_idle(64) <= 16384);
}

/* ---- tables of links ---- */

static void tables(void **unused)
{
    zro_link link = sides[0].program_link.link, bad;
    uint64_t number;

    (void)unused;
    for (int i = 0; i < 11; i++) {
        bad = link;
        bad.struct_size -= i == 0;
        bad.message_bytes = i == 1 ? 65535 : i == 2 ? (4 << 20) + 1 : bad.message_bytes;
        bad.channels = i == 3 ? 3 : bad.channels;
        bad.send = i == 4 ? NULL : bad.send;
        bad.recv = i == 5 ? NULL : bad.recv;
        bad.poll = i == 6 ? NULL : bad.poll;
        bad.cancel = i == 7 ? NULL : bad.cancel;
        bad.number = i == 8 ? NULL : bad.number;
        bad.close = i == 9 ? NULL : bad.close;
        assert_int_equal(zro__program_link_check_table(&bad), i == 10 ? ZRO_OK : ZRO_ERR_INVALID);
    }
    bad = link;
    bad.message_bytes = 65536;
    bad.channels = 4;
    assert_int_equal(zro__program_link_check_table(&bad), ZRO_OK);
    bad.message_bytes = 4 << 20;
    assert_int_equal(zro__program_link_check_table(&bad), ZRO_OK);
    sides[0].program_link.link.channels = 4;
    assert_int_equal(zro__program_link_number(&sides[0].program_link, &number), ZRO_OK);
    sides[0].program_link.link.channels = 3;
    assert_int_equal(zro__program_link_number(&sides[0].program_link, &number), ZRO_ERR_UNSUPPORTED);
}

#define WITH_SIDES(test) cmocka_unit_test_setup_teardown(test, open_all, close_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SIDES(arrivals_of_any_length),
        WITH_SIDES(told_when_sent),
        WITH_SIDES(body_without_end),
        WITH_SIDES(heads_that_lie),
        WITH_SIDES(texts_must_end),
        WITH_SIDES(notices_and_leaving),
        WITH_SIDES(verdicts),
        WITH_SIDES(messages),
        WITH_SIDES(no_more_than_depth),
        WITH_SIDES(failed_message),
        WITH_SIDES(abandoned_sends),
        WITH_SIDES(messages_after_a_verdict),
        cmocka_unit_test(buffers_by_size),
        WITH_SIDES(tables),
    };

    return cmocka_run_group_tests_name("far", tests, NULL, NULL);
}
