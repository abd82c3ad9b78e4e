/* Saved options and numbers: see resume.h. */
#include "resume.h"

#include <math.h>
#include <string.h>

static const char *const names[GPT_OWN_NUMBERS] = { "step", "sequences per step", "tokens per sequence", "tokens of data" };

static const char *number_name(size_t i)
{
    return i < GPT_OWN_NUMBERS ? names[i] : gpt_kept[i - GPT_OWN_NUMBERS].option + 2;
}

/* What a group calls the option, if it is one of its values and no number. */
static const char *value_name(size_t i)
{
    return i < GPT_OWN_NUMBERS ? NULL : gpt_kept[i - GPT_OWN_NUMBERS].value;
}

/* Whether a value of the rule has an option of its own. */
static int has_option(const zro_hyper *h)
{
    return strcmp(h->name, "lr") == 0 || strcmp(h->name, "weight_decay") == 0;
}

static void clear(gpt_saved *s)
{
    for (size_t i = 0; i < GPT_NUMBERS; i++)
        s->numbers[i] = NAN;
    for (size_t i = 0; i < GPT_MOST_HYPERS; i++)
        s->values[i] = NAN;
}

void gpt_saved_make(const gpt_options *o, gpt_saved *s)
{
    clear(s);
    for (size_t i = GPT_OWN_NUMBERS; i < GPT_NUMBERS; i++)
        s->numbers[i] = gpt_options_get(o, gpt_kept[i - GPT_OWN_NUMBERS].option);
}

zro_status gpt_saved_read(const char *path, const zro_rule *rule, gpt_saved *s)
{
    zro_state *state;
    zro_status st = zro_state_read(path, &state);
    double value;

    clear(s);
    if (st != ZRO_OK)
        return st;
    for (size_t i = 0; i < GPT_NUMBERS; i++)
        if ((value_name(i) == NULL ? zro_state_get_number(state, number_name(i), &value)
                                   : zro_state_get_value(state, 0, value_name(i), &value))
            == ZRO_OK)
            s->numbers[i] = value;
    for (size_t i = 0; i < rule->n_hypers && i < GPT_MOST_HYPERS; i++) {
        const zro_hyper *h = &rule->hypers[i];

        if (zro_state_get_value(state, 0, h->torch != NULL ? h->torch : h->name, &value) == ZRO_OK)
            s->values[i] = value;
    }
    zro_state_destroy(state);
    return ZRO_OK;
}

size_t gpt_saved_list(const gpt_saved *s, zro_value out[GPT_NUMBERS])
{
    size_t n = 0;

    for (size_t i = 0; i < GPT_NUMBERS; i++)
        if (value_name(i) == NULL && !isnan(s->numbers[i]))
            out[n++] = (zro_value){ number_name(i), s->numbers[i] };
    return n;
}

/* A value that was not given is taken over if it is not what the rule has anyway. */
static zro_status take_value(const zro_hyper *h, double saved, gpt_options *o)
{
    int given = 0;

    for (size_t i = 0; i < o->n_values; i++) {
        if (strcmp(o->values[i].name, h->name) != 0)
            continue;
        given = 1;
        if (o->values[i].value != saved)
            return gpt_fail(ZRO_ERR_INVALID,
                            "--resume: --value %s=%g was given, but the run in %s has %g: leave it out, or begin another run",
                            h->name, o->values[i].value, o->out, saved);
    }
    if (!given && saved != h->init && o->n_values < GPT_MOST_VALUES)
        o->values[o->n_values++] = (zro_value){ h->name, saved };
    return ZRO_OK;
}

zro_status gpt_saved_take(const gpt_saved *s, const zro_rule *rule, gpt_options *o)
{
    zro_status st = ZRO_OK;

    for (size_t i = GPT_OWN_NUMBERS; i < GPT_NUMBERS && st == ZRO_OK; i++)
        if (!isnan(s->numbers[i]))
            st = gpt_options_keep(o, gpt_kept[i - GPT_OWN_NUMBERS].option, s->numbers[i]);
    for (size_t i = 0; i < rule->n_hypers && i < GPT_MOST_HYPERS && st == ZRO_OK; i++)
        if (!isnan(s->values[i]) && !has_option(&rule->hypers[i]))
            st = take_value(&rule->hypers[i], s->values[i], o);
    return st;
}

zro_status gpt_saved_compare(const gpt_saved *s, const gpt_saved *now, const gpt_options *o)
{
    for (size_t i = GPT_STEP + 1; i < GPT_OWN_NUMBERS; i++)
        if (!isnan(s->numbers[i]) && s->numbers[i] != now->numbers[i])
            return gpt_fail(ZRO_ERR_INVALID,
                            "--resume: %s: %.0f now, %.0f when the run in %s was saved; give the %s of that run", names[i],
                            now->numbers[i], s->numbers[i], o->out, i == GPT_DATA_TOKENS ? "--data" : "options");
    if (!(s->numbers[GPT_STEP] >= 0))
        return gpt_fail(ZRO_ERR_INVALID,
                        "--resume: the state in %s does not say how many steps were made: it is not of zro train", o->out);
    if (s->numbers[GPT_STEP] >= (double)o->steps)
        return gpt_fail(ZRO_ERR_INVALID, "--resume: the run in %s has made %.0f steps; --steps %zu is not more", o->out,
                        s->numbers[GPT_STEP], o->steps);
    return ZRO_OK;
}
