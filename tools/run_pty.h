/* A pseudo-terminal that bytes pass unchanged. */
#ifndef ZRO_TOOLS_RUN_PTY_H
#define ZRO_TOOLS_RUN_PTY_H

/* As pipe2 with O_CLOEXEC: what is written into ends[1], which programs take for a terminal, is read from ends[0].  0, or -1
 * with errno. */
int pty_open(int ends[2]);

#endif
