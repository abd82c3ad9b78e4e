/* zro: the zero redundancy optimizer in C.
 *
 * One header, in tiers: status | types | settings | links | groups | starting ranks | collective calls | submitted work |
 * group memory | parameters | plan | data parallel | hooks | optimizer | state | schedules | save and resume | lbfgs |
 * trace | statistics | tables: rule.
 *
 * Words.  A rank is one process or thread that takes part; a group is a set of ranks that talk to each other.  "Collective"
 * calls are made by every rank of the group, in the same order on all; "local" calls concern the calling rank alone and
 * never wait for another.
 *
 * Errors.  Every call that can fail returns a zro_status; zro_last_error() has the text.  A group is whole or broken: LOST,
 * TIMEOUT and MISMATCH of different collective calls break it (and MEMORY, if a peer's array cannot be mapped), and from then
 * on every call on it returns that verdict; it can only be destroyed.  Other errors refuse the call and leave the group whole,
 * and so does a MISMATCH that was found by comparing arguments beforehand, as creates and steps do.
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

#define ZRO_VERSION "0.2.0"

/* ---- status ---- */

typedef enum zro_status {
    ZRO_OK = 0,
    ZRO_ERR_INVALID = 1,     /* an argument, a file or a variable has a value that is not allowed */
    ZRO_ERR_STATE = 2,       /* the call is right, but not at this moment */
    ZRO_ERR_MEMORY = 3,      /* out of memory, or a limit would be exceeded */
    ZRO_ERR_SYSTEM = 4,      /* the operating system refused; the text has its reason */
    ZRO_ERR_FORMAT = 5,      /* a file or a block of bytes does not have the format that it should have */
    ZRO_ERR_UNSUPPORTED = 6, /* not possible here, in this build or for these types */
    ZRO_ERR_MISMATCH = 7,    /* ranks passed different arguments, or made different calls */
    ZRO_ERR_PEER = 8,        /* the call failed on another rank; the text is that rank's */
    ZRO_ERR_LOST = 9,        /* a rank is gone */
    ZRO_ERR_TIMEOUT = 10     /* a rank did not come before the deadline */
} zro_status;

/* The text of the calling thread's last failure, "" if there was none; valid until that thread's next failing call. */
ZRO_API const char *zro_last_error(void);

/* Sets that text, cut to 1023 bytes, and returns `status`: for functions that zro calls and whose failure it hands on
 * (zro_work_fn), and for libraries that stand on it. */
ZRO_API zro_status zro_error_set(zro_status status, const char *text);

/* For small programs and examples: does nothing if the status is OK; otherwise writes the text to standard error and ends the
 * process with exit code 1. */
ZRO_API void zro_must(zro_status status);

/* "OK", "INVALID", ... and one sentence; for unknown numbers "UNKNOWN". */
ZRO_API const char *zro_status_name(zro_status status);
ZRO_API const char *zro_status_text(zro_status status);

/* The version of the library that is running, e.g. "0.2.0" (ZRO_VERSION is that of the header). */
ZRO_API const char *zro_version(void);

/* The sizes of the public structs as the library was built, for bindings that declare them again. */
typedef struct zro_abi_entry {
    const char *name; /* "zro_settings", ... */
    size_t bytes;
} zro_abi_entry;
ZRO_API const zro_abi_entry *zro_abi(size_t *count);

/* ---- types ---- */

typedef enum zro_dtype {
    ZRO_SAME = -1, /* the type of the parameter, where that is allowed */
    ZRO_F32 = 0,
    ZRO_F64 = 1,
    ZRO_BF16 = 2,
    ZRO_F16 = 3,
    ZRO_I8 = 4,
    ZRO_U8 = 5,
    ZRO_I32 = 6,
    ZRO_I64 = 7
} zro_dtype;

/* The bytes of one element, and the name of the type ("f32", ...); 0 and NULL for a number that is no element type. */
ZRO_API size_t zro_dtype_bytes(zro_dtype dtype);
ZRO_API const char *zro_dtype_name(zro_dtype dtype);

/* Converts an array among f32, f64, bf16 and f16; each element is rounded once, to nearest even.  The arrays must not overlap.
 *
 * INVALID      an array is NULL
 * UNSUPPORTED  one of the types is an integer */
ZRO_MUST zro_status zro_convert(void *to, zro_dtype to_type, const void *from, zro_dtype from_type, size_t count);

/* Sums run in a fixed order of ranks, in f32 for f32 and the 16-bit types and in f64 for f64, so results are the same bits
 * on every backend.  Integer sums wrap; averages of integers are UNSUPPORTED; MIN and MAX propagate NaN. */
typedef enum zro_op { ZRO_SUM = 0, ZRO_AVG = 1, ZRO_MIN = 2, ZRO_MAX = 3 } zro_op;

enum { ZRO_ALL = -1 }; /* all ranks, where a rank is asked for */

/* ---- settings ---- */

typedef enum zro_kernels {
    ZRO_KERNELS_AUTO = 0, /* the best that the processor has */
    ZRO_KERNELS_BASE = 1,
    ZRO_KERNELS_AVX2 = 2,
    ZRO_KERNELS_AVX512 = 3
} zro_kernels;

typedef enum zro_switch { ZRO_OFF = 0, ZRO_ON = 1 } zro_switch;

typedef enum zro_log_level { ZRO_LOG_OFF = 0, ZRO_LOG_WARN = 1, ZRO_LOG_INFO = 2, ZRO_LOG_DEBUG = 3 } zro_log_level;

/* Receives one line of the log, without its newline.  Runs on the thread that had something to say, possibly one of the
 * library's; it must not call zro. */
typedef void (*zro_log_fn)(void *user, zro_log_level level, const char *text);

typedef struct zro_settings {
    uint32_t threads;        /* how many threads each rank computes with, its own included: 1 to 256; changes no bits */
    zro_kernels kernels;     /* the instruction set to compute with; changes no bits */
    zro_switch fast;         /* OFF: peers' memory is not read in place, and passes are not merged; changes no bits */
    zro_log_level log_level; /* lines up to this level are said: by default warnings, each once */
    zro_log_fn log;          /* gets these lines; NULL: they go to standard error */
    void *log_user;          /* handed to `log` */
    uint64_t warn_ms;        /* a call that waits for a rank for so long says so; 0: it never does */
    uint64_t reserved[3];    /* zero */
} zro_settings;

/* clang-format off */
#define ZRO_SETTINGS_INIT { 1, ZRO_KERNELS_AUTO, ZRO_ON, ZRO_LOG_WARN, NULL, NULL, 10000, { 0, 0, 0 } }
/* clang-format on */

/* ---- links ---- */

/* A program's own transport between ranks that share no memory; libzro_mpi is one.  It carries messages between ranks of the
 * first group on numbered channels.  Messages of one sender, receiver and channel arrive in order, each whole, and each is
 * taken by the receive that was posted first.  Channels do not wait for each other: a message may arrive long before its
 * receive is posted, and must not hold up what comes behind it on another channel.
 *
 * None of the functions waits.  The library calls them one at a time, under a lock of its own, from any thread; they must not
 * call zro.  A request and its bytes are the library's memory and stay where they are while the request is OPEN.  A request
 * comes zeroed, that is, OPEN.  Messages may have 0 bytes; no rank sends to itself.  If a message is longer than its receive,
 * the receive fails.  What arrives for a receive that is never posted may be kept until close.  A request that failed makes its
 * peer LOST. */
typedef enum zro_link_state { ZRO_LINK_OPEN = 0, ZRO_LINK_DONE = 1, ZRO_LINK_FAILED = 2 } zro_link_state;

typedef struct zro_link_request {
    /* Set by the link after the other fields: in send or recv, and later only in poll and cancel.  A link that serves several
     * creates, and may poll for all of them, sets it with a release store. */
    zro_link_state state;
    uint32_t reserved;
    size_t bytes;     /* of a receive that is DONE: the length of the message */
    const char *text; /* of a request that FAILED: the reason, or NULL */
    void *own[2];     /* for the link's own use, from send or recv on until the request is no longer OPEN */
} zro_link_request;

typedef struct zro_link {
    size_t struct_size;    /* set by the initializer */
    void *self;            /* handed to every function below */
    size_t message_bytes;  /* the length of the longest message, 64 KiB to 4 MiB */
    uint64_t channels;     /* channel numbers are below this */
    zro_switch one_thread; /* ON: only the thread that creates a group may use it, so nothing can be submitted */

    /* Begins to send bytes to a rank.  With held = ON the request is not DONE before the peer has posted the receive, so that a
     * fast sender cannot fill a slow receiver's memory; a link that cannot know this may be DONE earlier. */
    void (*send)(void *self, int peer, uint64_t channel, const void *data, size_t bytes, zro_switch held,
                 zro_link_request *request);

    /* Posts a receive of a message of at most `bytes`. */
    void (*recv)(void *self, int peer, uint64_t channel, void *data, size_t bytes, zro_link_request *request);

    /* Makes progress with everything that is open. */
    void (*poll)(void *self);

    /* Gives up an OPEN request, which becomes FAILED, or DONE if it has just ended.  It may stay OPEN if its bytes are still
     * being used; then they stay where they are for good.  The rest of a message that is half sent must still be sent, so that
     * messages behind it can follow. */
    void (*cancel)(void *self, zro_link_request *request);

    /* Returns a number that this process has not given out before and that no other rank of the first group ever gives out.  A
     * group uses the 4 channels from 4 times its number on. */
    uint64_t (*number)(void *self);

    /* The last group is gone.  It is called once for each create that was given the link, whether it succeeded or not (a ticket
     * that is only dropped closes nothing).  What was sent should still arrive; requests that are OPEN are forgotten. */
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
    uint64_t timeout_ms; /* how long a call waits for its peers, > 0 */

    /* One number per rank, the same array on all ranks: values of ranks with equal numbers are added first.  NULL: ranks of one
     * machine are added first. */
    const int32_t *cells;
    int64_t machine; /* the machine's number: ranks with different numbers share no memory; AUTO: zro finds it out */

    /* Carries messages between ranks that share no memory; given on all ranks or on none; the table is copied.  Under MPI it
     * must be NULL, because MPI is the link. */
    const zro_link *link;
    const char *trace; /* the file that a trace is written to ("trace", below); NULL: there is none */
} zro_group_config;

/* clang-format off */
#define ZRO_GROUP_CONFIG_INIT { sizeof(zro_group_config), ZRO_SETTINGS_INIT, 600000, NULL, ZRO_MACHINE_AUTO, NULL, NULL }
/* clang-format on */

ZRO_API void zro_group_config_init(zro_group_config *config);

/* Makes the group that the environment describes: the ranks of `zro run`; those of an MPI launcher, in a program linked with
 * libzro_mpi (zro_mpi.h); or, started by hand or with ZRO_SIZE=1, a group of one.
 *
 * Collective.  A field of `config` that has its default (NULL: all fields have) is read from the environment: ZRO_THREADS,
 * ZRO_KERNELS (auto, base, avx2, avx512), ZRO_FAST (on, off), ZRO_LOG (off, warn, info, debug), ZRO_CELLS (numbers separated by commas), ZRO_MACHINE, ZRO_TIMEOUT_MS, ZRO_TRACE (a path).  An empty variable counts as not set.
 *
 * INVALID      a variable is malformed; the text names it
 * UNSUPPORTED  an MPI launcher has started more than one task of a program that is not linked with libzro_mpi, or that is
 *              linked with the libzro_mpi of another MPI */
ZRO_MUST zro_status zro_group_create_env(const zro_group_config *config, zro_group **out);

/* A group of any processes or threads, whoever started them.  Each rank writes a ticket, the program brings the tickets of all
 * ranks to all ranks by any means, and then each rank creates the group.  Ranks of one machine share memory; others need
 * config.link, the same in both calls.
 *
 * zro_group_ticket: local.  It holds a file descriptor until the create, so each ticket must be used, once, in the process
 * that wrote it, or dropped there (dropping a ticket that was used does nothing).
 * zro_group_create_tickets: collective.  `tickets` has `size` tickets in rank order.  On failure *out is NULL on every rank
 * that the others could reach.
 *
 * Several ranks may be threads of one process; then the process, not the thread, is what can be lost.  They share what the
 * first of them holds: drop none of their tickets while other threads use theirs.
 *
 * INVALID      these are not tickets, or not those of these ranks
 * UNSUPPORTED  the ranks cannot share memory (other machines, users, or namespaces) and have no link; the same text on all
 *              ranks
 * MISMATCH     the ranks passed different sizes or cells */
#define ZRO_TICKET_BYTES 256
ZRO_MUST zro_status zro_group_ticket(const zro_group_config *config, int rank, int size, void *ticket);
ZRO_API void zro_group_ticket_drop(const void *ticket);
ZRO_MUST zro_status zro_group_create_tickets(const zro_group_config *config, int rank, int size, const void *tickets,
                                             zro_group **out);

