/* Golden vectors: files of numbers that PyTorch computed, and a module for each that lets zro compute them again.
 *
 * golden.c reads a file and hands its cases, one by one, to the function of its module.  Everything that is read from a case or
 * compared goes through the calls below, none of which returns a failure: the first one is kept in the case with its place, and
 * a call that cannot give what it was asked for gives something harmless instead (zero, an empty string, no vectors).  So a
 * module reads on, and asks golden_ok before it computes with what it has read.
 *
 * The modules see the public header alone. */
#ifndef GOLDEN_H
#define GOLDEN_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <zro.h>

typedef enum golden_backend { GOLDEN_LOCAL, GOLDEN_THREADS, GOLDEN_OPENMPI, GOLDEN_MPICH } golden_backend;

typedef struct golden_options {
    zro_settings settings;  /* kernels and fast as asked for */
    golden_backend backend; /* where a file has ranks */
    zro_overlap overlap;    /* of optimizers that are attached to a ddp */
    zro_group *world;       /* of an MPI launcher; NULL: ranks are started for each case */
} golden_options;

/* What came out of a case: plain memory without pointers, which a rank in another process can hand over. */
typedef struct golden_result {
    double worst; /* largest |got - x| / tolerance(x) */
    int failed;
    int echo;        /* the failure is that of another rank, which knows more about it */
    char text[1000]; /* of the first failure */
} golden_result;

#define GOLDEN_NOWHERE SIZE_MAX

typedef struct golden_case {
    const golden_options *options;
    json_t *json;
    char about[200];                   /* what a person calls the case */
    const char *how;                   /* which of several ways to compute it is being gone, or NULL */
    size_t rank, step, param, element; /* where the module is, or NOWHERE: failures name it */
    golden_result result;
    struct golden_block *blocks; /* of golden_alloc */
} golden_case;

/* The place of each file: a row in the table of golden.c. */
typedef struct golden_file {
    const char *name;
    const char *keys;            /* of a file that is an object and has its list under "cases"; NULL: it is the list */
    void (*run)(golden_case *c); /* NULL: known, but not read by this version */
    int (*ranks)(json_t *json);  /* how many a case needs; NULL: none, the first rank of a launch computes it alone */
} golden_file;

void golden_optim(golden_case *c);
void golden_lbfgs(golden_case *c);
void golden_schedules(golden_case *c);
void golden_clip(golden_case *c);
void golden_scaler(golden_case *c);
void golden_sampler(golden_case *c);
void golden_partition(golden_case *c);
void golden_ddp_buckets(golden_case *c);
void golden_overlap(golden_case *c);
void golden_zero_train(golden_case *c);
void golden_ddp_train(golden_case *c);
void golden_join(golden_case *c);
void golden_torch_state(golden_case *c);
#ifdef GOLDEN_HAS_GPT
void golden_gpt(golden_case *c);
#else
#define golden_gpt NULL /* the trainer is not built */
#endif
int golden_ranks_of_zero_train(json_t *json);
int golden_ranks_of_torch_state(json_t *json);

/* ---- cases ---- */

void golden_begin(golden_case *c, const golden_options *options, json_t *json);
void golden_end(golden_case *c);

