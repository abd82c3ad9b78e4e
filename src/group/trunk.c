/* A link, as all groups of one rank use it: see trunk.h. */
#include "group/trunk.h"

#include "base/status.h"

void zro_link_init(zro_link *link)
{
    static const zro_link empty = ZRO_LINK_INIT;

    if (link != NULL)
        *link = empty;
}

zro_status zro__link_check(const zro_link *link)
{
    if (link->struct_size != sizeof *link)
        return zro__fail(ZRO_ERR_INVALID, "zro_link: struct_size = %zu; begin with ZRO_LINK_INIT", link->struct_size);
    if (link->message_bytes < 65536 || link->message_bytes > 4u << 20)
        return zro__fail(ZRO_ERR_INVALID, "zro_link: message_bytes = %zu, must be 65536 to 4194304", link->message_bytes);
    if (link->channels < ZRO__CHANNELS)
        return zro__fail(ZRO_ERR_INVALID, "zro_link: channels = %llu, must be at least %d", (unsigned long long)link->channels,
                         (int)ZRO__CHANNELS);
    if (link->send == NULL || link->recv == NULL || link->poll == NULL || link->cancel == NULL || link->number == NULL
        || link->close == NULL)
        return zro__fail(ZRO_ERR_INVALID, "zro_link: a function is NULL");
    return ZRO_OK;
}

void zro__trunk_init(zro__trunk *trunk, const zro_link *link, size_t message_bytes)
{
    trunk->link = *link;
    trunk->message_bytes = message_bytes;
    pthread_mutex_init(&trunk->lock, NULL);
    atomic_init(&trunk->want, 0);
    trunk->thread = pthread_self();
}

void zro__trunk_close(zro__trunk *trunk)
{
    trunk->link.close(trunk->link.self);
    pthread_mutex_destroy(&trunk->lock);
}

void zro__trunk_lock(zro__trunk *trunk)
{
    atomic_fetch_add_explicit(&trunk->want, 1, memory_order_relaxed);
    pthread_mutex_lock(&trunk->lock);
    atomic_fetch_sub_explicit(&trunk->want, 1, memory_order_relaxed);
}

void zro__trunk_unlock(zro__trunk *trunk)
{
    pthread_mutex_unlock(&trunk->lock);
}

zro_status zro__trunk_number(zro__trunk *trunk, uint64_t *number)
{
    zro__trunk_lock(trunk);
    *number = trunk->link.number(trunk->link.self);
    zro__trunk_unlock(trunk);
    if (*number >= trunk->link.channels / ZRO__CHANNELS)
        return zro__fail(ZRO_ERR_UNSUPPORTED, "the link can tell no more than %llu groups apart",
                         (unsigned long long)(trunk->link.channels / ZRO__CHANNELS));
    return ZRO_OK;
}

int zro__trunk_is_elsewhere(const zro__trunk *trunk)
{
    return trunk->link.one_thread == ZRO_ON && !pthread_equal(trunk->thread, pthread_self());
}

zro_status zro__trunk_check_thread(const zro__trunk *trunk)
{
    if (zro__trunk_is_elsewhere(trunk))
        return zro__fail(
            ZRO_ERR_STATE,
            "only the thread that created this group may use it, because its link allows no other (MPI: initialise "
            "with MPI_THREAD_SERIALIZED or more)");
    return ZRO_OK;
}
