/* gpt.json: the model of gpt/, its logits, its loss and all its gradients, against PyTorch's in f64.
 *
 * The file has the parameters of all layers of a kind in one array, and matrices as [out, in]; the model has one parameter per
 * layer, and matrices as [in, out]. */
#include "golden.h"
#include "model.h"

static const double TOLERANCE = 1e-5; /* of a number itself, and of the largest of its array */

typedef struct gpt_case {
    gpt_config config;
    size_t batch, tokens;
    uint32_t *inputs, *targets;       /* [batch][tokens] */
    zro_param *params;                /* of the model */
    golden_vector grads[GPT_TENSORS]; /* as in the file */
} gpt_case;

static uint32_t *read_tokens(golden_case *c, const gpt_case *g, const char *key)
{
    golden_count_lists lists = golden_read_count_lists(c, c->json, key);
    uint32_t *tokens = golden_alloc(c, g->batch * g->tokens * sizeof *tokens);

    if (lists.n != g->batch)
        golden_fail(c, "\"%s\" has %zu sequences, must have %zu", key, lists.n, g->batch);
    for (size_t b = 0; b < lists.n && golden_ok(c); b++) {
        if (lists.at[b].n != g->tokens) {
            golden_fail(c, "\"%s\" has a sequence of %zu tokens, must be %zu", key, lists.at[b].n, g->tokens);
            break;
        }
        for (size_t t = 0; t < g->tokens; t++)
            tokens[b * g->tokens + t] = (uint32_t)lists.at[b].at[t];
    }
    return tokens;
}

/* The shape that the file must say for a tensor: the layers, if it has some, then the parameter's, reversed for matrices. */
static void check_shape(golden_case *c, const gpt_case *g, gpt_tensor t, json_t *shapes)
{
    const zro_param *p = &g->params[gpt_param_index(&g->config, t, 0)];
    size_t want[3], n = 0;
    golden_counts shape = golden_read_counts(c, gpt_tensor_name(t), json_object_get(shapes, gpt_tensor_name(t)));

    if (gpt_tensor_is_layered(t))
        want[n++] = g->config.layers;
    for (size_t i = 0; i < p->n_dims; i++)
        want[n++] = p->shape[gpt_tensor_is_layered(t) ? p->n_dims - 1 - i : i];
    if (golden_ok(c) && shape.n != n)
        golden_fail(c, "the shape of %s has %zu numbers, must have %zu", gpt_tensor_name(t), shape.n, n);
    for (size_t i = 0; i < n && golden_ok(c); i++)
        if (shape.at[i] != want[i])
            golden_fail(c, "the shape of %s has %zu at %zu, must be %zu", gpt_tensor_name(t), shape.at[i], i, want[i]);
}

/* Where element i of a parameter is in the file's array, which begins at its layer. */
static size_t place_in_file(const zro_param *p, gpt_tensor t, size_t i)
{
    if (p->n_dims == 1 || !gpt_tensor_is_layered(t))
        return i;
    return i % p->shape[1] * p->shape[0] + i / p->shape[1];
}

static size_t layers_of(const gpt_case *g, gpt_tensor t)
{
    return gpt_tensor_is_layered(t) ? g->config.layers : 1;
}

static golden_vector read_tensor(golden_case *c, const gpt_case *g, gpt_tensor t, json_t *object)
{
    golden_vector v = golden_read_vector(c, gpt_tensor_name(t), json_object_get(object, gpt_tensor_name(t)), ZRO_F32);
    size_t count = zro_param_count(&g->params[gpt_param_index(&g->config, t, 0)]) * layers_of(g, t);

    if (golden_ok(c) && v.count != count)
        golden_fail(c, "%s has %zu numbers, must have %zu", gpt_tensor_name(t), v.count, count);
    return v;
}

static void set_tensor(const gpt_case *g, gpt_tensor t, const golden_vector *from)
{
    for (size_t l = 0; l < layers_of(g, t); l++) {
        const zro_param *p = &g->params[gpt_param_index(&g->config, t, l)];
        size_t count = zro_param_count(p);

        for (size_t i = 0; i < count; i++)
            ((float *)p->data)[i] = ((const float *)from->data)[l * count + place_in_file(p, t, i)];
    }
}

static void check_gradient(golden_case *c, const gpt_case *g, gpt_tensor t)
{
    const golden_vector *x = &g->grads[t];
    float *got = golden_alloc(c, x->count * sizeof *got);

    for (size_t l = 0; l < layers_of(g, t); l++) {
        const zro_param *p = &g->params[gpt_param_index(&g->config, t, l)];
        size_t count = zro_param_count(p);

        for (size_t i = 0; i < count; i++)
            got[l * count + place_in_file(p, t, i)] = ((const float *)p->grad)[i];
    }
    golden_near_all(c, gpt_tensor_name(t), ZRO_F32, got, x, TOLERANCE, TOLERANCE * golden_largest(x, ZRO_F32));
}

