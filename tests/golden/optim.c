/* optim.json: update rules with given gradients, in one process. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"

typedef struct step {
    double lr;
    golden_vectors grads, params;
    json_t *state; /* NULL: not given */
} step;

typedef struct run {
    zro_dtype dtype;
    const zro_rule *rule;
    golden_vectors params0;
    step *steps;
    size_t n_steps;
    zro_param *params;
    zro_optim *optim;
    golden_extent *extents; /* one a parameter */
} run;

static void read_steps(golden_case *c, run *r)
{
    json_t *list = golden_list(c, c->json, "steps");

    r->n_steps = json_array_size(list);
    r->steps = golden_alloc(c, r->n_steps * sizeof *r->steps);
    for (size_t k = 0; k < r->n_steps; k++) {
        json_t *json = json_array_get(list, k);
        step *s = &r->steps[k];

        c->step = k;
        if (!golden_keys(c, "the step", json, "lr grads params state", ""))
            return;
        s->lr = golden_number(c, json, "lr", 0);
        s->grads = golden_read_vectors(c, json, "grads", r->dtype, GOLDEN_NULL_IS_ABSENT, &r->params0);
        s->params = golden_read_vectors(c, json, "params", r->dtype, GOLDEN_NO_NULL, &r->params0);
        if (!json_is_null(json_object_get(json, "state"))) {
            s->state = golden_list(c, json, "state");
            if (s->state != NULL && json_array_size(s->state) != r->params0.n)
                golden_fail(c, "\"state\" has %zu entries, must have %zu", json_array_size(s->state), r->params0.n);
        } else if (k == 0 || k + 1 == r->n_steps) {
            golden_fail(c, "\"state\" is null, must be given after the first and the last step");
        }
    }
    c->step = GOLDEN_NOWHERE;
}

/* The largest gradients and values are of the whole case, so nothing can be compared before all has been read. */
static void measure(golden_case *c, run *r)
{
    double weight_decay = 0;

    for (size_t h = 0; h < r->rule->n_hypers; h++)
        if (strcmp(r->rule->hypers[h].name, "weight_decay") == 0)
            golden_call(c, "zro_optim_get_value", zro_optim_get_value(r->optim, 0, "weight_decay", &weight_decay));
    r->extents = golden_alloc(c, r->params0.n * sizeof *r->extents);
    for (size_t i = 0; i < r->params0.n; i++)
        r->extents[i].weight_decay = fabs(weight_decay);
    golden_extend(r->extents, NULL, &r->params0);
    for (size_t k = 0; k < r->n_steps; k++)
        golden_extend(r->extents, &r->steps[k].grads, &r->steps[k].params);
}

/* What is there must be in the file, and the other way round. */
static void check_state(golden_case *c, const run *r, json_t *state)
{
    size_t found = 0;

    if (!golden_object(c, "the state", state))
        return;
    for (size_t s = 0; s < zro_optim_slots(r->optim); s++) {
        const char *name = zro_optim_slot_name(r->optim, s);
        json_t *json = json_object_get(state, name);
        zro_slot slot = { 0 };

        if (!golden_call(c, "zro_optim_slot", zro_optim_slot(r->optim, c->param, name, &slot)))
            return;
        found += json != NULL;
        golden_check_slot(c, r->rule, name, &slot, json, r->dtype, r->params0.at[c->param].count, &r->extents[c->param]);
    }
    for (void *at = json_object_iter(state); found < json_object_size(state) && at != NULL;
         at = json_object_iter_next(state, at))
        if (golden_find_slot(r->rule, json_object_iter_key(at)) == NULL)
            golden_fail(c, "the state \"%s\" is not known", json_object_iter_key(at));
}

static void check_step(golden_case *c, const run *r, const step *s)
{
    golden_check_params(c, r->params, &s->params, r->extents);
    for (c->param = 0; s->state != NULL && c->param < r->params0.n; c->param++)
        check_state(c, r, json_array_get(s->state, c->param));
    c->param = GOLDEN_NOWHERE;
}

/* A parameter without a gradient stays as it is, to the last bit. */
static void *remember_absent(golden_case *c, const run *r, const step *s)
{
    void **before = golden_alloc(c, r->params0.n * sizeof *before);

    for (size_t i = 0; i < r->params0.n; i++)
        if (s->grads.at[i].data == NULL) {
            size_t bytes = r->params0.at[i].count * zro_dtype_bytes(r->dtype);

            before[i] = golden_alloc(c, bytes);
            memcpy(before[i], r->params[i].data, bytes);
        }
    return before;
}

static void check_absent(golden_case *c, const run *r, void *const *before)
{
    for (size_t i = 0; i < r->params0.n; i++) {
        c->param = i;
        if (before[i] != NULL && memcmp(before[i], r->params[i].data, r->params0.at[i].count * zro_dtype_bytes(r->dtype)) != 0)
            golden_fail(c, "it has changed without a gradient");
    }
    c->param = GOLDEN_NOWHERE;
}

/* lr changes once.  Where the case shows that, its first step uses what the options say, or PyTorch's default: so must zro. */
static int is_first_lr(const run *r, size_t k)
{
    return k == 0 && r->steps[0].lr != r->steps[r->n_steps - 1].lr;
}

static void go_through(golden_case *c, run *r)
{
    for (size_t k = 0; k < r->n_steps; k++) {
        const step *s = &r->steps[k];
        void **before = remember_absent(c, r, s);

        c->step = k;
        golden_set_grads(r->params, &s->grads);
        if (!is_first_lr(r, k) && !golden_call(c, "zro_optim_set_value", zro_optim_set_value(r->optim, 0, "lr", s->lr)))
            return;
        if (!golden_call(c, "zro_optim_step", zro_optim_step(r->optim, NULL)))
            return;
        check_step(c, r, s);
        check_absent(c, r, before);
    }
}

void golden_optim(golden_case *c)
{
    zro_value *values;
    size_t n_values;
    char *text;
    run r = { 0 };

    if (!golden_keys(c, "the case", c->json, "optimizer options dtype params0 steps", ""))
        return;
    text = json_dumps(json_object_get(c->json, "options"), JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    golden_about(c, "%s %s %s", golden_string(c, c->json, "optimizer", ""), golden_string(c, c->json, "dtype", ""), text);
    free(text);
    r.dtype = golden_dtype(c, c->json);
    r.rule = golden_rule(c, golden_string(c, c->json, "optimizer", ""));
    values = golden_values(c, r.rule, json_object_get(c->json, "options"), &n_values);
    r.params0 = golden_read_vectors(c, c->json, "params0", r.dtype, GOLDEN_NO_NULL, NULL);
    read_steps(c, &r);
    if (!golden_ok(c))
        return;
    r.params = golden_params(c, &r.params0, NULL);
    r.optim = golden_make_optim(c, r.params, r.params0.n, r.rule, values, n_values, NULL);
    if (r.optim != NULL) {
        measure(c, &r);
        go_through(c, &r);
    }
    zro_optim_destroy(r.optim);
}
