/* Forming a group: the first one of a world (create_first.c), a sub-group or a duplicate.  Collective over its members.
 *
 * `st` is this rank's result so far: a rank that has failed still takes part, so that the others learn why. */
#ifndef ZRO_GROUP_CREATE_H
#define ZRO_GROUP_CREATE_H

#include "group/group.h"

/* Gets the region: the first near rank makes it and tells the others.  After OK the rank goes on to zro__form_group.  After a failure there is no region on this rank, and far ranks know why. */
zro_status zro__form_region(zro__formation *f, zro_status st);

/* Builds the handle and votes.  On failure the region is given up. */
zro_status zro__form_group(zro__formation *f, zro_status st, zro_group **out);

/* Gives this rank's use of the region back, if it has one: the group was not formed, because of `st`. */
void zro__form_give_up(zro__formation *f, zro_status st);

#endif
