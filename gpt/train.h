/* A training: the model of model.h on the ranks of a group. */
#ifndef GPT_TRAIN_H
#define GPT_TRAIN_H

#include "options.h"

/* Trains as the options say, on all ranks of the group; rank 0 speaks.  `stop` is looked at after every step: if it is not 0 on one
 * rank, all ranks save and end.  Collective. */
ZRO_MUST zro_status gpt_train_run(zro_group *group, const gpt_options *options, volatile const int *stop);

#endif
