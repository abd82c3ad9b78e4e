/* The page that `zro report` writes. */
#ifndef ZRO_TOOLS_REPORT_PAGE_H
#define ZRO_TOOLS_REPORT_PAGE_H

#include <stdio.h>

#include "report_log.h"

/* What the page says at its top, and the command in one line. */
typedef struct report_summary {
    double first_loss, last_loss; /* NaN: not measured */
    double val_loss;              /* the last one that was measured, or NaN */
    double speed;                 /* the median of tokens per second, or NaN */
    double seconds;               /* of all steps */
    double bytes_saved;           /* on all ranks together; 0: nothing, or not told */
} report_summary;
report_summary report_summarize(const report_log *log);

/* One page of HTML that needs nothing else. */
void report_page(FILE *out, const report_log *log);

#endif
