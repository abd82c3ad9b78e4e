/* How a run goes on: with the options that it had.
 *
 * A state file has, beside the optimizer, numbers of the program's own: how far the run is, what a step is made of, and the options
 * that change its numbers.  A resumed run takes these options over; one that is given again must be the same, because a resume
 * is exact.  The learning rate and other values of the rule are in the optimizer's groups.  Files of earlier versions lack some
 * of the numbers, which then are not compared. */
#ifndef GPT_RESUME_H
#define GPT_RESUME_H

#include "options.h"

enum { GPT_STEP, GPT_SEQUENCES, GPT_TOKENS, GPT_DATA_TOKENS, GPT_OWN_NUMBERS, GPT_NUMBERS = GPT_OWN_NUMBERS + GPT_KEPT };
enum { GPT_MOST_HYPERS = 32 };

/* Doubles alone, so that it can be broadcast as an array of them.  NaN: there is none. */
typedef struct gpt_saved {
    double numbers[GPT_NUMBERS];    /* those above, then the kept options in their order */
    double values[GPT_MOST_HYPERS]; /* of the rule, in its order */
} gpt_saved;
enum { GPT_SAVED_DOUBLES = sizeof(gpt_saved) / sizeof(double) };

/* Sets the numbers of the kept options; the others become NaN, and values are not used for a save. */
void gpt_saved_make(const gpt_options *options, gpt_saved *saved);

/* Reads them from a state file, all of which is in memory meanwhile.  Errors are those of zro_state_read.  Local. */
ZRO_MUST zro_status gpt_saved_read(const char *path, const zro_rule *rule, gpt_saved *saved);

/* Lists the numbers that a state file has, or shall have; returns how many. */
size_t gpt_saved_list(const gpt_saved *saved, zro_value out[GPT_NUMBERS]);

/* Takes the saved options over.
 *
 * INVALID  one was given with another value; the text names it and both values */
ZRO_MUST zro_status gpt_saved_take(const gpt_saved *saved, const zro_rule *rule, gpt_options *options);

/* Compares the own numbers of this run with the saved ones.
 *
 * INVALID  a step is made of other sequences, the data is another one, or all steps have been made */
ZRO_MUST zro_status gpt_saved_compare(const gpt_saved *saved, const gpt_saved *now, const gpt_options *options);

#endif