/* The ranks `ranks[0..n)` of `parent`, renumbered in that order.  Settings, cells and machines are inherited.
 *
 * zro_group_create_sub: collective over `parent`; ranks that are not members get NULL and OK.
 * zro_group_create_members: collective over the members alone. */
ZRO_MUST zro_status zro_group_create_sub(zro_group *parent, const int *ranks, int n, zro_group **out);
ZRO_MUST zro_status zro_group_create_members(zro_group *parent, const int *ranks, int n, zro_group **out);

/* A second group of the same ranks.  It has an order of calls of its own, and breaks by itself.  Collective. */
ZRO_MUST zro_status zro_group_duplicate(zro_group *group, zro_group **out);

/* Local; takes NULL; does not wait for peers.  Any thread may call it; called inside a submitted function of this group it does
 * nothing.  Calls and submitted work that have not finished are cancelled, which breaks the group for the others (LOST).
 * Memory and sub-groups made from it live on. */
ZRO_API void zro_group_destroy(zro_group *group);

/* Local.  The label is the rank's number in the first group, from which this one was made. */
ZRO_API int zro_group_rank(const zro_group *group);
ZRO_API int zro_group_size(const zro_group *group);
ZRO_API int zro_group_label(const zro_group *group, int rank);

/* OK while the group is whole, otherwise the verdict that broke it, with its text.  Local. */
ZRO_MUST zro_status zro_group_status(const zro_group *group);

/* Whether any rank wants to stop: *any is 1 on all ranks if `mine` is not 0 on one.  Collective.  The library sets no signal
 * handlers; a program passes the flag that its own handler has set. */
ZRO_MUST zro_status zro_group_stop_requested(zro_group *group, int mine, int *any);

/* ---- starting ranks ---- */

/* What a rank does.  The library makes the group before and destroys it afterwards.  Returns 0 or an exit code. */
typedef int (*zro_rank_fn)(void *user, zro_group *group);

/* Runs `fn` in `size` forked processes and waits for all of them; the caller is not a rank.  A rank that fails does not end the
 * others, which learn of it from the group; a rank that never returns keeps the caller waiting.
 *
 * STATE  the process has more than one thread, or uses MPI
 * PEER   a rank returned or exited with a code that is not 0; the text names the first that was seen to do so
 * LOST   a rank was killed; the text names rank and signal */
ZRO_MUST zro_status zro_spawn(const zro_group_config *config, int size, zro_rank_fn fn, void *user);

/* The same with threads of this process.  A rank that ends by pthread_exit is lost, and so is one whose function returns while it has
 * other groups or optimizers that are not destroyed. */
ZRO_MUST zro_status zro_spawn_threads(const zro_group_config *config, int size, zro_rank_fn fn, void *user);

/* ---- collective calls ---- */

/* Counts are in elements and equal on all ranks.  An array `counts` has one entry per rank, and is the same on all ranks.
 * Arrays may lie in the caller's own memory or in group memory, differently on each rank; group memory is several times
 * faster.  `in` and `out` must not overlap unless stated. */

ZRO_MUST zro_status zro_barrier(zro_group *group);

/* data[i] = op over all ranks' data[i], on all ranks. */
ZRO_MUST zro_status zro_all_reduce(zro_group *group, void *data, size_t count, zro_dtype dtype, zro_op op);

/* The same from `in` to `out`, which may be the same array. */
ZRO_MUST zro_status zro_all_reduce_into(zro_group *group, const void *in, void *out, size_t count, zro_dtype dtype, zro_op op);

/* root's out[i] = op over all ranks' in[i].  `out` is not used on other ranks; on root it may be the same array as `in`. */
ZRO_MUST zro_status zro_reduce(zro_group *group, const void *in, void *out, size_t count, zro_dtype dtype, zro_op op, int root);

/* Rank r gets the r-th piece of op over all ranks' `in`, which has counts[0] + counts[1] + ... elements.  `out` may be this
 * rank's own piece of `in`.  The form without counts has `count` elements for each rank. */
ZRO_MUST zro_status zro_reduce_scatter(zro_group *group, const void *in, void *out, size_t count, zro_dtype dtype, zro_op op);
ZRO_MUST zro_status zro_reduce_scatter_v(zro_group *group, const void *in, void *out, const size_t *counts, zro_dtype dtype,
                                         zro_op op);

/* root's data on all ranks. */
ZRO_MUST zro_status zro_broadcast(zro_group *group, void *data, size_t count, zro_dtype dtype, int root);

/* root's bytes on all ranks, where only root knows how many there are.  *out is new memory on every rank, to be freed with
 * zro_bytes_free. */
ZRO_MUST zro_status zro_broadcast_bytes(zro_group *group, const void *in, size_t bytes, int root, void **out,
                                        size_t *out_bytes);
ZRO_API void zro_bytes_free(void *bytes);

/* All ranks' `in`, one after another, in `out` of root (gather) or of all ranks (all_gather).  `in` may be this rank's own
 * piece of `out`. */
ZRO_MUST zro_status zro_gather(zro_group *group, const void *in, void *out, size_t count, zro_dtype dtype, int root);
ZRO_MUST zro_status zro_gather_v(zro_group *group, const void *in, void *out, const size_t *counts, zro_dtype dtype, int root);
ZRO_MUST zro_status zro_all_gather(zro_group *group, const void *in, void *out, size_t count, zro_dtype dtype);
ZRO_MUST zro_status zro_all_gather_v(zro_group *group, const void *in, void *out, const size_t *counts, zro_dtype dtype);

/* ---- submitted work ---- */

/* Submits `fn` as one operation in the group's order, to run on the group's own thread while the caller goes on.  Calls that it
 * makes on this group run at once, inside it; calls that are made elsewhere on the group come after it.
 *
 * Collective.  Calls on one group come from one thread at a time.
 *
 * UNSUPPORTED  the group's link works on one thread alone (MPI after plain MPI_Init) */
typedef struct zro_work zro_work;
typedef zro_status (*zro_work_fn)(void *user);
ZRO_MUST zro_status zro_submit(zro_group *group, zro_work_fn fn, void *user, zro_work **out);

/* Local.  test sets *done to 1 if the work has finished.  wait returns what fn returned, with its text; called inside a
 * submitted function for work of the same group that has not finished it is STATE.  destroy frees the handle; the work itself
 * goes on. */
ZRO_MUST zro_status zro_work_test(const zro_work *work, int *done);
ZRO_MUST zro_status zro_work_wait(zro_work *work);
ZRO_API void zro_work_destroy(zro_work *work);

/* ---- group memory ---- */

typedef enum zro_memory_kind {
    ZRO_MEMORY_EACH = 0, /* one array per rank */
    ZRO_MEMORY_ONCE = 1  /* one array per machine, for all its ranks */
} zro_memory_kind;

/* Memory that the ranks of one machine can reach: zeroed, populated, aligned to 64 bytes.  It lives until every rank has freed
 * it, even after its group was destroyed; nothing of it is left when the ranks are gone, however they ended.
 *
 * alloc: collective.  MEMORY (PEER on the others) if the machine or a control group could not hold it; then nothing is taken.
 * data: this rank's array.  peer: the array of another rank of the group; NULL if that rank is on another machine.
 * free: local; takes NULL. */
typedef struct zro_memory zro_memory;
ZRO_MUST zro_status zro_memory_alloc(zro_group *group, zro_memory_kind kind, size_t bytes, zro_memory **out);
ZRO_API void *zro_memory_data(const zro_memory *memory);
ZRO_API void *zro_memory_peer(const zro_memory *memory, int rank);
ZRO_API void zro_memory_free(zro_memory *memory);

/* ---- parameters ---- */

typedef enum zro_layout {
    ZRO_LAYOUT_DENSE = 0, /* one contiguous array; parameters with another layout are refused */
    ZRO_LAYOUT_STRIDED = 1,
    ZRO_LAYOUT_SPARSE = 2
} zro_layout;

enum { ZRO_MAX_DIMS = 8 };

/* A named array with a gradient beside it.  Fill it by the initializer.
 *
 * Parameters are the program's memory.  Handles that are made from them keep references to them until the handles are
 * destroyed; name, shape and types are copied and must not change.  Between steps the program may re-point data and grad, whose
 * addresses every step reads anew, and change grad_present and requires_grad.
 *
 * A step updates the parameters that have a gradient.  A gradient that is absent is not the same as one of zeros: a parameter
 * without a gradient is not updated, decayed or counted. */
typedef struct zro_param {
    void *data;                 /* the values; may be NULL if there are no elements */
    void *grad;                 /* the gradient, of the same shape */
    uint32_t grad_present;      /* 1: grad has a gradient; stays until zero_grad; zro accesses it atomically */
    uint32_t requires_grad;     /* 0: the parameter is frozen, as if it never had a gradient */
    zro_dtype dtype;            /* of data */
    zro_dtype grad_dtype;       /* of grad; ZRO_SAME: that of data */
    int32_t device;             /* a tag: parameters with different tags never travel together */
    zro_layout layout;          /* must be dense */
    uint32_t n_dims;            /* 0: a scalar, one element */
    uint32_t reserved32;        /* zero */
    const char *name;           /* NULL: its index is its name */
    size_t shape[ZRO_MAX_DIMS]; /* n_dims of them are used */
    void *memory;               /* set by zro: where zro_params_alloc put data and grad; NULL: they are the program's */
    uint64_t reserved[3];       /* zero */
} zro_param;

/* clang-format off */
#define ZRO_PARAM_INIT { NULL, NULL, 0, 1, ZRO_F32, ZRO_SAME, 0, ZRO_LAYOUT_DENSE, 1, 0, NULL, \
                         { 0, 0, 0, 0, 0, 0, 0, 0 }, NULL, { 0, 0, 0 } }
/* clang-format on */

ZRO_API void zro_param_init(zro_param *param);

/* Fills a parameter in one call: n_dims sizes are copied from `shape`, `name` is kept by reference.  A gradient that is not NULL
 * counts as present, as by zro_param_set_grad. */
ZRO_API void zro_param_make(zro_param *param, const char *name, zro_dtype dtype, void *data, void *grad, uint32_t n_dims,
                            const size_t *shape);

/* The number of its elements; SIZE_MAX if that is too large to be counted, or there are too many dimensions. */
ZRO_API size_t zro_param_count(const zro_param *param);

/* Says that `grad` is the gradient from now on; NULL: that the gradient is absent.  Local. */
ZRO_API void zro_param_set_grad(zro_param *param, void *grad);

/* Says after a backward that has computed all gradients that they are present: those that have memory.  Local. */
ZRO_API void zro_params_mark_grads(zro_param *params, size_t n);

/* Where zro_params_alloc puts arrays. */
typedef struct zro_alloc_config {
    size_t struct_size;
    zro_switch data, grads;    /* ON: it hands out the data, or the gradients */
    zro_memory_kind data_kind; /* ONCE: data exists once per machine; EACH: once per rank */
} zro_alloc_config;

/* clang-format off */
#define ZRO_ALLOC_CONFIG_INIT { sizeof(zro_alloc_config), ZRO_ON, ZRO_ON, ZRO_MEMORY_ONCE }
/* clang-format on */
ZRO_API void zro_alloc_config_init(zro_alloc_config *config);

/* Hands out data, and gradients (one array per rank), in group memory before the model is built: zeroed, each parameter aligned
 * to 64 bytes, in reverse order.  Parameters that exist once per machine are not delivered by a step, and take 1/N of the
 * memory; they are written by zro, or by one rank between two barriers (zro_param_publish).  The program must not move what was
 * handed out.
 *
 * alloc: collective.  free: local; data, grad and memory become NULL; handles that still use the memory keep it alive.
 *
 * INVALID   a parameter already has data (or a gradient), or has a shape or type that is not allowed
 * MISMATCH  the ranks passed different parameters
 * MEMORY    (PEER on the others) there is not enough memory; nothing has changed */
ZRO_MUST zro_status zro_params_alloc(zro_group *group, zro_param *params, size_t n, const zro_alloc_config *config);
ZRO_API void zro_params_free(zro_param *params, size_t n);

/* Reduces the gradients of all parameters in one call: with ZRO_AVG, they are the ranks' average afterwards, on all ranks.  A
 * gradient that some ranks do not have counts as zeros there, and they get the result, for which their `grad` must have memory; one
 * that no rank has stays absent.  The bits are those of one zro_all_reduce per parameter.  Collective.
 *
 * INVALID   grad is NULL on a rank, while some rank has that gradient
 * MISMATCH  the ranks passed different parameters */
ZRO_MUST zro_status zro_params_all_reduce(zro_group *group, zro_param *params, size_t n, zro_op op);

/* One number computed from the values of all parameters, in order, and from where each of them ends; all NaNs count as equal.
 * Two runs that print it after every step can be compared with diff.  Local. */
ZRO_MUST zro_status zro_params_hash(const zro_param *params, size_t n, uint64_t *hash);

