/* S52: a program keeps its one buffer and its pointers into it.  S54: a program that moves its arrays before every step.
 * S55: a program that updates what it owns by itself. */
#include <stdlib.h>
#include <string.h>

#include "bed.h"
#include "twin.h"
#include "zt/list.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const twin_spec specs[] = {
    { 5, ZRO_F32, ZRO_F32, 0 },    { 3000, ZRO_F32, ZRO_F32, 0 }, { 1, ZRO_F32, ZRO_F32, 0 },
    { 1024, ZRO_F32, ZRO_F32, 0 }, { 70, ZRO_F32, ZRO_F32, 0 },   { 2049, ZRO_F32, ZRO_F32, 0 },
};

enum { N = COUNT(specs), ALL = 5 + 3000 + 1 + 1024 + 70 + 2049 };

/* One buffer for all data and one for all gradients, without gaps; the pointers are the program's own copies. */
static void one_buffer(zt_rank *t)
{
    for (int k = 0; k < TWIN_PARTITIONS; k++) {
        float *data = calloc(ALL, sizeof *data), *grads = calloc(ALL, sizeof *grads), *cached[N][2];
        size_t at = 0;
        twin w;

        CHECK(data != NULL && grads != NULL);
        twin_init(&w, t, twin_mode_at(k), specs, N);
        for (size_t i = 0; i < N; at += w.count[i++]) {
            memcpy(data + at, w.sharded[i].data, w.count[i] * sizeof *data);
            w.sharded[i].data = cached[i][0] = data + at;
            w.sharded[i].grad = cached[i][1] = grads + at;
        }
        twin_create(&w, zro_rule_adamw(), NULL, NULL, 4);
        twin_train(&w, 2);
        twin_add_rest(&w);
        twin_train(&w, 2);
        at = 0;
        for (size_t i = 0; i < N; at += w.count[i++]) {
            CHECK(w.sharded[i].data == cached[i][0] && w.sharded[i].grad == cached[i][1] && cached[i][0] == data + at);
            CHECK(memcmp(cached[i][0], w.alone[i].data, w.count[i] * sizeof *data) == 0);
        }
        zro_optim_destroy(w.optim);
        w.optim = NULL;
        for (size_t i = 0; i < N; i++)
            CHECK(w.sharded[i].data == cached[i][0]);
        twin_free(&w);
        free(data);
        free(grads);
    }
}

/* ---- moving ---- */

typedef struct moved {
    void *data[N], *grad[N];
} moved;

/* New arrays, at a distance from a border that differs between ranks. */
static void move(twin *w, moved *m, size_t shift)
{
    for (size_t i = 0; i < w->n; i++) {
        zro_param *p = &w->sharded[i];
        char *data = calloc(w->count[i] + shift + 1, sizeof(float)), *grad = calloc(w->count[i] + shift + 1, sizeof(float));

        CHECK(data != NULL && grad != NULL);
        memcpy(data + shift * sizeof(float), p->data, w->count[i] * sizeof(float));
        if (m->data[i] != NULL)
            memset(p->data, 0xff, w->count[i] * sizeof(float));
        free(m->data[i]);
        free(m->grad[i]);
        m->data[i] = data;
        m->grad[i] = grad;
        p->data = data + shift * sizeof(float);
        p->grad = grad + shift * sizeof(float);
    }
}

/* Some gradients are absent, the same ones on all ranks; their arrays need not exist. */
static void take_some(twin *w, uint64_t *same)
{
    for (size_t i = 0; i < w->n; i++)
        if (zt_below(same, 3) == 0) {
            zro_param_set_grad(&w->sharded[i], NULL);
            w->alone[i].grad_present = 0;
        }
}

static void moving(zt_rank *t)
{
    static const twin_place places[] = { TWIN_OWN, TWIN_GROUP };

    for (int k = 0; k < 2 * TWIN_PARTITIONS; k++) {
        twin_mode mode = twin_mode_at(k % TWIN_PARTITIONS);
        zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
        uint64_t same = t->seed;
        moved m = { 0 };
        twin w;

        mode.place = places[k / TWIN_PARTITIONS];
        twin_init(&w, t, mode, specs, N);
        sgd.momentum = 0.9;
        sgd.weight_decay = 0.1;
        twin_create(&w, zro_rule_sgd(), &sgd, NULL, 0);
        for (int s = 0; s < 6; s++) {
            /* All move, one moves, nobody does. */
            if (s % 3 == 0 || (s % 3 == 1 && t->rank == s / 3))
                move(&w, &m, (size_t)(s + t->rank) % 5);
            for (size_t i = 0; i < N; i++)
                if (m.data[i] != NULL)
                    w.sharded[i].grad = m.grad[i];
            twin_gradients(&w, 1);
            take_some(&w, &same);
            twin_step(&w);
        }
        twin_check_slots(&w);
        twin_free(&w);
        for (size_t i = 0; i < N; i++) {
            free(m.data[i]);
            free(m.grad[i]);
        }
    }
}

