/* The arithmetic of transfers, which needs no ranks: the even cut, and the chunks of an owner's stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/kernels.h"
#include "group/group.h"
#include "link/buffers.h"
#include "link/rings.h"
#include "xfer/cut.h"

static uint64_t state = 1;

static uint64_t below(uint64_t n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 20) % n;
}

/* The ranges follow each other, cover everything, begin at block borders, and differ by at most a block. */
static void check_cut(size_t count, int n)
{
    size_t next = 0, shortest = SIZE_MAX, longest = 0;

    for (int i = 0; i < n; i++) {
        size_t first, length;

        zro__cut_even(count, n, i, &first, &length);
        assert_true(first == next);
        assert_true(first % ZRO__BLOCK == 0 || first == count);
        next = first + length;
        shortest = length < shortest ? length : shortest;
        longest = length > longest ? length : longest;
    }
    assert_true(next == count);
    assert_true(longest - shortest <= ZRO__BLOCK);
}

static void cut_covers_everything(void **unused)
{
    static const size_t counts[] = { 0,
                                     1,
                                     1023,
                                     1024,
                                     1025,
                                     65537,
                                     (size_t)INT32_MAX,
                                     (size_t)INT32_MAX + 12345,
                                     (size_t)UINT32_MAX + 1,
                                     SIZE_MAX / 2,
                                     SIZE_MAX - 1,
                                     SIZE_MAX };
    static const int ranks[] = { 1, 2, 3, 4, 7, 32, 1000, 4096 };

    (void)unused;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++)
            check_cut(counts[c], ranks[r]);
    for (int i = 0; i < 10000; i++)
        check_cut(below(UINT64_C(1) << (1 + below(40))), 1 + (int)below(100));
}

/* All elements of the owner's parts come once, in order; chunks hold at most `limit` and cut parts at block borders only. */
static void check_stream(const zro__part *parts, size_t n_parts, int owner, size_t limit)
{
    zro__cursor cursor = { 0, 0 };
    size_t part = 0, first = 0;

    for (;;) {
        size_t room = limit, in_chunk = 0;
        zro__run run;

        while (zro__cursor_next(&cursor, parts, n_parts, NULL, owner, &room, &run)) {
            while (parts[part].owner != owner || first == parts[part].count) {
                part++;
                first = 0;
                assert_true(part < n_parts);
            }
            assert_true(run.part == part && run.first == first && run.count > 0);
            assert_true(run.first % ZRO__BLOCK == 0);
            first += run.count;
            in_chunk += run.count;
        }
        assert_true(in_chunk <= limit && in_chunk + room == limit);
        if (in_chunk == 0)
            break;
    }
    for (; part < n_parts; part++, first = 0)
        assert_true(parts[part].owner != owner || first == parts[part].count);
}

static void chunks_cover_the_stream(void **unused)
{
    zro__part parts[40];

    (void)unused;
    for (int i = 0; i < 20000; i++) {
        size_t n = below(40), limit = ZRO__BLOCK * (1 + below(20));
        int owners = 1 + (int)below(4);

        memset(parts, 0, sizeof parts);
        for (size_t p = 0; p < n; p++) {
            parts[p].owner = (int)below((uint64_t)owners);
            parts[p].count = below(4) == 0 ? below(50000) : below(3000);
        }
        for (int owner = 0; owner < owners; owner++)
            check_stream(parts, n, owner, limit);
    }
}

/* A part of more than 2^32 elements, in chunks. */
static void chunks_of_a_huge_part(void **unused)
{
    zro__part part = { 0, 0, (size_t)UINT32_MAX + 777, 0, 0 };

    (void)unused;
    check_stream(&part, 1, 0, (size_t)1 << 20);
}

/* The schedule of xfer.c needs this much room, and a chunk of the widest type must hold a block. */
static void links_have_room(void **unused)
{
    (void)unused;
    assert_true(ZRO__CARRIER_DEPTH >= 4);
    for (int size = 2; size <= 4096; size *= 2) {
        size_t chunk = zro__rings_chunk(size);

        assert_true(chunk % 4096 == 0 && chunk / sizeof(double) >= ZRO__BLOCK);
    }
}

/* What a group takes at once does not grow as ranks times ranks times buffers. */
static void large_groups_need_little_memory(void **unused)
{
    zro__layout small, large;

    (void)unused;
    zro__group_layout(64, 16, 1 << 20, &small);
    zro__group_layout(256, 64, 1 << 20, &large);
    assert_true(small.bytes <= 4000000);
    assert_true(large.bytes <= 16000000);
    /* With what ranks keep of the buffers that messages to far ranks needed, and a few for near ones. */
    assert_true(small.bytes + 16 * (zro__buffers_most_idle(64) + 2 * small.chunk) <= 4000000);
    assert_true(large.bytes + 64 * (zro__buffers_most_idle(256) + 2 * large.chunk) <= 16000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_covers_everything), cmocka_unit_test(chunks_cover_the_stream),
        cmocka_unit_test(chunks_of_a_huge_part), cmocka_unit_test(large_groups_need_little_memory),
        cmocka_unit_test(links_have_room),
    };

    return cmocka_run_group_tests_name("cut", tests, NULL, NULL);
}