/* ---- plan ---- */

/* A plan says which rank owns which elements, that is, keeps their state and updates them.  It is a pure function of sizes,
 * types, device tags, groups and the number of ranks, and can be made without a group of ranks. */
typedef enum zro_partition {
    ZRO_PARTITION_AUTO = 0, /* flat; greedy where whole parameters are needed */

    /* Each bucket is cut into even ranges, at blocks of 1024 elements of a parameter: shards differ by at most one block per
     * bucket. */
    ZRO_PARTITION_FLAT = 1,
    ZRO_PARTITION_GREEDY = 2,  /* as PyTorch: whole parameters, largest first, each to the rank with the fewest elements */
    ZRO_PARTITION_BUCKETS = 3, /* as PyTorch for overlap: bucket i to rank i modulo N, or cut (shard_buckets) */
    ZRO_PARTITION_GIVEN = 4    /* whole parameters, to the owners in zro_param_group */
} zro_partition;

/* Elements [first, first + count) of a parameter, and the rank that owns them.  A parameter without elements has one range,
 * too. */
typedef struct zro_range {
    size_t param;         /* the parameter's index, counted through the groups one after another */
    size_t first, count;  /* elements of the parameter */
    size_t group, bucket; /* in which the parameter is */
    int32_t owner;        /* a rank */
    uint32_t reserved32;
    uint64_t reserved[2];
} zro_range;

typedef struct zro_plan_config {
    size_t struct_size;
    zro_partition partition;
    zro_switch shard_buckets; /* of BUCKETS: a bucket is cut between parameters; its pieces go to the least loaded ranks */

    /* Of BUCKETS and FLAT: indices of parameters, bucket after bucket, each parameter once.  NULL: one bucket for each type and device
     * tag; an optimizer with overlap whose partition is flat takes the buckets of its ddp, as they were formed at creation. */
    const size_t *bucket_params;
    const size_t *bucket_lengths; /* how many of bucket_params are in each bucket */
    size_t n_buckets;             /* the number of bucket_lengths */
} zro_plan_config;

/* clang-format off */
#define ZRO_PLAN_CONFIG_INIT { sizeof(zro_plan_config), ZRO_PARTITION_AUTO, ZRO_OFF, NULL, NULL, 0 }
/* clang-format on */
ZRO_API void zro_plan_config_init(zro_plan_config *config);

typedef struct zro_plan zro_plan;
typedef struct zro_param_group zro_param_group;

/* create: makes the plan of an optimizer with these groups on that many ranks.  Name, shape, type and tag of the parameters are
 * copied.  add_group: adds a group, whose parameters form buckets of their own; earlier owners do not change.
 *
 * Local, like all functions of the plan.  On failure nothing has changed.
 *
 * INVALID  no ranks, no groups, or a group without parameters; owners that are missing, or that are not ranks; buckets in which
 *          a parameter is missing or occurs twice; the text names it */
ZRO_MUST zro_status zro_plan_create(const zro_param_group *groups, size_t n_groups, int ranks, const zro_plan_config *config,
                                    zro_plan **out);
ZRO_MUST zro_status zro_plan_add_group(zro_plan *plan, const zro_param_group *group);
ZRO_API void zro_plan_destroy(zro_plan *plan);

ZRO_API int zro_plan_ranks(const zro_plan *plan);
ZRO_API size_t zro_plan_params(const zro_plan *plan);
ZRO_API size_t zro_plan_buckets(const zro_plan *plan);
ZRO_API size_t zro_plan_elements(const zro_plan *plan, int rank); /* how many a rank owns; ZRO_ALL: how many there are */

/* Which rank owns an element of a parameter (element 0 of a parameter that has none). */
ZRO_MUST zro_status zro_plan_owner(const zro_plan *plan, size_t param, size_t element, int *owner);

/* The ranges of a rank in packing order: bucket after bucket (with greedy and given partitions group after group), and inside
 * these in the order of the partition.  ZRO_ALL: the ranges of all ranks, by parameter and first element.  The list belongs to
 * the plan and is valid until the plan changes. */
ZRO_MUST zro_status zro_plan_ranges(const zro_plan *plan, int rank, const zro_range **ranges, size_t *n);

/* The index of the first parameter with this name. */
ZRO_MUST zro_status zro_plan_find(const zro_plan *plan, const char *name, size_t *param);

/* What must travel from which rank to which if one plan follows another for the same parameters: the longest ranges that have
 * one owner in each plan, by parameter and first element.  Writes up to `room` of them (none if `out` is NULL); *n is how many
 * there are.
 *
 * INVALID  the plans are for different parameters */
typedef struct zro_move {
    size_t param, first, count; /* a parameter's index, and elements of it */
    int32_t from, to;           /* owners in the first and in the second plan */
    uint64_t reserved[2];
} zro_move;
ZRO_MUST zro_status zro_plan_intersect(const zro_plan *from, const zro_plan *to, zro_move *out, size_t room, size_t *n);

/* Forms buckets as PyTorch's DistributedDataParallel does: parameters are taken in the order of `order` (NULL: 0, 1, ...), each
 * into the open bucket of its gradient's type, its own type and its device tag; a bucket is closed when its gradients have reached
 * its limit.  limits[0] is the limit of the first bucket of each type and tag, limits[1] that of the second, ..., and the last
 * limit is that of all others.  Buckets that are still open at the end are closed then; all are listed by their first parameter
 * in that order.
 *
 * bucket_params gets the n indices bucket after bucket, bucket_lengths (with room for n) how many each bucket has; bucket_limits
 * (the same), if it is not NULL, the limit that applied to each bucket.  No array may overlap another.  Without parameters there
 * are no buckets.  Pure; local.  On failure *n_buckets is 0 and the arrays are as they were.
 *
 * INVALID  an array is NULL; there is no limit; an index in `order` is not below n, or is there twice; a parameter has too many
 *          elements or an unknown type; the text names it */
ZRO_MUST zro_status zro_buckets_form(const zro_param *params, const size_t *order, size_t n, const size_t *limits,
                                     size_t n_limits, size_t *bucket_params, size_t *bucket_lengths, size_t *bucket_limits,
                                     size_t *n_buckets);

/* ---- data parallel ---- */

/* Averages gradients over the ranks of a group.  A training step:
 *
 *     zro_ddp_forward(ddp);                an iteration begins
 *     ... forward and backward; zro_ddp_grad_ready(ddp, i) when the gradient of parameter i is final ...
 *     zro_ddp_backward_end(ddp);           all gradients are the average now, on all ranks
 *     zro_optim_step(opt, NULL);
 *
 * Gradients travel in buckets, each as soon as all its gradients are ready, on a thread of the library, while backward goes on.
 * From grad_ready until backward_end returns, or with an attached optimizer until its step returns, neither the gradient nor the
 * parameter may be touched.
 *
 * An optimizer that was created with config.ddp is attached: it consumes the gradients.  They are then averaged by their owners
 * alone: where all ranks are on one machine, in the step itself, in one pass over memory with the update (fastest in memory
 * that zro_params_alloc hands out, since owners then read the gradients of all ranks where they lie); elsewhere, with a hook, and
 * for a rule that needs whole parameters, as buckets become ready.  After backward_end `grad` is not the average then (zro_ddp_average makes it so), and the step clears grad_present.
 * All attached optimizers must step before the next forward.  Parameters of the ddp that no attached optimizer has are averaged
 * for all ranks, and their grad_present is the program's to clear.
 *
 * Presence: a gradient that some ranks do not have counts as zeros there; one that no rank has is absent: it is not updated,
 * decayed or counted.  After an average all ranks have the union.  Frozen parameters have none. */
typedef struct zro_ddp zro_ddp;
typedef struct zro_bucket zro_bucket;

/* What is done with a full bucket instead of averaging it: see "hooks". */
typedef zro_status (*zro_hook_fn)(void *user, zro_bucket *bucket);

typedef struct zro_ddp_config {
    size_t struct_size;
    size_t bucket_bytes;    /* a bucket is full at this size; 0: the first at 1 MiB, the others at 25 MiB */
    zro_switch find_unused; /* ON: parameters that are not ready at backward_end are unused; OFF: that is an error */
    zro_switch
        static_graph; /* ON: all iterations are like the first, in which parameters may be unused, or ready several times */
    zro_switch
        gradient_as_bucket_view;  /* ON: gradients move into group memory, one array per rank; destroy puts pointers back */
    zro_switch broadcast;         /* ON: create copies rank 0's values of parameters and buffers to all ranks */
    zro_switch broadcast_buffers; /* ON: every forward copies rank 0's buffers to all ranks, unless under no_sync */
    zro_switch weighted;          /* ON: the average is weighted by zro_ddp_set_weight */
    const zro_param *buffers;     /* of the model, such as running averages: data that is not trained; the list is copied */
    size_t n_buffers;
    zro_hook_fn hook; /* NULL: buckets are averaged */
    void *hook_user;  /* handed to the hook */

    /* Instead of bucket_bytes, which is 0 then: one limit per bucket, as in zro_buckets_form.  Copied. */
    const size_t *bucket_limits;
    size_t n_bucket_limits; /* 0: there are none */

    /* ON: grad_ready copies what other ranks own of a gradient in the program's own memory into group memory, where their steps read it.
     * Takes as much group memory per rank as the gradients.  Changes no result; has no effect with one rank, a hook or ranks of several
     * machines, on gradients that zro handed out, and on parameters that no attached optimizer consumes. */
    zro_switch stage_grads;
} zro_ddp_config;
/* clang-format off */
#define ZRO_DDP_CONFIG_INIT { sizeof(zro_ddp_config), 0, ZRO_OFF, ZRO_OFF, ZRO_OFF, ZRO_ON, ZRO_ON, ZRO_OFF, NULL, 0, NULL, NULL, NULL, 0, ZRO_OFF }
/* clang-format on */
ZRO_API void zro_ddp_config_init(zro_ddp_config *config);

/* `params` are kept by reference until destroy.  A parameter's index is its index there.
 *
 * create: collective; it clears grad_present of all parameters.  destroy: local; does not wait for peers; in the middle of an iteration
 * it cancels this rank's part, and the other ranks' calls on this ddp fail (LOST).
 *
 * INVALID   no parameters, or one that is NULL, occurs twice or is not dense; the text names it
 * MISMATCH  the ranks passed other parameters (name, shape, type, tag), buffers or settings; the text names the first of them */
ZRO_MUST zro_status zro_ddp_create(zro_group *group, zro_param *params, size_t n, const zro_ddp_config *config, zro_ddp **out);
ZRO_API void zro_ddp_destroy(zro_ddp *ddp);

/* Begins an iteration.  Collective, unless under no_sync.
 *
 * STATE  the iteration before has not ended; or its gradients were neither consumed by a step of all attached optimizers, nor
 *        averaged by zro_ddp_average, nor dropped by zero_grad */
ZRO_MUST zro_status zro_ddp_forward(zro_ddp *ddp);

/* grad_ready: says that the gradient of parameter i is final in this iteration, and present.  grads_ready: the same of n parameters.
 * Any thread may call these, also several threads at a time.  Local: they never wait for a peer.
 *
 * INVALID  there is no such parameter
 * STATE    there is no iteration; the parameter was ready already (with static_graph: more often than in the first iteration); it
 *          is frozen, or was at forward; the text names it */
ZRO_MUST zro_status zro_ddp_grad_ready(zro_ddp *ddp, size_t i);
ZRO_MUST zro_status zro_ddp_grads_ready(zro_ddp *ddp, const size_t *index, size_t n);

/* Says before backward_end that this iteration does not use parameter i on this rank; a gradient that it has from an earlier
 * micro-batch counts all the same.  Needs find_unused, and no static_graph, which knows by itself.  Any thread; local. */
ZRO_MUST zro_status zro_ddp_unused(zro_ddp *ddp, size_t i);

/* Ends an iteration: waits until all buckets are done.  Collective, unless under no_sync.
 *
 * STATE  a parameter never became ready (PEER on other ranks, at the latest in their step); the text names parameter and rank */
ZRO_MUST zro_status zro_ddp_backward_end(zro_ddp *ddp);

/* A whole iteration, forward to backward_end, in which this rank has no gradients, whatever find_unused says: for a program whose ranks
 * follow each other by a protocol of their own instead of a join.  All ranks' gradients are averaged as always, and their number
 * stays the divisor.  Collective.
 *
 * STATE  as of forward; with static_graph this would be the first iteration, from which nothing can be learned here (PEER on the others) */
ZRO_MUST zro_status zro_ddp_shadow(zro_ddp *ddp);

/* ON: from the next forward on iterations are micro-batches whose gradients add up on each rank and do not travel, until it is OFF
 * again.  Local; the same on all ranks. */
ZRO_MUST zro_status zro_ddp_no_sync(zro_ddp *ddp, zro_switch on);

