/* Tickets: which ones belong together, who can share memory with whom, and how the memory reaches a rank.
 *
 * All tickets are this process's own; what another user, machine or container would have written is put into them. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "group/ticket.h"

enum { SIZE = 3 };

typedef struct fixture {
    unsigned char written[SIZE][ZRO_TICKET_BYTES]; /* as they are */
    unsigned char tickets[SIZE][ZRO_TICKET_BYTES]; /* as changed by a test */
} fixture;

static fixture f;

static int set_up(void **state)
{
    (void)state;
    for (int r = 0; r < SIZE; r++)
        if (zro_group_ticket(NULL, r, SIZE, f.written[r]) != ZRO_OK)
            return -1;
    memcpy(f.tickets, f.written, sizeof f.written);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int r = 0; r < SIZE; r++)
        zro_group_ticket_drop(f.written[r]);
    return 0;
}

/* Puts a ticket back as its rank would have written it. */
static void put(int rank, zro__ticket t)
{
    t.sum = zro__hash(ZRO__HASH_START, &t, offsetof(zro__ticket, sum));
    memcpy(f.tickets[rank], &t, sizeof t);
}

static zro__ticket get(int rank)
{
    return zro__ticket_get(f.tickets, rank);
}

/* What one rank's ticket can say that others' do not. */
typedef enum difference { BOOT, PID_NS, NET_NS, USER_NS, USER, GROUP, PROCESS, MACHINE, N_DIFFERENCES } difference;

static void differ(int rank, difference what)
{
    zro__ticket t = get(rank);

    t.boot += what == BOOT;
    t.pid_ns += what == PID_NS;
    t.net_ns += what == NET_NS;
    t.user_ns += what == USER_NS;
    t.uid += what == USER;
    t.gid += what == GROUP;
    t.pid += what == PROCESS;
    t.machine += what == MACHINE ? 7 : 0;
    put(rank, t);
}

static void undo(void)
{
    memcpy(f.tickets, f.written, sizeof f.written);
}

static void give_links(uint64_t last)
{
    for (int r = 0; r < SIZE; r++) {
        zro__ticket t = get(r);

        t.message_bytes = r == SIZE - 1 ? last : 10000;
        put(r, t);
    }
}

