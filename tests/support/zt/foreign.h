/* A link that is not the library's own: the shared object that tests/support builds against the public header alone. */
#ifndef ZT_FOREIGN_H
#define ZT_FOREIGN_H

#include "zt/zt.h"

/* Why it cannot be used here, or NULL. */
const char *zt_foreign_missing(void);

/* Whether its ranks are threads of one process: for the thread sanitizer, which sees no more than one.  Then none can die. */
int zt_foreign_is_threads(void);

/* Opens the link of all ranks for one group.  Every rank calls it. */
void zt_foreign_open(zt_rank *t, zro_link *out);

#endif
