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

/* Votes on what each rank has done by itself. */
static zro_status vote(zro_optim *opt, zro__call call, zro_status mine)
{
    zro_status st = zro__optim_enter(opt, ZRO__TURN_OF_ALL);

    return st == ZRO_OK ? zro__optim_leave(opt, zro__cycle_vote(opt->cycle, call, mine)) : st;
}

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

/* ---- save ---- */

static zro_status write_state(zro_state *state, const char *path, const zro_save_config *config)
{
    zro_status st = zro_state_set_schedules(state, config->schedules, config->n_schedules);

    for (size_t i = 0; st == ZRO_OK && i < config->n_numbers; i++)
        st = zro_state_set_number(state, config->numbers[i].name, config->numbers[i].value);
    return st == ZRO_OK ? zro_state_write(state, path) : st;
}

zro_status zro_optim_save(zro_optim *opt, const char *path, const zro_save_config *given)
{
    zro_save_config config;
    zro_state *state = NULL;
    zro_status st = zro__optim_check(opt);
    uint64_t begun;

    if (st != ZRO_OK)
        return st;
    begun = zro__trace_begin(zro__trace_of(opt->group));
    st = vote(opt, ZRO__CALL_SAVE, check_arguments(opt, "optim_save", path, given, &config));
    if (st == ZRO_OK)
        st = zro__optim_gather_to(opt, 0, &state);
    if (st == ZRO_OK)
        st = vote(opt, ZRO__CALL_SAVE, state != NULL ? write_state(state, path, &config) : ZRO_OK);
    zro_state_destroy(state);
    zro__trace_end(zro__trace_of(opt->group), begun, "save", -1, 0);
    return st;
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

static zro_status resume(zro_optim *opt, const char *path, const zro_save_config *config, zro_state **state)
{
    const int reads = zro__optim_rank(opt) == 0;
    zro_status st = vote(opt, ZRO__CALL_RESUME, reads ? zro_state_read(path, state) : ZRO_OK);

    if (st == ZRO_OK && zro__cycle_is_shared(opt->cycle))
        st = zro__state_broadcast(opt->group, state, 0, 0);
    if (st == ZRO_OK)
        st = vote(opt, ZRO__CALL_RESUME, check_state(opt, *state, config));
    if (st == ZRO_OK)
        st = zro__optim_resume_from(opt, *state, 0);
    if (st == ZRO_OK)
        st = zro_schedules_load(config->schedules, config->n_schedules, *state);
    for (size_t i = 0; st == ZRO_OK && i < config->n_numbers; i++)
        st = zro_state_get_number(*state, config->numbers[i].name, &config->numbers[i].value);
    if (st == ZRO_OK)
        say_left_out(opt, *state, config);
    return st;
}

zro_status zro_optim_resume(zro_optim *opt, const char *path, const zro_save_config *given)
{
    zro_save_config config;
    zro_state *state = NULL;
    zro_status st = zro__optim_check(opt);
    uint64_t begun;

    if (st != ZRO_OK)
        return st;
    begun = zro__trace_begin(zro__trace_of(opt->group));
    st = vote(opt, ZRO__CALL_RESUME, check_arguments(opt, "optim_resume", path, given, &config));
    if (st == ZRO_OK)
        st = resume(opt, path, &config, &state);
    zro_state_destroy(state);
    zro__trace_end(zro__trace_of(opt->group), begun, "resume", -1, 0);
    return st;
}
