/* S56: state is memory: this rank's part of it can be read and written between steps, and stays where it is. */
#include <string.h>

#include "twin.h"
#include "zt/list.h"

static const twin_spec specs[] = {
    { 5, ZRO_F32, ZRO_F32, 0 },     { 3000, ZRO_F32, ZRO_F32, 0 }, { 1, ZRO_F64, ZRO_F64, 0 },
    { 2050, ZRO_BF16, ZRO_F32, 0 }, { 1024, ZRO_F32, ZRO_F32, 0 }, { 70, ZRO_F32, ZRO_F32, 0 },
};

enum { N = sizeof specs / sizeof *specs, FIRST = 4, SLOTS = 8 };

static zro_slot slot_of(const zro_optim *opt, size_t param, const char *name)
{
    zro_slot slot;

    CHECK_OK(zro_optim_slot(opt, param, name, &slot));
    return slot;
}

/* Elements of a parameter that this rank owns. */
static size_t owned(const twin *w, size_t param)
{
    const zro_range *ranges;
    size_t n, all = 0;

    CHECK_OK(zro_plan_ranges(zro_optim_plan(w->optim), w->t->rank, &ranges, &n));
    for (size_t i = 0; i < n; i++)
        all += ranges[i].param == param ? ranges[i].count : 0;
    return all;
}

static void check_presence(const twin *w, const char *name, int expected)
{
    for (size_t i = 0; i < w->n_used; i++) {
        zro_slot slot = slot_of(w->optim, i, name);
        int present = expected && owned(w, i) > 0;

        CHECK((int)slot.present == present && (slot.data != NULL) == present);
        CHECK(!present || slot.count == owned(w, i));
    }
}

/* Where everything is. */
typedef struct places {
    void *at[N][SLOTS];
} places;

static void find(const twin *w, places *p)
{
    memset(p, 0, sizeof *p);
    CHECK(zro_optim_slots(w->optim) <= SLOTS);
    for (size_t i = 0; i < w->n_used; i++)
        for (size_t k = 0; k < zro_optim_slots(w->optim); k++)
            p->at[i][k] = slot_of(w->optim, i, zro_optim_slot_name(w->optim, k)).data;
}

static void check_stayed(const twin *w, const places *before)
{
    places now;

    find(w, &now);
    for (size_t i = 0; i < FIRST; i++)
        CHECK(memcmp(now.at[i], before->at[i], sizeof now.at[i]) == 0);
}

/* Writes of a program: moments are halved, the step count is moved on. */
static void halve(zro_optim *opt, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        zro_slot m = slot_of(opt, i, "exp_avg"), step = slot_of(opt, i, "step");

        for (size_t e = 0; m.present && e < m.count; e++) {
            if (m.dtype == ZRO_F64)
                ((double *)m.data)[e] *= 0.5;
            else
                ((float *)m.data)[e] *= 0.5f;
        }
        if (step.present)
            *(double *)step.data += 3;
    }
}

static void freeze(twin *w, size_t param, uint32_t trains)
{
    w->sharded[param].requires_grad = w->alone[param].requires_grad = trains;
}

static void write_values(zro_optim *opt)
{
    double values[16];

    CHECK(zro_optim_values(opt) <= 16);
    CHECK_OK(zro_optim_get_values(opt, 0, values, zro_optim_values(opt)));
    for (size_t i = 0; i < zro_optim_values(opt); i++)
        if (strcmp(zro_optim_value_name(opt, i), "lr") == 0)
            values[i] = 0.03125;
    CHECK_OK(zro_optim_set_values(opt, 0, values, zro_optim_values(opt)));
}

static void slots_are_memory(zt_rank *t)
{
    for (int k = -1; (k = twin_next_mode(t, k)) < TWIN_MODES;) {
        zro_state *state;
        places p;
        twin w;

        twin_init(&w, t, twin_mode_at(k), specs, N);
        twin_create(&w, zro_rule_adam(), NULL, NULL, FIRST);
        check_presence(&w, "exp_avg", 0);
        twin_train(&w, 1);
        check_presence(&w, "exp_avg", 1);
        find(&w, &p);
        halve(w.optim, FIRST);
        halve(w.reference, FIRST);
        write_values(w.optim);
        write_values(w.reference);
        twin_train(&w, 1);
        check_stayed(&w, &p);
        twin_add_rest(&w);
        check_stayed(&w, &p);
        twin_train(&w, 1);
        freeze(&w, 1, 0);
        twin_train(&w, 1);
        check_stayed(&w, &p);
        freeze(&w, 1, 1);
        twin_train(&w, 1);
        CHECK_OK(zro_optim_consolidate(w.optim, ZRO_ALL, &state));
        halve(w.optim, N); /* is undone by the load */
        CHECK_OK(zro_optim_load(w.optim, state));
        zro_state_destroy(state);
        check_stayed(&w, &p);
        twin_train(&w, 1);
        CHECK_STATUS(zro_optim_slot(w.optim, 0, "no_such", &(zro_slot){ 0 }), ZRO_ERR_INVALID);
        twin_free(&w);
    }
}

