/* What a state's file says besides its tensors, as JSON.  The form stands at the head of state_json.c. */
#ifndef ZRO_CHECKPOINT_STATE_JSON_H
#define ZRO_CHECKPOINT_STATE_JSON_H

#include <jansson.h>

#include "zro.h"

/* The text of the JSON, to be freed by zro__free.
 *
 * INVALID  a value that JSON cannot say; a list of values with a hole */
zro_status zro__state_to_json(const zro_state *state, char **text);

/* A state without slots.  On failure *out is NULL or half-built; the caller destroys it.
 *
 * INVALID  the JSON is not what it should be; the text does not say in which file */
zro_status zro__state_from_json(const json_t *json, zro_state **out);

#endif
