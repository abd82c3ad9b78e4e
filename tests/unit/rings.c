/* Rings between near ranks, all of them in one process: random messages come whole and in order, and an outbox takes no more memory
 * than what is in flight needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "board/world.h"
#include "link/rings.h"

enum { RANKS = 4, DEPTH = ZRO__CARRIER_DEPTH, CHUNK = 64 << 10, CELL = 8 << 10 };

static zro__view *view;
static zro__control *control;
static zro__rings rings[RANKS];
static zro__carrier carriers[RANKS];
static zro__arena arenas[RANKS];
static void *memory;

/* What was sent and not received yet, by sender, receiver and turn. */
typedef struct sent {
    size_t bytes[DEPTH];
    unsigned char value[DEPTH];
    int n;
} sent;
static sent under_way[RANKS][RANKS];

static uint64_t state = 1;

static size_t below(size_t n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(state >> 33) % n;
}

static int open_ranks(void **unused)
{
    (void)unused;
    assert_int_equal(zro__view_create(&view), ZRO_OK);
    assert_int_equal(zro__view_make_world(view, RANKS), ZRO_OK);
    control = aligned_alloc(64, (sizeof *control + 2 * RANKS * sizeof(int32_t) + 63) & ~(size_t)63);
    memset(control, 0, sizeof *control);
    control->size = RANKS;
    memory = aligned_alloc(64, zro__rings_bytes(RANKS));
    memset(memory, 0, zro__rings_bytes(RANKS));
    memset(under_way, 0, sizeof under_way);
    for (int r = 0; r < RANKS; r++)
        control->member[r] = control->member[RANKS + r] = r;
    for (int r = 0; r < RANKS; r++) {
        zro__array arrays[ZRO__RINGS_ARRAYS];

        memset(&rings[r], 0, sizeof rings[r]);
        memset(&arenas[r], 0, sizeof arenas[r]);
        zro__rings_list(&rings[r], RANKS, arrays);
        assert_int_equal(zro__arena_arrays(&arenas[r], NULL, "rings", arrays, ZRO__RINGS_ARRAYS), ZRO_OK);
        zro__rings_init(&rings[r], memory, control, view, r, RANKS, CHUNK, &carriers[r]);
    }
    return 0;
}

static int close_ranks(void **unused)
{
    (void)unused;
    for (int r = 0; r < RANKS; r++) {
        zro__rings_close(&rings[r]);
        zro__arena_free(&arenas[r]);
    }
    zro__rings_punch(view, memory, RANKS, CHUNK);
    zro__view_drop(view, 1);
    free(memory);
    free(control);
    return 0;
}

static int can_send(int from, int to)
{
    uint64_t target;
    const zro__word *word = carriers[from].buffer_word(carriers[from].self, to, &target);

    return zro__reached(word, target);
}

/* The same message to the ranks whose bits are set. */
static void send_to(int from, unsigned ranks, size_t bytes, unsigned char value)
{
    const zro__carrier *c = &carriers[from];
    void *buffer[RANKS] = { NULL };

    for (int r = 0; r < RANKS; r++) {
        if (!(ranks >> r & 1))
            continue;
        assert_int_equal(c->buffer(c->self, r, &buffer[r]), ZRO_OK);
        memset(buffer[r], value, bytes);
    }
    for (int r = 0; r < RANKS; r++) {
        sent *s = &under_way[from][r];

        if (!(ranks >> r & 1))
            continue;
        c->send(c->self, r, ZRO__PIECES, bytes);
        s->bytes[s->n] = bytes;
        s->value[s->n++] = value;
    }
}

static void receive(int from, int at)
{
    const zro__carrier *c = &carriers[at];
    sent *s = &under_way[from][at];
    const unsigned char *got;
    const void *message;
    uint64_t target;
    const zro__word *word = c->recv_word(c->self, from, ZRO__PIECES, &target);
    size_t bytes;

    assert_int_equal(zro__reached(word, target), s->n > 0);
    if (s->n == 0)
        return;
    assert_int_equal(c->recv(c->self, from, ZRO__PIECES, &message, &bytes), ZRO_OK);
    assert_int_equal(bytes, s->bytes[0]);
    got = message;
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(got[i], s->value[0]);
    c->release(c->self, from, ZRO__PIECES);
    s->n--;
    memmove(s->bytes, s->bytes + 1, sizeof s->bytes - sizeof s->bytes[0]);
    memmove(s->value, s->value + 1, sizeof s->value - sizeof s->value[0]);
}