/* Adagrad's sums are there from creation, also of a group that is added later, and can be written before the first step. */
static void from_creation(zt_rank *t)
{
    for (int k = -1; (k = twin_next_mode(t, k)) < TWIN_MODES;) {
        twin w;

        twin_init(&w, t, twin_mode_at(k), specs, N);
        twin_create(&w, zro_rule_adagrad(), NULL, NULL, FIRST);
        check_presence(&w, "sum", 1);
        twin_add_rest(&w);
        check_presence(&w, "sum", 1);
        for (int both = 0; both < 2; both++) {
            zro_slot sum = slot_of(both == 0 ? w.optim : w.reference, 1, "sum");

            for (size_t e = 0; sum.present && e < sum.count; e++)
                ((float *)sum.data)[e] = (float)(sum.first + e);
        }
        twin_train(&w, 2);
        twin_free(&w);
    }
}

/* Takes a slot away, and sets it again from an array of doubles: nothing has changed. */
static void set_again(zro_optim *opt, size_t param, const char *name)
{
    double copy[4096]; /* ranks may be threads */
    zro_slot slot = slot_of(opt, param, name);

    if (slot.present)
        CHECK_OK(zro_convert(copy, ZRO_F64, slot.data, slot.dtype, slot.count));
    CHECK_OK(zro_optim_set_slot(opt, param, name, ZRO_F64, NULL));
    CHECK(!slot_of(opt, param, name).present);
    if (slot.present) {
        memset(slot.data, 0, slot.count * zro_dtype_bytes(slot.dtype));
        CHECK_OK(zro_optim_set_slot(opt, param, name, ZRO_F64, copy));
        CHECK(slot_of(opt, param, name).data == slot.data);
    }
}

static void slots_are_set(zt_rank *t)
{
    for (int k = -1; (k = twin_next_mode(t, k)) < TWIN_MODES;) {
        twin w;

        twin_init(&w, t, twin_mode_at(k), specs, N);
        twin_create(&w, zro_rule_adam(), NULL, NULL, N);
        twin_train(&w, 2);
        for (size_t i = 0; i < N; i++)
            for (size_t s = 0; s < zro_optim_slots(w.optim); s++)
                set_again(w.optim, i, zro_optim_slot_name(w.optim, s));
        twin_train(&w, 2);
        CHECK_STATUS(zro_optim_set_slot(w.optim, 0, "no_such", ZRO_F32, NULL), ZRO_ERR_INVALID);
        CHECK_STATUS(zro_optim_set_slot(w.optim, N, "exp_avg", ZRO_F32, NULL), ZRO_ERR_INVALID);
        CHECK_STATUS(zro_optim_set_slot(w.optim, 0, "exp_avg", ZRO_I32, t), ZRO_ERR_UNSUPPORTED);
        twin_free(&w);
    }
}

/* A slot that the values do not need yet gets its memory when it is set; the steps that need it go on from there. */
static void set_before_needed(zt_rank *t)
{
    static const float ones[3000] = { 1, 1, 1, 1, 1 };

    for (int k = -1; (k = twin_next_mode(t, k)) < TWIN_MODES;) {
        zro_slot slot;
        twin w;

        twin_init(&w, t, twin_mode_at(k), specs, N);
        twin_create(&w, zro_rule_sgd(), NULL, NULL, FIRST);
        twin_train(&w, 1);
        CHECK_OK(zro_optim_set_slot(w.optim, 0, "momentum_buffer", ZRO_F32, ones));
        CHECK_OK(zro_optim_set_slot(w.reference, 0, "momentum_buffer", ZRO_F32, ones));
        slot = slot_of(w.optim, 0, "momentum_buffer");
        CHECK((int)slot.present == (owned(&w, 0) > 0));
        CHECK(!slot.present || ((float *)slot.data)[0] == 1);
        CHECK_OK(zro_optim_set_value(w.optim, 0, "momentum", 0.5));
        CHECK_OK(zro_optim_set_value(w.reference, 0, "momentum", 0.5));
        twin_train(&w, 2);
        twin_free(&w);
    }
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))

const zt_case cases_zero_slots[] = {
    { "S56_slots_are_memory", slots_are_memory, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S56_from_creation", from_creation, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S56_slots_are_set", slots_are_set, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S56_set_before_needed", set_before_needed, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
