/* Save and resume: everything that a training needs in order to go on, in one file and two calls.
 *
 * Both are made of calls that a program could make itself: consolidate with data, put positions and numbers into the state, write
 * it; read, broadcast, check, load (but arrays go straight to their owners).  What is added is that a failure on one rank is one on all: whatever a rank does alone ends in
 * a vote, and a resume votes on all that it has checked before the load, which votes on its own checks, changes anything. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/settings.h"
#include "base/status.h"
#include "board/vote.h"
#include "group/group.h"
#include "zero/optim.h"
#include "zero/schedule.h"
#include "zero/state.h"

ZRO__DEFINE_INIT(zro_save_config, ZRO_SAVE_CONFIG_INIT)

static zro_status check_arguments(const zro_optim *opt, const char *call, const char *path, const zro_save_config *given,
                                  zro_save_config *config)
{
    zro_status st;

    zro_save_config_init(config);
    st = zro__config_take("zro_save_config", given, sizeof config->struct_size, config, sizeof *config);
    if (st != ZRO_OK)
        return st;
    if (path == NULL || path[0] == '\0')
        return zro__fail(ZRO_ERR_INVALID, "%s: path is %s", call, path == NULL ? "NULL" : "empty");
    if (config->numbers == NULL && config->n_numbers > 0)
        return zro__fail(ZRO_ERR_INVALID, "%s: numbers is NULL, but n_numbers = %zu", call, config->n_numbers);
    for (size_t i = 0; i < config->n_numbers; i++)
        if (config->numbers[i].name == NULL)
            return zro__fail(ZRO_ERR_INVALID, "%s: the name of numbers[%zu] is NULL", call, i);
    return zro__schedules_check_list(config->schedules, config->n_schedules, opt);
}

/* One save or resume on this rank. */
typedef struct work {
    zro_optim *opt;
    zro__call call;
    const char *path;
    zro_save_config config;
    zro_state *state; /* NULL until this rank has one */
} work;

/* Votes on what each rank has done by itself. */
static zro_status vote(work *w, zro_status mine)
{
    return zro__optim_vote(w->opt, ZRO__OTHER, w->call, mine);
}

/* Does the work after its arguments have been checked on all ranks.  `slice` names it in a trace. */
static zro_status run(work *w, const zro_save_config *given, const char *slice, zro_status (*fn)(work *))
{
    zro_status st = zro__optim_check(w->opt);
    uint64_t begun;

    if (st != ZRO_OK)
        return st;
    begun = zro__trace_begin(zro__trace_of(w->opt->group));
    st = vote(w, check_arguments(w->opt, zro__call_name(w->call), w->path, given, &w->config));
    if (st == ZRO_OK)
        st = fn(w);
    zro_state_destroy(w->state);
    zro__trace_end(zro__trace_of(w->opt->group), begun, slice, -1, 0);
    return st;
}

/* ---- save ---- */

static zro_status write_state(zro_state *state, const char *path, const zro_save_config *config)
{
    zro_status st = zro_state_set_schedules(state, config->schedules, config->n_schedules);

    for (size_t i = 0; st == ZRO_OK && i < config->n_numbers; i++)
        st = zro_state_set_number(state, config->numbers[i].name, config->numbers[i].value);
    return st == ZRO_OK ? zro_state_write(state, path) : st;
}

static zro_status save(work *w)
{
    zro_status st = zro__optim_gather_to(w->opt, w->call, 0, 1, &w->state);

    return st == ZRO_OK ? vote(w, w->state != NULL ? write_state(w->state, w->path, &w->config) : ZRO_OK) : st;
}

zro_status zro_optim_save(zro_optim *opt, const char *path, const zro_save_config *config)
{
    return run(&(work){ .opt = opt, .call = ZRO__CALL_SAVE, .path = path }, config, "save", save);
}

/* ---- resume ---- */

static zro_status check_state(zro_optim *opt, const zro_state *state, const zro_save_config *config)
{
    zro_status st = zro__schedules_check(config->schedules, config->n_schedules, opt, state);
    double value;

    for (size_t i = 0; st == ZRO_OK && i < config->n_numbers; i++)
        st = zro_state_get_number(state, config->numbers[i].name, &value);
    for (size_t i = 0; st == ZRO_OK && i < state->n_params; i++)
        if (!state->params[i].has_data)
            st =
                zro__param_fail(ZRO_ERR_INVALID, zro__state_text(state, state->params[i].name), i,
                                "the file does not have its data, because zro_optim_save did not write it; use zro_state_read, "
                                "zro_state_broadcast and zro_optim_load, and bring the parameters' values yourself");
    return st;
}

static int is_asked_for(const zro_save_config *config, const char *name)
{
    for (size_t i = 0; i < config->n_numbers; i++)
        if (strcmp(config->numbers[i].name, name) == 0)
            return 1;
    return 0;
}

/* Whoever saved a number meant to have it back: an epoch that nobody reads begins at 0 again. */
static void say_left_out(const zro_optim *opt, const zro_state *state, const zro_save_config *config)
{
    char names[400] = "";
    size_t at = 0, n = 0;

    for (size_t i = 0; i < state->n_numbers; i++) {
        const char *name = zro__state_text(state, state->numbers[i].name);

        if (is_asked_for(config, name))
            continue;
        if (at < sizeof names)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", n == 0 ? "" : ", ", name);
        n++;
    }
    if (n > 0 && zro__optim_rank(opt) == 0)
        zro__log(&opt->settings, ZRO_LOG_WARN,
                 "optim_resume: the file has %zu number%s that the program did not ask for: %s; list what it saves in "
                 "zro_save_config.numbers when it resumes, too",
                 n, n == 1 ? "" : "s", names);
}

static zro_status resume(work *w)
{
    const zro_save_config *config = &w->config;
    const int reads = zro__optim_rank(w->opt) == 0;
    zro_status st = vote(w, reads ? zro_state_read(w->path, &w->state) : ZRO_OK);

    if (st == ZRO_OK && zro__cycle_is_shared(w->opt->cycle))
        st = zro__state_broadcast(w->opt->group, &w->state, 0, 0);
    if (st == ZRO_OK)
        st = vote(w, check_state(w->opt, w->state, config));
    if (st == ZRO_OK)
        st = zro__optim_load_from(w->opt, w->state, 0, w->call);
    if (st == ZRO_OK)
        st = zro_schedules_load(config->schedules, config->n_schedules, w->state);
    for (size_t i = 0; st == ZRO_OK && i < config->n_numbers; i++)
        st = zro_state_get_number(w->state, config->numbers[i].name, &config->numbers[i].value);
    if (st == ZRO_OK)
        say_left_out(w->opt, w->state, config);
    return st;
}

zro_status zro_optim_resume(zro_optim *opt, const char *path, const zro_save_config *config)
{
    return run(&(work){ .opt = opt, .call = ZRO__CALL_RESUME, .path = path }, config, "resume", resume);
}
