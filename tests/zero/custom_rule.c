/* Rules of the program on a sharded optimizer: the pointer that step is given (S03), a key of the rule's own (S04), and no more
 * than a loop (S05). */
#include <string.h>

#include "model.h"
#include "zt/list.h"
#include "zt/zt.h"

/* ---- the rule: plain gradient descent that looks at what it is given ---- */

enum { LR, NEW_KEY, VALUES };

static const zro_hyper values[VALUES] = { { "lr", ZRO_REAL, 0, 0.1, 0, 10, 0, NULL },
                                          { "new_key", ZRO_REAL, 0, 0, 0, 1e6, 0, NULL } };

/* What the program passes. */
typedef struct passed {
    double number;
    atomic_uint begun, tiles; /* how often the rule has seen it */
} passed;

static void look_begin(double *v, size_t group, void *user)
{
    passed *p = user;

    (void)group;
    if (p == NULL)
        return;
    atomic_fetch_add(&p->begun, 1);
    v[NEW_KEY] = p->number;
}

static void look_prepare(zro_rule_step *s)
{
    s->scalars[0] = s->values[LR];
}

static void descend(const zro_rule_tile *t, float lr)
{
    for (size_t i = 0; i < t->count; i++)
        ((float *)t->data)[i] -= lr * ((const float *)t->grad)[i];
}

static void look_f32(const zro_rule_tile *t)
{
    passed *p = t->user;

    if (p != NULL)
        atomic_fetch_add(&p->tiles, 1);
    descend(t, *(const float *)t->scalars);
}

static const zro_rule look = { sizeof look, "look",  NULL, values,     VALUES,       NULL,     0,
                               0,           ZRO_OFF, NULL, look_begin, look_prepare, look_f32, NULL };

static double value(const zro_optim *opt, size_t group, const char *name)
{
    double v;

    CHECK_OK(zro_optim_get_value(opt, group, name, &v));
    return v;
}

/* x = 1, gradient 1, one parameter: one rank owns it, all have it. */
static void S03_pointer(zt_rank *t)
{
    float x = 1, grad = 1;
    zro_param param = ZRO_PARAM_INIT;
    zro_param_group group = { .params = &param, .n = 1 };
    passed p = { .number = 5 };
    zro_optim *opt;
    int owner;

    param.n_dims = 0;
    param.data = &x;
    zro_param_set_grad(&param, &grad);
    CHECK_OK(zro_optim_create(t->group, &group, 1, &look, NULL, NULL, &opt));
    CHECK_OK(zro_plan_owner(zro_optim_plan(opt), 0, 0, &owner));
    CHECK_OK(zro_optim_step(opt, &p));
    CHECK(x == 1 - 0.1f && atomic_load(&p.begun) == 1);
    CHECK(atomic_load(&p.tiles) == (t->rank == owner ? 1 : 0));
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(x == 1 - 0.1f - 0.1f && atomic_load(&p.begun) == 1);
    zro_optim_destroy(opt);
}

/* Every rank's groups have the key and its value, whatever the rank owns; what the rule does not allow is refused on all. */
static void S04_key(zt_rank *t)
{
    zro_param_group groups[2];
    passed p = { .number = 0.25 };
    zro_optim *opt;
    model m, before;

    model_init(&m);
    groups[0] = model_weights(&m);
    groups[1] = model_biases(&m);
    CHECK_OK(zro_optim_create(t->group, groups, 2, &look, NULL, NULL, &opt));
    CHECK(zro_optim_values(opt) == VALUES && strcmp(zro_optim_value_name(opt, NEW_KEY), "new_key") == 0);
    CHECK(value(opt, 0, "new_key") == 0 && value(opt, 1, "new_key") == 0);
    model_run(&m, 0, 0);
    CHECK_OK(zro_optim_step(opt, &p));
    CHECK(value(opt, 0, "new_key") == 0.25 && value(opt, 1, "new_key") == 0.25 && value(opt, 1, "lr") == 0.1);
    before = m;
    p.number = t->rank == t->size - 1 ? 1e9 : 0.5;
    CHECK_STATUS(zro_optim_step(opt, &p), t->rank == t->size - 1 ? ZRO_ERR_INVALID : ZRO_ERR_PEER);
    CHECK_TEXT("new_key = 1e+09");
    CHECK(value(opt, 0, "new_key") == 0.25 && memcmp(before.data, m.data, sizeof m.data) == 0);
    p.number = 0.5;
    CHECK_OK(zro_optim_step(opt, &p));
    CHECK(value(opt, 0, "new_key") == 0.5 && memcmp(before.data, m.data, sizeof m.data) != 0);
    model_check_ranks(&m, t->group);
    zro_optim_destroy(opt);
}

/* ---- a loop and nothing else ---- */

static void bare_f32(const zro_rule_tile *t)
{
    descend(t, 0.125f);
}

static const zro_rule bare = { sizeof bare, "bare", NULL, NULL, 0, NULL, 0, 0, ZRO_OFF, NULL, NULL, NULL, bare_f32, NULL };

static zro_status run_closure(void *user, double *loss)
{
    *loss = model_run(user, 0, 1);
    return ZRO_OK;
}

static void S05_without_closure(zt_rank *t)
{
    zro_param_group group;
    double loss = -1;
    zro_optim *opt;
    model m, by_hand;

    model_init(&m);
    model_init(&by_hand);
    group = model_group(&m);
    CHECK_OK(zro_optim_create(t->group, &group, 1, &bare, NULL, NULL, &opt));
    for (int s = 0; s < 2; s++) {
        if (s == 0) {
            model_run(&m, 0, 0);
            CHECK_OK(zro_optim_step(opt, NULL));
        } else { /* and with one, of which it knows nothing */
            CHECK_OK(zro_optim_step_closure(opt, run_closure, &m, NULL, &loss));
            CHECK(loss > 0);
        }
        model_run(&by_hand, 0, s);
        for (size_t i = 0; i < MODEL_ELEMENTS; i++)
            by_hand.data[i] -= 0.125f * by_hand.grad[i];
        CHECK(model_equal(&m, &by_hand));
    }
    zro_optim_destroy(opt);
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))

const zt_case cases_zero_custom_rule[] = {
    { "S03_pointer", S03_pointer, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S04_key", S04_key, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S05_without_closure", S05_without_closure, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
