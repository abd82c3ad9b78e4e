/* zro: the zero redundancy optimizer in C.
 *
 * One header, in tiers: status | types | settings | links | groups | starting ranks | collective calls | submitted work |
 * group memory | statistics.
 *
 * Words.  A rank is one process or thread that takes part; a group is a set of ranks that talk to each other.  "Collective"
 * calls are made by every rank of the group, in the same order on all; "local" calls concern the calling rank alone and
 * never wait for another.
 *
 * Errors.  Every call that can fail returns a zro_status; zro_last_error() has the text.  A group is whole or broken: LOST,
 * TIMEOUT and MISMATCH of a collective call break it (and MEMORY, if a peer's array cannot be mapped), and from then on every call on it returns that verdict; it can only be
 * destroyed.  Other errors refuse the call and leave the group whole.
 *
 * Other languages.  Every function is an exported symbol.  There are no function-like macros, inline functions, bit-fields,
 * unions, varargs or structs by value here.  Configurations begin with their size and are filled by an initializer that
 * exists as a constant (ZRO_X_CONFIG_INIT) and as a function (zro_x_config_init). */
#ifndef ZRO_H
#define ZRO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ZRO_API __attribute__((visibility("default")))
#define ZRO_MUST __attribute__((visibility("default"), warn_unused_result))
#else
#define ZRO_API
#define ZRO_MUST
#endif

#define ZRO_VERSION "0.1.0"

/* ---- status ---- */

typedef enum zro_status {
    ZRO_OK = 0,
    ZRO_ERR_INVALID = 1,     /* an argument, a file or a variable has a value that is not allowed */
    ZRO_ERR_STATE = 2,       /* right call, wrong moment */
    ZRO_ERR_MEMORY = 3,      /* out of memory, or a limit would be exceeded */
    ZRO_ERR_SYSTEM = 4,      /* the operating system refused; the text has its reason */
    ZRO_ERR_FORMAT = 5,      /* bytes that are not what they should be */
    ZRO_ERR_UNSUPPORTED = 6, /* not possible here, in this build or for these types */
    ZRO_ERR_MISMATCH = 7,    /* ranks passed different things */
    ZRO_ERR_PEER = 8,        /* failed on another rank, whose text this is */
    ZRO_ERR_LOST = 9,        /* a rank is gone */
    ZRO_ERR_TIMEOUT = 10     /* a rank did not come before the deadline */
} zro_status;

/* The text of the calling thread's last failure, "" if there was none; valid until that thread's next failing call. */
ZRO_API const char *zro_last_error(void);

/* Sets that text, cut to 1023 bytes, and returns `status`: for functions that zro calls and whose failure it hands on
 * (zro_work_fn), and for libraries that stand on it. */
ZRO_API zro_status zro_error_set(zro_status status, const char *text);

/* "OK", "INVALID", ... and one sentence; for unknown numbers "UNKNOWN". */
ZRO_API const char *zro_status_name(zro_status status);
ZRO_API const char *zro_status_text(zro_status status);

/* The version of the library that is running, e.g. "0.1.0" (ZRO_VERSION is that of the header). */
ZRO_API const char *zro_version(void);

/* The sizes of the public structs as the library was built, for bindings that declare them again. */
typedef struct zro_abi_entry {
    const char *name; /* "zro_settings", ... */
    size_t bytes;
} zro_abi_entry;
ZRO_API const zro_abi_entry *zro_abi(size_t *count);

/* ---- types ---- */

typedef enum zro_dtype {
    ZRO_F32 = 0,
    ZRO_F64 = 1,
    ZRO_BF16 = 2,
    ZRO_F16 = 3,
    ZRO_I8 = 4,
    ZRO_U8 = 5,
    ZRO_I32 = 6,
    ZRO_I64 = 7
} zro_dtype;

/* Bytes of one element and the name ("f32", ...); 0 and NULL for what is no element type. */
ZRO_API size_t zro_dtype_bytes(zro_dtype dtype);
ZRO_API const char *zro_dtype_name(zro_dtype dtype);

/* Sums run in a fixed order of ranks, in f32 for f32 and the 16-bit types and in f64 for f64, so results are the same bits
 * on every backend.  Integer sums wrap; averages of integers are UNSUPPORTED; MIN and MAX propagate NaN. */
