/* zt: tests with several ranks.
 *
 * A test file declares a table of cases, and list.c names the tables.  A case is one function that every rank runs; the
 * runner (runner.c) instantiates it for each of its backends and world sizes (`S17_adam.local.2`; without ranks
 * `S53_strangers.solo`) and runs each instance in a fresh process with a deadline, its output kept and shown on failure.  Under
 * MPI instances of one world size share processes, one after another, until one of them fails.
 *
 * A failed check prints where, which rank and zro_last_error(), and ends the process: the rank where ranks are processes, the
 * instance where they are threads.  So checks work in helpers and on any thread, and whoever waits for the failed rank is
 * told by the library itself.
 *
 * No test sleeps in order to synchronise: ranks meet over the page that they share with the supervisor. */
#ifndef ZT_H
#define ZT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "zro.h"

/* Whether this is a build with a sanitizer, which takes several times as long; and with the one of threads. */
#if defined(__SANITIZE_THREAD__)
#define ZT_SANITIZED 1
#define ZT_SEES_RACES 1
#elif defined(__SANITIZE_ADDRESS__)
#define ZT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define ZT_SANITIZED 1
#endif
#if __has_feature(thread_sanitizer)
#define ZT_SEES_RACES 1
#endif
#endif
#ifndef ZT_SANITIZED
#define ZT_SANITIZED 0
#endif
#ifndef ZT_SEES_RACES
#define ZT_SEES_RACES 0
#endif

enum { ZT_MAX_RANKS = 64, ZT_MAX_POINTS = 64 };

typedef struct zt_rank zt_rank;
typedef void (*zt_fn)(zt_rank *t);

/* Backends are bits of a case and rows of the runner's table. */
enum {
    ZT_LOCAL = 1,
    ZT_THREADS = 2,
    ZT_OPENMPI = 4,
    ZT_MPICH = 8,
    ZT_FOREIGN = 16, /* processes, each pretending a machine of its own, with a link that is not the library's */
    ZT_BOTH = ZT_LOCAL | ZT_THREADS,
    ZT_MPI = ZT_OPENMPI | ZT_MPICH,
    ZT_LINKS = ZT_MPI | ZT_FOREIGN,
    ZT_ALL = ZT_BOTH | ZT_LINKS
};

enum {
    ZT_BIG = 1,           /* only with --big, and then without the others */
    ZT_KILLS = 2,         /* ranks die: shares no launch with other cases */
    ZT_LEAVES = 4,        /* may leave processes behind, for the runner to end, or MPI in pieces */
    ZT_HOSTS = 8,         /* only with --hosts: needs what tests/products/hosts makes */
    ZT_TWO_MACHINES = 16, /* groups pretend two machines, ... */
    ZT_OWN_MACHINES = 32, /* ... or one for each rank (with a foreign link always), where the case does not say otherwise */
    ZT_LONG = 64,         /* a long product of modes: only with --long, which `make check-all` gives */
    ZT_REST = 128         /* never in the sample that `make check` runs */
};

/* Only a case that hangs comes to its deadline: most take a second, and twenty on a machine with twenty ready processes a core. */
enum { ZT_DEADLINE_S = 120 };

#define ZT_WORLD(n) (UINT64_C(1) << (n))

typedef struct zt_case {
    const char *name; /* NULL ends a table */
    zt_fn run;
    uint64_t worlds;   /* ZT_WORLD(n) | ...; 0: `solo`, one process without a group */
    unsigned backends; /* for solo cases: with which of them it is chosen */
    unsigned flags;
    unsigned deadline_s; /* 0: ZT_DEADLINE_S */
    uint64_t timeout_ms; /* of t->group; 0: three quarters of the deadline, so that its text is seen */
    long arg;            /* t->arg */
} zt_case;

/* A program of its own inside the test program, for ranks that are started by hand: `zro-tests --command NAME ...`. */
typedef struct zt_command {
    const char *name; /* NULL ends the table */
    int (*run)(int argc, char **argv);
} zt_command;

/* The cases of one file. */
typedef struct zt_table {
    const char *room; /* the folder in tests/; NULL ends the list */
    const zt_case *cases;
} zt_table;

extern const zt_table zt_tables[];
extern const zt_command zt_commands[];

/* What the command line says; constant once the first case runs. */
typedef struct zt_options {
    uint64_t seed;
    size_t max_count; /* elements; larger cases are cut to it */
    zro_kernels kernels;
    zro_switch fast;
    uint32_t threads;
    uint32_t faults; /* how many trials a case with random faults runs; 0: as many as the case says */
    int long_too, big, verbose;
    int hosts; /* the first half of the ranks is on one machine, the rest on another */
} zt_options;
extern zt_options zt_opt;

/* How groups lie on machines: pretended but for the last, --hosts. */
typedef enum zt_machines { ZT_ONE, ZT_TWO, ZT_OWN, ZT_HALVES } zt_machines;

