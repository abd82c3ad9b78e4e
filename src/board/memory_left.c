/* How much memory this process may still take.
 *
 * A control group over its limit does not refuse memory, it kills; so the plan is compared with the limits before anything is
 * touched.  Page cache that can be dropped counts as free.  What cannot be read (no /proc, another kind of machine) limits
 * nothing: then the populating of the pages has the last word. */
#include "board/memory_left.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The number after `key` in a file of lines "key 123" or "key: 123 kB", or the first number for an empty key. */
static int read_number(const char *folder, const char *name, const char *key, uint64_t *out)
{
    FILE *f;
    char path[1200], line[512];
    size_t n = strlen(key);
    int found = 0;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "re");
    if (f == NULL)
        return 0;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        const char *rest = line + n;

        if (strncmp(line, key, n) != 0 || (n > 0 && strspn(rest, ": \t") == 0))
            continue;
        rest += strspn(rest, ": \t");
        found = sscanf(rest, "%" SCNu64, out) == 1;
        if (found && strstr(rest, " kB") != NULL)
            *out *= 1024;
        if (n == 0)
            break; /* what is no number is "max": no limit */
    }
    fclose(f);
    return found;
}

/* The tighter limit counts. */
static void limit(zro__memory_left *left, uint64_t bytes, const char *where)
{
    if (bytes < left->bytes) {
        left->bytes = bytes;
        snprintf(left->where, sizeof left->where, "%s", where);
    }
}

/* Where the two versions of control groups are mounted, and the names of their files. */
typedef struct version {
    const char *mount, *limit, *usage;
    const char *dropable; /* the statistic of cache that can be dropped */
} version;

static const version v1 = { "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file" };
static const version v2 = { "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file" };

static void read_control_group(zro__memory_left *left, const char *folder, const version *v)
{
    char where[256];
    uint64_t max, now = 0, cache = 0;

    if (!read_number(folder, v->limit, "", &max))
        return;
    read_number(folder, v->usage, "", &now);
    read_number(folder, "memory.stat", v->dropable, &cache);
    now = now > cache ? now - cache : 0;
    snprintf(where, sizeof where, "the control group %.230s", folder);
    limit(left, max > now ? max - now : 0, where);
}

/* The control group of a line "0::/path" (version 2) or "5:memory:/path" (version 1), and everything above it. */
static void read_line(zro__memory_left *left, const char *root, char *line)
{
    char *names = strchr(line, ':'), *path = names != NULL ? strchr(names + 1, ':') : NULL, folder[1100];
    const version *v;

    if (path == NULL)
        return;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    v = names[1] == '\0' ? &v2 : strcmp(names + 1, "memory") == 0 ? &v1 : NULL;
    for (char *end = path + strlen(path); v != NULL && end != NULL; end = strrchr(path, '/')) {
        *end = '\0';
        snprintf(folder, sizeof folder, "%s%s%s", root, v->mount, path);
        read_control_group(left, folder, v);
    }
}

void zro__memory_left_get(const char *root, zro__memory_left *out)
{
    char path[1024], line[512];
    uint64_t bytes;
    FILE *f;

    out->bytes = UINT64_MAX;
    snprintf(out->where, sizeof out->where, "nothing known");
    if (read_number(root, "proc/meminfo", "MemAvailable", &bytes))
        limit(out, bytes, "the machine");
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    f = fopen(path, "re");
    if (f == NULL)
        return;
    while (fgets(line, sizeof line, f) != NULL)
        read_line(out, root, line);
    fclose(f);
}
