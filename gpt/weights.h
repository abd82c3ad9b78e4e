/* Weights as files: a folder with model.safetensors and config.json, as Hugging Face's GPT-2 has them.
 *
 * The parameters have Hugging Face's names, order and shapes already (model.h), so nothing is transposed.  Files of others may have
 * "transformer." before every name, other floating-point types, and tensors that are no parameters (masks, a copy of the tied
 * head), which are left out. */
#ifndef GPT_WEIGHTS_H
#define GPT_WEIGHTS_H

#include "model.h"

/* The configuration of the model in a folder: sizes from model.safetensors, the number of heads from config.json.
 *
 * SYSTEM  a file cannot be read
 * FORMAT  it is damaged, or not a GPT-2 */
ZRO_MUST zro_status gpt_weights_config(const char *folder, gpt_config *config);

/* Whether a safetensors file has the parameters of this model, with their shapes: one of weights, or one that zro_optim_save has
 * written.
 *
 * INVALID  it has another model; the text names the first difference */
ZRO_MUST zro_status gpt_weights_check(const char *path, const zro_param *params, size_t n);

/* Reads the values of all parameters from a safetensors file; converts them to the type of the parameters. */
ZRO_MUST zro_status gpt_weights_read(const char *path, zro_param *params, size_t n);

/* Writes model.safetensors and config.json into a folder.  Each is written beside its place, synced, and renamed, and then
 * the folder is synced; a write that fails leaves the old file. */
ZRO_MUST zro_status gpt_weights_write(const char *folder, const gpt_config *config, const zro_param *params);

#endif