static void expect(int rank, int size, zro_status status, const char *text)
{
    assert_int_equal(zro__tickets_check(f.tickets, rank, size), status);
    if (status != ZRO_OK && strstr(zro_last_error(), text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", zro_last_error(), text);
}

/* ---- near and far ---- */

static void links_join_what_differs(void **state)
{
    (void)state;
    for (int what = 0; what < N_DIFFERENCES; what++) {
        int is_far = what != GROUP && what != PROCESS;

        give_links(10000);
        differ(1, (difference)what);
        assert_int_equal(zro__ticket_has(f.tickets, ZRO__NEAR, 0, 1), !is_far);
        assert_int_equal(zro__ticket_has(f.tickets, ZRO__NEAR, 1, 0), !is_far);
        assert_int_equal(zro__ticket_has(f.tickets, ZRO__MACHINE, 0, 1), !is_far);
        assert_int_equal(zro__ticket_has(f.tickets, ZRO__PROCESS, 0, 1), !is_far && what != PROCESS);
        assert_int_equal(zro__ticket_first(f.tickets, ZRO__NEAR, 1), is_far);
        assert_int_equal(zro__ticket_first(f.tickets, ZRO__NEAR, 2), 0);
        expect(0, SIZE, ZRO_OK, "");
        undo();
    }
}

static void without_links_all_are_near(void **state)
{
    (void)state;
    for (int what = 0; what < N_DIFFERENCES; what++) {
        differ(1, (difference)what);
        assert_true(zro__ticket_has(f.tickets, ZRO__NEAR, 0, 1));
        assert_int_equal(zro__ticket_has(f.tickets, ZRO__MACHINE, 0, 1), what != MACHINE);
        assert_int_equal(zro__ticket_has(f.tickets, ZRO__PROCESS, 0, 1), what != BOOT && what != PID_NS && what != PROCESS);
        undo();
    }
}

static void messages_fit_all_links(void **state)
{
    (void)state;
    give_links(4096);
    assert_int_equal(zro__tickets_message_bytes(f.tickets, SIZE), 4096);
    give_links(20000);
    assert_int_equal(zro__tickets_message_bytes(f.tickets, SIZE), 10000);
    undo();
}

/* ---- what is refused ---- */

static void apart_without_a_link(void **state)
{
    (void)state;
    differ(1, BOOT);
    expect(0, SIZE, ZRO_ERR_UNSUPPORTED, "ranks 0 and 1 cannot share memory: they are on different machines");
    undo();
    differ(2, USER);
    expect(0, SIZE, ZRO_ERR_UNSUPPORTED, "ranks 0 and 2 cannot share memory: they belong to different users");
    undo();
    differ(1, PID_NS);
    expect(0, SIZE, ZRO_OK, ""); /* through a socket */
    differ(1, NET_NS);
    expect(0, SIZE, ZRO_ERR_UNSUPPORTED, "different namespaces");
    undo();
    differ(1, NET_NS);
    expect(0, SIZE, ZRO_OK, ""); /* through /proc */
    differ(1, GROUP);
    expect(0, SIZE, ZRO_ERR_UNSUPPORTED, "different namespaces");
    undo();
    differ(1, USER_NS); /* numbers of users mean nothing then */
    differ(1, USER);
    expect(0, SIZE, ZRO_OK, "");
    undo();
}

static void tickets_that_do_not_belong_together(void **state)
{
    zro__ticket t;

    (void)state;
    expect(0, SIZE, ZRO_OK, "");
    memcpy(f.tickets[1], f.written[2], ZRO_TICKET_BYTES);
    expect(0, SIZE, ZRO_ERR_INVALID, "tickets[1] is rank 2's");
    undo();
    t = get(1);
    t.size = SIZE + 1;
    put(1, t);
    expect(0, SIZE, ZRO_ERR_MISMATCH, "rank 1's ticket is for 4 ranks, rank 0's for 3");
    undo();
    t = get(2);
    t.cells = 5;
    put(2, t);
    expect(0, SIZE, ZRO_ERR_MISMATCH, "cells of rank 2 differ");
    undo();
    t = get(2);
    t.message_bytes = 4096;
    put(2, t);
    expect(0, SIZE, ZRO_ERR_MISMATCH, "rank 2 has a link, rank 0 has none");
    undo();
    expect(0, SIZE - 1, ZRO_ERR_INVALID, "size = 2, but the tickets are for 3 ranks");
    f.tickets[2][offsetof(zro__ticket, inode)] ^= 1;
    expect(0, SIZE, ZRO_ERR_INVALID, "tickets[2] is not a ticket, or was changed");
    undo();
}

static void tickets_that_are_not_ones_own(void **state)
{
    zro__ticket t;

    (void)state;
    differ(1, PROCESS);
    expect(0, SIZE, ZRO_OK, "");
    expect(1, SIZE, ZRO_ERR_STATE, "rank 1's ticket was written by another process");
    undo();
    differ(1, PID_NS); /* the same number there is another process */
    expect(1, SIZE, ZRO_ERR_STATE, "rank 1's ticket was written by another process");
    undo();
    t = get(1);
    t.nonce[3] ^= 1;
    put(1, t);
    expect(1, SIZE, ZRO_ERR_STATE, "rank 1's ticket was used before, or dropped");
    undo();
}

/* ---- how the memory reaches a rank ---- */

static pid_t dead_process(void)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return pid;
}

static void set_process(int rank, pid_t pid, uint64_t pid_ns)
{
    zro__ticket t = get(rank);

    t.pid = (int32_t)pid;
    t.pid_ns += pid_ns;
    put(rank, t);
}

static void expect_open(zro_status status, const char *text)
{
    int fd = -1;

    assert_int_equal(zro__ticket_open(f.tickets, 1, 0, &fd), status);
    if (status != ZRO_OK && strstr(zro_last_error(), text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", zro_last_error(), text);
    if (fd >= 0)
        close(fd);
    undo();
}

/* Where /proc cannot be used a rank waits at the socket, which nobody serves here. */
static void proc_or_socket(void **state)
{
    static const difference sockets[] = { PID_NS, USER_NS, USER, GROUP };
    zro__ticket t;

    (void)state;
    expect_open(ZRO_OK, "");
    for (size_t i = 0; i < sizeof sockets / sizeof *sockets; i++) {
        differ(1, sockets[i]);
        expect_open(ZRO_ERR_TIMEOUT, "rank 0 did not pass its memory within 0 ms");
    }
    t = get(0);
    t.dumpable = 0;
    put(0, t);
    expect_open(ZRO_ERR_TIMEOUT, "rank 0 did not pass its memory");
}

static void whoever_is_gone_is_not_waited_for(void **state)
{
    pid_t dead = dead_process();

    (void)state;
    set_process(0, dead, 0);
    expect_open(ZRO_ERR_LOST, "rank 0 is gone, or has given up");
    set_process(0, dead, 0);
    differ(1, GROUP);
    expect_open(ZRO_ERR_LOST, "rank 0 is gone");
    set_process(0, dead, 1); /* a number of another namespace says nothing */
    expect_open(ZRO_ERR_TIMEOUT, "did not pass its memory");
    /* On the other side. */
    set_process(1, dead, 0);
    differ(1, GROUP);
    assert_int_equal(zro__ticket_serve(f.tickets, 0, SIZE, 0), ZRO_ERR_LOST);
    assert_non_null(strstr(zro_last_error(), "rank 1 is gone"));
    set_process(1, dead, 1);
    assert_int_equal(zro__ticket_serve(f.tickets, 0, SIZE, 0), ZRO_ERR_TIMEOUT);
    undo();
}

/* Ranks of one process fetch it once; who can open it in /proc does not come. */
static void each_process_fetches_once(void **state)
{
    (void)state;
    for (int r = 1; r < SIZE; r++) {
        differ(r, GROUP);
        set_process(r, 1, 0); /* which lives always */
    }
    assert_int_equal(zro__ticket_serve(f.tickets, 0, SIZE, 0), ZRO_ERR_TIMEOUT);
    assert_non_null(strstr(zro_last_error(), "missing: 1"));
    undo();
    assert_int_equal(zro__ticket_serve(f.tickets, 0, SIZE, 0), ZRO_OK);
}

/* ---- who is at the socket ---- */

static int socket_of_first(int listens)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "\0zro-" };
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 5 + sizeof get(0).nonce);
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    memcpy(name.sun_path + 5, get(0).nonce, sizeof get(0).nonce);
    if (s < 0
        || (listens ? bind(s, (struct sockaddr *)&name, length) != 0 || listen(s, 1) != 0
                    : connect(s, (struct sockaddr *)&name, length) != 0)) {
        close(s);
        return -1;
    }
    return s;
}

