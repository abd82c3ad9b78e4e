/* scaler.json: the dynamic loss scale, driven by an optimizer in some of whose steps a gradient is inf or NaN.
 *
 * The file has no gradients, so they are made here: small ones, multiplied by the scale as a backward would do it.  A skipped
 * step changes neither parameters nor state, any other changes every parameter. */
#include <math.h>
#include <string.h>

#include "golden.h"

enum { PARAMS = 3, MAX_COUNT = 11, MAX_SLOTS = 16 };

static const size_t counts[PARAMS] = { 5, 1, MAX_COUNT };
static const zro_dtype dtypes[PARAMS] = { ZRO_F32, ZRO_F64, ZRO_F32 };

typedef struct model {
    zro_param params[PARAMS];
    double data[PARAMS][MAX_COUNT], grad[PARAMS][MAX_COUNT]; /* room for either type */
    zro_optim *optim;
    uint64_t bad, skipped; /* steps so far with an inf or NaN; those that were to be skipped */
} model;

/* What a step may change. */
typedef struct image {
    double data[PARAMS][MAX_COUNT];
    double slots[PARAMS][MAX_SLOTS][MAX_COUNT];
    uint32_t present[PARAMS][MAX_SLOTS];
} image;

static void init(model *m)
{
    for (size_t p = 0; p < PARAMS; p++) {
        zro_param_init(&m->params[p]);
        m->params[p].dtype = dtypes[p];
        m->params[p].shape[0] = counts[p];
        m->params[p].data = m->data[p];
        m->params[p].grad = m->grad[p];
        m->params[p].grad_present = 1;
        for (size_t i = 0; i < counts[p]; i++)
            golden_put(m->data[p], dtypes[p], i, 0.5 + 0.25 * (double)i);
    }
}

/* The bad element is another one each time, and so is what it holds. */
static void set_grads(model *m, double scale, int bad)
{
    static const double what[] = { INFINITY, NAN, -INFINITY };
    size_t p = m->bad % PARAMS;

    for (size_t q = 0; q < PARAMS; q++)
        for (size_t i = 0; i < counts[q]; i++)
            golden_put(m->grad[q], dtypes[q], i, scale * (0.001 + 0.0005 * (double)i));
    if (bad)
        golden_put(m->grad[p], dtypes[p], (m->bad * 7) % counts[p], what[m->bad / PARAMS % 3]);
    m->bad += (uint64_t)bad;
}

static void take_image(golden_case *c, const model *m, image *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->data, m->data, sizeof out->data);
    for (size_t p = 0; p < PARAMS; p++)
        for (size_t s = 0; s < zro_optim_slots(m->optim) && s < MAX_SLOTS; s++) {
            zro_slot slot = { 0 };

            if (!golden_call(c, "zro_optim_slot", zro_optim_slot(m->optim, p, zro_optim_slot_name(m->optim, s), &slot)))
                return;
            out->present[p][s] = slot.present;
            if (slot.present && slot.count <= MAX_COUNT)
                memcpy(out->slots[p][s], slot.data, slot.count * zro_dtype_bytes(slot.dtype));
        }
}

static void check_change(golden_case *c, const image *before, const image *after, int skipped)
{
    for (size_t p = 0; p < PARAMS; p++) {
        c->param = p;
        if (skipped && memcmp(before->data[p], after->data[p], sizeof before->data[p]) != 0)
            golden_fail(c, "it has changed in a step that was to be skipped");
        if (!skipped && memcmp(before->data[p], after->data[p], sizeof before->data[p]) == 0)
            golden_fail(c, "it has not changed in a step that was not to be skipped");
    }
    c->param = GOLDEN_NOWHERE;
    if (skipped
        && (memcmp(before->slots, after->slots, sizeof before->slots) != 0
            || memcmp(before->present, after->present, sizeof before->present) != 0))
        golden_fail(c, "state has changed in a step that was to be skipped");
}

/* The scale is an f32, and so is its number in the file. */
static double read_scale(golden_case *c, json_t *step, const char *key)
{
    return (double)(float)golden_number(c, step, key, 0);
}

static void check_step(golden_case *c, model *m, json_t *step)
{
    zro_step_info info = ZRO_STEP_INFO_INIT;
    image *before = golden_alloc(c, sizeof *before), *after = golden_alloc(c, sizeof *after);
    int bad, skipped;

    if (!golden_keys(c, "the step", step, "scale_used found_inf skipped scale growth_tracker", "")
        || !golden_call(c, "zro_optim_info", zro_optim_info(m->optim, &info)))
        return;
    bad = golden_flag(c, step, "found_inf", ZRO_OFF) == ZRO_ON;
    skipped = golden_flag(c, step, "skipped", ZRO_OFF) == ZRO_ON;
    golden_exact(c, "scale_used", info.scale, read_scale(c, step, "scale_used"));
    set_grads(m, info.scale, bad);
    take_image(c, m, before);
    if (!golden_call(c, "zro_optim_step", zro_optim_step(m->optim, NULL))
        || !golden_call(c, "zro_optim_info", zro_optim_info(m->optim, &info)))
        return;
    take_image(c, m, after);
    m->skipped += (uint64_t)skipped;
    golden_exact(c, "skipped", info.skipped, skipped);
    golden_exact(c, "scale", info.scale, read_scale(c, step, "scale"));
    golden_exact(c, "growth_tracker", info.growth_tracker, golden_count(c, step, "growth_tracker", 0));
    golden_exact(c, "n_skipped", (double)info.n_skipped, (double)m->skipped);
    golden_exact(c, "n_steps", (double)info.n_steps, (double)(c->step + 1));
    check_change(c, before, after, skipped);
}

void golden_scaler(golden_case *c)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    model *m = golden_alloc(c, sizeof *m);
    json_t *steps;

    if (!golden_keys(c, "the case", c->json, "init_scale growth_factor backoff_factor growth_interval steps", ""))
        return;
    config.loss_scale = ZRO_ON;
    config.scale_init = golden_number(c, c->json, "init_scale", 0);
    config.scale_growth = golden_number(c, c->json, "growth_factor", 0);
    config.scale_backoff = golden_number(c, c->json, "backoff_factor", 0);
    config.growth_interval = golden_count(c, c->json, "growth_interval", 0);
    golden_about(c, "from %g", config.scale_init);
    steps = golden_list(c, c->json, "steps");
    if (!golden_ok(c))
        return;
    init(m);
    m->optim = golden_make_optim(c, m->params, PARAMS, zro_rule_adam(), NULL, 0, &config);
    for (c->step = 0; golden_ok(c) && c->step < json_array_size(steps); c->step++)
        check_step(c, m, json_array_get(steps, c->step));
    zro_optim_destroy(m->optim);
}
