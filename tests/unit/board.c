/* How ranks see each other, as far as one process can tell: texts, the meeting table, the world's memory, life words. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/build.h"
#include "base/status.h"
#include "board/blame.h"
#include "board/meet.h"
#include "board/world.h"

static void expect_text(const char *text)
{
    if (strstr(zro_last_error(), text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", zro_last_error(), text);
}

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
        { { .number = 7, .call = ZRO__CALL_BROADCAST_BYTES, .dtype = ZRO__HEADER_NO_DTYPE, .root = -1 },
          "operation 7: broadcast_bytes" },
        { { .number = 8, .call = ZRO__CALL_STOP_REQUESTED, .dtype = ZRO_U8, .op = ZRO_MAX, .root = -1, .count = 1 },
          "operation 8: stop_requested" },
        { { .number = 9, .call = ZRO__CALL_STEP, .dtype = ZRO__HEADER_NO_DTYPE, .root = -1 }, "operation 9: optim_step" },
        { { .number = 10, .call = ZRO__CALL_PUBLISH, .dtype = ZRO_BF16, .root = -1, .count = 3 },
          "operation 10: optim_publish of 3 bf16" },
        { { .number = 11, .call = ZRO__CALL_COUNT, .dtype = ZRO__HEADER_NO_DTYPE, .root = -1 }, "operation 11: ?" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[160];

        assert_string_equal(zro__header_text(&all[i].header, text, sizeof text), all[i].text);
    }
}

/* ---- ranks that are lost ---- */

enum { FAR_RANKS = 4 };

typedef struct far_ones {
    zro__far_table table;
    zro__mirror mirrors[FAR_RANKS - 1]; /* of all but the last rank, which is this one */
} far_ones;

static zro__mirror *mirror_of(void *self, int index)
{
    return &((far_ones *)self)->mirrors[index];
}

/* Rank 1 died long ago, and this rank has not looked since. */
static void poll_late(void *self)
{
    ((far_ones *)self)->mirrors[1].failure = "it has closed its end";
}

static void send_nothing(void *self, zro_status code, int culprit, const char *text)
{
    (void)self;
    (void)code;
    (void)culprit;
    (void)text;
}

/* Rank 0 heard that rank 1 is dead and ended; its word of that was lost with it.  Rank 2 was done before that, and has left. */
static void all_who_are_lost_are_named(void **state)
{
    zro__control *control = calloc(1, zro__board_bytes(FAR_RANKS, 1));
    far_ones *far = calloc(1, sizeof *far);
    zro__board board = { .control = control, .slots = zro__board_slots(control), .far = &far->table, .rank = FAR_RANKS - 1 };

    (void)state;
    board.size = control->size = FAR_RANKS;
    for (int r = 0; r < FAR_RANKS; r++) {
        control->member[r] = r;
        control->member[FAR_RANKS + r] = r == board.rank ? 0 : ~r;
    }
    far->table.poller = (zro__poller){ poll_late, far, 0 };
    far->table.mirror = mirror_of;
    far->table.send_verdict = send_nothing;
    far->mirrors[0].failure = far->mirrors[2].failure = "it has closed its end";
    atomic_store(&far->mirrors[2].left, 1);
    assert_int_equal(zro__blame_lost(&board, 0, zro__gone(&board, 0)), ZRO_ERR_LOST);
    expect_text("rank 0 cannot be reached: it has closed its end; rank 1 is lost, too; this was ");
    assert_null(strstr(zro_last_error(), "rank 2"));
    assert_int_equal(control->culprit, 0);
    free(far);
    free(control);
}

/* ---- the meeting table ---- */

enum { RANKS = 4 };