/* This rank's weight in averages from the next forward on, such as its number of samples: 0, or from 1e-30 to 1e30; 1 at first.  Hooks
 * see gradients without weights.  Local; needs `weighted`. */
ZRO_MUST zro_status zro_ddp_set_weight(zro_ddp *ddp, double weight);

/* Makes the gradients that attached optimizers consume the average on all ranks, as the others are after backward_end; the steps go
 * on from there.  Called between backward_end and the step.  Collective.
 *
 * STATE  there is no iteration that has ended; it failed, or was under no_sync */
ZRO_MUST zro_status zro_ddp_average(zro_ddp *ddp);

/* Whether all ranks have the same parameters and buffers, bit for bit.  Collective.
 *
 * MISMATCH  they differ; the text names the first parameter that does, and a rank whose values are not rank 0's */
ZRO_MUST zro_status zro_ddp_check(zro_ddp *ddp);

/* Sets another hook, which counts from the next forward on; NULL: buckets are averaged.  Collective. */
ZRO_MUST zro_status zro_ddp_set_hook(zro_ddp *ddp, zro_hook_fn hook, void *user);

/* The buckets as they are now, as in zro_buckets_form; both arrays belong to the ddp and are valid until its next forward.
 * Buckets are formed anew at the second forward that syncs, in the order in which rank 0's gradients became ready; with find_unused
 * only if the graph is static.  Local. */
ZRO_MUST zro_status zro_ddp_buckets(const zro_ddp *ddp, const size_t **bucket_params, const size_t **bucket_lengths,
                                    size_t *n_buckets);

/* Which of n samples a rank trains on: those of PyTorch's DistributedSampler.  The samples stand in an order, 0, 1, 2, ... or shuffled, and
 * are dealt out to the ranks in turn.  Every rank gets the same number, zro_sample_count: if n is not divisible by the number of
 * ranks, the order begins again, or with drop_last its end is left out.
 *
 * zro_sample_indices writes those of a rank from its first-th on, `count` of them, so that a program may ask batch by batch, and go
 * on after a resume.  A shuffled order depends on n, seed and epoch alone, so all ranks have the same one; it is a permutation of
 * zro's own, not PyTorch's.  Pure: without a group, without memory, on any thread.
 *
 * INVALID  rank or size is out of range; there are not so many samples; out is NULL */
typedef struct zro_sample_config {
    size_t struct_size;
    zro_switch drop_last;
    zro_switch shuffle;
    uint64_t seed, epoch; /* with shuffle: a program sets another epoch for each pass over the samples */
} zro_sample_config;
/* clang-format off */
#define ZRO_SAMPLE_CONFIG_INIT { sizeof(zro_sample_config), ZRO_OFF, ZRO_OFF, 0, 0 }
/* clang-format on */
ZRO_API void zro_sample_config_init(zro_sample_config *config);
ZRO_API size_t zro_sample_count(size_t n, int size, zro_switch drop_last);
ZRO_MUST zro_status zro_sample_indices(size_t n, int rank, int size, const zro_sample_config *config, size_t first,
                                       size_t count, size_t *out);

/* ---- hooks ---- */

/* A hook gets one bucket after another, in the same order on all ranks, on the library's thread.  It may make collective calls on
 * zro_bucket_group, must leave its result, the same on all ranks, in the buffer, and must not call the ddp or an optimizer.  If it
 * fails on one rank, the iteration fails on all; but a rank that fails before a collective call of the hook leaves the others in
 * that call, and the ddp breaks (MISMATCH).  The rank whose hook fails gets its status and text, and the others a text that has them.
 *
 * index, is_last: the bucket's number, and whether it is the last one of the iteration.
 * buffer: all gradients of the bucket one after another; *count elements of *dtype.  These are the gradients themselves where they
 *   lie next to each other, and a copy otherwise.  A gradient that this rank does not have is zeros.
 * params: how many parameters it has; param: the index of the i-th, SIZE_MAX if there is none; grad: where that one's gradient is
 *   in the buffer, and its *count elements.
 * set_buffer: `data`, as many elements of `dtype`, is the buffer from now on.  It is read when the hook has returned, and must
 *   stay until the hook is called again or backward_end returns; elements of another floating-point type are converted.
 * group: all ranks, for collective calls of the hook.
 * divisor: by what an average divides: the number of ranks or, if a join says so, of those that have inputs.
 *
 * `count` and `dtype` may be NULL.  All are local. */
ZRO_API size_t zro_bucket_index(const zro_bucket *bucket);
ZRO_API int zro_bucket_is_last(const zro_bucket *bucket);
ZRO_API void *zro_bucket_buffer(const zro_bucket *bucket, size_t *count, zro_dtype *dtype);
ZRO_API size_t zro_bucket_params(const zro_bucket *bucket);
ZRO_API size_t zro_bucket_param(const zro_bucket *bucket, size_t i);
ZRO_API void *zro_bucket_grad(const zro_bucket *bucket, size_t i, size_t *count);
ZRO_API void zro_bucket_set_buffer(zro_bucket *bucket, void *data, zro_dtype dtype);
ZRO_API zro_group *zro_bucket_group(const zro_bucket *bucket);
ZRO_API double zro_bucket_divisor(const zro_bucket *bucket);

/* all_reduce: averages the buffer, as without a hook (which is faster); not weighted.  none: leaves each rank its own gradients.
 * bf16, f16: the same as all_reduce with values rounded to that type before they travel, and the result again.
 * bf16_wrap, f16_wrap: round the buffer, let another hook work on it, and widen what it leaves; `user` is that hook, a
 * zro_hook_inner.
 *
 * The other hooks ignore `user`.  All leave their result in the buffer and in the type that they were given.
 *
 * INVALID      the inner hook is NULL
 * UNSUPPORTED  the gradients are integers (not by none) */
typedef struct zro_hook_inner {
    zro_hook_fn hook; /* called with the rounded buffer */
    void *user;       /* handed to it */
} zro_hook_inner;
ZRO_MUST zro_status zro_hook_all_reduce(void *user, zro_bucket *bucket);
ZRO_MUST zro_status zro_hook_none(void *user, zro_bucket *bucket);
ZRO_MUST zro_status zro_hook_bf16(void *user, zro_bucket *bucket);
ZRO_MUST zro_status zro_hook_f16(void *user, zro_bucket *bucket);
ZRO_MUST zro_status zro_hook_bf16_wrap(void *user, zro_bucket *bucket);
ZRO_MUST zro_status zro_hook_f16_wrap(void *user, zro_bucket *bucket);

/* ---- join ---- */

/* Training on inputs of which ranks have different numbers, which nobody knows beforehand:
 *
 *     zro_ddp_joinable(ddp, &joinable);
 *     zro_join_create(ranks, &joinable, 1, NULL, &join);
 *     while (there is another input) { ... forward, backward, step, as without a join ... }
 *     zro_join_run(join);                  until all ranks have run out
 *
 * A rank that has run out of inputs shadows the others: it has no gradients, and takes part in everything that they do, among it the
 * update of what it owns.  So training with a sharded optimizer gives the same bits as with one that is not sharded.
 *
 * Under a join each collective call on a listed handle begins with a small exchange, in which ranks say what they are about to do, or
 * that they have run out.  All ranks that have inputs make the same calls in the same order.  A rank that has run out follows them
 * in zro_ddp_forward and backward, under no_sync or not, zro_ddp_average, zro_optim_step, step_local, publish, clip_grad_norm,
 * clip_grad_value, which is collective under a join, and grad_norm; it takes the groups' values, the loss scale and requires_grad from the lowest rank that has inputs, and its rules get
 * the pointer of zro_optim_set_user.  Other collective calls on these handles are STATE while some ranks have run out.
 * Between zro_ddp_forward and zro_ddp_backward_end no other call under the join can be made (STATE).
 *
 * Averages are divided by the number of all ranks, or of those that have inputs (divide_by); weighted averages by the sum of the
 * weights, of which a rank without inputs has none.  Buffers come from the highest rank that has inputs.  When all ranks have run
 * out, all get parameters, buffers, group values, loss scale and the positions of schedules of the highest rank among those that ran
 * out last.
 *
 * A handle is part of the join until that is destroyed.  After zro_join_run all ranks may begin again, for example with the next
 * epoch. */
typedef struct zro_join zro_join;

typedef enum zro_divide_by { ZRO_INITIAL_RANKS = 0, ZRO_REMAINING_RANKS = 1 } zro_divide_by;

/* What a joinable of the program's own learns. */
typedef struct zro_join_info {
    size_t struct_size;
    uint64_t iterations;     /* begun by the first joinable since create, or since run */
    int32_t ranks;           /* how many there are */
    int32_t n_active;        /* how many of them still have inputs */
    int32_t lowest, highest; /* of those; when all have run out: of those that ran out last */
    int32_t is_active;       /* 1: this rank is, or in the end was, one of them */
    zro_divide_by divide_by; /* as in the configuration */
    void *settings;          /* as in the configuration */
} zro_join_info;
/* clang-format off */
#define ZRO_JOIN_INFO_INIT { sizeof(zro_join_info), 0, 0, 0, 0, 0, 0, ZRO_INITIAL_RANKS, NULL }
/* clang-format on */
ZRO_API void zro_join_info_init(zro_join_info *info);

/* Of a rank that has run out: does what the others do after zro_join_notify, for example the same collective calls with zeros. */
typedef zro_status (*zro_shadow_fn)(void *user, const zro_join_info *info);

/* On all ranks, when all have run out; is_last: this rank was among the last. */
typedef zro_status (*zro_post_fn)(void *user, const zro_join_info *info, int is_last);

/* Something that ranks do together in each iteration: a ddp with the optimizers that are attached to it (zro_ddp_joinable), another
 * optimizer (zro_optim_joinable), or something of the program's own, which sets `shadow`, and calls zro_join_notify before its
 * collective calls.  `post` may be set of all of them.  The functions run inside of zro_join_run, on the same thread. */
typedef struct zro_joinable {
    zro_shadow_fn shadow; /* of the program's own */
    zro_post_fn post;     /* or NULL */
    void *user;           /* handed to both; of the library's own set by the functions below, and handed to post */
    const void *joiner;   /* the library's */
    uint64_t reserved[4];
} zro_joinable;
/* clang-format off */
#define ZRO_JOINABLE_INIT { NULL, NULL, NULL, NULL, { 0, 0, 0, 0 } }
/* clang-format on */
ZRO_API void zro_joinable_init(zro_joinable *joinable);

/* Fill a joinable.  An optimizer that is attached to a ddp is part of that, and need not be listed; one that is not sharded may be: then
 * ranks that have run out step it, too, and its state is the same on all ranks.  Local. */
ZRO_MUST zro_status zro_ddp_joinable(zro_ddp *ddp, zro_joinable *out);

typedef struct zro_join_config {
    size_t struct_size;
    zro_switch enable; /* OFF: nothing is exchanged, and run does nothing: for inputs that are known to be even */
    zro_switch throw_on_early_termination; /* ON: when the first ranks run out, the calls of all fail (STATE) */
    zro_divide_by divide_by;
    void *settings; /* the program's, for its own joinables */
} zro_join_config;
/* clang-format off */
#define ZRO_JOIN_CONFIG_INIT { sizeof(zro_join_config), ZRO_ON, ZRO_OFF, ZRO_INITIAL_RANKS, NULL }
/* clang-format on */
ZRO_API void zro_join_config_init(zro_join_config *config);

/* create: joinables are copied; the join works on a duplicate of the group; handles must not be destroyed before the join's last call,
 * but for attached optimizers, which all ranks may destroy alike.  Collective.
 *
 * destroy: local.  A rank that leaves its loop because of an error, and does not call run, calls this: the other ranks' calls under the
 * join then fail (LOST), instead of waiting for it.  If it was in the middle of an iteration, its ddp is broken, too.  A function that
 * zro_join_run has called may call it, too: then the join is destroyed before zro_join_run returns, which is STATE unless all ranks
 * had run out.
 *
 * INVALID   there are no joinables; one has other ranks than the group, or no function that shadows; an attached optimizer is listed
 *           without its ddp
 * STATE     a handle is in another join
 * MISMATCH  the ranks passed other joinables or settings; the text says which */
ZRO_MUST zro_status zro_join_create(zro_group *group, const zro_joinable *joinables, size_t n, const zro_join_config *config,
                                    zro_join **out);
ZRO_API void zro_join_destroy(zro_join *join);

/* Says that this rank has inputs and will make the collective calls of joinables[joinable], which is the program's own.  Collective. */
ZRO_MUST zro_status zro_join_notify(zro_join *join, size_t joinable);

/* This rank has no inputs left: follows the others until they have none, and then brings all ranks to the same end.  A rank that has
 * shadowed more than 1000 iterations warns once.  If it fails and no rank was lost, it may be called again.  Collective.
 *
 * STATE     throw_on_early_termination: some ranks have inputs left; this rank is in the middle of an iteration, or has destroyed one
 *           of the handles, and nothing was done; it is in zro_join_run already, or a function that this has called destroyed the join
 * MISMATCH  ranks that have inputs make different calls; only some ranks have destroyed an attached optimizer; the text has both
 * LOST      a rank died, or left early */
