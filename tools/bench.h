/* What `zro bench` can measure: each gets the arguments from its own name on and returns the exit status. */
#ifndef ZRO_TOOLS_BENCH_H
#define ZRO_TOOLS_BENCH_H

#include <stddef.h>

int bench_group(int argc, char **argv);
int bench_optim(int argc, char **argv);

/* What results begin with: the processor's name, and today's date as 2026-07-31. */
void bench_machine(char *name, size_t bytes);
void bench_date(char *date, size_t bytes);

/* Prints text to standard output as it stands between the quotes of JSON. */
void bench_print_text(const char *text);

#endif
