/* Which build of the library wrote something that another process reads: a ticket, the table at which ranks meet.
 *
 * Processes of one job may have different builds, whose shared memory looks different.  So what they show each other begins with
 * this head, which is the same in all builds and is compared before anything behind it is read.  (It can never change; nor can
 * zro__hash, of which it has a sum, without another magic.) */
#ifndef ZRO_BASE_BUILD_H
#define ZRO_BASE_BUILD_H

#include <stdint.h>

#include "base/status.h"

typedef struct zro__build {
    char magic[8];    /* what comes behind the head */
    char version[16]; /* as of zro_version() */
    uint64_t layout;  /* a hash of everything that the writer and its readers must lay out alike */
    uint64_t sum;     /* hash of all the above */
} zro__build;

void zro__build_write(zro__build *build, const char *magic, uint64_t layout);

/* Whether this is such a head, of any build. */
int zro__build_check(const zro__build *build, const char *magic);

/* Fails with MISMATCH: the rank has another build than `other`. */
zro_status zro__build_differs(const char *call, int rank, const char *version, const char *other, const char *other_version);

#endif
