/* Reads golden vectors and ends with one line a file, "golden FILE cases=N passed=N worst=REL":
 *
 *   golden [--only FILE,FILE] [--backend local|threads|openmpi|mpich] [--kernels base|avx2|avx512] [--fast on|off]
 *          [--overlap off|after-last|interleaved] FOLDER
 *   golden --ranks [--only FILE,FILE] FOLDER
 *
 * Fails unless every case of every file was read and passed.  Without --only it reads what the folder has of the files in the
 * table below, and says what it leaves out; with it, a file that is missing or that nobody reads is a failure.
 *
 * Ranks are started for each case that needs some; for an MPI, the launcher starts this program once, with as many tasks as
 * --ranks says.  There all ranks go through all files alike, and the first one speaks. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "golden.h"

static const golden_file files[] = {
    { "optim.json", "torch cases", golden_optim, NULL },
    { "lbfgs.json", NULL, golden_lbfgs, NULL },
    { "schedules.json", NULL, golden_schedules, NULL },
    { "clip.json", NULL, golden_clip, NULL },
    { "scaler.json", NULL, golden_scaler, NULL },
    { "sampler.json", NULL, golden_sampler, NULL },
    { "partition.json", NULL, golden_partition, NULL },
    { "ddp_buckets.json", NULL, golden_ddp_buckets, NULL },
    { "overlap.json", NULL, golden_overlap, NULL },
    { "zero_train.json", NULL, golden_zero_train, golden_ranks_of_zero_train },
    { "ddp_train.json", NULL, golden_ddp_train, golden_ranks_of_zero_train },
    { "join.json", NULL, golden_join, golden_ranks_of_zero_train },
    { "torch_state.json", NULL, golden_torch_state, golden_ranks_of_torch_state },
    { "gpt.json", NULL, golden_gpt, NULL },
};
enum { N_FILES = sizeof files / sizeof *files };

typedef struct tally {
    int read; /* the file was to be read */
    size_t cases, passed;
    double worst;
} tally;

typedef struct run {
    golden_options options;
    const char *folder, *only, *kernels;
    tally tallies[N_FILES]; /* by the table */
    int failed;
    int is_silent; /* not the first rank of a launch, or counting */
    int counting;  /* only the ranks that the cases need */
    int ranks;     /* the most of them */
} run;

static void say(const run *r, const char *what, const char *name, const char *text)
{
    if (!r->is_silent)
        printf("%s %s: %s\n", what, name, text);
}

static void fail(run *r, const char *name, const char *text)
{
    say(r, "FAIL", name, text);
    r->failed = 1;
}

/* ---- a file ---- */