/* ---- without a rule ---- */

static void plain(size_t n, float *x, const float *g)
{
    for (size_t i = 0; i < n; i++)
        x[i] -= 0.25f * g[i] / (1 + x[i] * x[i]);
}

static void plain_f32(const zro_rule_tile *tile)
{
    plain(tile->count, tile->data, tile->grad);
}

static const zro_rule plain_rule = { sizeof(zro_rule), "plain", NULL, NULL, 0,         NULL, 0, 0,
                                     ZRO_OFF,          NULL,    NULL, NULL, plain_f32, NULL };

/* What the program does with what it owns. */
static void update_mine(twin *w)
{
    const zro_range *ranges;
    size_t n;

    CHECK_OK(zro_plan_ranges(zro_optim_plan(w->optim), w->t->rank, &ranges, &n));
    for (size_t i = 0; i < n; i++)
        plain(ranges[i].count, (float *)w->sharded[ranges[i].param].data + ranges[i].first,
              (const float *)w->sharded[ranges[i].param].grad + ranges[i].first);
}

static void without_rule(zt_rank *t)
{
    for (int k = -1; (k = twin_next_mode(t, k)) < TWIN_MODES;) {
        zro_param_group group;
        zro_plan_config plan;
        zro_optim_config c;
        twin w;

        if (twin_mode_at(k).partition == ZRO_PARTITION_FLAT)
            continue; /* the program's rule may need whole parameters */
        twin_init(&w, t, twin_mode_at(k), specs, N);
        w.n_used = N;
        c = twin_config(&w, NULL, &plan);
        group = twin_group_of(&w, w.sharded, 0, N);
        CHECK_OK(zro_optim_create(t->group, &group, 1, zro_rule_none(), NULL, &c, &w.optim));
        group = twin_group_of(&w, w.alone, 0, N);
        CHECK_OK(zro_optim_create(NULL, &group, 1, &plain_rule, NULL, NULL, &w.reference));
        CHECK_OK(zro_param_publish(w.optim, ZRO_ALL_PARAMS, 0));
        for (int s = 0; s < 3; s++) {
            twin_gradients(&w, 1);
            CHECK_OK(zro_barrier(t->group)); /* where data exists once, nobody compares it any more */
            update_mine(&w);
            CHECK_OK(zro_optim_publish(w.optim));
            CHECK_OK(zro_optim_step(w.reference, NULL));
            twin_check(&w);
        }
        CHECK(zro_optim_slots(w.optim) == 0 && twin_info(w.optim).state_bytes == 0);
        twin_free(&w);
    }
}

/* Types that no rule could update are delivered all the same. */
static void integers(zt_rank *t)
{
    static const twin_spec whole[] = { { 300, ZRO_I64, ZRO_I64, 0 }, { 7, ZRO_U8, ZRO_U8, 0 }, { 5000, ZRO_I32, ZRO_I32, 0 } };
    zro_param params[3];
    zro_param_group group = { 0 };
    zro_optim *opt;

    for (size_t i = 0; i < 3; i++) {
        zro_param_init(&params[i]);
        params[i].dtype = whole[i].dtype;
        params[i].shape[0] = whole[i].count;
        params[i].data = calloc(whole[i].count, zro_dtype_bytes(whole[i].dtype));
        CHECK(params[i].data != NULL);
    }
    group.params = params;
    group.n = 3;
    CHECK_OK(zro_optim_create(t->group, &group, 1, zro_rule_none(), NULL, NULL, &opt));
    for (int s = 1; s < 4; s++) {
        for (size_t i = 0; i < 3; i++) {
            size_t bytes = whole[i].count * zro_dtype_bytes(whole[i].dtype);
            int owner;

            CHECK_OK(zro_plan_owner(zro_optim_plan(opt), i, 0, &owner));
            memset(params[i].data, owner == t->rank ? s : 0xee, bytes);
        }
        CHECK_OK(zro_optim_publish(opt));
        for (size_t i = 0; i < 3; i++)
            for (size_t b = 0; b < whole[i].count * zro_dtype_bytes(whole[i].dtype); b++)
                CHECK(((unsigned char *)params[i].data)[b] == s);
    }
    zro_optim_destroy(opt);
    for (size_t i = 0; i < 3; i++)
        free(params[i].data);
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))

const zt_case cases_zero_in_place[] = {
    { "S52_one_buffer", one_buffer, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S54_moving", moving, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S55_without_rule", without_rule, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S55_integers", integers, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
