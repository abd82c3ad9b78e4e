/* `zro bench`: a table of what can be measured, and what the results share. */
#include "bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "zro.h"

static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
} benches[] = { { "group", bench_group }, { "optim", bench_optim }, { "step", bench_step }, { "overlap", bench_overlap } };

static int bench_main(int argc, char **argv)
{
    if (argc < 2)
        return tool_usage(&tool_bench, "nothing to measure is given; it can be: group, optim, step, overlap");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return tool_help(&tool_bench);
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++)
        if (strcmp(benches[i].name, argv[1]) == 0)
            return benches[i].main(argc - 1, argv + 1);
    return tool_usage(&tool_bench, "\"%s\" cannot be measured; it can be: group, optim, step, overlap", argv[1]);
}

void bench_machine(char *name, size_t bytes)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];

    snprintf(name, bytes, "unknown processor");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':') != NULL) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(name, bytes, "%s", strchr(line, ':') + 1 + strspn(strchr(line, ':') + 1, " \t"));
            break;
        }
    }
    if (f != NULL)
        fclose(f);
}

void bench_date(char *date, size_t bytes)
{
    time_t now = time(NULL);
    struct tm tm;

    strftime(date, bytes, "%Y-%m-%d", gmtime_r(&now, &tm));
}

/* Text as it stands between the quotes of JSON. */
static void print_text(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar((unsigned char)*text < ' ' ? ' ' : *text);
    }
}

/* Numbers do not follow the locale, since the command never sets one. */
void bench_print_json_head(int cores)
{
    char processor[128], date[32];

    bench_machine(processor, sizeof processor);
    bench_date(date, sizeof date);
    printf("{\"zro\": \"%s\", \"machine\": \"", zro_version());
    print_text(processor);
    printf("\", \"cores\": %d, \"date\": \"%s\"", cores, date);
}

void bench_progress(const char *format, ...)
{
    va_list args;

    if (!isatty(STDERR_FILENO))
        return;
    va_start(args, format);
    fputc('\r', stderr);
    if (format != NULL)
        vfprintf(stderr, format, args);
    fputs("\033[K", stderr);
    va_end(args);
}

int bench_read_list(const tool *t, const char *option, char *list, const char *(*name_of)(int), int n, unsigned *bits)
{
    *bits = 0;
    for (char *rest = NULL, *name = strtok_r(list, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        int i = 0;

        while (i < n && strcmp(name_of(i), name) != 0)
            i++;
        if (i == n)
            return tool_usage(t, "%s: there is no \"%s\"", option, name);
        *bits |= 1U << i;
    }
    return *bits == 0 ? tool_usage(t, "%s: the list is empty", option) : 0;
}

const tool tool_bench = {
    "bench",
    "measure collective calls, optimizers and training steps against the limit of this machine",
    "usage: zro bench group [OPTIONS]\n"
    "       zro bench optim [OPTIONS]\n"
    "       zro bench step [OPTIONS]\n"
    "       zro bench overlap [OPTIONS]\n"
    "\n"
    "group prints, for each collective call and size, the median time of a call, the bandwidth (bytes of the buffer / time),\n"
    "the limit, that is, the time that the same reads and writes by the same ranks take when no rank waits for another, and "
    "the\n"
    "share of the limit that was reached (limit / time).\n"
    "\n"
    "  -n, --ranks N     number of ranks; default: the number of processors that may be used\n"
    "      --json        {\"rows\": [{\"op\", \"bytes\", \"memory\", \"median_us\", \"limit_us\", \"share\"}, ...]}\n"
    "      --quick       all_reduce and broadcast of 1 KB, 64 KB, 1 MB and 32 MB, in a few seconds\n"
    "      --ops LIST    some of all_reduce, broadcast, reduce, reduce_scatter, gather, all_gather, separated by commas\n"
    "      --memory M    group (memory of the group), own (each rank's own) or both; default: both\n"
    "      --seconds S   time for each row; default: 0.3\n"
    "  -h, --help\n"
    "\n"
    "optim prints, for each rule, the median bandwidth of a step (bytes that it must read and write / time), that of a loop\n"
    "which reads and writes the same arrays and does nothing else, the share of that limit, and the bandwidth in the\n"
    "second-level cache.\n"
    "\n"
    "      --json        {\"rows\": [{\"rule\", \"dtype\", \"kernels\", \"threads\", \"gbs\", \"share\", ...}, ...]}\n"
    "      --rules LIST  some of adam, adamw, sgd, adagrad, adadelta, adamax, rmsprop, rprop, asgd, nadam, radam; default: "
    "all\n"
    "      --dtypes LIST some of f32, f64, bf16, f16; default: f32\n"
    "      --kernels K   auto (the best), base, avx2, avx512, or all that the processor has; default: auto\n"
    "      --threads N   threads that a step is divided over; default: 1\n"
    "      --params N    elements of all parameters together; default: 124439808, those of GPT-2 124M\n"
    "      --samples N   how often the step and the loop are measured, at least; default: 31\n"
    "      --quick       adam, adamw and sgd on a quarter of the parameters\n"
    "  -h, --help\n"
    "\n"
    "step prints the median time of a training step of zro_ddp with an attached optimizer (gradients averaged, parameters\n"
    "updated and published), that of a loop which reads and writes the same values and does nothing else, the share of that\n"
    "limit, and the passes over memory: with memory handed out by zro, the same with clip_norm, with the program's own\n"
    "gradients, and with the program's own parameters and gradients.\n"
    "\n"
    "  -n, --ranks N     number of ranks; default: 2\n"
    "      --params N    elements of all parameters together, or gpt2: 124439808, those of GPT-2 124M; default: gpt2\n"
    "      --rule R      one of the rules of optim; default: adam\n"
    "      --json        {\"share\", \"passes\", \"faults_per_step\", \"allocations_per_step\", \"first_over_steady\", ...}\n"
    "      --quick       a quarter of the parameters and fewer samples\n"
    "  -h, --help\n"
    "\n"
    "overlap prints the median time of an iteration with a backward that only computes: with the step after it, and with the\n"
    "step made during backward in both ways (zro_optim_config.overlap); and which share of the step's time that hides.\n"
    "\n"
    "  -n, --ranks N     number of ranks; default: 2\n"
    "      --params N    elements of all parameters together; default: 15554976, an eighth of GPT-2 124M\n"
    "      --json        {\"plain_ms\", \"after_last_ms\", \"interleaved_ms\", \"hidden_share\", \"cores_per_rank\", ...}\n"
    "      --quick       an eighth of the parameters and fewer samples\n"
    "  -h, --help\n",
    bench_main,
};
