/* Traces without ranks: two of them, opened as ranks 0 and 1 of a job, write to one file.  Whatever happens to one of them, the
 * file is a JSON array of whole events when the other has written. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/point.h"
#include "base/trace.h"

enum { JOB = 4711, OTHER_JOB = 815, MOST_BYTES = 1 << 19, SLICES = 1024 };

static char path[64], text[MOST_BYTES], warning[1024];
static int n_warnings;
static zro__account account;

static void warn(void *user, zro_log_level level, const char *line)
{
    (void)user;
    assert_int_equal(level, ZRO_LOG_WARN);
    snprintf(warning, sizeof warning, "%s", line);
    n_warnings++;
}

static zro__trace *open_as(uint64_t job, int rank)
{
    zro_settings settings = ZRO_SETTINGS_INIT;
    zro__trace *t;

    settings.log = warn;
    n_warnings = 0;
    assert_int_equal(zro__trace_open(&account, &settings, path, job, rank, &t), ZRO_OK);
    return t;
}

static void add(zro__trace *t, const char *name)
{
    zro__trace_end(t, zro__trace_begin(t), name, 3, 4096);
}

static void read_file(void)
{
    FILE *f = fopen(path, "r");
    size_t n;

    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
}

static int count(const char *what)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

/* Checks an event, an object of strings, numbers and such objects, and returns where it ends. */
static const char *skip_object(const char *at)
{
    assert_int_equal(*at++, '{');
    for (;;) {
        assert_int_equal(*at++, '"');
        at += strcspn(at, "\"\\\n");
        assert_memory_equal(at, "\":", 2);
        at += 2;
        if (*at == '{')
            at = skip_object(at);
        else if (*at == '"') {
            at += 1 + strcspn(at + 1, "\"\\\n");
            assert_int_equal(*at++, '"');
        } else {
            assert_true(strspn(at, "0123456789.") > 0);
            at += strspn(at, "0123456789.");
        }
        if (*at++ == '}')
            return at;
        assert_int_equal(at[-1], ',');
    }
}

/* Reads the file, which must be an array of events. */
static void check_file(void)
{
    const char *at = text + 2;

    read_file();
    assert_memory_equal(text, "[\n", 2);
    for (at = skip_object(at); strncmp(at, "\n,", 2) == 0; at = skip_object(at + 2))
        ;
    assert_string_equal(at, "\n]\n");
}

static void remove_file(void)
{
    unlink(path);
}

/* ---- ordinary ---- */

