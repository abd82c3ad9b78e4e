/* `zro bench`: a table of what can be measured, and what the results share. */
#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tool.h"

static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
} benches[] = { { "group", bench_group }, { "optim", bench_optim } };

static int bench_main(int argc, char **argv)
{
    if (argc < 2)
        return tool_usage(&tool_bench, "what shall be measured?  There are: group, optim");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return tool_help(&tool_bench);
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++)
        if (strcmp(benches[i].name, argv[1]) == 0)
            return benches[i].main(argc - 1, argv + 1);
    return tool_usage(&tool_bench, "\"%s\" cannot be measured.  There are: group, optim", argv[1]);
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

void bench_print_text(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar((unsigned char)*text < ' ' ? ' ' : *text);
    }
}

const tool tool_bench = {
    "bench",
    "measure collective calls and optimizers against the limit of this machine",
    "usage: zro bench group [OPTIONS]\n"
    "       zro bench optim [OPTIONS]\n"
    "\n"
    "group prints, for each collective call and size, the median time of a call, the bandwidth (bytes of the buffer / time), "
    "the\n"
    "limit, that is, the time that the same reads and writes by the same ranks take when nobody waits for anybody, and the\n"
    "share of the limit that was reached (limit / time).\n"
    "\n"
    "  -n, --ranks N     number of ranks; default: the processors that may be used\n"
    "      --json        {\"rows\": [{\"op\", \"bytes\", \"memory\", \"median_us\", \"limit_us\", \"share\"}, ...]}\n"
    "      --quick       all_reduce and broadcast of 1 KB, 64 KB, 1 MB and 32 MB, in a few seconds\n"
    "      --ops LIST    of all_reduce, broadcast, reduce, reduce_scatter, gather, all_gather, with commas\n"
    "      --memory M    group (memory of the group), own (each rank's own) or both; default: both\n"
    "      --seconds S   spent on each row; default: 0.3\n"
    "  -h, --help\n"
    "\n"
    "optim prints, for each rule, the median bandwidth of a step (bytes that it must read and write / time), that of a loop "
    "which\n"
    "reads and writes the same arrays and does nothing else, the share of that limit, and the bandwidth in the second-level "
    "cache.\n"
    "\n"
    "      --json        {\"rows\": [{\"rule\", \"dtype\", \"kernels\", \"threads\", \"gbs\", \"share\", ...}, ...]}\n"
    "      --rules LIST  of adam, adamw, sgd, adagrad, adadelta, adamax, rmsprop, rprop, asgd, nadam, radam; default: all\n"
    "      --dtypes LIST of f32, f64, bf16, f16; default: f32\n"
    "      --kernels K   auto (the best), base, avx2, avx512, or all that the processor has; default: auto\n"
    "      --threads N   that a step is divided over; default: 1\n"
    "      --params N    elements of all parameters together; default: 124439808, those of GPT-2 124M\n"
    "      --samples N   of each side, at least; default: 31\n"
    "      --quick       adam, adamw and sgd on a quarter of the parameters\n"
    "  -h, --help\n",
    bench_main,
};
