/* The world's memory: see memory.h.
 *
 * The memfd has no name in any file system and vanishes with the last process that has it.  It is sealed against shrinking, so
 * that no peer can pull pages from under another; growing is by fallocate, which cannot shrink either. */
#define _GNU_SOURCE
#include "group/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/point.h"
#include "group/limits.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

enum { REGION_ALIGN = 1 << 16, SPARE_BYTES = 64 << 20 };

struct zro__mapping {
    zro__map map;
    int users;
    zro__mapping *next;
};

static size_t round_region(size_t bytes)
{
    return (bytes + REGION_ALIGN - 1) & ~(size_t)(REGION_ALIGN - 1);
}

static size_t world_bytes(int size)
{
    return round_region(sizeof(zro__world) + (size_t)size * sizeof(zro__life));
}

uint64_t zro__world_region(int size)
{
    return world_bytes(size);
}

/* ---- regions ---- */

/* A file that would outgrow RLIMIT_FSIZE does not get an error but a signal, and a control group over its limit is killed:
 * so both are asked before. */
zro_status zro__check_room(size_t bytes, uint64_t end, const char *what)
{
    struct rlimit limit;
    zro__room room;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && end > limit.rlim_cur)
        return zro__fail(ZRO_ERR_MEMORY, "%s: %zu bytes exceed the limit on file sizes (%" PRIu64 " bytes, ulimit -f)", what,
                         bytes, (uint64_t)limit.rlim_cur);
    zro__room_get("", &room);
    if (bytes > room.bytes || (bytes > SPARE_BYTES && bytes + SPARE_BYTES > room.bytes))
        return zro__fail(ZRO_ERR_MEMORY, "%s: %zu bytes needed, but %s can give only %" PRIu64, what, bytes, room.where,
                         room.bytes);
    return ZRO_OK;
}

static int is_same_file(const zro__view *view)
{
    struct stat s;

    return view->fd >= 0 && fstat(view->fd, &s) == 0 && (uint64_t)s.st_dev == view->device && (uint64_t)s.st_ino == view->inode;
}

static zro_status check_file(const zro__view *view)
{
    return is_same_file(view)
               ? ZRO_OK
               : zro__fail(ZRO_ERR_STATE, "the program has closed descriptor %d, which is the library's", view->fd);
}

static zro_status grow(zro__view *view, uint64_t offset, size_t bytes, const char *what)
{
    zro_status st = check_file(view);
    int err;

    if (st != ZRO_OK)
        return st;
    do
        err = fallocate(view->fd, 0, (off_t)offset, (off_t)bytes) == 0 ? 0 : errno;
    while (err == EINTR);
    if (err != 0)
        return zro__fail_errno(err == ENOSPC || err == ENOMEM ? ZRO_ERR_MEMORY : ZRO_ERR_SYSTEM, err, "%s: %zu bytes", what,
                               bytes);
    return ZRO_OK;
}

zro_status zro__region_take(zro__view *view, size_t bytes, int reserve, const char *what, uint64_t *offset)
{
    size_t rounded;
    zro_status st;

    if (bytes == 0 || !zro__size_round(bytes, REGION_ALIGN, &rounded) || rounded > (size_t)INT64_MAX / 4)
        return zro__fail(ZRO_ERR_MEMORY, "%s: %zu bytes are too many", what, bytes);
    st = zro__check_room(bytes, atomic_load(&view->world->next) + rounded, what);
    if (st != ZRO_OK)
        return st;
    if (ZRO__POINT("memory.region"))
        return zro__fail(ZRO_ERR_MEMORY, "%s: %zu bytes", what, bytes);
    *offset = atomic_fetch_add(&view->world->next, rounded); /* nobody else gets these bytes: nothing to pair with */
    /* The last byte alone makes the file long enough; its pages come when they are populated. */
    return reserve ? grow(view, *offset, rounded, what) : grow(view, *offset + rounded - 1, 1, what);
}

void zro__region_punch(zro__view *view, uint64_t offset, size_t bytes)
{
    if (is_same_file(view))
        fallocate(view->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)round_region(bytes));
}

zro_status zro__populate(void *base, size_t bytes, int write, const char *what)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)base & ~(page - 1);
    size_t length = (uintptr_t)base + bytes - first;
    int err;

    if (bytes == 0)
        return ZRO_OK;
    if (ZRO__POINT("memory.populate"))
        return zro__fail(ZRO_ERR_MEMORY, "%s: no pages for %zu bytes", what, bytes);
    do
        err = madvise((void *)first, length, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0 ? 0 : errno;
    while (err == EINTR || err == EAGAIN);
    if (err == EINVAL) /* before Linux 5.14: pages come at first touch */
        return ZRO_OK;
    if (err != 0)
        return zro__fail_errno(ZRO_ERR_MEMORY, err, "%s: no pages for %zu bytes", what, bytes);
    return ZRO_OK;
}

/* ---- mappings ---- */

static zro__mapping *find_mapping(zro__view *view, uint64_t offset)
{
    zro__mapping *m = view->mappings;

    while (m != NULL && m->map.offset != offset)
        m = m->next;
    return m;
}

