/* Where schedules are, in a state.
 *
 * What a schedule is (its arguments) and where it is (its position) are one list of numbers with names, which `list_numbers`
 * makes: saving writes the list, loading compares the arguments and then sets the position.  So there is one place that knows
 * them.  Numbers are doubles: counts are exact up to 2^53, and a larger argument is compared as the double that it rounds to. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/status.h"
#include "group/group.h"
#include "zero/optim.h"
#include "zero/schedule.h"
#include "zero/state.h"

/* ---- the numbers of a schedule ---- */

/* One number: of an argument its value; of a position where it is, an integer or any number. */
typedef struct number {
    const char *name;
    double argument;
    uint64_t *count; /* or NULL */
    double *real;    /* or NULL */
} number;

/* What is done with each number, in order; `user` is handed on. */
typedef zro_status (*number_fn)(void *user, const number *number);

typedef struct walk {
    number_fn fn;
    void *user;
    zro_status st; /* the first failure ends the walk */
} walk;

static void visit(walk *w, number n)
{
    if (w->st == ZRO_OK)
        w->st = w->fn(w->user, &n);
}

static zro_status list_numbers(zro_schedule *s, number_fn fn, void *user)
{
    walk w = { fn, user, ZRO_OK };
    const size_t n = s->n_children == 0 ? s->n_groups : 0; /* a leaf has the first lr of each group */
    zro__bound argument;
    char name[40];

    for (size_t i = 0; zro__schedule_argument(&s->args, i, &argument); i++)
        visit(&w, (number){ argument.name, .argument = argument.value });
    if (s->args.kind == ZRO__SCHEDULE_COSINE_RESTARTS) {
        visit(&w, (number){ "cycle_steps", .count = &s->now.t_cur });
        visit(&w, (number){ "cycle_length", .count = &s->now.t_i });
    }
    if (s->args.kind == ZRO__SCHEDULE_PLATEAU) {
        visit(&w, (number){ "best", .real = &s->now.best });
        visit(&w, (number){ "bad_steps", .count = &s->now.bad });
        visit(&w, (number){ "cooldown_left", .count = &s->now.cooldown });
    }
    visit(&w, (number){ "n_milestones", .argument = (double)s->args.n_milestones });
    for (size_t i = 0; i < s->args.n_milestones && w.st == ZRO_OK; i++) {
        snprintf(name, sizeof name, "milestones:%zu", i);
        visit(&w, (number){ name, .argument = (double)s->args.milestones[i] });
    }
    visit(&w, (number){ "steps", .count = &s->now.t });
    visit(&w, (number){ "n_groups", .argument = (double)s->n_groups });
    for (size_t g = 0; g < n && w.st == ZRO_OK; g++) {
        snprintf(name, sizeof name, "first_lr:%zu", g);
        visit(&w, (number){ name, .real = &s->base[g] });
    }
    return w.st;
}

/* ---- into a state ---- */

static zro_status save_number(void *user, const number *n)
{
    const double value = n->count != NULL ? (double)*n->count : n->real != NULL ? *n->real : n->argument;

    return zro__state_add_position(user, n->name, value);
}

static zro_status save(zro_state *state, zro_schedule *s)
{
    zro_status st = zro__state_add_schedule(state, zro__schedule_name(s->args.kind), s->n_children);

    if (st == ZRO_OK)
        st = list_numbers(s, save_number, state);
    for (size_t i = 0; st == ZRO_OK && i < s->n_children; i++)
        st = save(state, s->children[i]);
    return st;
}

zro_status zro__schedules_check_list(zro_schedule *const *schedules, size_t n, const zro_optim *optim)
{
    if (schedules == NULL && n > 0)
        return zro__fail(ZRO_ERR_INVALID, "the list of %zu schedules is NULL", n);
    for (size_t i = 0; i < n; i++) {
        const zro_schedule *s = schedules[i];

        if (s == NULL)
            return zro__fail(ZRO_ERR_INVALID, "schedules[%zu] is NULL", i);
        if (s->owner != NULL)
            return zro__fail(ZRO_ERR_INVALID, "schedules[%zu]: a %s schedule has taken over this %s one; list that one instead",
                             i, zro__schedule_name(s->owner->args.kind), zro__schedule_name(s->args.kind));
        if (optim != NULL && s->optim != optim)
            return zro__fail(ZRO_ERR_INVALID, "schedules[%zu], a %s one, belongs to another optimizer", i,
                             zro__schedule_name(s->args.kind));
    }
    return ZRO_OK;
}

