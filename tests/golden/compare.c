/* Comparing: see golden.h.
 *
 * The tolerance leaves room for other orders of operations, fused multiply-adds and folded scalars, which stay below 0.4 of it,
 * but not for a hyper-parameter that was held in f32 or an eps in the wrong place: those fail in f64. */
#include <math.h>
#include <string.h>

#include "golden.h"

double golden_element(const void *data, zro_dtype dtype, size_t i)
{
    return dtype == ZRO_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

void golden_put(void *data, zro_dtype dtype, size_t i, double number)
{
    if (dtype == ZRO_F64)
        ((double *)data)[i] = number;
    else
        ((float *)data)[i] = (float)number;
}

double golden_largest(const golden_vector *vector, zro_dtype dtype)
{
    double largest = 0;

    for (size_t i = 0; i < vector->count; i++)
        largest = fmax(largest, fabs(golden_element(vector->data, dtype, i)));
    return largest;
}

void golden_near(golden_case *c, const char *what, zro_dtype dtype, double got, double x, double tolerance)
{
    int digits = dtype == ZRO_F64 ? 17 : 9;
    double off = 0;

    if (got != x)
        off = tolerance > 0 ? fabs(got - x) / tolerance : INFINITY;
    if (isnan(off))
        off = INFINITY;
    c->result.worst = fmax(c->result.worst, off);
    if (off > 1)
        golden_fail(c, "%s is %.*g, must be %.*g: off by %.3g times the tolerance", what, digits, got, digits, x, off);
}

void golden_exact(golden_case *c, const char *what, double got, double x)
{
    if (got == x)
        return;
    c->result.worst = INFINITY;
    golden_fail(c, "%s is %.17g, must be exactly %.17g", what, got, x);
}

void golden_near_all(golden_case *c, const char *what, zro_dtype dtype, const void *got, const golden_vector *x,
                     double relative, double absolute)
{
    for (size_t i = 0; i < x->count; i++) {
        double want = golden_element(x->data, dtype, i);

        c->element = i;
        golden_near(c, what, dtype, golden_element(got, dtype, i), want, relative * fabs(want) + absolute);
    }
    c->element = GOLDEN_NOWHERE;
}

void golden_extend(golden_extent *extents, const golden_vectors *grads, const golden_vectors *values)
{
    for (size_t i = 0; grads != NULL && i < grads->n; i++)
        extents[i].grad = fmax(extents[i].grad, golden_largest(&grads->at[i], grads->dtype));
    for (size_t i = 0; values != NULL && i < values->n; i++)
        extents[i].value = fmax(extents[i].value, golden_largest(&values->at[i], values->dtype));
}

double golden_r(zro_dtype dtype)
{
    return dtype == ZRO_F64 ? 1e-12 : 2e-6;
}

double golden_a_param(const golden_extent *extent)
{
    return fmax(1, extent->grad);
}

static int is_one_of(const char *name, const char *a, const char *b, const char *c)
{
    return strcmp(name, a) == 0 || strcmp(name, b) == 0 || strcmp(name, c) == 0;
}

double golden_a_slot(const golden_extent *extent, const char *optimizer, const char *slot, double largest)
{
    double gradient = extent->grad + extent->weight_decay * extent->value; /* what the rule averages, at most */

    if (strcmp(slot, "ax") == 0)
        return golden_a_param(extent);
    if (is_one_of(slot, "exp_avg", "grad_avg", "prev"))
        return gradient;
    if (strcmp(slot, "momentum_buffer") == 0)
        return 10 * (strcmp(optimizer, "SGD") == 0 ? gradient : fmax(1, largest));
    return strcmp(slot, "acc_delta") == 0 ? 10 * largest : largest;
}

void golden_check_params(golden_case *c, const zro_param *params, const golden_vectors *x, const golden_extent *extents)
{
    double R = golden_r(x->dtype);

    for (c->param = 0; c->param < x->n; c->param++)
        golden_near_all(c, "the parameter", x->dtype, params[c->param].data, &x->at[c->param], R,
                        R / 10 * golden_a_param(&extents[c->param]));
    c->param = GOLDEN_NOWHERE;
}

/* A slot that is shaped like its parameter. */
static void check_array(golden_case *c, const zro_rule *rule, const char *name, const zro_slot *slot, json_t *json,
                        zro_dtype dtype, size_t count, const golden_extent *extent)
{
    golden_vector x = golden_read_vector(c, name, json, dtype);
    double R = golden_r(dtype), A;

    if (!golden_ok(c))
        return;
    if (slot->first != 0 || slot->count != x.count || x.count != count || slot->dtype != dtype) {
        golden_fail(c, "%s has %zu elements %s from %zu on, must have %zu %s", name, slot->count, zro_dtype_name(slot->dtype),
                    slot->first, x.count, zro_dtype_name(dtype));
        return;
    }
    A = golden_a_slot(extent, rule->torch, name, golden_largest(&x, dtype));
    golden_near_all(c, name, dtype, slot->data, &x, R, R / 10 * A);
}

/* A slot that is one number for its parameter. */
static void check_number(golden_case *c, const zro_rule *rule, const char *name, const zro_slot *slot, json_t *json,
                         zro_dtype dtype, const golden_extent *extent)
{
    double R = golden_r(dtype), x, A;

    if (!json_is_number(json) || slot->first != 0 || slot->count != 1 || slot->dtype != ZRO_F64) {
        golden_fail(c, "%s must be a number in the file, and one f64 in the slot", name);
        return;
    }
    x = json_number_value(json);
    if (strcmp(name, "step") == 0) {
        golden_exact(c, name, *(const double *)slot->data, x);
        return;
    }
    if (dtype == ZRO_F32)
        x = (double)(float)x;
    A = golden_a_slot(extent, rule->torch, name, fabs(x));
    golden_near(c, name, dtype, *(const double *)slot->data, x, R * fabs(x) + R / 10 * A);
}

void golden_check_slot(golden_case *c, const zro_rule *rule, const char *name, const zro_slot *slot, json_t *json,
                       zro_dtype dtype, size_t count, const golden_extent *extent)
{
    const zro_slot_spec *spec = golden_find_slot(rule, name);

    if (slot->present && json == NULL)
        golden_fail(c, "%s is there, the file has none", name);
    else if (!slot->present && json != NULL)
        golden_fail(c, "%s is absent, the file has it", name);
    else if (slot->present && spec != NULL && spec->kind == ZRO_SLOT_ARRAY)
        check_array(c, rule, name, slot, json, dtype, count, extent);
    else if (slot->present)
        check_number(c, rule, name, slot, json, dtype, extent);
}
