/* How much memory this process may still take.
 *
 * A control group over its limit does not refuse memory, it kills; so the plan is compared with the limits before anything is
 * touched.  Page cache that can be dropped counts as free.  What cannot be read (no /proc, another kind of machine) limits
 * nothing: then the populating of the pages has the last word. */
#include "group/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The number after `key` in a file of lines "key 123" or "key: 123 kB", or the first number for an empty key. */
static int read_number(const char *path, const char *key, uint64_t *out)
{
    FILE *f = fopen(path, "re");
    char line[512];
    size_t n = strlen(key);
    int found = 0;

    if (f == NULL)
        return 0;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        const char *rest = line + n;

        if (strncmp(line, key, n) != 0)
            continue;
        if (n > 0 && *rest != ':' && *rest != ' ' && *rest != '\t')
            continue;
        rest += strspn(rest, ": \t");
        if (sscanf(rest, "%" SCNu64, out) == 1) {
            if (strstr(rest, " kB") != NULL)
                *out *= 1024;
            found = 1;
        } else if (n == 0) {
            break; /* "max": no limit */
        }
    }
    fclose(f);
    return found;
}

static void tighten(zro__room *room, uint64_t bytes, const char *where)
{
    if (bytes < room->bytes) {
        room->bytes = bytes;
        snprintf(room->where, sizeof room->where, "%s", where);
    }
}

/* One control group: `limit` and `usage` are its files' names; `dropable` the statistic of cache that can be dropped. */
static void look_at(zro__room *room, const char *dir, const char *limit, const char *usage, const char *dropable)
{
    char path[1200], where[256];
    uint64_t max, now = 0, cache = 0;

    snprintf(path, sizeof path, "%s/%s", dir, limit);
    if (!read_number(path, "", &max))
        return;
    snprintf(path, sizeof path, "%s/%s", dir, usage);
    read_number(path, "", &now);
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    read_number(path, dropable, &cache);
    now = now > cache ? now - cache : 0;
    snprintf(where, sizeof where, "the control group %.230s", dir);
    tighten(room, max > now ? max - now : 0, where);
}

/* The group and everything above it; `path` is "/a/b", shortened in place. */
static void look_upwards(zro__room *room, const char *mount, char *path, const char *limit, const char *usage,
                         const char *dropable)
{
    char dir[1024];

    for (;;) {
        char *slash;

        snprintf(dir, sizeof dir, "%s%s", mount, path);
        look_at(room, dir, limit, usage, dropable);
        slash = strrchr(path, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

void zro__room_get(const char *root, zro__room *out)
{
    char path[1024], mount[512], line[512];
    uint64_t bytes;
    FILE *f;

    out->bytes = UINT64_MAX;
    snprintf(out->where, sizeof out->where, "nothing known");
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (read_number(path, "MemAvailable", &bytes))
        tighten(out, bytes, "the machine");
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    f = fopen(path, "re");
    if (f == NULL)
        return;
    /* Lines "0::/path" (version 2) and "5:memory:/path" (version 1). */
    while (fgets(line, sizeof line, f) != NULL) {
        char *names = strchr(line, ':'), *at = names != NULL ? strchr(names + 1, ':') : NULL;

        if (at == NULL)
            continue;
        *at++ = '\0';
        at[strcspn(at, "\n")] = '\0';
        if (strcmp(at, "/") == 0)
            *at = '\0';
        if (names[1] == '\0') {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
            look_upwards(out, mount, at, "memory.max", "memory.current", "inactive_file");
        } else if (strcmp(names + 1, "memory") == 0) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/memory", root);
            look_upwards(out, mount, at, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
        }
    }
    fclose(f);
}
