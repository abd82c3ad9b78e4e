/* What `zro bench` can measure: each gets the arguments from its own name on and returns the exit status. */
#ifndef ZRO_TOOLS_BENCH_H
#define ZRO_TOOLS_BENCH_H

int bench_group(int argc, char **argv);

#endif
