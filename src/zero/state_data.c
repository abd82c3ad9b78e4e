/* The data of parameters in a state: rows of the table of slots that have no name and are in no list of slots, so that they get
 * memory, travel and are written as slots are. */
#include <string.h>

#include "base/param.h"
#include "base/status.h"
#include "zero/state.h"

static zro_status check_new_data(const zro_state *s, size_t param)
{
    zro_status st = zro__state_check_param(s, param);
    char name[ZRO__NAME_BYTES];

    if (st == ZRO_OK && s->params[param].data != ZRO__STATE_NONE)
        st = zro__fail(ZRO_ERR_INVALID, "the state has the data of parameter %s already",
                       zro__param_name(zro__state_text(s, s->params[param].name), param, name));
    return st;
}

zro_status zro__state_plan_data(zro_state *s, size_t param)
{
    zro__state_slot row = { .name = ZRO__STATE_NONE, .param = param, .next = ZRO__STATE_NONE };
    zro_status st = check_new_data(s, param);

    if (st != ZRO_OK)
        return st;
    row.dtype = s->params[param].dtype;
    row.count = s->params[param].count;
    row.bytes = row.count * zro_dtype_bytes(row.dtype);
    st = zro__state_announce(s, &row);
    if (st != ZRO_OK)
        return st;
    s->params[param].data = s->n_slots - 1;
    s->params[param].has_data = 1;
    return ZRO_OK;
}

zro__state_slot *zro__state_data(const zro_state *s, size_t param)
{
    return s->params[param].data != ZRO__STATE_NONE ? &s->slots[s->params[param].data] : NULL;
}

/* The memory comes first: once the data is announced nothing can fail. */
zro_status zro_state_add_data(zro_state *s, size_t param, const void *data)
{
    zro_status st = check_new_data(s, param);
    const zro__state_slot *row;

    if (st == ZRO_OK)
        st = zro__state_take(s);
    if (st == ZRO_OK)
        st = zro__state_reserve(s, s->params[param].count * zro_dtype_bytes(s->params[param].dtype) + ZRO__STATE_ALIGN);
    if (st == ZRO_OK)
        st = zro__state_plan_data(s, param);
    if (st == ZRO_OK)
        st = zro__state_take(s);
    if (st != ZRO_OK)
        return st;
    row = zro__state_data(s, param);
    if (data != NULL && row->bytes > 0)
        memcpy(row->data, data, row->bytes);
    return ZRO_OK;
}
