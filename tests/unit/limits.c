/* How much memory may be taken, read from made-up /proc and /sys trees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "board/memory_left.h"

static char root[64];

static void put(const char *path, const char *text)
{
    char command[512], full[512];
    FILE *f;

    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s%s')\"", root, path);
    assert_int_equal(system(command), 0);
    snprintf(full, sizeof full, "%s%s", root, path);
    f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/zro-limits-XXXXXX");
    return mkdtemp(root) == NULL;
}

static int remove_root(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void nothing_known(void **state)
{
    zro__memory_left room;

    (void)state;
    zro__memory_left_get(root, &room);
    assert_true(room.bytes == UINT64_MAX);
}

static void the_machine(void **state)
{
    zro__memory_left room;

    (void)state;
    put("/proc/meminfo", "MemTotal:  2000 kB\nMemAvailable:   1000 kB\nSwapFree: 0 kB\n");
    zro__memory_left_get(root, &room);
    assert_true(room.bytes == 1000 * 1024);
    assert_string_equal(room.where, "the machine");
}

/* The parent is tighter than the group itself; cache that can be dropped is not counted as used. */
static void a_parent_group(void **state)
{
    zro__memory_left room;

    (void)state;
    put("/proc/meminfo", "MemAvailable:   1000 kB\n");
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/memory.max", "600000\n");
    put("/sys/fs/cgroup/a/memory.current", "500000\n");
    put("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 100000\n");
    zro__memory_left_get(root, &room);
    assert_true(room.bytes == 200000);
    assert_non_null(strstr(room.where, "/sys/fs/cgroup/a"));
    put("/sys/fs/cgroup/a/memory.current", "900000\n");
    zro__memory_left_get(root, &room);
    assert_true(room.bytes == 0);
}

static void the_old_hierarchy(void **state)
{
    zro__memory_left room;

    (void)state;
    put("/proc/meminfo", "MemAvailable:   1000 kB\n");
    put("/proc/self/cgroup", "4:memory:/job\n0::/\n");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "300000\n");
    put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "200000\n");
    put("/sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 50000\n");
    zro__memory_left_get(root, &room);
    assert_true(room.bytes == 150000);
}

/* Names that begin or look like others, a number behind "max", more cache than is used, hierarchies that are not about memory. */
static void look_alikes(void **state)
{
    zro__memory_left room;

    (void)state;
    put("/proc/meminfo", "MemAvailableNot: 1 kB\nMemAvailable:   1000 kB\n");
    put("/proc/self/cgroup", "5:cpu,cpuacct:/job\nnonsense\n0::/a\n");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1\n");
    put("/sys/fs/cgroup/memory.max", "max\n7\n");
    put("/sys/fs/cgroup/a/memory.max", "600000\n");
    put("/sys/fs/cgroup/a/memory.current", "500000\n");
    put("/sys/fs/cgroup/a/memory.stat", "inactive_file_too 1\ninactive_file 500001\n");
    zro__memory_left_get(root, &room);
    assert_true(room.bytes == 600000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_known, make_root, remove_root),
        cmocka_unit_test_setup_teardown(the_machine, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_parent_group, make_root, remove_root),
        cmocka_unit_test_setup_teardown(the_old_hierarchy, make_root, remove_root),
        cmocka_unit_test_setup_teardown(look_alikes, make_root, remove_root),
    };

    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