static void read_params(golden_case *c, gpt_case *g)
{
    static const char keys[] = "wte wpe ln1w ln1b qkvw qkvb attprojw attprojb ln2w ln2b fcw fcb fcprojw fcprojb lnfw lnfb";
    json_t *params = json_object_get(c->json, "params"), *grads = json_object_get(c->json, "grads");
    json_t *shapes = json_object_get(c->json, "shapes");
    size_t n = gpt_params(&g->config);

    g->params = golden_alloc(c, n * sizeof *g->params);
    gpt_describe(&g->config, ZRO_F32, g->params, golden_alloc(c, n * GPT_NAME_BYTES));
    for (size_t i = 0; i < n; i++) {
        g->params[i].data = golden_alloc(c, zro_param_count(&g->params[i]) * sizeof(float));
        g->params[i].grad = golden_alloc(c, zro_param_count(&g->params[i]) * sizeof(float));
    }
    if (!golden_keys(c, "\"params\"", params, keys, "") || !golden_keys(c, "\"grads\"", grads, keys, "")
        || !golden_keys(c, "\"shapes\"", shapes, keys, ""))
        return;
    for (int t = 0; t < GPT_TENSORS && golden_ok(c); t++) {
        golden_vector values = read_tensor(c, g, (gpt_tensor)t, params);

        check_shape(c, g, (gpt_tensor)t, shapes);
        g->grads[t] = read_tensor(c, g, (gpt_tensor)t, grads);
        if (golden_ok(c))
            set_tensor(g, (gpt_tensor)t, &values);
    }
}

static void read_case(golden_case *c, gpt_case *g)
{
    if (!golden_keys(c, "the case", c->json,
                     "vocab_size context layers heads width batch tokens shapes params inputs targets logits loss grads", ""))
        return;
    g->config.vocab = golden_count(c, c->json, "vocab_size", 0);
    g->config.context = golden_count(c, c->json, "context", 0);
    g->config.layers = golden_count(c, c->json, "layers", 0);
    g->config.heads = golden_count(c, c->json, "heads", 0);
    g->config.width = golden_count(c, c->json, "width", 0);
    g->batch = golden_count(c, c->json, "batch", 0);
    g->tokens = golden_count(c, c->json, "tokens", 0);
    golden_about(c, "%zu layers, %zu heads, width %zu, %zu x %zu tokens", g->config.layers, g->config.heads, g->config.width,
                 g->batch, g->tokens);
    if (!golden_ok(c) || !golden_call(c, "gpt_config_check", gpt_config_check(&g->config)))
        return;
    g->inputs = read_tokens(c, g, "inputs");
    g->targets = read_tokens(c, g, "targets");
    if (golden_ok(c))
        read_params(c, g);
}

void golden_gpt(golden_case *c)
{
    gpt_case g = { .batch = 0 };
    gpt_model *model = NULL;
    golden_vector logits;
    float *got;
    double x, loss = 0;

    read_case(c, &g);
    if (!golden_ok(c))
        return;
    logits = golden_read_vector(c, "logits", golden_list(c, c->json, "logits"), ZRO_F32);
    if (golden_ok(c) && logits.count != g.batch * g.tokens * g.config.vocab)
        golden_fail(c, "\"logits\" has %zu numbers, must have %zu", logits.count, g.batch * g.tokens * g.config.vocab);
    if (!golden_ok(c) || !golden_call(c, "gpt_create", gpt_create(&g.config, g.params, GPT_TRAIN, g.batch, g.tokens, &model)))
        return;
    got = golden_alloc(c, logits.count * sizeof *got);
    if (golden_call(c, "gpt_logits", gpt_logits(model, g.inputs, got)))
        golden_near_all(c, "logits", ZRO_F32, got, &logits, TOLERANCE, TOLERANCE * golden_largest(&logits, ZRO_F32));
    if (golden_call(c, "gpt_train", gpt_train(model, g.inputs, g.targets, GPT_REPLACE, 1, NULL, NULL, &loss))) {
        x = golden_number(c, c->json, "loss", 0);
        golden_near(c, "the loss", ZRO_F32, loss, x, 2 * TOLERANCE * x);
        for (int t = 0; t < GPT_TENSORS; t++)
            check_gradient(c, &g, (gpt_tensor)t);
    }
    gpt_destroy(model);
}
