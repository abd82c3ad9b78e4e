/* A link, as all groups of one rank use it: see program_link.h. */
#include "link/program_link.h"

#include "base/settings.h"
#include "base/status.h"

ZRO__DEFINE_INIT(zro_link, ZRO_LINK_INIT)

zro_status zro__program_link_check_table(const zro_link *link)
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

int zro__request_settle(const zro_link *link, zro_link_request *request)
{
    if (zro__request_is_open(request))
        link->cancel(link->self, request);
    return !zro__request_is_open(request);
}

void zro__program_link_init(zro__program_link *program_link, const zro_link *link, size_t message_bytes)
{
    program_link->link = *link;
    program_link->message_bytes = message_bytes;
    pthread_mutex_init(&program_link->lock, NULL);
    atomic_init(&program_link->want, 0);
    program_link->thread = pthread_self();
}

void zro__program_link_close(zro__program_link *program_link)
{
    program_link->link.close(program_link->link.self);
    pthread_mutex_destroy(&program_link->lock);
}

void zro__program_link_lock(zro__program_link *program_link)
{
    atomic_fetch_add_explicit(&program_link->want, 1, memory_order_relaxed);
    pthread_mutex_lock(&program_link->lock);
    atomic_fetch_sub_explicit(&program_link->want, 1, memory_order_relaxed);
}

void zro__program_link_unlock(zro__program_link *program_link)
{
    pthread_mutex_unlock(&program_link->lock);
}

zro_status zro__program_link_number(zro__program_link *program_link, uint64_t *number)
{
    zro__program_link_lock(program_link);
    *number = program_link->link.number(program_link->link.self);
    zro__program_link_unlock(program_link);
    if (*number >= program_link->link.channels / ZRO__CHANNELS)
        return zro__fail(ZRO_ERR_UNSUPPORTED, "the link can tell no more than %llu groups apart",
                         (unsigned long long)(program_link->link.channels / ZRO__CHANNELS));
    return ZRO_OK;
}

int zro__program_link_is_elsewhere(const zro__program_link *program_link)
{
    return program_link->link.one_thread == ZRO_ON && !pthread_equal(program_link->thread, pthread_self());
}

zro_status zro__program_link_check_thread(const zro__program_link *program_link)
{
    if (zro__program_link_is_elsewhere(program_link))
        return zro__fail(
            ZRO_ERR_STATE,
            "only the thread that created this group may use it, because its link allows no other (MPI: initialise "
            "with MPI_THREAD_SERIALIZED or more)");
    return ZRO_OK;
}
