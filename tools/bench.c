/* `zro bench`: a table of what can be measured. */
#include "bench.h"

#include <stddef.h>
#include <string.h>

#include "tool.h"

static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
} benches[] = { { "group", bench_group } };

static int bench_main(int argc, char **argv)
{
    if (argc < 2)
        return tool_usage(&tool_bench, "what shall be measured?  There is: group");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return tool_help(&tool_bench);
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++)
        if (strcmp(benches[i].name, argv[1]) == 0)
            return benches[i].main(argc - 1, argv + 1);
    return tool_usage(&tool_bench, "\"%s\" cannot be measured.  There is: group", argv[1]);
}

const tool tool_bench = {
    "bench",
    "measure the collective calls against the limit of this machine",
    "usage: zro bench group [OPTIONS]\n"
    "\n"
    "Prints, for each collective call and size, the median time of a call, the bandwidth (bytes of the buffer / time), the\n"
    "limit, that is, the time that the same reads and writes by the same ranks take when nobody waits for anybody, and the\n"
    "share of the limit that was reached (limit / time).\n"
    "\n"
    "  -n, --ranks N     number of ranks; default: the processors that may be used\n"
    "      --json        {\"rows\": [{\"op\", \"bytes\", \"memory\", \"median_us\", \"limit_us\", \"share\"}, ...]}\n"
    "      --quick       all_reduce and broadcast of 1 KB, 64 KB, 1 MB and 32 MB, in a few seconds\n"
    "      --ops LIST    of all_reduce, broadcast, reduce, reduce_scatter, gather, all_gather, with commas\n"
    "      --memory M    group (memory of the group), own (each rank's own) or both; default: both\n"
    "      --seconds S   spent on each row; default: 0.3\n"
    "  -h, --help\n",
    bench_main,
};