static zro__mapping *add_mapping(zro__view *view, const zro__map *map)
{
    zro__mapping *m = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *m);

    if (m == NULL)
        return NULL;
    m->map = *map;
    m->map.mapping = m;
    m->users = 1;
    m->next = view->mappings;
    view->mappings = m;
    return m;
}

zro_status zro__map_region(zro__view *view, uint64_t offset, size_t bytes, zro__map *out)
{
    zro__mapping *m;
    zro_status st = ZRO_OK;

    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&view->lock);
    m = find_mapping(view, offset);
    if (m != NULL) {
        m->users++;
        *out = m->map;
        goto done;
    }
    st = check_file(view);
    if (st != ZRO_OK)
        goto done;
    out->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, view->fd, (off_t)offset);
    if (out->base == MAP_FAILED) {
        out->base = NULL;
        st = zro__fail_errno(ZRO_ERR_MEMORY, errno, "mapping %zu bytes of group memory", bytes);
        goto done;
    }
    out->bytes = bytes;
    out->offset = offset;
    m = add_mapping(view, out);
    if (m == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: a mapping of group memory");
    out->mapping = m;
done:
    pthread_mutex_unlock(&view->lock);
    return st;
}

/* Under the lock. */
static void drop_mapping(zro__view *view, zro__mapping *m)
{
    zro__mapping **at = &view->mappings;

    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    munmap(m->map.base, m->map.bytes);
    zro__free(m);
}

void zro__unmap_region(zro__view *view, zro__map *map)
{
    if (map->base == NULL)
        return;
    if (map->mapping == NULL) {
        munmap(map->base, map->bytes);
    } else {
        pthread_mutex_lock(&view->lock);
        if (--map->mapping->users == 0)
            drop_mapping(view, map->mapping);
        pthread_mutex_unlock(&view->lock);
    }
    memset(map, 0, sizeof *map);
}

uint64_t zro__locate(zro__view *view, const void *data, size_t bytes)
{
    uintptr_t at = (uintptr_t)data;
    uint64_t offset = ZRO__NOWHERE;

    pthread_mutex_lock(&view->lock);
    for (zro__mapping *m = view->mappings; m != NULL; m = m->next) {
        uintptr_t base = (uintptr_t)m->map.base;

        if (at >= base && at - base <= m->map.bytes && bytes <= m->map.bytes - (at - base)) {
            offset = m->map.offset + (at - base);
            break;
        }
    }
    pthread_mutex_unlock(&view->lock);
    return offset;
}

void *zro__address(zro__view *view, uint64_t offset, size_t bytes)
{
    char *address = NULL;
    zro__mapping *m;
    zro__map map;

    pthread_mutex_lock(&view->lock);
    for (m = view->mappings; m != NULL && address == NULL; m = m->next) {
        if (offset >= m->map.offset && offset - m->map.offset <= m->map.bytes
            && bytes <= m->map.bytes - (offset - m->map.offset))
            address = m->map.base + (offset - m->map.offset);
    }
    if (address == NULL && is_same_file(view)) {
        /* An array of a group that this rank is not in: mapped here until the world ends. */
        map.offset = offset & ~(uint64_t)(REGION_ALIGN - 1);
        map.bytes = bytes + (size_t)(offset - map.offset);
        map.base = mmap(NULL, map.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, view->fd, (off_t)map.offset);
        if (map.base != MAP_FAILED) {
            if (add_mapping(view, &map) != NULL)
                address = map.base + (offset - map.offset);
            else
                munmap(map.base, map.bytes);
        }
    }
    pthread_mutex_unlock(&view->lock);
    return address;
}

void zro__pin(zro__view *view, const void *address)
{
    uintptr_t at = (uintptr_t)address;

    pthread_mutex_lock(&view->lock);
    view->pinned = 1;
    for (zro__mapping *m = view->mappings; m != NULL; m = m->next)
        m->users += at - (uintptr_t)m->map.base < m->map.bytes;
    pthread_mutex_unlock(&view->lock);
}

/* ---- views ---- */

static zro_status map_world(zro__view *view, size_t bytes)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, view->fd, 0);

    if (base == MAP_FAILED)
        return zro__fail_errno(ZRO_ERR_MEMORY, errno, "mapping the world's memory");
    view->world = base;
    view->world_bytes = bytes;
    return ZRO_OK;
}

static void unmap_world(zro__view *view)
{
    if (view->world != NULL)
        munmap(view->world, view->world_bytes);
    view->world = NULL;
}

static void free_view(zro__view *view)
{
    while (view->mappings != NULL)
        drop_mapping(view, view->mappings);
    unmap_world(view);
    if (is_same_file(view))
        close(view->fd);
    if (view->alive != NULL)
        munmap(view->alive, (size_t)sysconf(_SC_PAGESIZE));
    pthread_cond_destroy(&view->opened_or_failed);
    pthread_mutex_destroy(&view->lock);
    zro__free(view);
}

