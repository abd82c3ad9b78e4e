/* One small model for scenarios: two linear layers, y = w2 (w1 x + b1) + b2, forward and backward written by hand in f32.  What
 * it is fed depends on rank and step alone. */
#ifndef MODEL_H
#define MODEL_H

#include "zro.h"

enum { MODEL_IN = 48, MODEL_HIDDEN = 40, MODEL_OUT = 30 };
enum { MODEL_W1, MODEL_B1, MODEL_W2, MODEL_B2, MODEL_PARAMS }; /* [hidden x in], [hidden], [out x hidden], [out] */
enum { MODEL_ELEMENTS = MODEL_HIDDEN * (MODEL_IN + 1) + MODEL_OUT * (MODEL_HIDDEN + 1) };

/* Must stay where it is. */
typedef struct model {
    zro_param params[MODEL_PARAMS];
    float data[MODEL_ELEMENTS], grad[MODEL_ELEMENTS]; /* of all parameters, unless zro handed out theirs */
} model;

/* With values that are always the same, gradients absent. */
void model_init(model *m);

/* The same in memory that zro hands out, filled on rank 0: to be published.  Collective. */
void model_init_in(model *m, zro_group *group, zro_memory_kind kind);
void model_free(model *m);

/* All parameters in one group; only the weights, and only the biases. */
zro_param_group model_group(model *m);
zro_param_group model_weights(model *m);
zro_param_group model_biases(model *m);

/* Forward and backward with the inputs of a rank's step: writes all gradients, which are present then, and returns the loss. */
double model_run(model *m, int rank, int step);

/* Averages gradients over the ranks; takes those of another model. */
void model_average(model *m, zro_group *group);
void model_take_gradients(model *m, const model *from);

/* Equal values, bit for bit. */
int model_equal(const model *a, const model *b);

/* Checks that all ranks of the group have the same values. */
void model_check_ranks(const model *m, zro_group *group);

/* An iteration of a sharded optimizer and of one that is not.  Each has a model of its own; both get the average of the
 * gradients of the first.  Checks that the models are equal afterwards, and moved. */
void model_step_both(zro_group *group, model *sharded, zro_optim *x, model *alone, zro_optim *y, int step);

#endif
