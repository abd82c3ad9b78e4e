/* How ranks see each other, as far as one process can tell: texts, the meeting table, the world's memory, life words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "board/slot.h"

/* ---- texts ---- */

static void headers_say_what_was_called(void **state)
{
    static const struct {
        zro__header header;
        const char *text;
    } all[] = {
        { { .number = 0 }, "nothing yet" },
        { { .number = 1, .call = ZRO__CALL_CREATE, .root = -1 }, "operation 1: group_create" },
        { { .number = 2, .call = ZRO__CALL_BARRIER, .root = -1 }, "operation 2: barrier" },
        { { .number = 3, .call = ZRO__CALL_ALL_REDUCE, .dtype = ZRO_F64, .op = ZRO_MAX, .root = -1, .count = 7 },
          "operation 3: all_reduce of 7 f64, max" },
        { { .number = 4, .call = ZRO__CALL_ALL_GATHER, .dtype = ZRO_F32, .root = -1 }, "operation 4: all_gather of 0 f32" },
        { { .number = 5, .call = ZRO__CALL_BROADCAST, .dtype = ZRO_I8, .root = 2, .count = 9 },
          "operation 5: broadcast of 9 i8, root 2" },
        { { .number = 6, .call = ZRO__CALL_BROADCAST_BYTES, .dtype = ZRO_U8, .root = 0, .count = 9 },
          "operation 6: broadcast_bytes of 9 u8, root 0" },
        { { .number = 7, .call = ZRO__CALL_BROADCAST_BYTES, .root = -1 }, "operation 7: broadcast_bytes" },
        { { .number = 8, .call = ZRO__CALL_STOP_REQUESTED, .dtype = ZRO_U8, .op = ZRO_MAX, .root = -1, .count = 1 },
          "operation 8: stop_requested" },
        { { .number = 9, .call = ZRO__CALL_STEP, .root = -1 }, "operation 9: optim_step" },
        { { .number = 10, .call = ZRO__CALL_PUBLISH, .dtype = ZRO_BF16, .root = -1, .count = 3 },
          "operation 10: optim_publish of 3 bf16" },
        { { .number = 11, .call = ZRO__CALL_COUNT, .root = -1 }, "operation 11: ?" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[160];

        assert_string_equal(zro__header_text(&all[i].header, text, sizeof text), all[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_say_what_was_called),
    };

    return cmocka_run_group_tests_name("board", tests, NULL, NULL);
}