static zro_status make_alive_page(zro__view *view)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *base = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (base == MAP_FAILED)
        return zro__fail_errno(ZRO_ERR_MEMORY, errno, "a page");
    view->alive = base;
    if (madvise(base, page, MADV_WIPEONFORK) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "MADV_WIPEONFORK");
    *view->alive = 1;
    return ZRO_OK;
}

static zro_status know_file(zro__view *view)
{
    struct stat s;

    if (fstat(view->fd, &s) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "the world's memory");
    view->device = (uint64_t)s.st_dev;
    view->inode = (uint64_t)s.st_ino;
    return ZRO_OK;
}

static zro_status make_memfd(zro__view *view)
{
    zro_status st;

    char name[40] = "zro-";

    for (size_t i = 0; i < sizeof view->nonce; i++)
        snprintf(name + 4 + 2 * i, 3, "%02x", view->nonce[i]);
    view->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (view->fd < 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "memfd_create");
    st = know_file(view);
    if (st != ZRO_OK)
        return st;
    if (fcntl(view->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "sealing the world's memory");
    return ZRO_OK;
}

zro_status zro__view_create(zro__view **out)
{
    zro__view *view = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *view);
    zro_status st;

    *out = NULL;
    if (view == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a view of a world");
    view->fd = -1;
    view->opening = ZRO_ERR_STATE;
    pthread_mutex_init(&view->lock, NULL);
    pthread_cond_init(&view->opened_or_failed, NULL);
    st = make_alive_page(view);
    if (st == ZRO_OK && getrandom(view->nonce, sizeof view->nonce, 0) != (ssize_t)sizeof view->nonce)
        st = zro__fail_errno(ZRO_ERR_SYSTEM, errno, "getrandom");
    if (st == ZRO_OK)
        st = make_memfd(view);
    if (st != ZRO_OK) {
        free_view(view);
        return st;
    }
    *out = view;
    return ZRO_OK;
}

zro_status zro__view_found(zro__view *view, int size)
{
    size_t bytes = world_bytes(size);
    zro_status st = zro__check_room(bytes, bytes, "the table of the ranks");

    if (st == ZRO_OK)
        st = grow(view, 0, bytes, "the table of the ranks");
    if (st == ZRO_OK)
        st = map_world(view, bytes);
    if (st != ZRO_OK)
        return st;
    memcpy(view->world->nonce, view->nonce, sizeof view->nonce);
    view->world->size = size;
    atomic_store(&view->world->next, bytes);
    return ZRO_OK;
}

zro_status zro__view_adopt(zro__view *view, int size, int fd, const unsigned char *nonce)
{
    zro_status st;

    unmap_world(view);
    if (is_same_file(view))
        close(view->fd);
    view->fd = fd;
    st = know_file(view);
    if (st == ZRO_OK)
        st = map_world(view, world_bytes(size));
    if (st != ZRO_OK)
        return st;
    if (memcmp(view->world->nonce, nonce, sizeof view->nonce) != 0)
        return zro__fail(ZRO_ERR_FORMAT, "the memory behind the first rank's ticket is not what the ticket says");
    return ZRO_OK;
}

void zro__view_opened(zro__view *view, zro_status st)
{
    pthread_mutex_lock(&view->lock);
    view->opening = st;
    pthread_cond_broadcast(&view->opened_or_failed);
    pthread_mutex_unlock(&view->lock);
}

zro_status zro__view_await(zro__view *view, uint64_t timeout_ms)
{
    struct timespec limit;
    zro_status st;

    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += (time_t)(timeout_ms / 1000) + 1;
    pthread_mutex_lock(&view->lock);
    while (view->opening == ZRO_ERR_STATE
           && pthread_cond_timedwait(&view->opened_or_failed, &view->lock, &limit) != ETIMEDOUT) {
    }
    st = view->opening;
    pthread_mutex_unlock(&view->lock);
    if (st == ZRO_ERR_STATE)
        return zro__fail(ZRO_ERR_TIMEOUT, "group_create: the first rank of this process did not come within %" PRIu64 " ms",
                         timeout_ms);
    if (st != ZRO_OK)
        return zro__fail(ZRO_ERR_PEER, "group_create: %s on the first rank of this process", zro_status_text(st));
    return ZRO_OK;
}

void zro__view_drop(zro__view *view, int sharers)
{
    int last;

    pthread_mutex_lock(&view->lock);
    last = ++view->dropped == sharers && !view->pinned;
    pthread_mutex_unlock(&view->lock);
    if (last)
        free_view(view);
}

int zro__view_is_alive(const zro__view *view)
{
    return *view->alive != 0;
}

/* ---- seats ---- */

void zro__seat_retain(zro__seat *seat)
{
    atomic_fetch_add(&seat->refs, 1);
}

void zro__seat_release(zro__seat *seat)
{
    if (seat == NULL || atomic_fetch_sub(&seat->refs, 1) != 1)
        return;
    if (seat->trunk != NULL)
        zro__trunk_close(seat->trunk);
    zro__free(seat->trunk);
    zro__life_release(&seat->holder);
    zro__view_drop(seat->view, seat->sharers);
    zro__free(seat);
}
