/* States as files: what is written is what is read; a write that fails or is killed leaves the old file; and a file is written
 * as ordinary programs write it, with its mode, through links, and never over what is no file. */
#define _GNU_SOURCE

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/point.h"
#include "checkpoint/sink.h"
#include "state_parts.h"
#include "zro.h"

/* ---- a folder for each test ---- */

static char folder[] = "/tmp/zro-state-XXXXXX";
static char path[sizeof folder + 32];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder + sizeof folder - 7, "XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/a state", folder);
    return 0;
}

/* A path in the folder, valid until the fourth call after. */
static const char *in_folder(const char *name)
{
    static char paths[4][300];
    static unsigned next;
    char *text = paths[next++ % 4];

    snprintf(text, sizeof paths[0], "%s/%s", folder, name);
    return text;
}

static size_t count_files(void)
{
    DIR *dir = opendir(folder);
    size_t n = 0;

    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return n;
}

/* The temporary file in the folder; "" if there is none. */
static const char *temporary_name(void)
{
    static char name[256];
    DIR *dir = opendir(folder);

    name[0] = '\0';
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        if (strncmp(e->d_name, ".zro-", 5) == 0)
            strcpy(name, e->d_name);
    closedir(dir);
    return name;
}

static int has_nameless(void)
{
    int fd = open(folder, O_TMPFILE | O_WRONLY, 0600);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

/* A state that is told from others by its number. */
static zro_state *make_numbered(uint64_t number)
{
    zro_state *s;

    OK(zro_state_create("sgd", &s));
    OK(zro_state_set_progress(s, &(zro_progress){ .steps = number }));
    return s;
}

static zro_status write_numbered(uint64_t number, const char *to)
{
    zro_state *s = make_numbered(number);
    zro_status st = zro_state_write(s, to);

    zro_state_destroy(s);
    return st;
}

static uint64_t number_in(const char *file)
{
    zro_progress progress;
    zro_state *s;

    OK(zro_state_read(file, &s));
    OK(zro_state_get_progress(s, &progress));
    zro_state_destroy(s);
    return progress.steps;
}

static struct stat look_at(const char *file)
{
    struct stat info;

    assert_int_equal(lstat(file, &info), 0);
    return info;
}

/* ---- system calls that a test looks at; the library's calls come here ---- */

static struct calls {
    char text[200];     /* what was done, in order */
    int fail_sync;      /* an errno: syncs of folders fail with it, and of files if it is EIO */
    void (*lock)(void); /* called once, before the next lock */
    size_t piece;       /* if not 0: reads and writes do at most so much, and every other one is interrupted */
    unsigned n_pieces;
} calls;

static int is_interrupted(size_t *n)
{
    if (calls.piece == 0)
        return 0;
    *n = *n < calls.piece ? *n : calls.piece;
    errno = EINTR;
    return calls.n_pieces++ % 2 == 0;
}

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    return is_interrupted(&n) ? -1 : (ssize_t)syscall(SYS_pread64, fd, to, n, at);
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    return is_interrupted(&n) ? -1 : (ssize_t)syscall(SYS_write, fd, bytes, n);
}

int fsync(int fd)
{
    struct stat info;
    size_t n = strlen(calls.text);

    if (fstat(fd, &info) != 0)
        return -1;
    if (S_ISDIR(info.st_mode))
        snprintf(calls.text + n, sizeof calls.text - n, "sync folder\n");
    else
        snprintf(calls.text + n, sizeof calls.text - n, "sync %zu bytes\n", (size_t)info.st_size);
    if (calls.fail_sync == EIO || (calls.fail_sync != 0 && S_ISDIR(info.st_mode)))
        return errno = calls.fail_sync, -1;
    return (int)syscall(SYS_fsync, fd);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    size_t n = strlen(calls.text);

    snprintf(calls.text + n, sizeof calls.text - n, "rename\n");
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, 0);
}

int flock(int fd, int operation)
{
    void (*first)(void) = calls.lock;

    calls.lock = NULL;
    if (first != NULL)
        first();
    return (int)syscall(SYS_flock, fd, operation);
}

