/* Every table of cases: tests/ROOM/FILE.c defines cases_ROOM_FILE and stands here as X(ROOM, FILE).  Cases run in this order. */
#ifndef ZT_LIST_H
#define ZT_LIST_H

#include "zt/zt.h"

/* clang-format off */
#define ZT_TABLES(X) \
    X(group, calls) X(group, conformance) X(group, order) X(group, tickets) X(group, bytes) \
    X(group, several_groups) X(group, places) X(group, transfer) X(group, create) X(group, slow_link) X(group, launched) \
    X(fail, link_cut) X(fail, bad_link) X(fail, kill) X(fail, stop) X(fail, blame) X(fail, mismatch) \
    X(fail, alloc) \
    X(fail, zero) \
    X(fail, ddp) X(fail, join) X(fail, schedules) X(fail, late) X(fail, settle) X(fail, faults) \
    X(optim, optimizer) X(optim, bits) X(optim, hashes) X(optim, gradients) \
    X(zero, state_dict) X(zero, schedule) X(zero, custom_rule) X(zero, zero_grad) X(zero, create) \
    X(zero, step) X(zero, resume) X(zero, save) X(zero, subgroup) X(zero, devices) X(zero, types) \
    X(zero, consolidate) X(zero, in_place) X(zero, slots) X(zero, clip) X(zero, two_optimizers) \
    X(zero, reduce_grads) X(zero, deliveries) X(zero, memory) X(zero, agree) X(zero, bits) \
    X(ddp, train) X(ddp, batches) X(ddp, unused) X(ddp, misuse) X(ddp, hooks) \
    X(ddp, products) X(ddp, passes) X(ddp, bits) X(ddp, overlap) X(ddp, join) X(ddp, trace)
/* clang-format on */

#define ZT_DECLARED(room, file) extern const zt_case cases_##room##_##file[];
ZT_TABLES(ZT_DECLARED)

int command_stranger(int argc, char **argv);
int command_hashes(int argc, char **argv);
int command_launched(int argc, char **argv);
int command_has_nothing(int argc, char **argv);

#endif