typedef enum zro_op { ZRO_SUM = 0, ZRO_AVG = 1, ZRO_MIN = 2, ZRO_MAX = 3 } zro_op;

/* ---- settings ---- */

typedef enum zro_kernels {
    ZRO_KERNELS_AUTO = 0, /* the best that the processor has */
    ZRO_KERNELS_BASE = 1,
    ZRO_KERNELS_AVX2 = 2,
    ZRO_KERNELS_AVX512 = 3
} zro_kernels;

typedef enum zro_switch { ZRO_OFF = 0, ZRO_ON = 1 } zro_switch;

typedef enum zro_log_level { ZRO_LOG_OFF = 0, ZRO_LOG_WARN = 1, ZRO_LOG_INFO = 2, ZRO_LOG_DEBUG = 3 } zro_log_level;

/* Receives one line without its newline.  Runs on the thread that had something to say, possibly one of the library's; it
 * must not call zro. */
typedef void (*zro_log_fn)(void *user, zro_log_level level, const char *text);

typedef struct zro_settings {
    uint32_t threads;        /* that a rank computes with, its own included, 1 to 256; changes no bits */
    zro_kernels kernels;     /* changes no bits */
    zro_switch fast;         /* OFF forbids reading peers' memory in place and merging passes; changes no bits */
    zro_log_level log_level; /* what the callback gets */
    zro_log_fn log;          /* NULL: nothing is said */
    void *log_user;
    uint64_t reserved[4]; /* zero */
} zro_settings;

/* clang-format off */
#define ZRO_SETTINGS_INIT { 1, ZRO_KERNELS_AUTO, ZRO_ON, ZRO_LOG_WARN, NULL, NULL, { 0, 0, 0, 0 } }
/* clang-format on */

/* ---- links ---- */

/* A program's own transport between ranks that share no memory; libzro_mpi is one.  It carries messages between ranks of the
 * first group on numbered channels: those of one sender, receiver and channel arrive in order, each whole, and each is taken by
 * the receive that was posted first; channels do not wait for each other, so a message may arrive long before its receive is
 * posted and must not hold up what comes behind it on another channel.
 *
 * None of the functions waits.  The library calls them one at a time, under a lock of its own, from any thread; they must not
 * call zro.  A request is the library's memory and stays where it is while it is OPEN, and so do its bytes; it comes zeroed,
 * that is OPEN.  Messages may have 0 bytes; nobody sends to itself.  A message longer than its receive is that one's failure.
 * What arrives for a receive that is never posted may be kept until close.  A request that failed makes its peer LOST. */
typedef enum zro_link_state { ZRO_LINK_OPEN = 0, ZRO_LINK_DONE = 1, ZRO_LINK_FAILED = 2 } zro_link_state;

typedef struct zro_link_request {
    zro_link_state
        state; /* set by the link, last: in send or recv, and later only in poll and cancel; with a release store if a
                             link serves several creates, and may poll for all of them */
    uint32_t reserved;
    size_t bytes;     /* a receive that is DONE: the length of the message */
    const char *text; /* FAILED: why, or NULL */
    void *own[2];     /* the link's, from send or recv until it is no more OPEN */
} zro_link_request;

typedef struct zro_link {
    size_t struct_size;    /* set by the initializer */
    void *self;            /* handed to every function */
    size_t message_bytes;  /* the longest message, 64 KiB to 4 MiB */
    uint64_t channels;     /* channel numbers are below this */
    zro_switch one_thread; /* ON: only the thread that creates the group may use it, so nothing can be submitted */

    /* Begins to send bytes to a rank.  held = ON: not DONE before the peer has posted the receive, lest a fast sender fill a
     * slow receiver's memory; a link that cannot know may be DONE earlier. */
    void (*send)(void *self, int peer, uint64_t channel, const void *data, size_t bytes, zro_switch held,
                 zro_link_request *request);

    /* Posts a receive of a message of at most `bytes`. */
    void (*recv)(void *self, int peer, uint64_t channel, void *data, size_t bytes, zro_link_request *request);

    /* Makes progress with everything that is open. */
    void (*poll)(void *self);

    /* Gives up an OPEN request, which becomes FAILED, or DONE if it just was.  It may stay OPEN if its bytes are still being used;
     * then they stay where they are for good.  The rest of a message that is half sent must still go, for those behind it. */
    void (*cancel)(void *self, zro_link_request *request);

    /* A number that this process has not given out before and no other rank of the first group ever gives out; 4 channels
     * from 4 times the number on are one group's. */
    uint64_t (*number)(void *self);

    /* The last group has gone; called once for each create that was given the link, whether it succeeded or not (a ticket that
     * is only dropped closes nothing).  What was sent should still arrive; requests that are OPEN are forgotten. */
    void (*close)(void *self);
} zro_link;