ZRO_MUST zro_status zro_join_run(zro_join *join);

/* Local. */
ZRO_MUST zro_status zro_join_get_info(const zro_join *join, zro_join_info *info);

/* ---- optimizer ---- */

/* An update rule: how gradients change parameters and state.  The library's rules are found by name or by function; a program
 * may pass a table of its own ("tables: rule" below).
 *
 * find: by the name in the library ("sgd", "adam", ...) or in PyTorch ("SGD", ...).  It returns NULL if there is no such rule,
 * and zro_optim_create refuses NULL.  none: no rule; the program updates what it owns itself. */
typedef struct zro_rule zro_rule;
ZRO_API const zro_rule *zro_rule_find(const char *name);
ZRO_API const zro_rule *zro_rule_none(void);
ZRO_API const zro_rule *zro_rule_sgd(void);
ZRO_API const zro_rule *zro_rule_adam(void);
ZRO_API const zro_rule *zro_rule_adamw(void);
ZRO_API const zro_rule *zro_rule_adagrad(void);
ZRO_API const zro_rule *zro_rule_adadelta(void);
ZRO_API const zro_rule *zro_rule_adamax(void);
ZRO_API const zro_rule *zro_rule_rmsprop(void);
ZRO_API const zro_rule *zro_rule_rprop(void);
ZRO_API const zro_rule *zro_rule_asgd(void);
ZRO_API const zro_rule *zro_rule_nadam(void);
ZRO_API const zro_rule *zro_rule_radam(void);

/* The values of each rule as a struct.  Names, defaults and meanings are PyTorch's; its betas are beta1 and beta2 here, its
 * etas eta_minus and eta_plus, its step_sizes step_min and step_max.  `maximize` goes up the gradient. */
typedef struct zro_sgd_config {
    size_t struct_size; /* set by the initializer, here and below */
    const char *rule;   /* set by the initializer: the rule that these values are for */
    double lr, momentum, dampening, weight_decay;
    zro_switch nesterov, maximize; /* nesterov needs momentum > 0 and dampening 0 */
} zro_sgd_config;
/* clang-format off */
#define ZRO_SGD_CONFIG_INIT { sizeof(zro_sgd_config), "sgd", 1e-3, 0, 0, 0, ZRO_OFF, ZRO_OFF }
/* clang-format on */

typedef struct zro_adam_config {
    size_t struct_size;
    const char *rule;
    double lr, beta1, beta2, eps, weight_decay;
    zro_switch amsgrad, decoupled_weight_decay, maximize;
} zro_adam_config;
/* clang-format off */
#define ZRO_ADAM_CONFIG_INIT { sizeof(zro_adam_config), "adam", 1e-3, 0.9, 0.999, 1e-8, 0, ZRO_OFF, ZRO_OFF, ZRO_OFF }
/* clang-format on */

typedef struct zro_adamw_config {
    size_t struct_size;
    const char *rule;
    double lr, beta1, beta2, eps, weight_decay;
    zro_switch amsgrad, maximize;
} zro_adamw_config;
/* clang-format off */
#define ZRO_ADAMW_CONFIG_INIT { sizeof(zro_adamw_config), "adamw", 1e-3, 0.9, 0.999, 1e-8, 1e-2, ZRO_OFF, ZRO_OFF }
/* clang-format on */

typedef struct zro_adagrad_config {
    size_t struct_size;
    const char *rule;
    double lr, lr_decay, weight_decay, initial_accumulator_value, eps;
    zro_switch maximize;
} zro_adagrad_config;
/* clang-format off */
#define ZRO_ADAGRAD_CONFIG_INIT { sizeof(zro_adagrad_config), "adagrad", 1e-2, 0, 0, 0, 1e-10, ZRO_OFF }
/* clang-format on */

typedef struct zro_adadelta_config {
    size_t struct_size;
    const char *rule;
    double lr, rho, eps, weight_decay;
    zro_switch maximize;
} zro_adadelta_config;
/* clang-format off */
#define ZRO_ADADELTA_CONFIG_INIT { sizeof(zro_adadelta_config), "adadelta", 1, 0.9, 1e-6, 0, ZRO_OFF }
/* clang-format on */

typedef struct zro_adamax_config {
    size_t struct_size;
    const char *rule;
    double lr, beta1, beta2, eps, weight_decay;
    zro_switch maximize;
} zro_adamax_config;
/* clang-format off */
#define ZRO_ADAMAX_CONFIG_INIT { sizeof(zro_adamax_config), "adamax", 2e-3, 0.9, 0.999, 1e-8, 0, ZRO_OFF }
/* clang-format on */

typedef struct zro_rmsprop_config {
    size_t struct_size;
    const char *rule;
    double lr, alpha, eps, weight_decay, momentum;
    zro_switch centered, maximize;
} zro_rmsprop_config;
/* clang-format off */
#define ZRO_RMSPROP_CONFIG_INIT { sizeof(zro_rmsprop_config), "rmsprop", 1e-2, 0.99, 1e-8, 0, 0, ZRO_OFF, ZRO_OFF }
/* clang-format on */

typedef struct zro_rprop_config {
    size_t struct_size;
    const char *rule;
    double lr, eta_minus, eta_plus, step_min, step_max; /* lr is the first step of every element */
    zro_switch maximize;
} zro_rprop_config;
/* clang-format off */
#define ZRO_RPROP_CONFIG_INIT { sizeof(zro_rprop_config), "rprop", 1e-2, 0.5, 1.2, 1e-6, 50, ZRO_OFF }
/* clang-format on */

typedef struct zro_asgd_config {
    size_t struct_size;
    const char *rule;
    double lr, lambd, alpha, t0, weight_decay;
    zro_switch maximize;
} zro_asgd_config;
/* clang-format off */
#define ZRO_ASGD_CONFIG_INIT { sizeof(zro_asgd_config), "asgd", 1e-2, 1e-4, 0.75, 1e6, 0, ZRO_OFF }
/* clang-format on */

typedef struct zro_nadam_config {
    size_t struct_size;
    const char *rule;
    double lr, beta1, beta2, eps, weight_decay, momentum_decay;
    zro_switch decoupled_weight_decay, maximize;
} zro_nadam_config;
/* clang-format off */
#define ZRO_NADAM_CONFIG_INIT { sizeof(zro_nadam_config), "nadam", 2e-3, 0.9, 0.999, 1e-8, 0, 4e-3, ZRO_OFF, ZRO_OFF }
/* clang-format on */

typedef struct zro_radam_config {
    size_t struct_size;
    const char *rule;
    double lr, beta1, beta2, eps, weight_decay;
    zro_switch decoupled_weight_decay, maximize;
} zro_radam_config;
/* clang-format off */
#define ZRO_RADAM_CONFIG_INIT { sizeof(zro_radam_config), "radam", 1e-3, 0.9, 0.999, 1e-8, 0, ZRO_OFF, ZRO_OFF }
/* clang-format on */

ZRO_API void zro_sgd_config_init(zro_sgd_config *config);
ZRO_API void zro_adam_config_init(zro_adam_config *config);
ZRO_API void zro_adamw_config_init(zro_adamw_config *config);
ZRO_API void zro_adagrad_config_init(zro_adagrad_config *config);
ZRO_API void zro_adadelta_config_init(zro_adadelta_config *config);
ZRO_API void zro_adamax_config_init(zro_adamax_config *config);
ZRO_API void zro_rmsprop_config_init(zro_rmsprop_config *config);
ZRO_API void zro_rprop_config_init(zro_rprop_config *config);
ZRO_API void zro_asgd_config_init(zro_asgd_config *config);
ZRO_API void zro_nadam_config_init(zro_nadam_config *config);
ZRO_API void zro_radam_config_init(zro_radam_config *config);

/* One value of a group, by name.  All values are doubles; switches are 0 and 1. */
typedef struct zro_value {
    const char *name;
    double value;
} zro_value;

/* Parameters that share values.  Fill it by the initializer. */
struct zro_param_group {
    zro_param *params;       /* the program's memory, kept by reference */
    const size_t *index;     /* n indices: which of params are in the group; NULL: the first n */
    size_t n;                /* the number of parameters; a group may be empty */
    const void *config;      /* the rule's struct for this group; NULL: the one given to create */
    const zro_value *values; /* replace single values of `config` */
    size_t n_values;         /* the number of values */
    const int32_t *owners;   /* with ZRO_PARTITION_GIVEN n ranks; otherwise NULL */
    uint64_t reserved[3];    /* zero, which tells a group that was initialised */
};

/* clang-format off */
#define ZRO_PARAM_GROUP_INIT { NULL, NULL, 0, NULL, NULL, 0, NULL, { 0, 0, 0 } }
/* clang-format on */
ZRO_API void zro_param_group_init(zro_param_group *group);

typedef enum zro_rounding {
    ZRO_NEAREST = 0,
    ZRO_STOCHASTIC = 1 /* bf16 parameters without masters are rounded up or down at random, so that the average is right */
} zro_rounding;

/* When an attached optimizer updates.  In all modes the results are the same, bit for bit, from the first iteration on, and the same
 * loop serves: forward, backward, backward_end, step.
 *
 * AFTER_LAST   as soon as the gradients of all buckets are ready, on the library's thread; the last bucket travels while the others are
 *              updated.  PyTorch's hook_with_zero_step.
 * INTERLEAVED  each bucket as soon as it is ready on all ranks, in the pass over memory that averages it, while backward goes on with
 *              the others.  PyTorch's hook_with_zero_step_interleaved.  With clipping by norm, loss scale or skip_non_finite, which
 *              need all gradients first, it is AFTER_LAST, and a warning says so.
 *
 * backward_end returns when the update is done, and what that fails with; zro_optim_step then only takes note of it, and does not
 * update again.  (A loop without that call works, too, as long as it does not change values.)  The rule gets the `user` of
 * zro_optim_set_user, and runs on the library's thread.  From forward until zro_optim_step returns, values must not be changed
 * (STATE).  Gradients are consumed, so zro_ddp_average, zro_optim_grad_norm and the clipping calls are STATE (use clip_norm and
 * clip_value), and so is zro_optim_step_local.
 *
 * If an iteration fails while the group stays whole, as when a parameter never becomes ready, AFTER_LAST has updated nothing;
 * INTERLEAVED has updated the buckets before that one, on all ranks alike, and the text says how many. */
typedef enum zro_overlap { ZRO_OVERLAP_OFF = 0, ZRO_OVERLAP_AFTER_LAST = 1, ZRO_OVERLAP_INTERLEAVED = 2 } zro_overlap;

/* What is done to gradients before the rule sees them, in this order, each result rounded: unscaled by 1 / loss scale; clipped
 * by norm, that is, multiplied by min(1, clip_norm / (norm + 1e-6)); clipped by value. */
typedef struct zro_optim_config {
    size_t struct_size;
    zro_settings settings;       /* with a group of ranks its settings are used instead; no environment is read */
    zro_switch masters;          /* ON: 16-bit parameters have f32 masters (slot "master"), from which they are rounded */
    zro_rounding rounding;       /* of 16-bit parameters without masters */
    uint64_t seed;               /* of stochastic rounding */
    double clip_norm;            /* the largest norm, > 0; 0: no clipping; INFINITY: the norm is only measured */
    double clip_norm_type;       /* 2, INFINITY, or any p > 0 */
    double clip_value;           /* the largest absolute value, > 0; 0: no clipping */
    zro_switch skip_non_finite;  /* ON: a step in which a gradient is NaN or infinite changes nothing */
    zro_switch loss_scale;       /* ON: the loss scale is dynamic: a skipped step makes it smaller; includes skip_non_finite */
    double scale_init;           /* the first scale, > 0, held in f32 */
    double scale_growth;         /* > 1: multiplies the scale after growth_interval steps in a row that were not skipped */
    double scale_backoff;        /* in (0, 1): multiplies the scale after a step that was skipped */
    uint32_t growth_interval;    /* > 0 */
    const zro_plan_config *plan; /* NULL: the defaults; copied */

    /* ON: data that zro has not handed out moves into group memory, one array per rank, packed by owner.  destroy puts the
     * pointers back, and copies the values as they are then. */
    zro_switch parameters_as_bucket_view;

    /* The optimizer is attached to this ddp (see "data parallel"), which has all of its parameters and the ranks of its group.  NULL:
     * it is not, and averaging gradients is somebody else's business. */
    zro_ddp *ddp;
    zro_overlap overlap; /* of an attached optimizer with a rule: when it updates */
} zro_optim_config;