static json_t *load(run *r, const golden_file *file)
{
    char path[4096], text[400];
    json_error_t error;
    json_t *root;

    snprintf(path, sizeof path, "%s/%s", r->folder, file->name);
    root = json_load_file(path, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    if (root == NULL) {
        snprintf(text, sizeof text, "line %d, column %d: %s", error.line, error.column, error.text);
        fail(r, file->name, text);
    }
    return root;
}

/* The list of cases, which has some; NULL and a failure otherwise. */
static json_t *find_cases(run *r, const golden_file *file, json_t *root)
{
    golden_case whole;
    json_t *cases = root;

    golden_begin(&whole, &r->options, root);
    if (file->keys != NULL && golden_keys(&whole, "the file", root, file->keys, ""))
        cases = golden_list(&whole, root, "cases");
    golden_end(&whole);
    if (!golden_ok(&whole))
        fail(r, file->name, whole.result.text);
    else if (!json_is_array(cases))
        fail(r, file->name, "the file is no list of cases");
    else if (json_array_size(cases) == 0)
        fail(r, file->name, "the list of cases is empty");
    else
        return cases;
    return NULL;
}

static void run_case(run *r, const golden_file *file, json_t *json, size_t index, tally *t)
{
    golden_case c;
    char name[400];

    if (r->counting && file->ranks != NULL) {
        int ranks = file->ranks(json);

        r->ranks = ranks > r->ranks ? ranks : r->ranks;
    }
    if (r->counting || (r->is_silent && file->ranks == NULL))
        return;
    golden_begin(&c, &r->options, json);
    file->run(&c);
    golden_end(&c);
    t->worst = fmax(t->worst, c.result.worst);
    t->passed += golden_ok(&c) ? 1 : 0;
    if (golden_ok(&c))
        return;
    snprintf(name, sizeof name, "%s case %zu%s%s%s", file->name, index, c.about[0] != 0 ? " (" : "", c.about,
             c.about[0] != 0 ? ")" : "");
    fail(r, name, c.result.text);
}

static void run_file(run *r, size_t f)
{
    const golden_file *file = &files[f];
    tally *t = &r->tallies[f];
    json_t *root, *cases;

    if (t->read)
        return;
    t->read = 1;
    root = load(r, file);
    if (root == NULL)
        return;
    cases = find_cases(r, file, root);
    t->cases = json_array_size(cases);
    for (size_t i = 0; i < t->cases; i++)
        run_case(r, file, json_array_get(cases, i), i, t);
    json_decref(root);
}

/* ---- which files ---- */

static size_t find_file(const char *name)
{
    size_t f = 0;

    while (f < N_FILES && strcmp(files[f].name, name) != 0)
        f++;
    return f;
}

static void run_only(run *r)
{
    const char *at = r->only;

    for (;;) {
        size_t length = strcspn(at, ","), f;
        char name[300];

        snprintf(name, sizeof name, "%.*s", (int)length, at);
        f = find_file(name);
        if (f == N_FILES)
            fail(r, name, "no file of this name is known");
        else
            run_file(r, f);
        if (at[length] == 0)
            return;
        at += length + 1;
    }
}

static int ends_in_json(const char *name)
{
    size_t length = strlen(name);

    return length > 5 && strcmp(name + length - 5, ".json") == 0;
}

static void run_all(run *r, DIR *folder)
{
    int there[N_FILES] = { 0 }, some = 0;
    struct dirent *entry;

    while ((entry = readdir(folder)) != NULL) {
        size_t f = find_file(entry->d_name);

        if (f < N_FILES)
            there[f] = 1;
        else if (ends_in_json(entry->d_name))
            say(r, "SKIPPED", entry->d_name, "no file of this name is known");
    }
    for (size_t f = 0; f < N_FILES; f++) {
        if (there[f]) {
            run_file(r, f);
            some = 1;
        }
    }
    if (!some)
        fail(r, r->folder, "the folder has no file that this version reads");
}

static void run_folder(run *r)
{
    DIR *folder = opendir(r->folder);

    if (folder == NULL) {
        fail(r, r->folder, strerror(errno));
        return;
    }
    if (r->only != NULL)
        run_only(r);
    else
        run_all(r, folder);
    closedir(folder);
}

/* ---- the run ---- */

/* Kernels that the processor lacks are refused once, here, whatever the files are. */
static void try_kernels(run *r)
{
    float value = 0;
    zro_param param = ZRO_PARAM_INIT;
    golden_case c;
    char name[40];

    golden_begin(&c, &r->options, NULL);
    param.data = &value;
    param.shape[0] = 1;
    zro_optim_destroy(golden_make_optim(&c, &param, 1, zro_rule_sgd(), NULL, 0, NULL));
    snprintf(name, sizeof name, "kernels %s", r->kernels);
    if (!golden_ok(&c))
        fail(r, name, c.result.text);
    golden_end(&c);
}

/* The ranks that an MPI launcher has started. */
static void enter_world(run *r)
{
    zro_group_config config = golden_group_config(&r->options);
    zro_status status = zro_group_create_env(&config, &r->options.world);

    if (status != ZRO_OK)
        fail(r, "zro_group_create_env", zro_last_error());
    else
        r->is_silent = zro_group_rank(r->options.world) != 0;
}

/* Ranks that do not speak have nothing to tell their launcher either, lest it end the one that does. */
static int summary(const run *r)
{
    int bad = r->failed;

    if (r->is_silent)
        return 0;
    for (size_t f = 0; f < N_FILES; f++) {
        const tally *t = &r->tallies[f];

        if (!t->read)
            continue;
        printf("golden %s cases=%zu passed=%zu worst=%.3g\n", files[f].name, t->cases, t->passed, t->worst);
        bad |= t->cases == 0 || t->passed != t->cases || !(t->worst <= 1);
    }
    return bad;
}

static int usage(void)
{
    fprintf(stderr, "usage: golden [--only FILE,FILE] [--backend local|threads|openmpi|mpich] [--kernels base|avx2|avx512]\n"
                    "              [--fast on|off] [--overlap off|after-last|interleaved] FOLDER\n"
                    "       golden --ranks [--only FILE,FILE] FOLDER\n");
    return 2;
}

/* The place of a word among some; -1 if it is none of them. */
static int find_word(const char *word, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(word, words[i]) == 0)
            return i;
    return -1;
}

/* Whether an option is known and its value allowed. */
static int set_option(run *r, const char *name, const char *value)
{
    static const char *const backends[] = { "local", "threads", "openmpi", "mpich" };
    static const char *const kernels[] = { "base", "avx2", "avx512" };
    static const char *const switches[] = { "off", "on" };
    static const char *const overlaps[] = { "off", "after-last", "interleaved" };
    int place = 0;

    if (strcmp(name, "--only") == 0) {
        r->only = value;
    } else if (strcmp(name, "--backend") == 0) {
        place = find_word(value, backends, 4);
        r->options.backend = (golden_backend)place;
    } else if (strcmp(name, "--kernels") == 0) {
        place = find_word(value, kernels, 3);
        r->options.settings.kernels = (zro_kernels)(place + ZRO_KERNELS_BASE);
        r->kernels = value;
    } else if (strcmp(name, "--fast") == 0) {
        place = find_word(value, switches, 2);
        r->options.settings.fast = (zro_switch)place;
    } else if (strcmp(name, "--overlap") == 0) {
        place = find_word(value, overlaps, 3);
        r->options.overlap = (zro_overlap)place;
    } else {
        place = -1;
    }
    if (place < 0)
        fprintf(stderr, "golden: %s %s is not allowed\n", name, value);
    return place >= 0;
}

static int read_arguments(run *r, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--ranks") == 0)
            r->counting = 1;
        else if (strncmp(argv[i], "--", 2) != 0 && r->folder == NULL)
            r->folder = argv[i];
        else if (i + 1 == argc || !set_option(r, argv[i], argv[i + 1]))
            return 0;
        else
            i++;
    }
    return r->folder != NULL;
}

int main(int argc, char **argv)
{
    run r = { .options = { .settings = ZRO_SETTINGS_INIT }, .ranks = 1 };

    r.options.settings.log_level =
        ZRO_LOG_OFF; /* what zro warns of, such as steps that update nothing, is what cases are about */
    if (!read_arguments(&r, argc, argv))
        return usage();
    setvbuf(stdout, NULL, _IOLBF, 0); /* a forked rank must not inherit half a line */
    if (r.kernels != NULL)
        try_kernels(&r);
    if (!r.failed && r.counting) {
        r.is_silent = 1;
        run_folder(&r);
        printf("%d\n", r.ranks);
        return 0;
    }
    if (!r.failed && r.options.backend >= GOLDEN_OPENMPI)
        enter_world(&r);
    if (!r.failed)
        run_folder(&r);
    zro_group_destroy(r.options.world);
    return summary(&r);
}
