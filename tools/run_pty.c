/* A pseudo-terminal: see run_pty.h.
 *
 * Why ranks get one: libraries write to a terminal line by line, but collect what goes into a pipe in blocks.  Of a rank that
 * prints a line per step one would see nothing for minutes, and never the last lines of one that was killed.
 *
 * How it differs from a pipe.  What was written is handed to the reader's end by a thread of the kernel, a little later; but
 * when the last writer has closed its end, which happens before its process can be seen to end, poll knows of that, and read
 * gets all there is and then EIO.  When the reader closes its end, writers get EIO and no SIGPIPE. */
#define _GNU_SOURCE
#include "run_pty.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

/* The end of the writers: raw, that is, neither a character is added (CR) nor does one mean anything.  It must not become the
 * controlling terminal of zro run or of a rank.  Nobody types there, so it cannot be read: a rank would wait for ever. */
static int open_writer(int reader)
{
    struct termios raw;
    char name[64];
    int fd;

    if (grantpt(reader) != 0 || unlockpt(reader) != 0 || ptsname_r(reader, name, sizeof name) != 0)
        return -1;
    fd = open(name, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (tcgetattr(fd, &raw) == 0) {
        cfmakeraw(&raw);
        if (tcsetattr(fd, TCSANOW, &raw) == 0)
            return fd;
    }
    close(fd);
    return -1;
}

int pty_open(int ends[2])
{
    int err;

    ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ends[0] < 0)
        return -1;
    ends[1] = open_writer(ends[0]);
    if (ends[1] >= 0)
        return 0;
    err = errno;
    close(ends[0]);
    errno = err;
    return -1;
}