/* clang-format off */
#define ZRO_OPTIM_CONFIG_INIT { sizeof(zro_optim_config), ZRO_SETTINGS_INIT, ZRO_ON, ZRO_NEAREST, 0, 0, 2, 0, \
                                ZRO_OFF, ZRO_OFF, 65536, 2, 0.5, 2000, NULL, ZRO_OFF, NULL, ZRO_OVERLAP_OFF }
/* clang-format on */

ZRO_API void zro_optim_config_init(zro_optim_config *config);

typedef struct zro_optim zro_optim;

/* Makes an optimizer for the parameters of the groups, none of which may share memory with another (tied weights are one
 * parameter).  `rule_config` is the rule's struct with the values of groups that have none of their own (NULL: the defaults).
 * Without a rule (zro_rule_none) it keeps no state and updates nothing: the program does the updates.  `rule` and what it points to must
 * stay until destroy.
 *
 * With a group of ranks the optimizer is sharded over it: each rank keeps the state of what it owns by the plan, updates that,
 * and gets the rest from the others.  With NULL it is not sharded.  Everything below holds for both; a call that is
 * "collective" is so for a sharded optimizer alone.  Averaging gradients is the program's business: each owner uses its own
 * gradients, so average them first.
 *
 * A parameter's index is counted through the groups one after another; groups that are added later continue it.
 *
 * Collective.  INVALID and UNSUPPORTED on one rank are PEER on the others; the group of ranks stays whole, and is kept alive by
 * the optimizer.  destroy: local; does not wait for peers.
 *
 * INVALID      there are no groups, or no parameters in any of them; a parameter is NULL, occurs twice, or is not dense; a value
 *              is out of range, unknown or NaN; a config belongs to another rule; owners are not ranks; the text names it
 * UNSUPPORTED  the rule has no loop for an element type; this processor does not have the kernels; the partition is flat, but
 *              the rule needs whole parameters, or there is no rule
 * STATE        the ddp is in the middle of an iteration
 * MISMATCH     the ranks passed different parameters, values or settings; the text says which */
ZRO_MUST zro_status zro_optim_create(zro_group *group, const zro_param_group *groups, size_t n_groups, const zro_rule *rule,
                                     const void *rule_config, const zro_optim_config *config, zro_optim **out);
ZRO_API void zro_optim_destroy(zro_optim *optim);
ZRO_MUST zro_status zro_optim_joinable(zro_optim *optim, zro_joinable *out); /* see "join" */

/* Adds a group of parameters, with the config given to create if it has none of its own.  The owners of earlier parameters do
 * not change.  Collective.  On failure nothing has changed. */
ZRO_MUST zro_status zro_optim_add_param_group(zro_optim *optim, const zro_param_group *group);

/* Which rank owns what.  The plan belongs to the optimizer, and is valid until that is destroyed or a group is added.  Without
 * sharding it has one owner. */
ZRO_API const zro_plan *zro_optim_plan(const zro_optim *optim);

/* One step for all parameters that have a gradient; the gradient of the owner counts.  `user` is handed to the rule.  Gradients
 * stay as they are.  Collective.  If it fails nothing has changed, unless a rank was lost or timed out in the middle: then
 * parameters may be torn between two steps, and step, publish and consolidate say so and refuse from then on.
 *
 * INVALID   the pointer to data, or to a gradient that is present, is NULL; the text names the parameter
 * STATE     the program has moved memory that zro handed out; or parameters are torn
 * MISMATCH  the ranks' groups have different values; ranks that share a parameter disagree whether it has a gradient */
ZRO_MUST zro_status zro_optim_step(zro_optim *optim, void *user);

/* What the rule gets in steps whose own `user` is NULL; NULL at first.  With overlap the update begins before step is called: set it
 * before forward; a step that passes another pointer than this one or NULL is STATE then.  Local. */
ZRO_MUST zro_status zro_optim_set_user(zro_optim *optim, void *user);

/* The same in two halves: step_local updates what this rank owns, publish brings it to all ranks.  publish without step_local
 * sends what the owners have.  Both are collective. */
ZRO_MUST zro_status zro_optim_step_local(zro_optim *optim, void *user);
ZRO_MUST zro_status zro_optim_publish(zro_optim *optim);

/* Makes a write of the program known: all ranks get root's values of a parameter (ZRO_ALL_PARAMS: of all of them), and masters
 * are made from these where they round to other values: of what the program has not changed a master stays as it is.
 * Collective; root is a rank (0 if the optimizer is not sharded). */
#define ZRO_ALL_PARAMS SIZE_MAX
ZRO_MUST zro_status zro_param_publish(zro_optim *optim, size_t param, int root);

/* A text that helps to find out why an optimizer is slow: rule, stages, owners, where parameters lie, deliveries and their
 * bytes.  Writes up to `bytes`, with a 0 at the end, and returns how many characters the whole text has, as snprintf does.
 * Local. */
ZRO_API size_t zro_optim_describe(const zro_optim *optim, char *text, size_t bytes);

/* Calls fn, which computes gradients and *loss, then steps; if fn fails, its status is returned (PEER on other ranks) and
 * nothing is stepped (with overlap: nothing more than fn itself has done).  `loss` may be NULL. */
typedef zro_status (*zro_closure_fn)(void *user, double *loss);
ZRO_MUST zro_status zro_optim_step_closure(zro_optim *optim, zro_closure_fn fn, void *fn_user, void *user, double *loss);

typedef enum zro_zero_grad {
    ZRO_ZERO_CLEAR = 0, /* gradients are filled with zeros and become absent */
    ZRO_ZERO_LEAVE = 1, /* gradients become absent, and the memory stays as it is: for a backward that overwrites it */
    ZRO_ZERO_KEEP = 2   /* gradients are filled with zeros, and stay present if they were */
} zro_zero_grad;
ZRO_MUST zro_status zro_optim_zero_grad(zro_optim *optim, zro_zero_grad how);

/* Groups and their values: doubles in the rule's order.  The program may change them between steps; they take effect in the
 * next step.  Setting checks all of them before it changes any.  Local.
 *
 * INVALID  there is no such group or value, or the value is out of range; the text has its name and value
 * MEMORY   the values need state for which there is no memory */
ZRO_API size_t zro_optim_groups(const zro_optim *optim);
ZRO_API size_t zro_optim_params(const zro_optim *optim);
ZRO_API size_t zro_optim_values(const zro_optim *optim);                    /* how many values each group has */
ZRO_API const char *zro_optim_value_name(const zro_optim *optim, size_t i); /* NULL if there is no i-th value */
ZRO_MUST zro_status zro_optim_get_value(const zro_optim *optim, size_t group, const char *name, double *value);
ZRO_MUST zro_status zro_optim_set_value(zro_optim *optim, size_t group, const char *name, double value);
ZRO_MUST zro_status zro_optim_get_values(const zro_optim *optim, size_t group, double *values, size_t n);
ZRO_MUST zro_status zro_optim_set_values(zro_optim *optim, size_t group, const double *values, size_t n);

/* State as memory: this rank's part of a parameter's slot, to be read and written between steps, at an address that stays until
 * destroy.  A slot is absent until its parameter is stepped or loaded (Adagrad's slots exist from creation).  Names are
 * PyTorch's.  Slots are in f32, or in f64 for f64 parameters; a slot that is a single number per parameter ("step") is an f64.
 * "master" holds the f32 masters.
 *
 * INVALID  there is no such parameter, or the rule has no slot of that name (a slot that it needs only with other values is
 *          absent, which is no error) */
typedef struct zro_slot {
    void *data;          /* NULL if the slot is absent */
    size_t first, count; /* elements of the parameter; 0 and 1 for a single number */
    zro_dtype dtype;     /* of data */
    uint32_t present;    /* 0: the slot is absent */
    uint64_t reserved[4];
} zro_slot;
ZRO_API size_t zro_optim_slots(const zro_optim *optim);                    /* how many the rule has, unused ones included */
ZRO_API const char *zro_optim_slot_name(const zro_optim *optim, size_t i); /* NULL if there is no i-th slot */
ZRO_MUST zro_status zro_optim_slot(const zro_optim *optim, size_t param, const char *name, zro_slot *slot);

/* Sets this rank's part of a slot: as many elements as zro_optim_slot says, of any floating-point type, are copied from `data`, and
 * the slot is present from then on.  `data` NULL: the slot is absent again, and begins anew in the parameter's next step.  A slot
 * that the group's values do not need yet gets its memory now.  For programs that keep states in a form of their own; a whole state
 * is loaded by zro_optim_load.  A rank that owns nothing of the parameter does nothing.  Local.
 *
 * INVALID      as zro_optim_slot
 * UNSUPPORTED  the elements are integers */
ZRO_MUST zro_status zro_optim_set_slot(zro_optim *optim, size_t param, const char *name, zro_dtype dtype, const void *data);

/* Clip the gradients in place, as they are now.  norm: computes the norm over all gradients (`norm` may be NULL) and multiplies
 * them by min(1, max_norm / (norm + 1e-6)); norm_type is 2, INFINITY or any p > 0; a norm or factor that is not finite goes
 * into the gradients, as in PyTorch.  value: holds them within +-max_value (> 0).  Absent gradients do not count.  With a loss
 * scale, gradients are still scaled when these are called: use clip_norm and clip_value of zro_optim_config instead.
 *
 * Each owner's gradients count, and are what is clipped.  norm: collective; value: local, but collective under a join.
 *
 * STATE  the optimizer is attached to a ddp, and zro_ddp_average was not called: its gradients are not averaged yet */
ZRO_MUST zro_status zro_clip_grad_norm(zro_optim *optim, double max_norm, double norm_type, double *norm);
ZRO_MUST zro_status zro_clip_grad_value(zro_optim *optim, double max_value);

/* The norm over all gradients as they are now, which stay as they are.  `norm` may be NULL.  Collective.
 *
 * STATE  the norm is NaN or infinite, and error_if_nonfinite is ON; *norm is set all the same */
ZRO_MUST zro_status zro_optim_grad_norm(zro_optim *optim, double norm_type, zro_switch error_if_nonfinite, double *norm);

/* What the last step found, and the loss scale: multiply the loss by `scale` before backward. */
typedef struct zro_step_info {
    size_t struct_size;      /* set by the initializer */
    double scale;            /* the loss scale; 1 without one */
    uint32_t growth_tracker; /* steps since the scale last changed */
    uint32_t skipped;        /* 1: the last step was skipped */
    uint64_t n_skipped;      /* how many steps were skipped */
    uint64_t n_steps;        /* calls of step, skipped ones included */
    uint64_t n_updated;      /* how many of the parameters that this rank owns the last step updated: they had a gradient */
    double norm;             /* of the last step's gradients, unscaled, before clipping; NaN if it was not measured */
    uint64_t state_bytes;    /* bytes of slots and masters on this rank */
} zro_step_info;
/* clang-format off */
#define ZRO_STEP_INFO_INIT { sizeof(zro_step_info), 1, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */
ZRO_API void zro_step_info_init(zro_step_info *info);
ZRO_MUST zro_status zro_optim_info(const zro_optim *optim, zro_step_info *info);

/* Sets scale and growth tracker, in order to resume another run.  STATE without a loss scale. */
ZRO_MUST zro_status zro_optim_set_scale(zro_optim *optim, double scale, uint32_t growth_tracker);

/* ---- state ---- */

/* A copy of an optimizer's state, independent of the optimizer: groups with their values, parameters by index and name, slots
 * by name.  It may also have the data of the parameters, the positions of schedules, and numbers of the program's own.  Names
 * of values and slots are PyTorch's; the first of a list is "betas:0".
 *
 * A program that only wants to save and go on later needs none of this: see "save and resume". */
typedef struct zro_state zro_state;

/* Brings the whole state to rank `to`, or to all ranks (ZRO_ALL).  Each shard is sent once, in pieces.  On other ranks no
 * memory is taken and *out is NULL; calls on such a state are STATE, with a text that explains it.  An optimizer that is not
 * sharded returns its state, whatever `to` is.  Collective.
 *
 * STATE  parameters are torn (zro_optim_step), or owners of one parameter disagree about a slot that is a single number */
ZRO_MUST zro_status zro_optim_consolidate(zro_optim *optim, int to, zro_state **out);

/* The same, and the state has the data of the parameters, too, each element as its owner has it.  Data travels as state does. */
ZRO_MUST zro_status zro_optim_consolidate_with_data(zro_optim *optim, int to, zro_state **out);

/* Takes over values and state from an optimizer that was sharded or not, with any plan; `state` stays as it is.  Everything is
 * checked before anything changes.  Values that say how PyTorch computes (foreach, fused, capturable, differentiable), or that
 * its schedules keep there, are ignored; other values that the rule does not have are left out with a warning.  adam and adamw
 * take each other's states if the rule has the state's decoupled_weight_decay.  A parameter without slots has no state yet; a
 * missing "master" is made from the parameter.  Parameters whose data the state has get it, on all ranks.  Schedules stay where
 * they are: zro_schedules_load puts them to their positions afterwards; a schedule that was made before, and for which that is not
 * done, warns when it is stepped.  Collective: every rank passes the same state.
 *
 * INVALID   the number of groups or parameters, or a name, shape, type, slot or value is not that of this optimizer; the text
 *           names it
 * STATE     this rank has no state (NULL): broadcast it
 * MISMATCH  the ranks' states differ in what they describe */