/* ---- what is written is read ---- */

static void a_file_is_what_pack_gives(void **state)
{
    zro_state *s = make_adamw(), *t;
    static char buffer[1 << 16];
    void *bytes;
    size_t n;
    FILE *f;

    (void)state;
    add_param(s, "large", ZRO_F32, 2, 1000, 1000);
    add_slot(s, 4, "exp_avg", ZRO_F32, 1000000);
    add_slot(s, 4, "exp_avg_sq", ZRO_BF16, 1000000);
    OK(zro_state_write(s, path));
    OK(zro_state_write(s, path)); /* over it */
    assert_int_equal(count_files(), 1);
    OK(zro_state_read(path, &t));
    same(s, t);
    OK(zro_state_pack(s, &bytes, &n));
    f = fopen(path, "rb");
    for (size_t at = 0, got; (got = fread(buffer, 1, sizeof buffer, f)) > 0; at += got) {
        assert_true(got <= n - at);
        assert_memory_equal((char *)bytes + at, buffer, got);
        assert_true(got == sizeof buffer || at + got == n);
    }
    fclose(f);
    zro_bytes_free(bytes);
    zro_state_destroy(s);
    zro_state_destroy(t);
}

/* System calls that do a part of what they are asked for, or are interrupted. */
static void a_file_in_small_pieces(void **state)
{
    zro_state *s = make_adamw(), *t;

    (void)state;
    add_param(s, "large", ZRO_F32, 1, 300000, 0); /* larger than all buffers */
    add_param(s, "small", ZRO_F32, 1, 50000, 0);  /* smaller, but two of them are larger */
    add_slot(s, 4, "exp_avg", ZRO_F32, 300000);
    add_slot(s, 5, "exp_avg", ZRO_F32, 50000);
    add_slot(s, 5, "exp_avg_sq", ZRO_F32, 50000);
    calls.piece = 77777;
    OK(zro_state_write(s, path));
    OK(zro_state_read(path, &t));
    calls.piece = 0;
    same(s, t);
    zro_state_destroy(s);
    zro_state_destroy(t);
}

/* ---- writes that fail ---- */

static void a_write_that_fails_leaves_the_old_file(void **state)
{
    const struct {
        const char *point, *words;
    } cases[] = {
        { has_nameless() ? "checkpoint.link" : "checkpoint.open", "cannot make a file" },
        { "checkpoint.write", "No space left" },
        { "checkpoint.sync", "cannot sync it" },
        { "checkpoint.rename", "cannot rename" },
        { "memory.alloc", "out of memory" },
    };
    zro_state *old = make_adamw(), *new, *read;

    (void)state;
    OK(zro_state_create("sgd", &new));
    OK(zro_state_add_group(new, NULL, 0));
    add_param(new, "w", ZRO_F32, 1, 100000, 0);
    add_slot(new, 0, "momentum_buffer", ZRO_F32, 100000);
    OK(zro_state_write(old, path));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (long nth = 1;; nth++) {
            zro__point_plan plan = { .name = cases[i].point, .action = ZRO__POINT_FAIL, .nth = nth };
            zro_status st;

            zro__point_plan_set(&plan);
            st = zro_state_write(new, path);
            zro__point_plan_set(NULL);
            assert_int_equal(count_files(), 1);
            OK(zro_state_read(path, &read));
            same(read, st == ZRO_OK ? new : old);
            zro_state_destroy(read);
            if (st == ZRO_OK) {
                assert_true(nth > 1);
                OK(zro_state_write(old, path));
                break;
            }
            assert_non_null(strstr(zro_last_error(), cases[i].words));
            assert_int_equal(st, i == 4 ? ZRO_ERR_MEMORY : ZRO_ERR_SYSTEM);
        }
    zro_state_destroy(old);
    zro_state_destroy(new);
}

