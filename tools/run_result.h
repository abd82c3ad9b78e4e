/* How a job ended: in words, and as an exit status. */
#ifndef ZRO_TOOLS_RUN_RESULT_H
#define ZRO_TOOLS_RUN_RESULT_H

#include <stddef.h>

typedef enum run_kind {
    RUN_OK,
    RUN_FAILED,    /* a rank failed */
    RUN_SIGNALLED, /* a signal told zro run to end the job */
    RUN_TIMEOUT,   /* the job took too long */
    RUN_ERROR      /* zro run could not do something: the text is zro_last_error() */
} run_kind;

typedef struct run_result {
    run_kind kind;
    int rank;       /* FAILED: the rank that failed first */
    int status;     /* FAILED: how that rank ended, as of waitpid */
    int signal;     /* SIGNALLED: the signal.  FAILED: not 0 if a signal told zro run to end the job meanwhile */
    int code;       /* ERROR: the exit status */
    double seconds; /* TIMEOUT: how long the job was allowed to take */
} run_result;

enum { EXIT_TIMEOUT = 124, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

void result_text(const run_result *r, char *text, size_t bytes);
int result_code(const run_result *r);

#endif