ZRO_MUST zro_status zro_optim_load(zro_optim *optim, const zro_state *state);

/* root's state on all ranks.  On root *state is its own, and stays; on other ranks *state must be NULL, and is made.
 * Collective. */
ZRO_MUST zro_status zro_state_broadcast(zro_group *group, zro_state **state, int root);

/* A state made by hand.  create makes an empty one (rule "": of an optimizer without a rule).  Then add group after group,
 * after each group its parameters (name, shape and types of `param` are copied), and in any order slots of `count` elements: as
 * many as the parameter has, or one.  `data` is copied; NULL: zeros.  Names have at most 512 bytes, and those of slots no ':'.
 * set_value replaces a value, or adds one.  Local. */
ZRO_MUST zro_status zro_state_create(const char *rule, zro_state **out);
ZRO_API void zro_state_destroy(zro_state *state);
ZRO_MUST zro_status zro_state_add_group(zro_state *state, const zro_value *values, size_t n);
ZRO_MUST zro_status zro_state_add_param(zro_state *state, const zro_param *param);
ZRO_MUST zro_status zro_state_add_slot(zro_state *state, size_t param, const char *slot, zro_dtype dtype, const void *data,
                                       size_t count);
ZRO_MUST zro_status zro_state_set_value(zro_state *state, size_t group, const char *name, double value);

/* Gives a parameter of a state made by hand its data, as many elements as it has, in its type.  `data` is copied; NULL: zeros. */
ZRO_MUST zro_status zro_state_add_data(zro_state *state, size_t param, const void *data);

/* Numbers of the program's own, such as the epoch or the position in the data: at most 256, each under a name.  set replaces a
 * number, or adds one.  get: INVALID if there is none of this name.  Local. */
ZRO_MUST zro_status zro_state_set_number(zro_state *state, const char *name, double value);
ZRO_MUST zro_status zro_state_get_number(const zro_state *state, const char *name, double *value);

/* How many steps the optimizer had made, and its loss scale. */
typedef struct zro_progress {
    uint64_t steps;          /* calls of step, skipped ones included */
    double scale;            /* the loss scale; 0: there is none */
    uint32_t growth_tracker; /* steps since the scale last changed */
    uint32_t reserved32;
    uint64_t n_skipped; /* how many of the steps were skipped because of a gradient that was not finite */
    uint64_t reserved[3];
} zro_progress;
ZRO_MUST zro_status zro_state_get_progress(const zro_state *state, zro_progress *progress);
ZRO_MUST zro_status zro_state_set_progress(zro_state *state, const zro_progress *progress);

/* Queries.  Local.  On a rank that has no state (NULL), calls that return a number return 0, and calls that return a status
 * return STATE, with a text that says what to call.
 *
 * group: the index of its first parameter, the number of its parameters, and the number of its values.  param: name, shape,
 * types, and data, which is NULL if the state does not have it.  slot: it is absent if the parameter has no such slot.  The data
 * of both is writable until destroy. */
ZRO_API const char *zro_state_rule(const zro_state *state); /* NULL if there is no state */
ZRO_API size_t zro_state_groups(const zro_state *state);
ZRO_API size_t zro_state_params(const zro_state *state);
ZRO_API uint64_t zro_state_bytes(const zro_state *state); /* of all slots, and of the parameters' data, together */
ZRO_MUST zro_status zro_state_group(const zro_state *state, size_t group, size_t *first, size_t *n, size_t *n_values);
ZRO_MUST zro_status zro_state_value(const zro_state *state, size_t group, size_t i, zro_value *value);
ZRO_MUST zro_status zro_state_get_value(const zro_state *state, size_t group, const char *name, double *value);
ZRO_MUST zro_status zro_state_param(const zro_state *state, size_t param, zro_param *out);
ZRO_API size_t zro_state_slots(const zro_state *state, size_t param);
ZRO_API const char *zro_state_slot_name(const zro_state *state, size_t param, size_t i); /* NULL if there is no i-th slot */
ZRO_MUST zro_status zro_state_slot(const zro_state *state, size_t param, const char *name, zro_slot *slot);

/* A state as a safetensors file (write, read), or as the bytes of one (pack, unpack; freed by zro_bytes_free): tensors
 * "<slot>:0:<name>", the data of parameters as tensors "<name>", which other readers of safetensors see as the model, and one
 * JSON text of metadata.  Local.
 *
 * A file is written beside `path`, synced and renamed over it: a write that fails, or is killed, leaves the old file.  The new
 * one has the old one's mode and, where permitted, owner and group.  A symbolic link stays, and the file that it leads to is
 * written; if it leads to nothing, that file is made, as open(2) does.  What a killed write has left in the folder (".zro-*",
 * seldom) the next write to the same place removes.
 *
 * INVALID      two parameters, or a parameter and a slot, would be tensors of the same name, or a value is not finite: such a
 *              state cannot be written; `path` is a folder, a device, a pipe or a socket
 * SYSTEM       the file cannot be written or read: no room, no right, larger than the limit on file sizes (ulimit -f), ...
 * FORMAT       these bytes are no such file; the text says where they differ
 * UNSUPPORTED  the library was built without checkpoints (ZRO_CHECKPOINT=OFF) */
ZRO_MUST zro_status zro_state_write(const zro_state *state, const char *path);
ZRO_MUST zro_status zro_state_read(const char *path, zro_state **out);
ZRO_MUST zro_status zro_state_pack(const zro_state *state, void **bytes, size_t *n);
ZRO_MUST zro_status zro_state_unpack(const void *bytes, size_t n, zro_state **out);

/* ---- schedules ---- */

/* A schedule sets the value "lr" of those groups of an optimizer that exist when the schedule is made.  Making it sets the lr
 * of the first step; zro_schedule_step, called after each step of the optimizer, sets that of the next step.  The "first lr" of
 * a group is the one before its first schedule.  Several schedules on one optimizer multiply, as in PyTorch.  Numbers and names
 * of arguments are PyTorch's.  Local.  Schedules and optimizer may be destroyed in any order.
 *
 * INVALID  an argument is out of range; the text names it */
typedef struct zro_schedule zro_schedule;

/* Multiply lr by gamma (>= 0).  step_lr: every step_size (>= 1) steps.  multi_step: at each of the milestones, which never
 * decrease.  exponential: after every step. */
ZRO_MUST zro_status zro_schedule_step_lr(zro_optim *optim, uint64_t step_size, double gamma, zro_schedule **out);
ZRO_MUST zro_status zro_schedule_multi_step(zro_optim *optim, const uint64_t *milestones, size_t n, double gamma,
                                            zro_schedule **out);
ZRO_MUST zro_status zro_schedule_exponential(zro_optim *optim, double gamma, zro_schedule **out);

/* Brings lr to 0 within total_iters steps, as (1 - t / total_iters)^power, power >= 0. */
ZRO_MUST zro_status zro_schedule_polynomial(zro_optim *optim, uint64_t total_iters, double power, zro_schedule **out);

/* cosine: half a cosine down to eta_min (>= 0) within t_max (>= 1) steps, and back.  cosine_restarts: half a cosine down to
 * eta_min, again and again from the top, first in t_0 (>= 1) steps and each time t_mult (>= 1) times as long. */
ZRO_MUST zro_status zro_schedule_cosine(zro_optim *optim, uint64_t t_max, double eta_min, zro_schedule **out);
ZRO_MUST zro_status zro_schedule_cosine_restarts(zro_optim *optim, uint64_t t_0, uint64_t t_mult, double eta_min,
                                                 zro_schedule **out);

/* Multiply lr by a factor.  linear: it goes from start_factor, in (0, 1], to end_factor, in [0, 1], within total_iters steps.
 * constant: it is `factor`, in [0, 1], for total_iters steps, and 1 afterwards.  With total_iters 0 they stay as they began, as
 * in PyTorch; but a constant one whose turn in a sequence comes is 1 then. */
ZRO_MUST zro_status zro_schedule_linear(zro_optim *optim, double start_factor, double end_factor, uint64_t total_iters,
                                        zro_schedule **out);
ZRO_MUST zro_status zro_schedule_constant(zro_optim *optim, double factor, uint64_t total_iters, zro_schedule **out);

/* lr goes up to max_lr and down again, and momentum (or beta1) the other way round.  As in PyTorch it replaces the first lr. */
typedef struct zro_one_cycle_config {
    size_t struct_size;
    double max_lr;
    uint64_t total_steps;                /* > 0 */
    double pct_start;                    /* the share of steps in which lr goes up, in [0, 1] */
    zro_switch linear;                   /* ON: along straight lines; OFF: along half a cosine */
    zro_switch three_phase;              /* ON: after max_lr, lr goes down to where it began, and then on to its end */
    zro_switch cycle_momentum;           /* ON: momentum changes, too */
    double base_momentum, max_momentum;  /* momentum at max_lr, and at the ends */
    double div_factor, final_div_factor; /* lr begins at max_lr / div_factor, and ends at that / final_div_factor */
} zro_one_cycle_config;
/* clang-format off */
#define ZRO_ONE_CYCLE_CONFIG_INIT { sizeof(zro_one_cycle_config), 0, 0, 0.3, ZRO_OFF, ZRO_OFF, ZRO_ON, 0.85, 0.95, 25, 1e4 }
/* clang-format on */
ZRO_API void zro_one_cycle_config_init(zro_one_cycle_config *config);
ZRO_MUST zro_status zro_schedule_one_cycle(zro_optim *optim, const zro_one_cycle_config *config, zro_schedule **out);

/* Multiplies lr by `factor` when the metric has not improved for `patience` steps.  It is stepped by
 * zro_schedule_step_metric. */
typedef struct zro_plateau_config {
    size_t struct_size;
    zro_switch maximize;           /* ON: a larger metric is better */
    double factor;                 /* in (0, 1) */
    uint64_t patience;             /* steps without improvement that are tolerated */
    double threshold;              /* by how much the metric must improve on the best */
    zro_switch threshold_absolute; /* OFF: the threshold is relative to the best */
    uint64_t cooldown;             /* steps after a change that do not count against patience */
    double min_lr, eps;            /* lr does not go below min_lr; changes smaller than eps are not made */
} zro_plateau_config;
/* clang-format off */
#define ZRO_PLATEAU_CONFIG_INIT { sizeof(zro_plateau_config), ZRO_OFF, 0.1, 10, 1e-4, ZRO_OFF, 0, 0, 1e-8 }
/* clang-format on */
ZRO_API void zro_plateau_config_init(zro_plateau_config *config);
ZRO_MUST zro_status zro_schedule_plateau(zro_optim *optim, const zro_plateau_config *config, zro_schedule **out);

/* Sets lr to the group's first lr times fn(user, group, steps so far). */
typedef double (*zro_lr_fn)(void *user, size_t group, uint64_t steps);
ZRO_MUST zro_status zro_schedule_lambda(zro_optim *optim, zro_lr_fn fn, void *user, zro_schedule **out);

/* Combine schedules.  chained: every step applies all of them, one after another.  sequential: the i-th applies until
 * milestones[i] (there are n - 1 of them, which never decrease), and then the next one begins anew.  A combination that begins a
 * sequence is one step ahead, as in PyTorch: exponential, polynomial and cosine ones in it have made their first step.  Both
 * take over the schedules, even if they fail; these must belong to one optimizer, and none may be a plateau. */
ZRO_MUST zro_status zro_schedule_chained(zro_schedule *const *schedules, size_t n, zro_schedule **out);
ZRO_MUST zro_status zro_schedule_sequential(zro_schedule *const *schedules, size_t n, const uint64_t *milestones,
                                            zro_schedule **out);

/* On failure nothing has changed.
 *
 * INVALID  the rule refuses what the schedule computes, such as a negative lr
 * STATE    a plateau was stepped without a metric, or another schedule with one; a one-cycle is over; the schedule was taken
 *          over by another one */
ZRO_MUST zro_status zro_schedule_step(zro_schedule *schedule);
ZRO_MUST zro_status zro_schedule_step_metric(zro_schedule *schedule, double metric);
ZRO_API void zro_schedule_destroy(zro_schedule *schedule);

/* Where schedules are, in a state: their kinds and arguments, how often they were stepped, the groups' first lr and, of a
 * plateau, its history.  Of a lambda schedule only the position is there.
 *
 * zro_state_set_schedules puts the positions of n schedules into a state, instead of those that it had.
 * zro_schedules_load puts schedules of the same kinds with the same arguments, in the same order, to the positions that the
 * state has, after the state was loaded into their optimizer: it changes no lr.  Everything is checked before anything changes.
 * Both are local.
 *
 * INVALID  the number of schedules, or a kind or an argument is not that of the state; the text names it; a schedule was taken
 *          over by another one */