static void random_messages(void **unused)
{
    (void)unused;
    for (int k = 0; k < 20000; k++) {
        int a = (int)below(RANKS), b = (int)below(RANKS);
        unsigned ranks = 0;

        if (below(2)) {
            if (a != b)
                receive(a, b);
            continue;
        }
        for (int r = 0; r < RANKS; r++)
            if (r != a && below(2)) {
                assert_int_equal(can_send(a, r), under_way[a][r].n < DEPTH);
                ranks |= can_send(a, r) ? 1u << r : 0;
            }
        send_to(a, ranks, below(3) ? 1 + below(2000) : 1 + below(CHUNK), (unsigned char)below(256));
    }
    for (int a = 0; a < RANKS; a++)
        for (int b = 0; b < RANKS; b++)
            while (under_way[a][b].n > 0)
                receive(a, b);
    assert_true(atomic_load(&control->buffer_bytes) <= (uint64_t)RANKS * 2 * DEPTH * (RANKS - 1) * CHUNK);
}

static void outbox_is(size_t bytes)
{
    assert_int_equal(atomic_load(&control->buffer_bytes), bytes);
}

/* Nothing before the first message; one buffer for any number that are read before the next; one message for all peers; and of
 * short ones that wait, a cell each. */
static void memory_in_flight(void **unused)
{
    (void)unused;
    outbox_is(0);
    for (int k = 0; k < 50; k++) {
        send_to(0, 1u << (1 + k % 3), k % 2 ? CHUNK : 1, 1);
        receive(0, 1 + k % 3);
        outbox_is(CHUNK);
    }
    for (int k = 0; k < 20; k++) {
        send_to(0, 14, CHUNK, (unsigned char)k);
        for (int r = 1; r < RANKS; r++)
            receive(0, r);
        outbox_is(CHUNK);
    }
    for (int k = 0; k < DEPTH; k++)
        for (int r = 1; r < RANKS; r++)
            send_to(0, 1u << r, 1, (unsigned char)(16 * k + r));
    outbox_is(((RANKS - 1) * DEPTH - 1) * CELL + CHUNK);
    for (int r = 1; r < RANKS; r++)
        for (int k = 0; k < DEPTH; k++)
            receive(0, r);
    for (int k = 0; k < DEPTH; k++)
        send_to(0, 14, 1, 1);
    outbox_is(((RANKS - 1) * DEPTH - 1) * CELL + CHUNK);
}

static void lend(unsigned char value, size_t bytes)
{
    const zro__carrier *c = &carriers[0];
    void *buffer;

    assert_true(can_send(0, 1));
    assert_int_equal(c->buffer(c->self, 1, &buffer), ZRO_OK);
    memset(buffer, value, bytes);
    c->lend(c->self, 1, ZRO__PIECES, bytes);
}

/* The receiver adds one to every byte. */
static void answer(size_t bytes)
{
    const zro__carrier *c = &carriers[1];
    const void *message;
    unsigned char *at;
    size_t got;

    assert_int_equal(c->recv(c->self, 0, ZRO__PIECES, &message, &got), ZRO_OK);
    assert_int_equal(got, bytes);
    at = (unsigned char *)(uintptr_t)message;
    for (size_t i = 0; i < bytes; i++)
        at[i]++;
    c->release(c->self, 0, ZRO__PIECES);
}

static void take(unsigned char value, size_t bytes)
{
    const zro__carrier *c = &carriers[0];
    uint64_t target;
    const zro__word *word = c->answer_word(c->self, 1, &target);
    const unsigned char *got;

    assert_true(zro__reached(word, target));
    got = c->answer(c->self, 1);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(got[i], value + 1);
    c->taken(c->self, 1);
}

/* Three messages are lent at a time, as in a transfer: an answer that was not taken is not written over, one that was gives its
 * memory back, and ordinary messages may follow. */
static void answers(void **unused)
{
    const zro__carrier *c = &carriers[0];
    const zro__word *word;
    uint64_t target, taken = 0;

    (void)unused;
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < 40; k++) {
            size_t bytes = k % 2 ? CHUNK : CELL + 1;

            lend((unsigned char)k, bytes);
            word = c->answer_word(c->self, 1, &target);
            assert_int_equal(zro__reached(word, target), k >= 2);
            if (k >= 2)
                take((unsigned char)(k - 2), bytes);
            if (k >= 1)
                answer(k % 2 ? CELL + 1 : CHUNK);
        }
        answer(CHUNK);
        take(38, CELL + 1);
        take(39, CHUNK);
        taken = round == 0 ? atomic_load(&control->buffer_bytes) : taken;
        assert_true(taken <= 3 * CHUNK);
        outbox_is(taken);
        for (int k = 0; k < 10; k++) {
            send_to(0, 2, CHUNK, (unsigned char)k);
            receive(0, 1);
        }
        outbox_is(taken);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(random_messages, open_ranks, close_ranks),
        cmocka_unit_test_setup_teardown(memory_in_flight, open_ranks, close_ranks),
        cmocka_unit_test_setup_teardown(answers, open_ranks, close_ranks),
    };

    return cmocka_run_group_tests_name("rings", tests, NULL, NULL);
}
