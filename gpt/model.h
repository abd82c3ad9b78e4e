/* A GPT-2 in plain C: token and position embeddings, pre-norm blocks with causal attention and a tanh-GELU, a head that is tied
 * to the token embedding.  Forward and backward are written by hand (pass.c); this is what a program sees.
 *
 * Parameters are zro_params that the program holds.  Their names, shapes and order are those of Hugging Face's GPT-2
 * ("h.0.attn.c_attn.weight"), whose matrices are [in, out]; so a file of them is a file that others can read.  In the code the
 * tensors have llm.c's names.  Data is f32 or bf16, gradients are f32; all computing is in f32.
 *
 * A model takes all its memory when it is created; gpt_memory_bytes tells beforehand how much.  Nothing here talks to other
 * ranks: the program hands zro_ddp_grads_ready in as a callback.
 *
 * Failures are reported as zro_status with a text in zro_last_error(). */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "zro.h"

typedef struct gpt_config {
    size_t vocab;   /* tokens are below this */
    size_t context; /* the longest sequence */
    size_t layers, heads, width;
} gpt_config;

/* By llm.c's names; from LN1W to FCPROJB there is one per layer. */
typedef enum gpt_tensor {
    GPT_WTE,
    GPT_WPE,
    GPT_LN1W,
    GPT_LN1B,
    GPT_QKVW,
    GPT_QKVB,
    GPT_ATTPROJW,
    GPT_ATTPROJB,
    GPT_LN2W,
    GPT_LN2B,
    GPT_FCW,
    GPT_FCB,
    GPT_FCPROJW,
    GPT_FCPROJB,
    GPT_LNFW,
    GPT_LNFB,
    GPT_TENSORS
} gpt_tensor;

enum { GPT_PER_LAYER = GPT_FCPROJB - GPT_LN1W + 1, GPT_NAME_BYTES = 40 };

/* ---- configurations and parameters: pure ---- */

/* The preset of this name ("nano", "micro", "mini", "gpt2"), with its own vocabulary of 256 bytes (gpt2: 50257); 0 if there is
 * none.  names: all of them, for messages. */
int gpt_preset(const char *name, gpt_config *config);
const char *gpt_preset_names(void);

/* INVALID names the number that is out of range. */
ZRO_MUST zro_status gpt_config_check(const gpt_config *config);

/* How many parameters (tensors) a model has, and how many elements they have together. */
size_t gpt_params(const gpt_config *config);
size_t gpt_elements(const gpt_config *config);

/* llm.c's name of a tensor, whether it has one per layer, and its index among the parameters (layer 0 for those that have not). */
const char *gpt_tensor_name(gpt_tensor tensor);
int gpt_tensor_is_layered(gpt_tensor tensor);
size_t gpt_param_index(const gpt_config *config, gpt_tensor tensor, size_t layer);

/* Fills gpt_params() parameters without memory, and their names. */
void gpt_describe(const gpt_config *config, zro_dtype dtype, zro_param *params, char (*names)[GPT_NAME_BYTES]);

/* Gives parameters their first values, as GPT-2: normal with deviation 0.02 (projections into the residual stream: divided by
 * sqrt(2 layers)), biases 0, weights of norms 1.  A pure function of seed, parameter and element. */
ZRO_MUST zro_status gpt_init(const gpt_config *config, zro_param *params, uint64_t seed);

/* ---- the model ---- */

typedef enum gpt_use {
    GPT_TRAIN,   /* batches with gradients, and losses without */
    GPT_GENERATE /* one sequence that grows: keeps only keys and values of what it has read */
} gpt_use;

typedef struct gpt_model gpt_model;

/* How many bytes a model takes for activations, beside parameters and gradients. */
size_t gpt_memory_bytes(const gpt_config *config, zro_dtype dtype, gpt_use use, size_t batch, size_t tokens);

/* A model for batches of batch x tokens (GENERATE: 1 x at most so many tokens).  `params` are kept by reference; their addresses
 * are read in every pass. */
ZRO_MUST zro_status gpt_create(const gpt_config *config, zro_param *params, gpt_use use, size_t batch, size_t tokens,
                               gpt_model **out);
void gpt_destroy(gpt_model *model);

/* Called when the gradients of these parameters are final and their values are not needed any more in this pass.  A failure ends
 * the pass. */
typedef zro_status (*gpt_ready_fn)(void *user, const size_t *index, size_t n);

/* What becomes of the gradients that are there. */
typedef enum gpt_grads { GPT_REPLACE = 0, GPT_ADD = 1 } gpt_grads;

/* Forward and backward: *loss is the mean cross-entropy of the batch, and the gradient of loss * scale replaces the gradients, or
 * is added to them.  inputs, targets [batch][tokens].  `ready` may be NULL.
 *
 * INVALID  a token is not below the vocabulary; the text has its place */
ZRO_MUST zro_status gpt_train(gpt_model *model, const uint32_t *inputs, const uint32_t *targets, gpt_grads grads, double scale,
                              gpt_ready_fn ready, void *user, double *loss);

/* The mean cross-entropy alone. */
ZRO_MUST zro_status gpt_loss(gpt_model *model, const uint32_t *inputs, const uint32_t *targets, double *loss);

/* Forward of a batch, and its logits [batch][tokens][vocab]. */
ZRO_MUST zro_status gpt_logits(gpt_model *model, const uint32_t *inputs, float *logits);

/* Of a model for GENERATE: reads tokens [first, first + count) of a sequence whose tokens before `first` it has read already, and
 * sets the logits [vocab] of what follows the last of them. */
ZRO_MUST zro_status gpt_read(gpt_model *model, const uint32_t *tokens, size_t first, size_t count, float *logits);

/* Fails with a text made by printf. */
zro_status gpt_fail(zro_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