/* In another process, of another user if `user` is not 0: serves one connection with a descriptor, then ends. */
static pid_t serve_once(uid_t user, int passed)
{
    int ready[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct iovec io = { &byte, 1 };
        _Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))] = { 0 };
        struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
        int s, peer;

        CMSG_FIRSTHDR(&m)->cmsg_level = SOL_SOCKET;
        CMSG_FIRSTHDR(&m)->cmsg_type = SCM_RIGHTS;
        CMSG_FIRSTHDR(&m)->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &passed, sizeof passed);
        if (user != 0 && setuid(user) != 0)
            _exit(1);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        s = socket_of_first(1);
        byte = 'r';
        if (s < 0 || write(ready[1], &byte, 1) != 1)
            _exit(2);
        peer = accept(s, NULL, NULL);
        if (peer >= 0)
            sendmsg(peer, &m, MSG_NOSIGNAL);
        _exit(0);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void what_comes_is_looked_at(void **state)
{
    pid_t pid;

    (void)state;
    pid = serve_once(0, get(0).fd);
    differ(1, GROUP);
    expect_open(ZRO_OK, "");
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    pid = serve_once(0, get(1).fd);
    differ(1, GROUP);
    expect_open(ZRO_ERR_LOST, "rank 0 is gone: what was found is not its memory");
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Another user may know the name of the socket: such a one is neither believed nor served. */
static void other_users_are_ignored(void **state)
{
    enum { NOBODY = 65534 };
    pid_t pid;

    (void)state;
    if (geteuid() != 0) {
        print_message("not root: cannot be another user\n");
        skip();
    }
    pid = serve_once(NOBODY, get(0).fd);
    differ(1, GROUP);
    expect_open(ZRO_ERR_TIMEOUT, "rank 0 did not pass its memory");
    assert_int_equal(waitpid(pid, NULL, 0), pid);

    differ(1, GROUP);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        int s;

        if (setuid(NOBODY) != 0)
            _exit(1);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while ((s = socket_of_first(0)) < 0)
            usleep(1000);
        _exit(recv(s, &byte, 1, 0) == 1 ? 2 : 0);
    }
    set_process(1, 1, 0);
    assert_int_equal(zro__ticket_serve(f.tickets, 0, SIZE, 1000), ZRO_ERR_TIMEOUT);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    undo();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_join_what_differs),
        cmocka_unit_test(without_links_all_are_near),
        cmocka_unit_test(messages_fit_all_links),
        cmocka_unit_test(apart_without_a_link),
        cmocka_unit_test(tickets_that_do_not_belong_together),
        cmocka_unit_test(tickets_that_are_not_ones_own),
        cmocka_unit_test(proc_or_socket),
        cmocka_unit_test(whoever_is_gone_is_not_waited_for),
        cmocka_unit_test(each_process_fetches_once),
        cmocka_unit_test(what_comes_is_looked_at),
        cmocka_unit_test(other_users_are_ignored),
    };

    return cmocka_run_group_tests_name("ticket", tests, set_up, tear_down);
}