int golden_ok(const golden_case *c);
void golden_fail(golden_case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Whether a call of zro succeeded; otherwise the case has failed with its text. */
int golden_call(golden_case *c, const char *call, zro_status status);

/* Sets `about`. */
void golden_about(golden_case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Zeroed memory until the end of the case; does not fail. */
void *golden_alloc(golden_case *c, size_t bytes);

/* ---- ranks ---- */

enum { GOLDEN_MAX_RANKS = 64, GOLDEN_TIMEOUT_MS = 60000 };

/* How the groups of a run are made. */
zro_group_config golden_group_config(const golden_options *options);

/* What one rank does, with a case of its own.  It may leave at any time: the others hear of it from the group. */
typedef void (*golden_rank_fn)(golden_case *c, zro_group *group, const void *user);

/* Runs `fn` on so many ranks, and brings what came out of them into the case.  Under MPI every rank of the launch calls this,
 * and has the same result afterwards. */
void golden_on_ranks(golden_case *c, int size, golden_rank_fn fn, const void *user);

/* The number under "world_size". */
int golden_world_size(golden_case *c, json_t *object);

/* ---- reading ---- */

/* Whether json is an object; and one that has all of the required keys, separated by blanks, and no others than these and the
 * optional ones.  `what` names it in failures, here and below. */
int golden_object(golden_case *c, const char *what, json_t *json);
int golden_keys(golden_case *c, const char *what, json_t *json, const char *required, const char *optional);

/* Whether the object has the key, and not with null, which is PyTorch's None. */
int golden_given(json_t *object, const char *key);

/* The value of a key.  Where the object has none it is `otherwise`: whether that may be is for golden_keys to say. */
double golden_number(golden_case *c, json_t *object, const char *key, double otherwise);
uint32_t golden_count(golden_case *c, json_t *object, const char *key, uint32_t otherwise);
zro_switch golden_flag(golden_case *c, json_t *object, const char *key, zro_switch otherwise);
const char *golden_string(golden_case *c, json_t *object, const char *key, const char *otherwise);

/* One of the words, separated by blanks, by its place. */
size_t golden_word(golden_case *c, json_t *object, const char *key, const char *words, size_t otherwise);

/* "float32" or "float64" under "dtype". */
zro_dtype golden_dtype(golden_case *c, json_t *object);

/* The list under a key, which is there and not empty; NULL if it is not. */
json_t *golden_list(golden_case *c, json_t *object, const char *key);

/* Lists of numbers in the type of the case.  An absent one (null in the file) has no data and no elements. */
typedef struct golden_vector {
    void *data;
    size_t count;
} golden_vector;

typedef struct golden_vectors {
    golden_vector *at;
    size_t n;
    zro_dtype dtype;
} golden_vectors;

typedef enum golden_null { GOLDEN_NO_NULL, GOLDEN_NULL_IS_ABSENT } golden_null;

golden_vector golden_read_vector(golden_case *c, const char *what, json_t *json, zro_dtype dtype);

/* A list of whole numbers, which may be empty. */
typedef struct golden_counts {
    size_t *at;
    size_t n;
} golden_counts;

golden_counts golden_read_counts(golden_case *c, const char *what, json_t *json);

/* A list of such lists, which is not empty. */
typedef struct golden_count_lists {
    golden_counts *at;
    size_t n;
} golden_count_lists;

golden_count_lists golden_read_count_lists(golden_case *c, json_t *object, const char *key);

/* A list of vectors, or the one under a key, not empty; as many, and as long ones, as in `like` unless that is NULL. */
golden_vectors golden_read_vector_list(golden_case *c, const char *what, json_t *list, zro_dtype dtype, golden_null null,
                                       const golden_vectors *like);
golden_vectors golden_read_vectors(golden_case *c, json_t *object, const char *key, zro_dtype dtype, golden_null null,
                                   const golden_vectors *like);

double golden_element(const void *data, zro_dtype dtype, size_t i);
void golden_put(void *data, zro_dtype dtype, size_t i, double number);
double golden_largest(const golden_vector *vector, zro_dtype dtype); /* |x| */

/* ---- comparing ---- */

/* |got - x| <= tolerance; the element type says how many digits a failure shows. */
void golden_near(golden_case *c, const char *what, zro_dtype dtype, double got, double x, double tolerance);
void golden_exact(golden_case *c, const char *what, double got, double x);

/* |got - x| <= relative |x| + absolute for each element. */
void golden_near_all(golden_case *c, const char *what, zro_dtype dtype, const void *got, const golden_vector *x,
                     double relative, double absolute);

/* The tolerance of parameters and state is R |x| + (R / 10) A: R for the type, A for what the rounding errors are made of. */
typedef struct golden_extent {
    double grad, value;  /* largest of a parameter in the case: G and P */
    double weight_decay; /* |weight_decay| */
} golden_extent;

/* Makes the extents, one a parameter, wide enough for these; either may be NULL. */
void golden_extend(golden_extent *extents, const golden_vectors *grads, const golden_vectors *values);

double golden_r(zro_dtype dtype);
double golden_a_param(const golden_extent *extent);
double golden_a_slot(const golden_extent *extent, const char *optimizer, const char *slot, double largest);

/* The parameters as they are, or one slot of the parameter that the module is at, which has `count` elements. */
void golden_check_params(golden_case *c, const zro_param *params, const golden_vectors *x, const golden_extent *extents);
void golden_check_slot(golden_case *c, const zro_rule *rule, const char *name, const zro_slot *slot, json_t *json,
                       zro_dtype dtype, size_t count, const golden_extent *extent);

/* ---- PyTorch's names ---- */

/* The rule that PyTorch calls so; NULL if there is none. */
const zro_rule *golden_rule(golden_case *c, const char *name);

/* PyTorch's options as a rule's values. */
zro_value *golden_values(golden_case *c, const zro_rule *rule, json_t *options, size_t *n);

/* PyTorch's name of a rule's value, as "betas:0"; and whether a key says how PyTorch computes, which means nothing here. */
const char *golden_torch_name(const zro_rule *rule, const char *value);
int golden_is_meaningless(const char *key);

/* The specification of a rule's slot; NULL: it has none of this name. */
const zro_slot_spec *golden_find_slot(const zro_rule *rule, const char *name);

/* ---- state dicts ---- */

typedef struct golden_dict_group {
    size_t n_params;
    zro_value *values; /* by PyTorch's names, those included that mean nothing to zro unless they are null */
    size_t n_values;
} golden_dict_group;

/* PyTorch's, of parameters with these values: state by index, and groups whose parameters stand one after another. */
typedef struct golden_dict {
    const zro_rule *rule;
    const golden_vectors *params;
    json_t **state; /* of each parameter; NULL: it has none */
    golden_dict_group *groups;
    size_t n_groups;
} golden_dict;

golden_dict golden_read_dict(golden_case *c, json_t *object, const char *key, const zro_rule *rule,
                             const golden_vectors *params);

/* One extent a parameter, with the weight decay of its group. */
golden_extent *golden_dict_extents(golden_case *c, const golden_dict *dict);

/* The state made by hand; NULL if that failed. */
zro_state *golden_make_state(golden_case *c, const golden_dict *dict, const zro_param *params);

/* Compares the dict with the state: what is in one must be in the other. */
void golden_check_state(golden_case *c, const golden_dict *dict, const zro_state *state, const golden_extent *extents);

/* The same with the optimizer's, consolidated on the first rank, on the last and on all; without a group it is here anyway. */
void golden_check_consolidated(golden_case *c, const golden_dict *dict, zro_optim *optim, const zro_group *group,
                               const golden_extent *extents);

/* ---- optimizers ---- */

/* Parameters that are like these values, without memory; of the shapes, a list of lists, or one-dimensional if that is NULL. */
zro_param *golden_describe(golden_case *c, const golden_vectors *values, json_t *shapes);

/* Parameters with these values, and with memory for gradients, which are absent. */
zro_param *golden_params(golden_case *c, const golden_vectors *values, json_t *shapes);

/* Copies values in. */
void golden_set_params(zro_param *params, const golden_vectors *values);

/* Copies gradients in; an absent one leaves NaNs behind, which nobody should look at. */
void golden_set_grads(zro_param *params, const golden_vectors *grads);

/* An optimizer with one group.  `config` (NULL: the defaults) gets the settings of the run. */
zro_optim *golden_make_optim(golden_case *c, zro_param *params, size_t n, const zro_rule *rule, const zro_value *values,
                             size_t n_values, const zro_optim_config *config);

/* An optimizer of such groups, sharded over the ranks unless there are none (NULL). */
zro_optim *golden_make_sharded(golden_case *c, zro_group *ranks, const zro_param_group *groups, size_t n_groups,
                               const zro_rule *rule, const zro_optim_config *config);

/* Makes the schedule that PyTorch calls so, with PyTorch's arguments. */
zro_schedule *golden_make_schedule(golden_case *c, zro_optim *optim, const char *name, json_t *args);

#endif