static zro__meet *make_table(void)
{
    zro__meet *meet = mmap(NULL, zro__meet_bytes(RANKS), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(meet, MAP_FAILED);
    zro__meet_init(meet, RANKS);
    return meet;
}

static void free_table(zro__meet *meet)
{
    munmap(meet, zro__meet_bytes(RANKS));
}

static void tables_are_checked(void **state)
{
    zro__meet *meet = make_table();
    size_t bytes = zro__meet_bytes(RANKS);

    (void)state;
    assert_int_equal(zro__meet_check(meet, 0, RANKS, bytes), ZRO_OK);
    assert_int_equal(zro__meet_check(meet, 0, RANKS, bytes - 1), ZRO_ERR_INVALID);
    assert_int_equal(zro__meet_check(meet, 0, RANKS, 8), ZRO_ERR_INVALID);
    assert_int_equal(zro__meet_check(meet, 0, RANKS - 1, bytes), ZRO_ERR_INVALID);
    assert_int_equal(zro__meet_check(meet, 0, RANKS + 1, bytes * 2), ZRO_ERR_INVALID);
    *(char *)meet ^= 1;
    assert_int_equal(zro__meet_check(meet, 0, RANKS, bytes), ZRO_ERR_INVALID);
    free_table(meet);
}

/* A rank that brings a failure does not wait; so all of this is one thread. */
static void bring_failure(zro__meet *meet, int rank, const char *text)
{
    unsigned char ticket[ZRO_TICKET_BYTES] = { 0 };

    assert_int_equal(zro__meet_exchange(meet, rank, 1000, zro__fail(ZRO_ERR_MEMORY, "%s", text), ticket, NULL), ZRO_ERR_MEMORY);
}

static zro_status bring_ticket(zro__meet *meet, int rank, uint64_t timeout_ms)
{
    unsigned char ticket[ZRO_TICKET_BYTES] = { 0 }, tickets[RANKS * ZRO_TICKET_BYTES];

    return zro__meet_exchange(meet, rank, timeout_ms, ZRO_OK, ticket, tickets);
}

static void failures_are_brought_to_all(void **state)
{
    zro__meet *meet = make_table();

    (void)state;
    for (int r = 1; r < RANKS; r++) {
        char text[] = "first of 0";

        text[sizeof text - 2] = (char)('0' + r);
        bring_failure(meet, r, text);
        bring_failure(meet, r, "second"); /* it may be one exchange ahead */
    }
    assert_int_equal(bring_ticket(meet, 0, 1000), ZRO_ERR_PEER);
    expect_text("rank 1: ");
    expect_text("first of 1");
    assert_int_equal(bring_ticket(meet, 0, 1000), ZRO_ERR_PEER);
    expect_text("second");
    free_table(meet);
}

static void absent_ranks_are_told(void **state)
{
    zro__meet *meet = make_table();

    (void)state;
    bring_failure(meet, 1, "failed");
    assert_int_equal(bring_ticket(meet, 0, 0), ZRO_ERR_TIMEOUT);
    expect_text("rank 2 did not come within 0 ms");
    zro__meet_gone(meet, 1);
    assert_int_equal(bring_ticket(meet, 0, 600000), ZRO_ERR_LOST);
    expect_text("rank 1 ended before the group was formed");
    free_table(meet);
}

static pid_t fork_until_killed(void)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    return pid;
}