/* clang-format off */
#define ZRO_LINK_INIT { sizeof(zro_link), NULL, 262144, 0, ZRO_OFF, NULL, NULL, NULL, NULL, NULL, NULL }
/* clang-format on */

ZRO_API void zro_link_init(zro_link *link);

/* ---- groups ---- */

typedef struct zro_group zro_group;

#define ZRO_MACHINE_AUTO INT64_C(-1)

typedef struct zro_group_config {
    size_t struct_size; /* set by the initializer, read by the library */
    zro_settings settings;
    uint64_t timeout_ms;  /* how long a call waits for its peers, > 0 */
    const int32_t *cells; /* one number a rank, equal on all ranks: ranks of one number are added first; NULL: the machine */
    int64_t machine;      /* ranks of different machines share no memory; AUTO: computed */
    const zro_link *link; /* between ranks that share no memory; on all ranks or on none; the table is copied; not under MPI */
} zro_group_config;

/* clang-format off */
#define ZRO_GROUP_CONFIG_INIT { sizeof(zro_group_config), ZRO_SETTINGS_INIT, 600000, NULL, ZRO_MACHINE_AUTO, NULL }
/* clang-format on */

ZRO_API void zro_group_config_init(zro_group_config *config);

/* Makes the group that the environment describes: the ranks of `zro run`; those of an MPI launcher, in a program linked with
 * libzro_mpi (zro_mpi.h); or, started by hand or with ZRO_SIZE=1, a group of one.
 *
 * Collective.  Where `config` (NULL: all) has its default, these are read: ZRO_THREADS, ZRO_KERNELS (auto, base, avx2,
 * avx512), ZRO_FAST (on, off), ZRO_LOG (off, warn, info, debug; without a callback lines go to standard error), ZRO_CELLS
 * (numbers with commas), ZRO_MACHINE, ZRO_TIMEOUT_MS.  An empty variable is as good as none.
 *
 * INVALID      a variable is malformed; the text names it
 * UNSUPPORTED  started by an MPI launcher with more than one task, in a program that is not linked with libzro_mpi, or with that
 *              of another MPI */
ZRO_MUST zro_status zro_group_create_env(const zro_group_config *config, zro_group **out);

/* A group of any processes or threads, whoever started them, in two steps: each rank writes a ticket, the program brings the
 * tickets of all ranks to all ranks by any means, and each rank creates.  Ranks of one machine share memory; others need
 * config.link, the same in both steps.
 *
 * zro_group_ticket: local; it holds a file descriptor until the create, so each ticket must be used, once, in the process
 * that wrote it, or dropped there (dropping one that was used does nothing).  zro_group_create_tickets: collective; `tickets` are `size` of them in rank order.  On failure *out is NULL
 * on every rank that the others could reach.
 *
 * Several ranks may be threads of one process; then the process, not the thread, is what can be lost.  They share what the
 * first of them holds: drop none of their tickets while others use theirs.
 *
 * INVALID      not tickets, or not these ranks'
 * UNSUPPORTED  the ranks cannot share memory (other machines, users, or namespaces) and have no link; the same text on all ranks
 * MISMATCH     the ranks passed different sizes or cells */
#define ZRO_TICKET_BYTES 256
ZRO_MUST zro_status zro_group_ticket(const zro_group_config *config, int rank, int size, void *ticket);
ZRO_API void zro_group_ticket_drop(const void *ticket);
ZRO_MUST zro_status zro_group_create_tickets(const zro_group_config *config, int rank, int size, const void *tickets,
                                             zro_group **out);

