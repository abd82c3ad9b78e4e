/* What the ranks of a training must agree on.  They may have been started with different arguments, or on machines with different
 * files, and then would compute nonsense or wait for each other. */
#ifndef GPT_RANKS_H
#define GPT_RANKS_H

#include "data.h"
#include "options.h"

/* Whether something failed on any rank: the lowest rank that failed keeps its status and text, the others get PEER.  Collective. */
ZRO_MUST zro_status gpt_vote(zro_group *group, zro_status mine);

/* Compares the options, or the tokens of the data, with those of rank 0.  Collective.
 *
 * MISMATCH  they differ; the text names the option, both values and the rank
 * PEER      those of another rank do */
ZRO_MUST zro_status gpt_same_options(zro_group *group, const gpt_options *options);
ZRO_MUST zro_status gpt_same_data(zro_group *group, const gpt_data *data);

#endif
