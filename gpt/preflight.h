/* What can be known to go wrong before a training begins: data, memory, folders, files. */
#ifndef GPT_PREFLIGHT_H
#define GPT_PREFLIGHT_H

#include "data.h"
#include "options.h"

/* The memory of one rank in bytes. */
typedef struct gpt_memory {
    double params, grads, state, activations;
} gpt_memory;

/* Of a rank that owns so many elements of the optimizer's state, where so many ranks share the parameters. */
gpt_memory gpt_memory_of_rank(const gpt_options *options, const gpt_choice *choice, size_t owned, int sharers);
double gpt_memory_sum(const gpt_memory *memory);

/* Checks that --log (also the one in --out) and --trace are none of the files that a training reads or saves.  Comes before the
 * group is made, which opens the trace.
 *
 * INVALID  one of them is; the text names both */
ZRO_MUST zro_status gpt_check_files(const gpt_options *options);

/* Opens the data and sets the vocabulary of the model by it; checks that every split has windows, that all ranks of this machine
 * fit into its memory, that --log, --trace and --out can be written, that --resume and --init find this model, and that the disk has room
 * for a save.  Changes nothing but to create these.  On success `data` is open.
 *
 * The text of a failure says which option, and what to do. */
ZRO_MUST zro_status gpt_preflight(const gpt_options *options, gpt_choice *choice, int ranks_here, gpt_data *data);

/* Where --out has its state. */
enum { GPT_PATH_BYTES = 4096 };
ZRO_MUST zro_status gpt_state_path(const gpt_options *options, char path[GPT_PATH_BYTES]);

/* The same, and it is there.
 *
 * SYSTEM  there is no run in --out */
ZRO_MUST zro_status gpt_find_run(const gpt_options *options, char path[GPT_PATH_BYTES]);

/* Where the log goes: --log, or into --out; "": there is none. */
ZRO_MUST zro_status gpt_log_path(const gpt_options *options, char path[GPT_PATH_BYTES]);

#endif