/* The ranks `ranks[0..n)` of `parent`, renumbered in that order.  Settings, cells and machines are inherited.
 *
 * zro_group_create_sub: collective over `parent`; others than the members get NULL and OK.
 * zro_group_create_members: collective over the members alone. */
ZRO_MUST zro_status zro_group_create_sub(zro_group *parent, const int *ranks, int n, zro_group **out);
ZRO_MUST zro_status zro_group_create_members(zro_group *parent, const int *ranks, int n, zro_group **out);

/* A second group of the same ranks, with an order of calls and a fate of its own.  Collective. */
ZRO_MUST zro_status zro_group_duplicate(zro_group *group, zro_group **out);

/* Local; takes NULL; does not wait for peers; any thread may call it, but for a submitted function of this group, where it does
 * nothing.  Calls and submitted work that have not finished are cancelled, which breaks the group for the others (LOST).  Memory and sub-groups made from it live on. */
ZRO_API void zro_group_destroy(zro_group *group);

/* Local.  The label is the rank's number in the first group, from which this one was made. */
ZRO_API int zro_group_rank(const zro_group *group);
ZRO_API int zro_group_size(const zro_group *group);
ZRO_API int zro_group_label(const zro_group *group, int rank);

/* OK while the group is whole, otherwise the verdict that broke it, with its text.  Local. */
ZRO_MUST zro_status zro_group_status(const zro_group *group);

/* Whether any rank wants to stop: *any is 1 on all ranks if `mine` is not 0 on one.  Collective.  The library sets no signal
 * handlers; a program passes the flag that its own has set. */
ZRO_MUST zro_status zro_group_stop_requested(zro_group *group, int mine, int *any);

/* ---- starting ranks ---- */

/* What a rank does.  The group is the library's: it is made before and destroyed after.  Returns 0 or an exit code. */
typedef int (*zro_rank_fn)(void *user, zro_group *group);

/* Runs `fn` as `size` forked processes and waits for all of them; the caller is no rank.  A rank that fails does not end the
 * others, which hear of it from the group; one that never returns keeps the caller waiting.
 *
 * STATE  the process has more than one thread, or uses MPI
 * PEER   a rank returned or exited with a code that is not 0; the text names the first that was seen to do so
 * LOST   a rank was killed; the text names rank and signal */
ZRO_MUST zro_status zro_spawn(const zro_group_config *config, int size, zro_rank_fn fn, void *user);

/* The same with threads of this process.  A rank that ends by pthread_exit is lost. */
ZRO_MUST zro_status zro_spawn_threads(const zro_group_config *config, int size, zro_rank_fn fn, void *user);

/* ---- collective calls ---- */

/* Counts are elements, equal on all ranks unless they are arrays: those have one entry a rank and are equal on all ranks.
 * Arrays may lie in the caller's own memory or in group memory, differently on each rank; group memory is several times
 * faster.  `in` and `out` must not overlap unless stated. */

ZRO_MUST zro_status zro_barrier(zro_group *group);

/* data[i] = op over all ranks' data[i], on all ranks. */
ZRO_MUST zro_status zro_all_reduce(zro_group *group, void *data, size_t count, zro_dtype dtype, zro_op op);

/* The same from `in` to `out`; they may be equal. */
ZRO_MUST zro_status zro_all_reduce_into(zro_group *group, const void *in, void *out, size_t count, zro_dtype dtype, zro_op op);

/* root's out[i] = op over all ranks' in[i]; `out` is not looked at on others; at root they may be equal. */
ZRO_MUST zro_status zro_reduce(zro_group *group, const void *in, void *out, size_t count, zro_dtype dtype, zro_op op, int root);

/* Rank r gets the r-th piece of op over all ranks' `in`, which has counts[0] + counts[1] + ... elements; out may be the
 * place of the own piece in `in`.  The plain form has `count` elements for each rank. */
ZRO_MUST zro_status zro_reduce_scatter(zro_group *group, const void *in, void *out, size_t count, zro_dtype dtype, zro_op op);
ZRO_MUST zro_status zro_reduce_scatter_v(zro_group *group, const void *in, void *out, const size_t *counts, zro_dtype dtype,
                                         zro_op op);

/* root's data on all ranks. */
ZRO_MUST zro_status zro_broadcast(zro_group *group, void *data, size_t count, zro_dtype dtype, int root);

