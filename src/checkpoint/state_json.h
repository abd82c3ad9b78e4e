/* What a state's file says besides its tensors, as JSON.  The form stands at the head of state_json.c. */
#ifndef ZRO_CHECKPOINT_STATE_JSON_H
#define ZRO_CHECKPOINT_STATE_JSON_H

#include <jansson.h>

#include "zro.h"

/* To be freed by json_decref.
 *
 * INVALID  a value that JSON cannot say; a list of values with a hole */
zro_status zro__state_to_json(const zro_state *state, json_t **out);

/* A state without slots.  `where` is what the file is called in texts.
 *
 * FORMAT  not what it should be */
zro_status zro__state_from_json(const char *where, const json_t *json, zro_state **out);

#endif