static void end_child(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_rank_is_one_process(void **state)
{
    zro__meet *meet = make_table();
    int ready[2];
    char byte;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(ready), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        byte = zro__meet_claim(meet, 1) == ZRO_OK ? 'y' : 'n';
        if (write(ready[1], &byte, 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    assert_int_equal(zro__meet_claim(meet, 1), ZRO_ERR_STATE);
    expect_text("rank 1 of this job is process");
    end_child(pid);
    assert_int_equal(zro__meet_claim(meet, 1), ZRO_OK); /* the rank was started again */
    assert_int_equal(zro__meet_claim(meet, 1), ZRO_OK);
    close(ready[0]);
    close(ready[1]);
    free_table(meet);
}

/* The first and the last rank count like any other, and so does one that is refused because of its build. */
static void the_supervisor_sees_who_came(void **state)
{
    (void)state;
    for (int rank = 0; rank < RANKS; rank++) {
        zro__meet *meet = make_table();
        zro__build *build;
        char magic[8];

        assert_int_equal(zro__meet_used(meet), 0);
        assert_int_equal(zro__meet_claim(meet, rank), ZRO_OK);
        assert_int_equal(zro__meet_used(meet), 1);
        free_table(meet);

        meet = make_table();
        build = (zro__build *)meet;
        memcpy(magic, build->magic, sizeof magic);
        zro__build_write(build, magic, build->layout ^ 1);
        assert_int_equal(zro__meet_check(meet, rank, RANKS, zro__meet_bytes(RANKS)), ZRO_ERR_MISMATCH);
        assert_int_equal(zro__meet_used(meet), 1);
        free_table(meet);
    }
}

static void ends_are_kept_for_the_supervisor(void **state)
{
    zro__meet *meet = make_table();
    int code, is_dead;

    (void)state;
    assert_false(zro__meet_finished(meet, 1, &code));
    zro__meet_finish(meet, 1, ZRO_OK, 0x107); /* of an exit code eight bits count */
    assert_true(zro__meet_finished(meet, 1, &code));
    assert_int_equal(code, 7);
    assert_int_equal(zro__meet_status(meet, 1), ZRO_OK);
    zro__meet_finish(meet, 2, zro__fail(ZRO_ERR_SYSTEM, "no more"), 0);
    assert_int_equal(zro__meet_status(meet, 2), ZRO_ERR_SYSTEM);
    expect_text("rank 2: no more");
    assert_int_equal(zro__meet_losses(meet), 0);
    zro__meet_lost(NULL, 1, 1);
    zro__meet_lost(meet, 3, 0);
    zro__meet_lost(meet, 1, 1);
    zro__meet_lost(meet, 3, 1); /* the first to say it counts */
    assert_int_equal(zro__meet_losses(meet), 2);
    assert_int_equal(zro__meet_loss(meet, 3, &is_dead), 1);
    assert_false(is_dead);
    assert_int_equal(zro__meet_loss(meet, 1, &is_dead), 2);
    assert_true(is_dead);
    assert_int_equal(zro__meet_loss(meet, 0, &is_dead), 0);
    free_table(meet);
}

/* ---- the world's memory ---- */

static zro__view *make_world(void)
{
    zro__view *view;

    assert_int_equal(zro__view_create(&view), ZRO_OK);
    assert_int_equal(zro__view_make_world(view, 2), ZRO_OK);
    return view;
}

static void nobody_can_cut_the_memory(void **state)
{
    zro__view *view = make_world();

    (void)state;
    assert_int_not_equal(ftruncate(view->fd, 0), 0);
    assert_int_not_equal(fcntl(view->fd, F_ADD_SEALS, F_SEAL_GROW), 0); /* nor keep it from growing */
    assert_int_equal(fcntl(view->fd, F_GETFD), FD_CLOEXEC);
    zro__view_drop(view, 1);
}

static void views_are_found_by_nonce(void **state)
{
    zro__view *one = make_world(), *two = make_world();
    unsigned char nonce[sizeof one->nonce];

    (void)state;
    memcpy(nonce, one->nonce, sizeof nonce);
    assert_ptr_equal(zro__view_find(nonce), one);
    assert_ptr_equal(zro__view_find(two->nonce), two);
    zro__view_drop(one, 2);
    assert_ptr_equal(zro__view_find(nonce), one); /* another rank of this process uses it */
    zro__view_drop(one, 2);
    assert_null(zro__view_find(nonce));
    assert_ptr_equal(zro__view_find(two->nonce), two);
    zro__view_drop(two, 1);
}

/* The memory behind a ticket must have the ticket's nonce. */
static void other_memory_is_refused(void **state)
{
    zro__view *world = make_world(), *view;

    (void)state;
    assert_int_equal(zro__view_create(&view), ZRO_OK);
    assert_int_equal(zro__view_adopt(view, 2, dup(world->fd), view->nonce), ZRO_ERR_FORMAT);
    assert_int_equal(zro__view_adopt(view, 2, dup(world->fd), world->nonce), ZRO_OK);
    zro__view_drop(view, 1);
    zro__view_drop(world, 1);
}

static void regions_have_borders(void **state)
{
    enum { BYTES = 100000 };
    zro__view *view = make_world();
    zro__map map, again, borrowed;
    uint64_t offset, none;

    (void)state;
    assert_int_equal(zro__region_take(view, 0, 1, "nothing", &none), ZRO_ERR_MEMORY);
    assert_int_equal(zro__region_take(view, SIZE_MAX, 0, "everything", &none), ZRO_ERR_MEMORY);
    assert_int_equal(zro__region_take(view, SIZE_MAX / 2, 0, "half of it", &none), ZRO_ERR_MEMORY);
    expect_text("too many");
    assert_int_equal(zro__region_take(view, BYTES, 1, "a region", &offset), ZRO_OK);
    assert_int_equal(zro__map_region(view, offset, BYTES, &map), ZRO_OK);
    assert_int_equal(zro__map_region(view, offset, BYTES, &again), ZRO_OK);
    assert_ptr_equal(map.base, again.base);
    assert_int_equal(zro__locate(view, map.base, BYTES), offset);
    assert_int_equal(zro__locate(view, map.base + BYTES - 1, 1), offset + BYTES - 1);
    assert_true(zro__locate(view, map.base + BYTES - 1, 2) == ZRO__NOWHERE);
    assert_true(zro__locate(view, map.base - 1, 1) == ZRO__NOWHERE);
    assert_true(zro__locate(view, map.base, BYTES + 1) == ZRO__NOWHERE);
    assert_ptr_equal(zro__address(view, offset + 5, BYTES - 5, &borrowed), map.base + 5);
    assert_null(borrowed.base); /* this process has it already */
    zro__unmap_region(view, &again);
    assert_null(again.base);
    map.base[BYTES - 1] = 1; /* still there for its other user */
    zro__unmap_region(view, &map);
    zro__view_drop(view, 1);
}

static long blocks_of(const zro__view *view)
{
    struct stat s;

    assert_int_equal(fstat(view->fd, &s), 0);
    return (long)s.st_blocks;
}

/* Arrays begin anywhere in a page. */
static void pages_come_when_they_are_asked_for(void **state)
{
    long page = sysconf(_SC_PAGESIZE), before;
    zro__view *view = make_world();
    uint64_t offset;
    zro__map map;

    (void)state;
    assert_int_equal(zro__region_take(view, (size_t)page * 8, 0, "a region", &offset), ZRO_OK);
    assert_int_equal(zro__map_region(view, offset, (size_t)page * 8, &map), ZRO_OK);
    before = blocks_of(view);
    assert_int_equal(zro__populate(map.base, 1, 1, "a page"), ZRO_OK);
    if (blocks_of(view) == before) {
        print_message("this kernel does not populate\n");
        skip();
    }
    assert_int_equal(blocks_of(view) - before, page / 512);
    assert_int_equal(zro__populate(map.base + page - 1, (size_t)page + 2, 1, "three pages"), ZRO_OK);
    assert_int_equal(blocks_of(view) - before, 3 * page / 512);
    zro__region_punch(view, offset, (size_t)page * 8);
    assert_true(blocks_of(view) <= before);
    zro__unmap_region(view, &map);
    zro__view_drop(view, 1);
}

static void limits_on_files_are_kept(void **state)
{
    zro__view *view = make_world();
    struct rlimit before, limit;
    uint64_t offset;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 1 << 20;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(zro__region_take(view, 2 << 20, 1, "a region", &offset), ZRO_ERR_MEMORY);
    expect_text("ulimit -f");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(zro__check_memory_left(SIZE_MAX - 1000, 0, "more than there is"), ZRO_ERR_MEMORY);
    expect_text("can give only");
    zro__view_drop(view, 1);
}

/* A program that closes our descriptor and opens a file of its own keeps it, as it is. */
static void the_files_of_others_are_left_alone(void **state)
{
    zro__view *view = make_world();
    char text[] = "untouched", read_back[sizeof text] = "";
    int fd = view->fd, other = memfd_create("other", 0);
    uint64_t offset;

    (void)state;
    assert_true(other >= 0 && write(other, text, sizeof text) == (ssize_t)sizeof text);
    assert_int_equal(dup2(other, fd), fd);
    assert_int_equal(zro__region_take(view, 4096, 1, "a region", &offset), ZRO_ERR_STATE);
    expect_text("closed descriptor");
    zro__region_punch(view, 0, 4096);
    zro__view_drop(view, 1);
    assert_int_equal(pread(fd, read_back, sizeof read_back, 0), sizeof read_back);
    assert_string_equal(read_back, text);
    close(fd);
    close(other);
}

/* A link that is still using memory when its group goes keeps that, and all else that it needs. */
static void pinned_memory_stays(void **state)
{
    zro__view *view = make_world();
    uint64_t offset;
    zro__map map;
    char *base;

    (void)state;
    assert_int_equal(zro__region_take(view, 4096, 1, "a region", &offset), ZRO_OK);
    assert_int_equal(zro__map_region(view, offset, 4096, &map), ZRO_OK);
    base = map.base;
    zro__pin(view, base + 4095);
    zro__unmap_region(view, &map);
    zro__view_drop(view, 1);
    base[4095] = 1;
    assert_ptr_equal(zro__view_find(view->nonce), view);
}

/* ---- life words ---- */

static void processes_end(void **state)
{
    struct rlimit before, none;
    int ready[2];
    siginfo_t info;
    pid_t pid;
    char byte;

    (void)state;
    assert_int_equal(pipe(ready), 0);
    assert_false(zro__process_ended((int32_t)getpid()));
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) { /* its name must not be taken for its state */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "a) Z (b");
        if (write(ready[1], "r", 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_false(zro__process_ended((int32_t)pid));
    kill(pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_true(zro__process_ended((int32_t)pid)); /* nobody has waited for it yet */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(zro__process_ended((int32_t)pid));
    /* Who cannot open files knows nothing. */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_false(zro__process_ended((int32_t)getpid()));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    close(ready[0]);
    close(ready[1]);
}

static void lives_are_taken_and_left(void **state)
{
    zro__life *life = aligned_alloc(64, sizeof *life);
    zro__holder holder = { 0 };
    pid_t pid = fork_until_killed();

    (void)state;
    assert_non_null(life);
    memset(life, 0, sizeof *life);
    assert_false(atomic_load(&life->word) != 0 || zro__life_is_dead(life)); /* nothing is known of it */
    atomic_store(&life->pid, (int32_t)pid);
    assert_false(zro__life_is_dead(life));
    end_child(pid);
    assert_true(zro__life_is_dead(life));
    zro__life_release(&holder); /* takes what holds nothing */
    assert_int_equal(zro__life_hold(&holder, life), ZRO_OK);
    assert_true(atomic_load(&life->word) != 0 && !zro__life_is_dead(life));
    zro__life_release(&holder);
    assert_true(atomic_load(&life->word) != 0 && !zro__life_is_dead(life)); /* it left */
    zro__life_mark_alive(life);
    assert_false(zro__life_is_dead(life));
    zro__life_mark_dead(life);
    assert_true(zro__life_is_dead(life));
    free(life);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_say_what_was_called),
        cmocka_unit_test(all_who_are_lost_are_named),
        cmocka_unit_test(tables_are_checked),
        cmocka_unit_test(failures_are_brought_to_all),
        cmocka_unit_test(absent_ranks_are_told),
        cmocka_unit_test(a_rank_is_one_process),
        cmocka_unit_test(the_supervisor_sees_who_came),
        cmocka_unit_test(ends_are_kept_for_the_supervisor),
        cmocka_unit_test(nobody_can_cut_the_memory),
        cmocka_unit_test(views_are_found_by_nonce),
        cmocka_unit_test(other_memory_is_refused),
        cmocka_unit_test(regions_have_borders),
        cmocka_unit_test(pages_come_when_they_are_asked_for),
        cmocka_unit_test(limits_on_files_are_kept),
        cmocka_unit_test(the_files_of_others_are_left_alone),
        cmocka_unit_test(pinned_memory_stays),
        cmocka_unit_test(processes_end),
        cmocka_unit_test(lives_are_taken_and_left),
    };

    return cmocka_run_group_tests_name("board", tests, NULL, NULL);
}