/* Bytes whose number only the root knows.  *out is new memory on every rank, to be freed with zro_bytes_free. */
ZRO_MUST zro_status zro_broadcast_bytes(zro_group *group, const void *in, size_t bytes, int root, void **out,
                                        size_t *out_bytes);
ZRO_API void zro_bytes_free(void *bytes);

/* All ranks' `in`, one after another, in root's `out` or in everybody's; `in` may be the place of the own piece in `out`. */
ZRO_MUST zro_status zro_gather(zro_group *group, const void *in, void *out, size_t count, zro_dtype dtype, int root);
ZRO_MUST zro_status zro_gather_v(zro_group *group, const void *in, void *out, const size_t *counts, zro_dtype dtype, int root);
ZRO_MUST zro_status zro_all_gather(zro_group *group, const void *in, void *out, size_t count, zro_dtype dtype);
ZRO_MUST zro_status zro_all_gather_v(zro_group *group, const void *in, void *out, const size_t *counts, zro_dtype dtype);

/* ---- submitted work ---- */

/* Issues `fn` as one thing in the group's order, to run on the group's own thread while the caller goes on.  Calls that it
 * makes on this group run at once, inside it; calls made elsewhere on the group come after it.
 *
 * Collective.  Calls on one group come from one thread at a time.
 *
 * UNSUPPORTED  the group's link works on one thread alone (MPI after plain MPI_Init) */
typedef struct zro_work zro_work;
typedef zro_status (*zro_work_fn)(void *user);
ZRO_MUST zro_status zro_submit(zro_group *group, zro_work_fn fn, void *user, zro_work **out);

/* Local.  wait returns what fn returned, with its text; called inside a submitted function for work of the same group that
 * has not finished it is STATE.  destroy frees the handle; the work itself goes on. */
ZRO_MUST zro_status zro_work_test(const zro_work *work, int *done);
ZRO_MUST zro_status zro_work_wait(zro_work *work);
ZRO_API void zro_work_destroy(zro_work *work);

/* ---- group memory ---- */

typedef enum zro_memory_kind {
    ZRO_MEMORY_EACH = 0, /* one array a rank */
    ZRO_MEMORY_ONCE = 1  /* one array for all ranks of a machine */
} zro_memory_kind;

/* Memory that ranks of one machine can reach: zeroed, populated, aligned to 64 bytes.  It lives until every rank has freed
 * it, also after its group; nothing of it is left when the ranks are gone, however they went.
 *
 * alloc: collective.  MEMORY (PEER on the others) if the machine or a control group could not hold it; nothing is taken then.
 * data: this rank's array.  peer: that of a rank of the group it was made from, NULL if it is on another machine.
 * free: local; takes NULL. */
typedef struct zro_memory zro_memory;
ZRO_MUST zro_status zro_memory_alloc(zro_group *group, zro_memory_kind kind, size_t bytes, zro_memory **out);
ZRO_API void *zro_memory_data(const zro_memory *memory);
ZRO_API void *zro_memory_peer(const zro_memory *memory, int rank);
ZRO_API void zro_memory_free(zro_memory *memory);

/* ---- statistics ---- */

typedef struct zro_stats {
    size_t struct_size;     /* set by the initializer; the library fills what fits */
    uint64_t operations;    /* collective operations begun, those inside other calls included */
    uint64_t direct_bytes;  /* of peers' memory read or written in place */
    uint64_t link_bytes;    /* sent to peers in messages: by link, headers included, or through rings in shared memory */
    uint64_t link_messages; /* their number */
    uint64_t waits;         /* that did not end at the first look */
    uint64_t sleeps;        /* of those waits, in the kernel */
    uint64_t wait_ns;       /* in sleeping waits */
    uint64_t heap_bytes;    /* of this rank now, by the library's allocator: all groups made from the first */
    uint64_t heap_peak_bytes;
    uint64_t shared_bytes;  /* group memory of this rank now, its share of what exists once included */
    uint64_t control_bytes; /* of the slots and links of this group, for all ranks */
} zro_stats;

/* clang-format off */
#define ZRO_STATS_INIT { sizeof(zro_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

ZRO_API void zro_stats_init(zro_stats *stats);
ZRO_MUST zro_status zro_group_stats(const zro_group *group, zro_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