/* What the state had comes back if memory runs out. */
zro_status zro_state_set_schedules(zro_state *state, zro_schedule *const *schedules, size_t n)
{
    zro_status st = zro__state_check(state);
    size_t n_schedules, n_positions;

    if (st == ZRO_OK)
        st = zro__schedules_check_list(schedules, n, NULL);
    if (st != ZRO_OK)
        return st;
    n_schedules = state->n_schedules;
    n_positions = state->n_positions;
    for (size_t i = 0; st == ZRO_OK && i < n; i++)
        st = save(state, schedules[i]);
    if (st != ZRO_OK) {
        state->n_schedules = n_schedules;
        state->n_positions = n_positions;
        return st;
    }
    state->n_schedules -= n_schedules;
    if (state->n_schedules > 0)
        memmove(state->schedules, state->schedules + n_schedules, state->n_schedules * sizeof *state->schedules);
    return ZRO_OK;
}

/* ---- out of a state ---- */

/* One schedule of the state and the one that it is compared with, or whose position is set. */
typedef struct loading {
    const zro_state *state;
    const zro__state_schedule *row;
    const zro_schedule *schedule;
    size_t next; /* of the row's numbers: where the next name is looked for first */
    int sets;    /* 1: everything has been checked */
} loading;

static zro_status refuse(const loading *l, const char *name, const char *format, double theirs, double mine)
{
    char text[200];

    snprintf(text, sizeof text, format, theirs, mine);
    return zro__fail(ZRO_ERR_INVALID, "schedule_%s: %s %s", zro__schedule_name(l->schedule->args.kind), name, text);
}

/* Numbers come in the order in which they were saved, unless somebody has changed the file. */
static const zro__state_number *find(loading *l, const char *name)
{
    for (size_t k = 0; k < l->row->n; k++) {
        const size_t at = (l->next + k) % l->row->n;
        const zro__state_number *n = &l->state->positions[l->row->first + at];

        if (strcmp(zro__state_text(l->state, n->name), name) == 0) {
            l->next = at + 1;
            return n;
        }
    }
    return NULL;
}

static zro_status load_number(void *user, const number *mine)
{
    loading *l = user;
    const zro__state_number *theirs = find(l, mine->name);

    if (theirs == NULL)
        return zro__fail(ZRO_ERR_INVALID, "schedule_%s: the state does not have its %s",
                         zro__schedule_name(l->schedule->args.kind), mine->name);
    if (mine->count == NULL && mine->real == NULL && theirs->value != mine->argument)
        return refuse(l, mine->name, "= %.17g in the state, %.17g here; make the schedule with the same arguments",
                      theirs->value, mine->argument);
    if (mine->count != NULL && !(theirs->value >= 0 && theirs->value <= 0x1p64 && theirs->value == floor(theirs->value)))
        return refuse(l, mine->name, "= %.17g in the state, must be an integer >= %g", theirs->value, 0);
    if (mine->real != NULL && isnan(theirs->value))
        return refuse(l, mine->name, "= %g in the state, must be a number", theirs->value, 0);
    if (l->sets && mine->count != NULL) /* what was too large for a double was rounded, possibly to 2^64 */
        *mine->count = theirs->value < 0x1p64 ? (uint64_t)theirs->value : UINT64_MAX;
    if (l->sets && mine->real != NULL)
        *mine->real = theirs->value;
    return ZRO_OK;
}

/* A count of the state; the row has it. */
static double get(loading *l, const char *name)
{
    const zro__state_number *n = find(l, name);

    return n != NULL ? n->value : 0;
}

/* What the numbers of a position must be to each other, so that no step divides by 0 or goes on after the end. */
static zro_status check_position(loading *l)
{
    const zro__schedule_args *a = &l->schedule->args;

    if (a->kind == ZRO__SCHEDULE_ONE_CYCLE && get(l, "steps") > (double)a->one_cycle.total_steps)
        return refuse(l, "steps", "= %.17g in the state, must be at most total_steps = %.17g", get(l, "steps"),
                      (double)a->one_cycle.total_steps);
    if (a->kind == ZRO__SCHEDULE_COSINE_RESTARTS
        && (get(l, "cycle_steps") >= get(l, "cycle_length") || get(l, "cycle_length") < (double)a->t_0))
        return refuse(l, "cycle_steps", "= %.17g in the state, must be below cycle_length = %.17g, and that at least t_0",
                      get(l, "cycle_steps"), get(l, "cycle_length"));
    return ZRO_OK;
}

