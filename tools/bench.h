/* What `zro bench` can measure: each gets the arguments from its own name on and returns the exit status. */
#ifndef ZRO_TOOLS_BENCH_H
#define ZRO_TOOLS_BENCH_H

#include <stddef.h>

#include "tool.h"

int bench_group(int argc, char **argv);
int bench_optim(int argc, char **argv);
int bench_step(int argc, char **argv);
int bench_overlap(int argc, char **argv);

/* What results begin with: the processor's name, and today's date as 2026-07-31. */
void bench_machine(char *name, size_t bytes);
void bench_date(char *date, size_t bytes);

/* Prints {"zro": VERSION, "machine": NAME, "cores": N, "date": DATE, as results in JSON begin. */
void bench_print_json_head(int cores);

/* Tells a terminal what is measured at the moment; NULL: nothing any more. */
void bench_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The value of an option that is a list of names with commas, as bits.  Returns 0, or the exit status for a wrong one. */
int bench_read_list(const tool *t, const char *option, char *list, const char *(*name_of)(int), int n, unsigned *bits);

#endif