static void two_ranks_write_one_file(void **unused)
{
    zro__trace *a = open_as(JOB, 0), *b = open_as(JOB, 1);

    (void)unused;
    check_file();
    add(a, "one");
    add(b, "two");
    assert_true(zro__trace_flush(b));
    check_file();
    assert_int_equal(count("\"one\""), 0);
    assert_int_equal(count("{\"name\":\"two\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":"), 1);
    assert_int_equal(count("\"args\":{\"index\":3,\"bytes\":4096}"), 1);
    zro__trace_close(a);
    zro__trace_close(b);
    check_file();
    assert_int_equal(count("\"one\""), 1);
    assert_int_equal(count("\"name\":\"rank 0\""), 1);
    assert_int_equal(count("\"name\":\"rank 1\""), 1);
    assert_int_equal(count("\"name\":\"program\""), 2);
    assert_int_equal(account.in_use, 0);
    remove_file();
}

static void *add_on_lane(void *trace)
{
    zro__trace_thread(trace, "lane");
    add(trace, "there");
    return NULL;
}

/* Also: names that would end a string, or are too long. */
static void threads_and_names(void **unused)
{
    zro__trace *t = open_as(JOB, 5);
    pthread_t lane;

    (void)unused;
    assert_int_equal(pthread_create(&lane, NULL, add_on_lane, t), 0);
    pthread_join(lane, NULL);
    add(t, "a\"b\\c\nd\xc3\xa9");
    add(t, "0123456789012345678901234567890123456789");
    zro__trace_close(t);
    check_file();
    assert_int_equal(count("\"there\",\"ph\":\"X\",\"pid\":5,\"tid\":2,"), 1);
    assert_int_equal(count("\"tid\":2,\"args\":{\"name\":\"lane\"}"), 1);
    assert_int_equal(count("\"a_b_c_d__\",\"ph\":\"X\",\"pid\":5,\"tid\":1,"), 1);
    assert_int_equal(count("\"0123456789012345678901234567890\""), 1);
    remove_file();
}

/* All slices come, the buffer being written before it overflows; and nothing is allocated meanwhile. */
static void many_slices_take_no_memory(void **unused)
{
    zro__trace *t = open_as(JOB, 0);
    const size_t allocations = account.allocations;

    (void)unused;
    for (int i = 0; i < 3 * SLICES; i++)
        add(t, "many");
    assert_int_equal(account.allocations, allocations);
    zro__trace_close(t);
    check_file();
    assert_int_equal(count("\"many\""), 3 * SLICES);
    remove_file();
}

static void off_is_nothing(void **unused)
{
    (void)unused;
    assert_int_equal(zro__trace_begin(NULL), 0);
    zro__trace_end(NULL, 0, "nothing", -1, 0);
    zro__trace_thread(NULL, "nothing");
    assert_true(zro__trace_flush(NULL));
    zro__trace_close(NULL);
}

/* ---- what goes wrong ---- */

/* The first bytes of a write to the file as it was; the others have not been written. */
static void cut_write(const char *before, off_t written)
{
    FILE *f = fopen(path, "w");
    const size_t old = strlen(before), at = old - 3, end = at + (size_t)written; /* 3: the write begins at the bracket */

    assert_non_null(f);
    assert_int_equal(fwrite(before, 1, at, f), at);
    assert_int_equal(fwrite(text + at, 1, (size_t)written, f), written);
    if (end < old)
        assert_int_equal(fwrite(before + end, 1, old - end, f), old - end);
    fclose(f);
}

/* A rank is killed inside a write, after any number of bytes: the next one of another rank makes the file whole. */
static void a_write_cut_anywhere(void **unused)
{
    static char before[MOST_BYTES];
    zro__trace *a = open_as(JOB, 0), *b = open_as(JOB, 1);
    off_t all = 1;

    (void)unused;
    add(a, "first");
    assert_true(zro__trace_flush(a));
    for (off_t written = 0; written < all; written++) {
        read_file();
        memcpy(before, text, sizeof before);
        add(a, "cut");
        add(a, "cut");
        assert_true(zro__trace_flush(a));
        read_file();
        all = (off_t)(strlen(text) - strlen(before)) + 3;
        cut_write(before, written);
        add(b, "second");
        assert_true(zro__trace_flush(b));
        check_file();
        assert_int_equal(count("\"first\""), 1);
        assert_int_equal(count("\"second\""), 1 + written);
    }
    assert_true(all > 100);
    zro__trace_close(a);
    zro__trace_close(b);
    remove_file();
}

/* An old file, of whatever, is begun anew.  A job whose file was taken by another one leaves it alone, and says so once. */
static void another_job(void **unused)
{
    FILE *f = fopen(path, "w");
    zro__trace *a, *b;

    (void)unused;
    fprintf(f, "%5000s", "something");
    fclose(f);
    a = open_as(JOB, 0);
    add(a, "old");
    assert_true(zro__trace_flush(a));
    check_file();
    b = open_as(OTHER_JOB, 0);
    add(b, "new");
    assert_true(zro__trace_flush(b));
    add(a, "lost");
    (void)zro_error_set(ZRO_OK, "untouched");
    assert_false(zro__trace_flush(a));
    assert_string_equal(zro_last_error(), "untouched");
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(warning, "its last 1 slices are lost"));
    assert_non_null(strstr(warning, path));
    assert_non_null(strstr(warning, "another job"));
    add(a, "lost");
    zro__trace_close(a);
    zro__trace_close(b);
    assert_int_equal(n_warnings, 1);
    check_file();
    assert_int_equal(count("\"old\""), 0);
    assert_int_equal(count("\"lost\""), 0);
    assert_int_equal(count("\"new\""), 1);
    remove_file();
}

static void a_full_disk(void **unused)
{
    zro__point_plan plan = { .name = "trace.write", .action = ZRO__POINT_FAIL, .nth = 1 };
    zro__trace *a = open_as(JOB, 0), *b = open_as(JOB, 1);

    (void)unused;
    add(a, "written");
    assert_true(zro__trace_flush(a));
    add(a, "lost");
    zro__point_plan_set(&plan);
    assert_false(zro__trace_flush(a));
    zro__point_plan_set(NULL);
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(warning, "No space left"));
    for (int i = 0; i < 3 * SLICES; i++)
        add(a, "lost");
    add(b, "other");
    zro__trace_close(a);
    zro__trace_close(b);
    assert_int_equal(n_warnings, 1);
    check_file();
    assert_int_equal(count("\"written\""), 1);
    assert_int_equal(count("\"other\""), 1);
    assert_int_equal(count("\"lost\""), 0);
    remove_file();
}

/* A rank that was stopped inside a write holds the lock: the others neither hang nor fail, and write when they can. */
static void a_lock_that_is_held(void **unused)
{
    zro__trace *t = open_as(JOB, 0);
    int holder = open(path, O_RDWR);

    (void)unused;
    assert_int_equal(flock(holder, LOCK_EX), 0);
    for (int i = 0; i < SLICES - 1; i++)
        add(t, "kept");
    assert_int_equal(n_warnings, 0);
    assert_int_equal(flock(holder, LOCK_UN), 0);
    add(t, "kept");
    assert_int_equal(flock(holder, LOCK_EX), 0);
    for (int i = 0; i < SLICES + 1; i++)
        add(t, "lost");
    assert_int_equal(n_warnings, 1);
    close(holder);
    zro__trace_close(t);
    check_file();
    assert_int_equal(count("\"kept\""), SLICES);
    assert_int_equal(count("\"lost\""), 0);
    remove_file();
}

static void paths_that_are_refused(void **unused)
{
    static const char *const paths[] = { "/nonexistent/trace", "/dev/full", "/tmp" };
    static const char *const reasons[] = { "No such file", "No space left", "Is a directory" };
    zro_settings settings = ZRO_SETTINGS_INIT;
    zro__trace *t;

    (void)unused;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(zro__trace_open(&account, &settings, paths[i], JOB, 0, &t), ZRO_ERR_SYSTEM);
        assert_null(t);
        assert_non_null(strstr(zro_last_error(), paths[i]));
        assert_non_null(strstr(zro_last_error(), reasons[i]));
    }
    assert_int_equal(account.in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_write_one_file),
        cmocka_unit_test(threads_and_names),
        cmocka_unit_test(many_slices_take_no_memory),
        cmocka_unit_test(off_is_nothing),
        cmocka_unit_test(a_write_cut_anywhere),
        cmocka_unit_test(another_job),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(a_lock_that_is_held),
        cmocka_unit_test(paths_that_are_refused),
    };

    snprintf(path, sizeof path, "/tmp/zro-unit-trace-%ld", (long)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