/* Checks or sets a schedule and its children; *row goes on to the next schedule of the state. */
static zro_status load(const zro_state *state, size_t *row, zro_schedule *s, int sets)
{
    loading l = { state, &state->schedules[*row], s, 0, sets };
    const char *kind = zro__state_text(state, l.row->kind), *mine = zro__schedule_name(s->args.kind);
    zro_status st;

    if (strcmp(kind, mine) != 0)
        return zro__fail(ZRO_ERR_INVALID,
                         "schedule_%s: in its place the state has %s; pass the same schedules in the same order", mine, kind);
    if (l.row->n_children != s->n_children)
        return zro__fail(ZRO_ERR_INVALID, "schedule_%s: it has taken over %zu schedules in the state, %zu here", mine,
                         l.row->n_children, s->n_children);
    st = list_numbers(s, load_number, &l);
    if (st == ZRO_OK && !sets)
        st = check_position(&l);
    (*row)++;
    if (sets)
        s->n_loads = s->optim->n_loads;
    for (size_t i = 0; st == ZRO_OK && i < s->n_children; i++)
        st = load(state, row, s->children[i], sets);
    return st;
}

zro_status zro__schedules_check(zro_schedule *const *schedules, size_t n, const zro_optim *optim, const zro_state *state)
{
    zro_status st = zro__schedules_check_list(schedules, n, optim);
    size_t row = 0;

    if (st == ZRO_OK && zro_state_schedules(state) != n)
        st = zro__fail(ZRO_ERR_INVALID, "the state has the positions of %zu schedules, but there are %zu",
                       zro_state_schedules(state), n);
    for (size_t i = 0; st == ZRO_OK && i < n; i++)
        st = load(state, &row, schedules[i], 0);
    return st;
}

zro_status zro_schedules_load(zro_schedule *const *schedules, size_t n, const zro_state *state)
{
    zro_status st = zro__state_check(state);
    size_t row = 0;

    if (st == ZRO_OK)
        st = zro__schedules_check(schedules, n, NULL, state);
    for (size_t i = 0; st == ZRO_OK && i < n; i++)
        st = load(state, &row, schedules[i], 1); /* it was checked and does not fail */
    return st;
}

/* ---- schedules that were not put anywhere ---- */

static int differs_from_first(const zro_schedule *s)
{
    int differs = 0;

    for (size_t g = 0; s->n_children == 0 && g < s->n_groups && s->args.kind != ZRO__SCHEDULE_PLATEAU; g++)
        differs |= s->base[g] != zro__optim_shard(s->optim)->groups[g]->first_lr;
    for (size_t i = 0; i < s->n_children; i++)
        differs |= differs_from_first(s->children[i]);
    return differs;
}

/* A program may have stepped the schedule to the state's position before it loaded the state; then there is nothing to say, as
 * long as it began from the same lr. */
void zro__schedule_say_old(zro_schedule *s)
{
    const int unmoved = s->now.t == 0 && s->optim->loaded_steps > 0;

    s->n_loads = s->optim->n_loads;
    if (unmoved || differs_from_first(s))
        zro__log(
            &s->optim->settings, ZRO_LOG_WARN,
            "schedule_%s was made before a state was loaded into its optimizer, and its %s is from before the load; load its "
            "position, too (zro_optim_resume, zro_schedules_load), or make it after the load",
            zro__schedule_name(s->args.kind), unmoved ? "position" : "first lr");
}

/* ---- from another rank ---- */

static uint64_t hash_kinds(const zro_schedule *s)
{
    uint64_t hash = ZRO__HASH_START;

    for (; s != NULL; s = s->next) {
        const uint64_t item[] = { (uint64_t)s->args.kind, s->n_groups, s->n_children };

        hash = zro__hash(hash, item, sizeof item);
    }
    return hash;
}

zro_status zro__schedules_take(zro_optim *optim, zro_group *group, int root)
{
    int same = 0;
    zro_status st = zro__enter(group);

    if (st != ZRO_OK)
        return st;
    st = zro__is_same(&group->ranks.board, ZRO__CALL_JOIN, hash_kinds(optim->schedules), &same);
    if (st == ZRO_OK && !same)
        st = zro__fail(ZRO_ERR_MISMATCH, "the ranks have made different schedules on one optimizer: make the same ones in the "
                                         "same order on all ranks");
    for (zro_schedule *s = optim->schedules; st == ZRO_OK && s != NULL; s = s->next) {
        st = zro_broadcast(group, &s->now, sizeof s->now, ZRO_U8, root);
        if (st == ZRO_OK)
            st = zro_broadcast(group, s->base, s->n_groups, ZRO_F64, root);
    }
    return zro__leave(group, st);
}