/* One for an instance: all ranks, the supervisor and the runner see it.  Zero at the start. */
typedef struct zt_shared {
    /* the harness's */
    atomic_uint failed, met;
    /* bits of ranks: at the end of their function; expected to be killed before that; expected to end anyhow */
    atomic_ullong finished, lost, strays;
    char note[256], skip[256];
    unsigned char parcels[ZT_MAX_RANKS][ZRO_TICKET_BYTES];
    /* the case's */
    atomic_uint flag[ZT_MAX_RANKS];
    atomic_ullong number[256];
    char text[ZT_MAX_POINTS][64];
    /* zt_note_point's */
    atomic_ullong passings[ZT_MAX_POINTS];
} zt_shared;

struct zt_rank {
    int rank, size; /* 0 and 0 in solo cases */
    int backend;    /* one of the bits; 0 in solo cases */
    int threads;    /* ranks are threads of one process */
    zt_machines machines;
    zro_group *group; /* of all ranks, made and destroyed by the harness; NULL in solo cases */
    long arg;
    uint64_t seed;   /* equal on all ranks, differs between cases */
    uint64_t random; /* this rank's own numbers: zt_next(&t->random) */
    zt_shared *shared;
    void *user;
};

/* Checks. */
#define CHECK(condition) ((condition) ? (void)0 : zt_fail(__FILE__, __LINE__, "CHECK(%s)", #condition))
#define CHECK_OK(call) zt_check_status(__FILE__, __LINE__, #call, (call), ZRO_OK)
#define CHECK_STATUS(call, status) zt_check_status(__FILE__, __LINE__, #call, (call), (status))
#define CHECK_TEXT(part) zt_check_text(__FILE__, __LINE__, (part))
#define CHECK_HELD(before) zt_check_held(__FILE__, __LINE__, (before))

_Noreturn void zt_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
void zt_check_status(const char *file, int line, const char *call, zro_status got, zro_status expected);
void zt_check_text(const char *file, int line, const char *part); /* zro_last_error() contains it */

/* What a process holds; a check that it is back to `before` looks again for a while, as threads end a little after their
 * join. */
typedef struct zt_held {
    long descriptors, threads;
    size_t memory_bytes; /* mapped of memory objects */
} zt_held;
zt_held zt_held_now(void);
void zt_check_held(const char *file, int line, zt_held before);

/* Ends the instance as skipped; where several ranks call it, all do.  The reason is shown. */
_Noreturn void zt_skip(zt_rank *t, const char *reason);

/* A text shown beside the instance's name, also if it passed; one rank calls it. */
void zt_note(zt_rank *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says that `rank` will die: then it must, and zro_spawn's LOST is as it should be. */
void zt_expect_lost(zt_rank *t, int rank);

/* Says that `rank` may end in any way. */
void zt_expect_anything(zt_rank *t, int rank);

/* Dies as expected: SIGKILL, the end of the thread, or what the launcher forgives. */
_Noreturn void zt_die(zt_rank *t);

/* For ZRO__POINT_LIST, with the shared page as `user`: names of points into `text`, how often each was passed beside it. */
void zt_note_point(void *user, const char *name);

/* Numbers: splitmix64, and one below n. */
uint64_t zt_next(uint64_t *state);
uint64_t zt_below(uint64_t *state, uint64_t n);
uint64_t zt_mix(uint64_t a, uint64_t b);

/* Waits until *flag >= value; until all ranks of the instance are here; for all ranks' parcels of up to ZRO_TICKET_BYTES,
 * which `all` then has one after another.  Without the library, and bounded by the instance's deadline. */
void zt_await(zt_rank *t, const atomic_uint *flag, unsigned value);
void zt_meet(zt_rank *t);
void zt_exchange(zt_rank *t, const void *mine, size_t bytes, void *all);

/* Which machine a rank is on; what config.machine says so. */
int zt_machine(const zt_rank *t, zt_machines machines, int rank);
int64_t zt_config_machine(const zt_rank *t, zt_machines machines, int rank);

/* The configuration of the command line; a fresh group of all ranks with it, or with any, made as the backend makes groups. */
zro_group_config zt_config(void);
zro_group *zt_group(zt_rank *t, uint64_t timeout_ms);
zro_group *zt_group_with(zt_rank *t, const zro_group_config *config);

/* In solo cases: runs `fn` as ranks and checks that all came to its end, but those expected to be lost.  The shared page
 * keeps what it has; `user` is handed on. */
void zt_ranks(zt_rank *t, int backend, const zro_group_config *config, int size, zt_fn fn, void *user);

/* For runner.c: the body of an instance, in its own process.  Returns normally if it passed. */
void zt_run(const zt_case *c, int backend, int size, zt_shared *shared);

/* For mpi.c: what one rank does of an instance. */
void zt_run_rank(const zt_case *c, int backend, int rank, int size, zt_shared *shared);

#endif