ZRO_MUST zro_status zro_state_set_schedules(zro_state *state, zro_schedule *const *schedules, size_t n);
ZRO_API size_t zro_state_schedules(const zro_state *state); /* those that were taken over by others do not count */
ZRO_MUST zro_status zro_schedules_load(zro_schedule *const *schedules, size_t n, const zro_state *state);

/* ---- save and resume ---- */

/* What is saved beside an optimizer and its parameters.  Fill it by the initializer, the same way for both calls. */
typedef struct zro_save_config {
    size_t struct_size;
    zro_schedule *const *schedules; /* the schedules of the optimizer, not those that other schedules have taken over */
    size_t n_schedules;
    zro_value *numbers; /* the program's own, such as the epoch: save writes their values, resume sets them */
    size_t n_numbers;
} zro_save_config;
/* clang-format off */
#define ZRO_SAVE_CONFIG_INIT { sizeof(zro_save_config), NULL, 0, NULL, 0 }
/* clang-format on */
ZRO_API void zro_save_config_init(zro_save_config *config);

/* Everything that a training needs in order to go on, in one safetensors file: the data of the parameters, the optimizer's
 * groups and state, the loss scale, the positions of schedules, numbers of the program's own.  NULL as config: there are neither
 * schedules nor numbers.
 *
 * save: each shard is sent to rank 0 in pieces, and rank 0 writes the file, beside `path`, and renames it over it.  Other ranks
 * take no memory and need no file system.
 *
 * resume: the program makes model, optimizer and schedules as it did before, on any number of ranks and with any plan, and then
 * calls resume instead of setting initial values.  Rank 0 reads the file.  Parameters get their data on all ranks, where they lie;
 * masters get the bits that they had.  The next step is the one that would have come next: on the same number of ranks with the
 * same bits, and on another number with the same bits if the gradients are the same.
 *
 * Collective.  A failure on one rank is an error on all, with its text.  A save that fails leaves the old file; everything is
 * checked before a resume changes anything.
 *
 * INVALID      save: as zro_state_write; resume: the file is of another model, of other schedules, or does not have the data of
 *              the parameters or a number; the text names it; a schedule belongs to another optimizer
 * STATE        parameters are torn (zro_optim_step): make a new group, and resume there
 * SYSTEM       rank 0 cannot write or read the file
 * FORMAT       resume: this is no file that zro has written
 * UNSUPPORTED  the library was built without checkpoints (ZRO_CHECKPOINT=OFF) */
ZRO_MUST zro_status zro_optim_save(zro_optim *optim, const char *path, const zro_save_config *config);
ZRO_MUST zro_status zro_optim_resume(zro_optim *optim, const char *path, const zro_save_config *config);

/* ---- lbfgs ---- */

/* L-BFGS with PyTorch's numbers, in one process and on the calling thread.  It looks at all parameters at once and evaluates
 * the function several times per step.  Parameters are all f32 or all f64, with gradients of the same type; an absent gradient
 * counts as zero.  create takes all memory: 2 (history_size + 1) vectors and a few more. */
typedef struct zro_lbfgs_config {
    size_t struct_size;
    double lr;                               /* > 0 */
    uint32_t max_iter;                       /* the most iterations per step, > 0 */
    uint32_t max_eval;                       /* the most evaluations per step; 0: max_iter * 5 / 4 */
    double tolerance_grad, tolerance_change; /* a step ends when the gradient, or a change, is smaller; >= 0 */
    uint32_t history_size;                   /* how many pairs it remembers, > 0 */
    zro_switch strong_wolfe;                 /* ON: a line search with the strong Wolfe conditions; OFF: it moves by lr */
    zro_settings settings;
} zro_lbfgs_config;
/* clang-format off */
#define ZRO_LBFGS_CONFIG_INIT { sizeof(zro_lbfgs_config), 1, 20, 0, 1e-7, 1e-9, 100, ZRO_OFF, ZRO_SETTINGS_INIT }
/* clang-format on */
ZRO_API void zro_lbfgs_config_init(zro_lbfgs_config *config);

typedef struct zro_lbfgs zro_lbfgs;
ZRO_MUST zro_status zro_lbfgs_create(zro_param *params, size_t n, const zro_lbfgs_config *config, zro_lbfgs **out);

/* fn computes gradients and *loss for the parameters as they are; it must not step this handle (STATE).  If it fails, its
 * status is returned and the parameters are as they were.  *loss becomes the loss at the beginning of the step; it may be
 * NULL. */
ZRO_MUST zro_status zro_lbfgs_step(zro_lbfgs *lbfgs, zro_closure_fn fn, void *user, double *loss);

/* Totals over all steps. */
ZRO_API uint64_t zro_lbfgs_evaluations(const zro_lbfgs *lbfgs);
ZRO_API uint64_t zro_lbfgs_iterations(const zro_lbfgs *lbfgs);
ZRO_API void zro_lbfgs_destroy(zro_lbfgs *lbfgs);

/* ---- trace ---- */

/* What every rank did when, for ui.perfetto.dev and chrome://tracing (docs/trace.md).  It is switched on by zro_group_config.trace,
 * or by ZRO_TRACE, for a first group and all groups made from it.  Each rank is a process of the trace: the library records
 * iterations, buckets, steps, updates, publications, collective calls, long waits and saves, and the program what it likes.
 *
 * All ranks that share memory write to one file, which is valid JSON at any time, whichever of them has died; a rank that is killed
 * loses its last slices, 1,024 at most.  Where ranks do not share memory, the file of others than rank 0's machine is `trace` with a
 * point and the number of its first rank at the end.  An older file is overwritten.  A file that cannot be opened and written refuses the group
 * (SYSTEM); if it cannot be written later, that is a warning, once, and the program goes on.
 *
 * Slices of the program's own: begin returns a mark, and end records a slice from there until now, under a name of at most 31 ASCII
 * characters.  Both are made on one thread; slices of a thread are nested like blocks.  Without a trace the mark is 0, and end does
 * nothing.  flush writes what has not been written yet.  All are local; any thread may call them.
 *
 * SYSTEM  flush: the file cannot be written, or could not be before */
ZRO_API uint64_t zro_trace_begin(const zro_group *group);
ZRO_API void zro_trace_end(const zro_group *group, uint64_t mark, const char *name);
ZRO_MUST zro_status zro_trace_flush(const zro_group *group);

/* ---- statistics ---- */

typedef struct zro_stats {
    size_t struct_size;     /* set by the initializer; the library fills what fits */
    uint64_t operations;    /* collective operations begun, including those inside other calls */
    uint64_t direct_bytes;  /* bytes of peers' memory that were read or written in place */
    uint64_t link_bytes;    /* bytes sent to peers in messages: by link, headers included, or through rings in shared memory */
    uint64_t link_messages; /* the number of these messages */
    uint64_t waits;         /* waits that did not end while the waiter was still spinning */
    uint64_t sleeps;        /* how often these waits slept in the kernel */
    uint64_t wait_ns;       /* the time of these waits */

    /* Heap of this rank now, for all groups made from the first one together; buffers of messages are in control_bytes. */
    uint64_t heap_bytes;
    uint64_t heap_peak_bytes; /* the most that heap_bytes has been */
    uint64_t shared_bytes;    /* group memory of this rank now, with its share of what exists once per machine */
    uint64_t control_bytes;   /* slots, links and buffers of messages of this group, for all ranks of this machine together */
    uint64_t deliveries;      /* by an optimizer's steps; each brings one owner's part of one transfer to all ranks */
    uint64_t state_bytes;     /* the part of heap_bytes that is state of optimizers */
    uint64_t passes;          /* over gradients, or over parameters, that steps and averages have made for each of them */
    uint64_t allocations;     /* of heap memory by this rank so far */
} zro_stats;

/* clang-format off */
#define ZRO_STATS_INIT { sizeof(zro_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

ZRO_API void zro_stats_init(zro_stats *stats);
ZRO_MUST zro_status zro_group_stats(const zro_group *group, zro_stats *stats);

/* The statistics of the group that a sharded optimizer works on, which is a duplicate of the one that it was given.  Of an
 * optimizer that is not sharded, the bytes of its own memory. */
ZRO_MUST zro_status zro_optim_stats(const zro_optim *optim, zro_stats *stats);

/* The same of a ddp, and of the optimizers attached to it, which work on the same duplicate. */
ZRO_MUST zro_status zro_ddp_stats(const zro_ddp *ddp, zro_stats *stats);

/* ---- tables: rule ---- */

/* A rule consists of constant tables and one or two loops; the library takes care of groups, state, threads, element types,
 * masters and clipping.
 *
 * In a step, `begin` may change the values of each group.  Then `prepare` turns the values and the single numbers of a
 * parameter that has a gradient into the scalars of the loop.  (It is called once for all parameters in a row for which it
 * would compute the same.)  Then the loop is called for pieces of the parameter, of any length, in any order, from as many
 * threads as the settings say.  The other functions run on the thread that called zro.  All of them compute in the default
 * floating-point mode, and none may call zro, except for zro_error_set. */
typedef enum zro_hyper_kind { ZRO_REAL = 0, ZRO_FLAG = 1 /* 0 or 1, a zro_switch in the struct */ } zro_hyper_kind;

enum { ZRO_OPEN_LOW = 1, ZRO_OPEN_HIGH = 2 }; /* the lower, the upper bound itself is not allowed */

typedef struct zro_hyper {
    const char *name;
    zro_hyper_kind kind;
    uint32_t open;          /* which bounds are not allowed themselves: ZRO_OPEN_LOW, ZRO_OPEN_HIGH, or both added */
    double init, low, high; /* the default, and the bounds */
    size_t offset;          /* of its field in the rule's struct; 0: it has none */
    const char *torch;      /* PyTorch's key if that differs from the name, such as "betas:0"; otherwise NULL */
} zro_hyper;

typedef enum zro_slot_kind {
    ZRO_SLOT_ARRAY = 0,  /* an array shaped like the parameter, in the loop's type */
    ZRO_SLOT_NUMBER = 1, /* one number per parameter, rounded to the loop's type */
    ZRO_SLOT_COUNT = 2   /* one number per parameter, exact */
} zro_slot_kind;

enum { ZRO_MAX_SLOTS = 8, ZRO_MAX_SCALARS = 16 };

typedef struct zro_slot_spec {
    const char *name;
    zro_slot_kind kind;
    zro_switch from_creation; /* ON: it exists from creation; OFF: from the parameter's first step on */
    double init;              /* what it begins with, if init_value is NULL */
    const char *init_value;   /* it begins with the value of this name; or NULL */
    const char *only_with;    /* the slot is needed only if the value of this name is not 0; NULL: always */
} zro_slot_spec;

/* What `prepare` works on. */
typedef struct zro_rule_step {
    const double *values; /* of the group, in the rule's order */
    double *numbers;      /* by slot: the parameter's single numbers, old on entry and new on return */
    uint32_t fresh;       /* one bit per slot: 1 if the slot begins in this step */
    zro_dtype dtype;      /* of the loop: F32 or F64 */
    void *user;           /* handed to step */
    double *scalars;      /* out: ZRO_MAX_SCALARS of them, zeroed on entry */
} zro_rule_step;

/* What a loop works on: `count` elements in its type.  data and slots are read and written. */
typedef struct zro_rule_tile {
    size_t count;        /* the number of elements */
    const void *grad;    /* the gradient */
    void *data;          /* the parameter */
    void *const *slots;  /* by slot; NULL where a slot is not an array or not needed */
    const void *scalars; /* those of `prepare`, rounded to the loop's type */
    void *user;          /* handed to step */
    size_t param, first; /* the parameter's index, and the first of these elements in it */
} zro_rule_tile;

struct zro_rule {
    size_t struct_size; /* sizeof(zro_rule) */
    const char *name;
    const char *torch; /* PyTorch's name, or NULL */
    const zro_hyper *hypers;
    size_t n_hypers;
    const zro_slot_spec *slots;
    size_t n_slots;
    size_t config_bytes; /* of the rule's struct, which begins with its size and the rule's name; 0: there is none */
    zro_switch whole;    /* ON: the loop needs whole parameters */

    /* Checks what bounds cannot express, and fails by zro_error_set(ZRO_ERR_INVALID, ...); or NULL. */
    zro_status (*check)(const double *values);
    void (*begin)(double *values, size_t group, void *user); /* or NULL */
    void (*prepare)(zro_rule_step *step);                    /* or NULL */
    void (*f32)(const zro_rule_tile *tile);                  /* for f32, bf16 and f16; NULL: these are not supported */
    void (*f64)(const zro_rule_tile *tile);                  /* for f64; NULL: it is not supported */
};

#ifdef __cplusplus
}
#endif

#endif
