/* The foreign link: see foreign.h. */
#define _GNU_SOURCE
#include "zt/foreign.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Connects the ranks of one group, which all give the same key; 0 if that worked. */
typedef int (*open_fn)(const char *key, int rank, int size, zro_link *out);

enum { KEY_BYTES = 64 };

static open_fn find(char *why, size_t bytes)
{
    char path[4096], *slash;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    void *library, *symbol;
    open_fn found = NULL;

    path[n > 0 ? n : 0] = '\0';
    slash = strrchr(path, '/');
    if (slash != NULL)
        snprintf(slash, sizeof path - (size_t)(slash - path), "/../lib/tests/unix_link.so");
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    symbol = library != NULL ? dlsym(library, "unix_link_open") : NULL;
    if (symbol != NULL)
        memcpy(&found, &symbol, sizeof found); /* ISO C has no conversion between the two */
    else
        snprintf(why, bytes, "%s", dlerror());
    return found;
}

const char *zt_foreign_missing(void)
{
    static char why[512];

    return find(why, sizeof why) == NULL ? why : NULL;
}

int zt_foreign_is_threads(void)
{
#if defined(__SANITIZE_THREAD__)
    return 1;
#elif defined(__has_feature)
    return __has_feature(thread_sanitizer);
#else
    return 0;
#endif
}

void zt_foreign_open(zt_rank *t, zro_link *out)
{
    static _Atomic unsigned opened;
    char key[KEY_BYTES] = "", keys[ZT_MAX_RANKS * KEY_BYTES], why[512];
    open_fn open = find(why, sizeof why);

    if (open == NULL)
        zt_fail(__FILE__, __LINE__, "%s", why);
    snprintf(key, sizeof key, "zro-test-%d-%u", (int)getpid(), atomic_fetch_add(&opened, 1));
    zt_exchange(t, key, sizeof key, keys);
    if (open(keys, t->rank, t->size, out) != 0)
        zt_fail(__FILE__, __LINE__, "unix_link_open failed for %s", keys);
}