static void a_folder_that_cannot_be_synced(void **state)
{
    zro__point_plan plan = { .name = "checkpoint.sync_folder", .action = ZRO__POINT_FAIL, .nth = 1 };
    zro_state *s = make_adamw(), *t;

    (void)state;
    zro__point_plan_set(&plan);
    REFUSED(zro_state_write(s, path), ZRO_ERR_SYSTEM, "is written, but may be lost");
    zro__point_plan_set(NULL);
    assert_int_equal(count_files(), 1);
    OK(zro_state_read(path, &t));
    same(s, t);
    zro_state_destroy(s);
    zro_state_destroy(t);
}

static void places_that_cannot_be_written(void **state)
{
    char name[sizeof path + 300];
    zro_state *s = make_adamw();

    (void)state;
    snprintf(name, sizeof name, "%s/nowhere/x", folder);
    REFUSED(zro_state_write(s, name), ZRO_ERR_SYSTEM, "No such file");
    memset(name, 'x', 300);
    name[300] = '\0';
    REFUSED(zro_state_write(s, name), ZRO_ERR_SYSTEM, "too long");
    assert_int_equal(count_files(), 0);
    if (geteuid() != 0) {
        chmod(folder, 0500);
        REFUSED(zro_state_write(s, path), ZRO_ERR_SYSTEM, "Permission denied");
        chmod(folder, 0700);
    }
    zro_state_destroy(s);
}

