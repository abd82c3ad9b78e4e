#!/bin/sh
# A build without checkpoints: tests/products/no_checkpoint.sh BUILD
#
# Configures it in the folder BUILD and builds the shared library and the command, which must not need jansson; then a program makes a state,
# and hears from the six calls on files that they are not there.
set -eu

build=$1
tree=$(cd "$(dirname "$0")/../.." && pwd)
"$tree/scripts/build" "$build" -DZRO_CHECKPOINT=OFF -DZRO_TESTS=OFF zro_shared zro_command
if ldd "$build/lib/libzro.so" "$build/bin/zro" | grep jansson; then exit 1; fi
if "$build/bin/zro" report log 2>"$build/off.err"; then exit 1; fi
grep -q '^zro report: zro was built without jansson' "$build/off.err"
cat >"$build/off.c" <<'END'
#include <stdio.h>
#include <string.h>
#include <zro.h>

static int refused(zro_status st)
{
    return st == ZRO_ERR_UNSUPPORTED && strstr(zro_last_error(), "ZRO_CHECKPOINT=OFF") != NULL;
}

int main(void)
{
    zro_state *state, *other;
    void *bytes;
    size_t n;

    if (zro_state_create("adam", &state) != ZRO_OK || zro_state_add_group(state, NULL, 0) != ZRO_OK)
        return fprintf(stderr, "%s\n", zro_last_error()), 1;
    if (!refused(zro_state_write(state, "x")) || !refused(zro_state_read("x", &other))
        || !refused(zro_state_pack(state, &bytes, &n)) || !refused(zro_state_unpack("x", 1, &other))
        || !refused(zro_optim_save(NULL, "x", NULL)) || !refused(zro_optim_resume(NULL, "x", NULL)))
        return fprintf(stderr, "not refused\n"), 1;
    zro_state_destroy(state);
    return 0;
}
END
cc -std=c11 -Wall -Werror -I"$tree/include" "$build/off.c" -o "$build/off" -L"$build/lib" -lzro -Wl,-rpath,"$(cd "$build/lib" && pwd)"
"$build/off"
