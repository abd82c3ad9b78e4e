/* Numbers in a state: those of schedules, and the program's own.
 *
 * Here a schedule is the name of its kind, numbers by name, and children; schedule_state.c knows what they mean. */
#include <string.h>

#include "base/status.h"
#include "zero/state.h"

enum { MAX_NUMBERS = 256 }; /* the most numbers of a program */

/* ---- the program's ---- */

static zro__state_number *find(const zro_state *s, const char *name)
{
    for (size_t i = 0; i < s->n_numbers; i++)
        if (strcmp(zro__state_text(s, s->numbers[i].name), name) == 0)
            return &s->numbers[i];
    return NULL;
}

/* Adds a row to a table of numbers. */
static zro_status add(zro_state *s, zro__state_table table, const char *name, double value)
{
    zro__state_number row = { .value = value };
    zro_status st = zro__state_copy_name(s, name, &row.name);

    return st == ZRO_OK ? zro__state_append(s, table, &row, 1) : st;
}

zro_status zro_state_set_number(zro_state *s, const char *name, double value)
{
    zro_status st = zro__state_check(s);

    if (st == ZRO_OK)
        st = zro__state_check_name("a number", name);
    if (st != ZRO_OK)
        return st;
    if (find(s, name) != NULL) {
        find(s, name)->value = value;
        return ZRO_OK;
    }
    if (s->n_numbers == MAX_NUMBERS)
        return zro__fail(ZRO_ERR_INVALID, "number \"%s\": a state has at most %d numbers", name, MAX_NUMBERS);
    return add(s, ZRO__STATE_NUMBERS, name, value);
}

zro_status zro_state_get_number(const zro_state *s, const char *name, double *value)
{
    zro_status st = zro__state_check(s);

    if (st != ZRO_OK)
        return st;
    if (name == NULL || value == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_get_number: %s is NULL", name == NULL ? "name" : "value");
    if (find(s, name) == NULL)
        return zro__fail(ZRO_ERR_INVALID, "the state has no number named \"%s\"", name);
    *value = find(s, name)->value;
    return ZRO_OK;
}

/* ---- schedules ---- */

zro_status zro__state_add_schedule(zro_state *s, const char *kind, size_t n_children)
{
    zro__state_schedule row = { .n_children = n_children, .first = s->n_positions };
    zro_status st = zro__state_check_name("a schedule's kind", kind);

    if (st == ZRO_OK)
        st = zro__state_copy_name(s, kind, &row.kind);
    return st == ZRO_OK ? zro__state_append(s, ZRO__STATE_SCHEDULES, &row, 1) : st;
}

zro_status zro__state_add_position(zro_state *s, const char *name, double value)
{
    zro_status st = zro__state_check_name("a schedule's number", name);

    if (st == ZRO_OK)
        st = add(s, ZRO__STATE_POSITIONS, name, value);
    if (st == ZRO_OK)
        s->schedules[s->n_schedules - 1].n++;
    return st;
}

/* How many schedules are no children of others; `missing` are children that do not follow. */
static size_t count_roots(const zro_state *s, size_t *missing)
{
    size_t roots = 0, open = 0;

    for (size_t i = 0; i < s->n_schedules; i++) {
        if (open == 0)
            roots++;
        else
            open--;
        open += s->schedules[i].n_children < s->n_schedules ? s->schedules[i].n_children : s->n_schedules;
    }
    *missing = open;
    return roots;
}

zro_status zro__state_check_schedules(const zro_state *s)
{
    size_t missing;

    (void)count_roots(s, &missing);
    if (missing > 0)
        return zro__fail(ZRO_ERR_INVALID, "schedules that others have taken over are missing after the last of %zu",
                         s->n_schedules);
    return ZRO_OK;
}

size_t zro_state_schedules(const zro_state *s)
{
    size_t missing;

    return s != NULL ? count_roots(s, &missing) : 0;
}