/* What is there stays there, and a pipe that nobody reads does not make anybody wait. */
static void what_is_no_file_is_not_replaced(void **state)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    static const struct {
        const char *name, *words;
    } cases[] = {
        { "folder", "it is a folder, must be" }, { "folder/", "it is a folder" }, { "pipe", "it is a pipe" },
        { "socket", "it is a socket" },          { "to pipe", "it is a pipe" },   { "to folder", "it is a folder" },
        { "to stdin", "it is a pipe" },          { "device", "it is a device" }, /* the last, which only root can make */
    };
    const int is_root = mknod(in_folder("device"), S_IFCHR | 0600, makedev(1, 3)) == 0;
    size_t n = sizeof cases / sizeof *cases - !is_root, files;
    int ends[2], socket_fd = socket(AF_UNIX, SOCK_STREAM, 0), before = dup(0);

    (void)state;
    assert_int_equal(pipe(ends), 0);
    dup2(ends[0], 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", in_folder("socket"));
    assert_int_equal(bind(socket_fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(mkdir(in_folder("folder"), 0700), 0);
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_int_equal(symlink("pipe", in_folder("to pipe")), 0);
    assert_int_equal(symlink("folder", in_folder("to folder")), 0);
    assert_int_equal(symlink("/proc/self/fd/0", in_folder("to stdin")), 0);
    files = count_files();
    for (size_t i = 0; i < n; i++) {
        struct stat old = look_at(in_folder(cases[i].name)), new;

        REFUSED(write_numbered(1, in_folder(cases[i].name)), ZRO_ERR_INVALID, cases[i].words);
        new = look_at(in_folder(cases[i].name));
        assert_true(old.st_ino == new.st_ino &&old.st_mode == new.st_mode);
        assert_int_equal(count_files(), files);
    }
    for (size_t i = 0; i < n; i++)
        if (i != 1)
            assert_int_equal(remove(in_folder(cases[i].name)), 0);
    dup2(before, 0);
    close(before);
    close(socket_fd);
    close(ends[0]);
    close(ends[1]);
}

/* A write under a limit on file sizes, which does not outlast it: what a test prints may go to a file, too. */
static zro_status write_within(size_t bytes, uint64_t number)
{
    struct rlimit old, limit;
    zro_status st;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    st = write_numbered(number, path);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    return st;
}

/* Who exceeds the limit is killed, so nobody may try. */
static void the_limit_on_file_sizes(void **state)
{
    char words[60];
    size_t bytes;

    (void)state;
    OK(write_numbered(1, path));
    bytes = (size_t)look_at(path).st_size; /* the next ones have as many */
    snprintf(words, sizeof words, "limit on file sizes (%zu bytes", bytes - 1);
    REFUSED(write_within(bytes - 1, 2), ZRO_ERR_SYSTEM, words);
    assert_int_equal(number_in(path), 1);
    assert_int_equal(count_files(), 1);
    OK(write_within(bytes, 2));
    assert_int_equal(number_in(path), 2);
}

/* Without privileges, for what root may do.  The body returns 0 if all is well. */
static int as_nobody(int (*body)(void))
{
    const pid_t child = fork();
    int status;

    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
            _exit(99);
        _exit(body());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static int is_denied_at(const char *where)
{
    zro_state *s = NULL;
    int denied = zro_state_create("sgd", &s) == ZRO_OK && zro_state_write(s, where) == ZRO_ERR_SYSTEM
                 && strstr(zro_last_error(), "Permission denied") != NULL && strstr(zro_last_error(), where) != NULL;

    zro_state_destroy(s);
    return !denied;
}

static int is_denied(void)
{
    return is_denied_at(path);
}

static int is_denied_in_root(void)
{
    return is_denied_at("/zro-state");
}

/* As open would, though rename needs no right to the file. */
static void what_may_not_be_written(void **state)
{
    struct stat old;

    (void)state;
    OK(write_numbered(1, path));
    assert_int_equal(chmod(folder, 0555), 0);
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(as_nobody(is_denied), 0);
    assert_int_equal(chmod(folder, 0777), 0);
    assert_int_equal(chmod(path, 0444), 0);
    old = look_at(path);
    assert_int_equal(as_nobody(is_denied), 0);
    assert_int_equal(as_nobody(is_denied_in_root), 0);
    assert_int_equal(look_at(path).st_ino, old.st_ino);
    assert_int_equal(count_files(), 1);
}

/* ---- modes and links ---- */

/* Both ways to make a file: without a name first, and with one. */
static zro_status write_in_way(int named, uint64_t number, const char *to)
{
    zro__point_plan plan = { .name = "checkpoint.nameless", .action = ZRO__POINT_FAIL, .nth = 1 };
    zro_status st;

    zro__point_plan_set(named ? &plan : NULL);
    st = write_numbered(number, to);
    zro__point_plan_set(NULL);
    assert_int_equal(atomic_load(&plan.hits), named);
    return st;
}

static void modes_and_owners_are_kept(void **state)
{
    static const mode_t masks[] = { 022, 077, 0 }, modes[] = { 0600, 0640, 0666, 0755 };
    const mode_t umask_before = umask(0);
    uint64_t number = 1;

    (void)state;
    for (int named = 0; named < 2; named++) {
        for (size_t i = 0; i < 3; i++) {
            umask(masks[i]);
            OK(write_in_way(named, ++number, path));
            assert_int_equal(look_at(path).st_mode & 07777, 0666 & ~masks[i]);
            unlink(path);
        }
        for (size_t i = 0; i < 4; i++) {
            umask(masks[i % 3]);
            OK(write_in_way(named, ++number, path));
            assert_int_equal(chmod(path, modes[i]), 0);
            if (geteuid() == 0)
                assert_int_equal(chown(path, 12345, 54321), 0);
            OK(write_in_way(named, ++number, path));
            assert_int_equal(look_at(path).st_mode & 07777, modes[i]);
            assert_int_equal(look_at(path).st_uid, geteuid() == 0 ? 12345 : geteuid());
            assert_int_equal(look_at(path).st_gid, geteuid() == 0 ? 54321 : getegid());
            assert_int_equal(number_in(path), number);
            unlink(path);
        }
    }
    umask(umask_before);
}

static int writes_over(void)
{
    zro_state *s = NULL;
    int failed = zro_state_create("sgd", &s) != ZRO_OK || zro_state_write(s, path) != ZRO_OK;

    zro_state_destroy(s);
    return failed;
}

/* A user who may write a file but not give it away: members of its new group get no more than others had. */
static void an_owner_that_cannot_be_kept(void **state)
{
    (void)state;
    if (geteuid() != 0)
        return;
    OK(write_numbered(1, path));
    assert_int_equal(chmod(folder, 0777), 0);
    assert_int_equal(chmod(path, 0676), 0);
    assert_int_equal(as_nobody(writes_over), 0);
    assert_int_equal(look_at(path).st_uid, 65534);
    assert_int_equal(look_at(path).st_gid, 65534);
    assert_int_equal(look_at(path).st_mode & 07777, 0666);
    assert_int_equal(chown(path, 0, 65534), 0); /* the group can be kept */
    assert_int_equal(chmod(path, 0676), 0);
    assert_int_equal(as_nobody(writes_over), 0);
    assert_int_equal(look_at(path).st_mode & 07777, 0676);
}

static void is_private(void)
{
    assert_int_equal(look_at(in_folder(temporary_name())).st_mode & 07777, 0600);
}

/* A private file is not to be seen by others while it is written, whatever the umask; not even before it is locked. */
static void a_private_file_is_private_at_once(void **state)
{
    zro__point_plan plan = { .name = "checkpoint.nameless", .action = ZRO__POINT_FAIL, .nth = 1 };
    const mode_t umask_before = umask(0);
    zro__sink sink;

    (void)state;
    OK(write_numbered(1, path));
    assert_int_equal(chmod(path, 0600), 0);
    zro__point_plan_set(&plan);
    calls.lock = is_private;
    OK(zro__sink_open(&sink, path, 1));
    assert_null(calls.lock);
    zro__point_plan_set(NULL);
    is_private();
    zro__sink_close(&sink);
    assert_int_equal(count_files(), 1);
    umask(umask_before);
}

static void links_are_written_through(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_folder("sub"), 0700), 0);
    OK(write_numbered(1, in_folder("sub/file")));
    assert_int_equal(symlink("sub/file", path), 0);
    assert_int_equal(symlink(path, in_folder("sub/again")), 0); /* an absolute one to a relative one */
    OK(write_numbered(2, path));
    assert_true(S_ISLNK(look_at(path).st_mode));
    assert_int_equal(number_in(in_folder("sub/file")), 2);
    OK(write_numbered(3, in_folder("sub/again")));
    assert_true(S_ISLNK(look_at(in_folder("sub/again")).st_mode) && S_ISLNK(look_at(path).st_mode));
    assert_int_equal(number_in(in_folder("sub/file")), 3);
    /* A link that leads nowhere: the file is made where it leads, as by open. */
    unlink(in_folder("sub/file"));
    OK(write_numbered(4, in_folder("sub/again")));
    assert_true(S_ISLNK(look_at(in_folder("sub/again")).st_mode) && S_ISLNK(look_at(path).st_mode));
    assert_int_equal(number_in(in_folder("sub/file")), 4);
    unlink(in_folder("sub/file"));
    unlink(in_folder("sub/again"));
    assert_int_equal(rmdir(in_folder("sub")), 0);
    REFUSED(write_numbered(5, path), ZRO_ERR_SYSTEM, "No such file");
    unlink(path);
    assert_int_equal(symlink("a state", path), 0);
    REFUSED(write_numbered(5, path), ZRO_ERR_SYSTEM, "Too many levels");
    assert_int_equal(count_files(), 1);
}

/* Paths without a folder, and in the root folder. */
static void short_paths(void **state)
{
    char before[4096];

    (void)state;
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    OK(write_numbered(7, "a state"));
    assert_int_equal(number_in(path), 7);
    assert_int_equal(count_files(), 1);
    assert_int_equal(chdir(before), 0);
    REFUSED(write_numbered(7, "/"), ZRO_ERR_INVALID, "it is a folder");
    REFUSED(write_numbered(7, "."), ZRO_ERR_INVALID, "it is a folder");
}

/* ---- durable, and nothing left ---- */

static void what_is_synced_when(void **state)
{
    char expected[100];

    (void)state;
    for (int named = 0; named < 2; named++) {
        memset(&calls, 0, sizeof calls);
        OK(write_in_way(named, 1, path));
        snprintf(expected, sizeof expected, "sync %zu bytes\nrename\nsync folder\n", (size_t)look_at(path).st_size);
        assert_string_equal(calls.text, expected);
    }
    calls.fail_sync = EINVAL; /* a file system that cannot sync folders */
    OK(write_numbered(2, path));
    calls.fail_sync = ENOSPC;
    REFUSED(write_numbered(3, path), ZRO_ERR_SYSTEM, "may be lost");
    calls.fail_sync = EIO;
    REFUSED(write_numbered(4, path), ZRO_ERR_SYSTEM, "cannot sync it");
    calls.fail_sync = 0;
    assert_int_equal(number_in(path), 3);
    assert_int_equal(count_files(), 1);
}

/* A writer of half a file, which dies or is stopped at a point. */
static pid_t start_writer(int named, const char *point, zro__point_action action)
{
    zro__point_plan no_nameless = { .name = "checkpoint.nameless", .action = ZRO__POINT_FAIL, .nth = 1 };
    zro__point_plan plan = { .name = point, .action = action, .nth = 1 };
    const pid_t child = fork();
    zro__sink sink;
    int failed;

    if (child != 0)
        return child;
    zro__point_plan_set(named ? &no_nameless : NULL);
    failed = zro__sink_open(&sink, path, 100) != ZRO_OK;
    zro__point_plan_set(&plan);
    failed |= zro__sink_write(&sink, "not a state", 11) != ZRO_OK || zro__sink_commit(&sink) != ZRO_OK;
    zro__sink_close(&sink);
    _exit(failed);
}

static void a_killed_writer_leaves_nothing_for_long(void **state)
{
    static const char *const points[] = { "checkpoint.write", "checkpoint.sync", "checkpoint.rename" };
    uint64_t number = 1;
    int status;

    (void)state;
    OK(write_numbered(number, path));
    for (int named = 0; named < 2; named++)
        for (size_t i = 0; i < 3; i++) {
            const pid_t child = start_writer(named, points[i], ZRO__POINT_KILL);

            assert_int_equal(waitpid(child, &status, 0), child);
            assert_true(WIFSIGNALED(status));
            assert_int_equal(number_in(path), number);
            assert_int_equal(count_files(), named || i == 2 || !has_nameless() ? 2 : 1);
            OK(write_numbered(++number, path));
            assert_int_equal(number_in(path), number);
            assert_int_equal(count_files(), 1);
        }
}

/* What belongs to a writer that lives is no leftover, whichever way it writes. */
static void writers_that_live_are_left_alone(void **state)
{
    int status;

    (void)state;
    for (int named = 0; named < 2; named++) {
        const pid_t child = start_writer(named, "checkpoint.rename", ZRO__POINT_STOP);

        assert_int_equal(waitpid(child, &status, WUNTRACED), child);
        assert_true(WIFSTOPPED(status));
        OK(write_numbered(1, path));
        assert_int_equal(number_in(path), 1);
        assert_int_equal(count_files(), 2);
        kill(child, SIGCONT);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(look_at(path).st_size, 11); /* the last one wins */
        assert_int_equal(count_files(), 1);
    }
}

/* What others left beside it, a writer to another place too, is not this writer's business; nor is what no writer makes. */
static void only_leftovers_are_removed(void **state)
{
    char beginning[64];
    zro__sink sink;
    int status;
    pid_t child;
    const size_t of_sink = has_nameless() ? 0 : 1;

    (void)state;
    OK(zro__sink_open(&sink, path, 1));
    OK(zro__sink_write(&sink, "x", 1));
    child = start_writer(1, "checkpoint.write", ZRO__POINT_KILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    OK(write_numbered(1, in_folder("another")));
    assert_int_equal(count_files(), 2 + of_sink);
    OK(write_numbered(1, path));
    assert_int_equal(count_files(), 2 + of_sink);
    OK(zro__sink_commit(&sink));
    zro__sink_close(&sink);
    assert_int_equal(look_at(path).st_size, 1);
    /* A pipe and a link with names like the leftovers', the link to a file of somebody's. */
    child = start_writer(1, "checkpoint.write", ZRO__POINT_STOP);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    snprintf(beginning, sizeof beginning, "%.22s", temporary_name());
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(beginning[21], '-');
    strcpy(beginning + 22, "pipe");
    assert_int_equal(mkfifo(in_folder(beginning), 0600), 0);
    strcpy(beginning + 22, "link");
    assert_int_equal(symlink("another", in_folder(beginning)), 0);
    OK(write_numbered(2, path));
    assert_int_equal(unlink(in_folder(beginning)), 0);
    strcpy(beginning + 22, "pipe");
    assert_int_equal(unlink(in_folder(beginning)), 0);
    assert_int_equal(number_in(in_folder("another")), 1);
    unlink(in_folder("another"));
    assert_int_equal(count_files(), 1);
}

/* ---- others who meddle ---- */

static void shorten(void *user, const char *point)
{
    if (strcmp(point, "checkpoint.read") == 0)
        assert_int_equal(truncate(path, *(off_t *)user), 0);
}

/* A file that gets shorter while it is read. */
static void a_file_that_ends_early(void **state)
{
    off_t size = 4;
    zro__point_plan plan = { .action = ZRO__POINT_LIST, .seen = shorten, .user = &size };
    zro_state *s;

    (void)state;
    OK(write_numbered(1, path));
    zro__point_plan_set(&plan);
    REFUSED(zro_state_read(path, &s), ZRO_ERR_FORMAT, "ends at byte 4, but had");
    zro__point_plan_set(NULL);
}

static zro__sink *planted_for; /* where links are planted at temporary names */
static int planted, to_plant;

static void plant(const char *name)
{
    if (planted++ < to_plant)
        assert_int_equal(symlink("victim", in_folder(name)), 0);
}

/* Makes files without a name fail, by taking away all descriptors for that one call, and plants a link at the first temporary
 * name that is tried. */
static void meddle(void *user, const char *point)
{
    static struct rlimit before;
    struct rlimit none;

    if (*(int *)user && strcmp(point, "checkpoint.nameless") == 0) {
        getrlimit(RLIMIT_NOFILE, &before);
        none = (struct rlimit){ 0, before.rlim_max };
        setrlimit(RLIMIT_NOFILE, &none);
    }
    if (*(int *)user && strcmp(point, "checkpoint.open") == 0)
        setrlimit(RLIMIT_NOFILE, &before);
    if (strcmp(point, "checkpoint.open") == 0 || strcmp(point, "checkpoint.link") == 0)
        plant(planted_for->temporary);
}

/* A link at the temporary name is neither followed nor replaced nor taken away. */
static void a_link_at_the_temporary_name(void **state)
{
    (void)state;
    OK(write_numbered(1, in_folder("victim")));
    for (int named = 0; named < 2; named++) {
        zro__point_plan plan = { .action = ZRO__POINT_LIST, .seen = meddle, .user = &named };
        zro__sink sink;

        planted_for = &sink;
        planted = 0;
        to_plant = 1;
        zro__point_plan_set(&plan);
        OK(zro__sink_open(&sink, path, 1));
        OK(zro__sink_write(&sink, "x", 1));
        OK(zro__sink_commit(&sink));
        zro__point_plan_set(NULL);
        zro__sink_close(&sink);
        assert_int_equal(planted, 2);
        assert_int_equal(look_at(path).st_size, 1);
        assert_int_equal(number_in(in_folder("victim")), 1);
        assert_int_equal(count_files(), 3);
        assert_true(S_ISLNK(look_at(in_folder(temporary_name())).st_mode));
        assert_int_equal(unlink(in_folder(temporary_name())), 0);
    }
    unlink(in_folder("victim"));
}

/* If all names are taken it is an error, and what was planted is not taken away. */
static void no_temporary_name_is_free(void **state)
{
    (void)state;
    for (int named = 0; named < 2; named++) {
        zro__point_plan plan = { .action = ZRO__POINT_LIST, .seen = meddle, .user = &named };
        zro_status st;
        zro__sink sink;

        planted_for = &sink;
        planted = 0;
        to_plant = 1000;
        zro__point_plan_set(&plan);
        st = zro__sink_open(&sink, path, 1);
        if (st == ZRO_OK)
            st = zro__sink_commit(&sink);
        zro__point_plan_set(NULL);
        REFUSED(st, ZRO_ERR_SYSTEM, "File exists");
        zro__sink_close(&sink);
        assert_int_equal(count_files(), planted);
        for (; planted > 0; planted--)
            assert_int_equal(unlink(in_folder(temporary_name())), 0);
    }
}

/* Writers that take the new file for a leftover, because it is not locked yet. */
static void remove_it(void)
{
    assert_int_equal(unlink(in_folder(temporary_name())), 0);
}

static int locked = -1;

static void lock_it(void)
{
    locked = open(in_folder(temporary_name()), O_WRONLY);
    assert_int_equal(flock(locked, LOCK_EX | LOCK_NB), 0);
}

static void a_file_that_is_taken_before_it_is_locked(void **state)
{
    (void)state;
    calls.lock = remove_it;
    OK(write_in_way(1, 1, path));
    assert_null(calls.lock);
    assert_int_equal(count_files(), 1);
    calls.lock = lock_it;
    OK(write_in_way(1, 2, path));
    assert_int_equal(number_in(path), 2);
    assert_int_equal(count_files(), 2);
    close(locked);
    OK(write_numbered(3, path)); /* it was a leftover, since the one that locked it did not remove it */
    assert_int_equal(count_files(), 1);
}

/* ---- reading ---- */

static void things_that_are_no_files(void **state)
{
    zro__point_plan plan = { .name = "checkpoint.read", .action = ZRO__POINT_FAIL, .nth = 1 };
    zro_state *s = make_adamw(), *t = (zro_state *)1;
    struct stat info;

    (void)state;
    REFUSED(zro_state_read(path, &t), ZRO_ERR_SYSTEM, "No such file");
    assert_null(t);
    REFUSED(zro_state_read(NULL, &t), ZRO_ERR_INVALID, "path is NULL");
    REFUSED(zro_state_read(path, NULL), ZRO_ERR_INVALID, "out is NULL");
    REFUSED(zro_state_read(folder, &t), ZRO_ERR_FORMAT, "is a folder");
    REFUSED(zro_state_read("/dev/null", &t), ZRO_ERR_FORMAT, "must be a regular file");
    assert_int_equal(mkfifo(path, 0600), 0);
    REFUSED(zro_state_read(path, &t), ZRO_ERR_FORMAT, "must be a regular file");
    unlink(path);
    OK(zro_state_write(s, path));
    zro__point_plan_set(&plan);
    REFUSED(zro_state_read(path, &t), ZRO_ERR_SYSTEM, "Input/output error");
    zro__point_plan_set(NULL);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size - 1), 0);
    REFUSED(zro_state_read(path, &t), ZRO_ERR_FORMAT, path);
    assert_int_equal(truncate(path, 0), 0);
    REFUSED(zro_state_read(path, &t), ZRO_ERR_FORMAT, "empty");
    zro_state_destroy(s);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_file_is_what_pack_gives),
        IN_FOLDER(a_file_in_small_pieces),
        IN_FOLDER(a_write_that_fails_leaves_the_old_file),
        IN_FOLDER(a_folder_that_cannot_be_synced),
        IN_FOLDER(places_that_cannot_be_written),
        IN_FOLDER(what_is_no_file_is_not_replaced),
        IN_FOLDER(the_limit_on_file_sizes),
        IN_FOLDER(what_may_not_be_written),
        IN_FOLDER(modes_and_owners_are_kept),
        IN_FOLDER(an_owner_that_cannot_be_kept),
        IN_FOLDER(a_private_file_is_private_at_once),
        IN_FOLDER(links_are_written_through),
        IN_FOLDER(short_paths),
        IN_FOLDER(what_is_synced_when),
        IN_FOLDER(a_killed_writer_leaves_nothing_for_long),
        IN_FOLDER(writers_that_live_are_left_alone),
        IN_FOLDER(only_leftovers_are_removed),
        IN_FOLDER(a_file_that_ends_early),
        IN_FOLDER(a_link_at_the_temporary_name),
        IN_FOLDER(no_temporary_name_is_free),
        IN_FOLDER(a_file_that_is_taken_before_it_is_locked),
        IN_FOLDER(things_that_are_no_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
