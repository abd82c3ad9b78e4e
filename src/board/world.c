/* The world's memory: see world.h.
 *
 * The memfd has no name in any file system and vanishes with the last process that has it.  It is sealed against shrinking, so
 * that no peer can pull pages from under another; growing is by fallocate, which cannot shrink either. */
#define _GNU_SOURCE
#include "board/world.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/point.h"
#include "board/late.h"
#include "board/memory_left.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

enum { REGION_ALIGN = 1 << 16, SPARE_BYTES = 64 << 20, BORROWED = 64 /* mappings that are kept though nobody uses them */ };

/* Stands behind its region in the same mapping, in private memory: so a region that is mapped can be noted. */
struct zro__mapping {
    zro__map map;
    int users;
    uint64_t asked; /* of a borrowed mapping: when it was last asked for, counted in such questions; 0: it is not borrowed */
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

/* ---- regions ---- */

/* A process whose file outgrows RLIMIT_FSIZE gets a signal instead of an error, and a control group over its limit is killed:
 * so both are compared before. */
zro_status zro__check_memory_left(size_t bytes, uint64_t end, const char *what)
{
    struct rlimit limit;
    zro__memory_left left;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && end > limit.rlim_cur)
        return zro__fail(ZRO_ERR_MEMORY, "%s: %zu bytes exceed the limit on file sizes (%" PRIu64 " bytes, see ulimit -f)",
                         what, bytes, (uint64_t)limit.rlim_cur);
    zro__memory_left_get("", &left);
    if (bytes > left.bytes || (bytes > SPARE_BYTES && bytes + SPARE_BYTES > left.bytes))
        return zro__fail(ZRO_ERR_MEMORY, "%s: %zu bytes needed, but %s can give only %" PRIu64, what, bytes, left.where,
                         left.bytes);
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
               : zro__fail(ZRO_ERR_STATE, "the program has closed descriptor %d, which belongs to the library", view->fd);
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
        return zro__fail_errno(err == ENOSPC || err == ENOMEM ? ZRO_ERR_MEMORY : ZRO_ERR_SYSTEM, err,
                               "%s: cannot reserve %zu bytes", what, bytes);
    return ZRO_OK;
}

zro_status zro__region_take(zro__view *view, size_t bytes, int reserve, const char *what, uint64_t *offset)
{
    size_t rounded;
    zro_status st;

    if (bytes == 0 || !zro__size_round(bytes, REGION_ALIGN, &rounded) || rounded > (size_t)INT64_MAX / 4)
        return zro__fail(ZRO_ERR_MEMORY, "%s: %zu bytes are too many", what, bytes);
    st = zro__check_memory_left(bytes, atomic_load(&view->world->next) + rounded, what);
    if (st != ZRO_OK)
        return st;
    if (ZRO__POINT("memory.region"))
        return zro__fail(ZRO_ERR_MEMORY, "%s: cannot reserve %zu bytes", what, bytes);
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

static size_t mapping_bytes(size_t bytes)
{
    return round_region(bytes) + sizeof(zro__mapping);
}

static zro__mapping *mapping_of(const zro__map *map)
{
    return (zro__mapping *)(void *)(map->base + round_region(map->bytes));
}

/* Maps a region, which nobody uses yet.  Under the lock. */
static zro_status add_mapping(zro__view *view, uint64_t offset, size_t bytes, zro__mapping **out)
{
    size_t all = mapping_bytes(bytes);
    zro__map map = { .bytes = bytes, .offset = offset };
    void *note = MAP_FAILED;
    zro_status st = check_file(view);

    if (st != ZRO_OK)
        return st;
    map.base = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED, view->fd, (off_t)offset);
    if (map.base != MAP_FAILED)
        note = mmap(mapping_of(&map), sizeof **out, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (note == MAP_FAILED) {
        st = zro__fail_errno(ZRO_ERR_MEMORY, errno, "cannot map %zu bytes of group memory", bytes);
        if (map.base != MAP_FAILED)
            munmap(map.base, all);
        return st;
    }
    *out = note;
    (*out)->map = map;
    (*out)->next = view->mappings;
    view->mappings = *out;
    return ZRO_OK;
}

zro_status zro__map_region(zro__view *view, uint64_t offset, size_t bytes, zro__map *out)
{
    zro__mapping *m;
    zro_status st = ZRO_OK;

    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&view->lock);
    for (m = view->mappings; m != NULL && (m->map.offset != offset || m->asked != 0);)
        m = m->next;
    if (m == NULL)
        st = add_mapping(view, offset, bytes, &m);
    if (st == ZRO_OK) {
        m->users++;
        *out = m->map;
    }
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
    munmap(m->map.base, mapping_bytes(m->map.bytes));
}

/* Under the lock.  Drops borrowed mappings that nobody uses, the oldest first, until `most` are left. */
static void drop_borrowed(zro__view *view, int most)
{
    zro__mapping *oldest;

    do {
        oldest = NULL;
        for (zro__mapping *m = view->mappings; m != NULL && view->n_borrowed > most; m = m->next)
            if (m->asked != 0 && m->users == 0 && (oldest == NULL || m->asked < oldest->asked))
                oldest = m;
        if (oldest != NULL) {
            view->n_borrowed--;
            drop_mapping(view, oldest);
        }
    } while (oldest != NULL);
}

void zro__unmap_region_locked(zro__view *view, zro__map *map)
{
    zro__mapping *m = mapping_of(map);

    if (--m->users == 0 && m->asked == 0)
        drop_mapping(view, m);
    memset(map, 0, sizeof *map);
}

void zro__unmap_region(zro__view *view, zro__map *map)
{
    if (map->base == NULL)
        return;
    pthread_mutex_lock(&view->lock);
    zro__unmap_region_locked(view, map);
    drop_borrowed(view, BORROWED);
    pthread_mutex_unlock(&view->lock);
}

void zro__map_hold_locked(zro__view *view, const void *address, zro__map *out)
{
    uintptr_t at = (uintptr_t)address;

    for (zro__mapping *m = view->mappings; m != NULL; m = m->next)
        if (at - (uintptr_t)m->map.base < m->map.bytes) {
            m->users++;
            *out = m->map;
            return;
        }
}

/* Whether [at, at + bytes) lies in [begin, begin + length). */
static int lies_in(uint64_t begin, size_t length, uint64_t at, size_t bytes)
{
    return at >= begin && at - begin <= length && bytes <= length - (at - begin);
}

int zro__map_next_locked(zro__view *view, zro__mapping **at, const void *data, size_t bytes, uint64_t *begin, uint64_t *end)
{
    uintptr_t first = (uintptr_t)data, last = first + bytes;

    for (*at = *at == NULL ? view->mappings : (*at)->next; *at != NULL; *at = (*at)->next) {
        uintptr_t base = (uintptr_t)(*at)->map.base, top = base + (*at)->map.bytes;

        if (base >= last || first >= top)
            continue;
        *begin = (*at)->map.offset + (first > base ? first - base : 0);
        *end = (*at)->map.offset + ((last < top ? last : top) - base);
        return 1;
    }
    return 0;
}

uint64_t zro__locate(zro__view *view, const void *data, size_t bytes)
{
    uint64_t offset = ZRO__NOWHERE;

    pthread_mutex_lock(&view->lock);
    for (zro__mapping *m = view->mappings; m != NULL && offset == ZRO__NOWHERE; m = m->next)
        if (lies_in((uintptr_t)m->map.base, m->map.bytes, (uintptr_t)data, bytes))
            offset = m->map.offset + ((uintptr_t)data - (uintptr_t)m->map.base);
    pthread_mutex_unlock(&view->lock);
    return offset;
}

void *zro__address(zro__view *view, uint64_t offset, size_t bytes, zro__map *borrowed)
{
    uint64_t begin = offset & ~(uint64_t)(REGION_ALIGN - 1);
    zro__mapping *m;
    char *address = NULL;

    memset(borrowed, 0, sizeof *borrowed);
    pthread_mutex_lock(&view->lock);
    for (m = view->mappings; m != NULL && !lies_in(m->map.offset, m->map.bytes, offset, bytes);)
        m = m->next;
    if (m == NULL) {
        size_t length = bytes + (size_t)(offset - begin);

        if (add_mapping(view, begin, length, &m) != ZRO_OK) { /* the process may have as many mappings as it can */
            drop_borrowed(view, 0);
            m = NULL;
            (void)add_mapping(view, begin, length, &m);
        }
        if (m != NULL) {
            m->asked = 1;
            view->n_borrowed++;
        }
    }
    if (m != NULL && m->asked != 0)
        m->asked = ++view->n_addresses;
    if (m != NULL && (m->asked != 0 || view->sharers > 1)) { /* another rank of this process may unmap it meanwhile */
        m->users++;
        *borrowed = m->map;
    }
    if (m != NULL)
        address = m->map.base + (offset - m->map.offset);
    pthread_mutex_unlock(&view->lock);
    return address;
}

void zro__pin(zro__view *view, const void *address)
{
    zro__map kept; /* nobody needs it: it is never unmapped */

    pthread_mutex_lock(&view->lock);
    view->pinned = 1;
    zro__map_hold_locked(view, address, &kept);
    pthread_mutex_unlock(&view->lock);
}

/* ---- views ---- */

static zro_status map_world(zro__view *view, int size)
{
    zro__map map;
    zro_status st = zro__map_region(view, 0, world_bytes(size), &map);

    view->world = (zro__world *)(void *)map.base;
    return st;
}

static void close_world(zro__view *view)
{
    while (view->mappings != NULL)
        drop_mapping(view, view->mappings);
    if (is_same_file(view))
        close(view->fd);
}

/* By nonce ranks of one process find each other's views: their tickets, which travel, cannot say where those are.  In a forked
 * child the views read as zeros, and the first of them ends the list. */
static pthread_mutex_t views_lock = PTHREAD_MUTEX_INITIALIZER;
static zro__view *views;

zro__view *zro__view_find(const unsigned char *nonce)
{
    zro__view *view;

    pthread_mutex_lock(&views_lock);
    for (view = views; view != NULL && memcmp(view->nonce, nonce, sizeof view->nonce) != 0;)
        view = view->next;
    pthread_mutex_unlock(&views_lock);
    return view;
}

/* The view need not be in the list yet. */
static void free_view(zro__view *view)
{
    zro__view **at = &views;

    pthread_mutex_lock(&views_lock);
    while (*at != NULL && *at != view)
        at = &(*at)->next;
    if (*at != NULL)
        *at = view->next;
    pthread_mutex_unlock(&views_lock);
    zro__late_free_all(view);
    close_world(view);
    pthread_mutex_destroy(&view->opening);
    pthread_mutex_destroy(&view->lock);
    munmap(view, sizeof *view);
}

static zro_status know_file(zro__view *view)
{
    struct stat s;

    if (fstat(view->fd, &s) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot examine the world's memory (fstat)");
    view->device = (uint64_t)s.st_dev;
    view->inode = (uint64_t)s.st_ino;
    return ZRO_OK;
}

static zro_status make_memfd(zro__view *view)
{
    zro_status st;

    view->fd = memfd_create("zro-world", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (view->fd < 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot create the world's memory (memfd_create)");
    st = know_file(view);
    if (st == ZRO_OK && fcntl(view->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
        st = zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot seal the world's memory");
    return st;
}

zro_status zro__view_create(zro__view **out)
{
    zro__view *view = mmap(NULL, sizeof *view, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    zro_status st = ZRO_OK;

    *out = NULL;
    if (view == MAP_FAILED)
        return zro__fail_errno(ZRO_ERR_MEMORY, errno, "cannot map a view of the world's memory");
    view->alive = 1;
    view->fd = -1;
    pthread_mutex_init(&view->opening, NULL);
    pthread_mutex_init(&view->lock, NULL);
    if (madvise(view, sizeof *view, MADV_WIPEONFORK) != 0)
        st = zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot hide memory from forked children (MADV_WIPEONFORK)");
    if (st == ZRO_OK && getrandom(view->nonce, sizeof view->nonce, 0) != (ssize_t)sizeof view->nonce)
        st = zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot get random bytes (getrandom)");
    if (st == ZRO_OK)
        st = make_memfd(view);
    if (st != ZRO_OK) {
        free_view(view);
        return st;
    }
    pthread_mutex_lock(&views_lock);
    view->next = views;
    views = view;
    pthread_mutex_unlock(&views_lock);
    *out = view;
    return ZRO_OK;
}

zro_status zro__view_make_world(zro__view *view, int size)
{
    size_t bytes = world_bytes(size);
    zro_status st = zro__check_memory_left(bytes, bytes, "the table of the ranks");

    if (st == ZRO_OK)
        st = grow(view, 0, bytes, "the table of the ranks");
    if (st == ZRO_OK)
        st = map_world(view, size);
    if (st != ZRO_OK)
        return st;
    memcpy(view->world->nonce, view->nonce, sizeof view->nonce);
    atomic_store(&view->world->next, bytes);
    return ZRO_OK;
}

zro_status zro__view_adopt(zro__view *view, int size, int fd, const unsigned char *nonce)
{
    zro_status st;

    close_world(view);
    view->fd = fd;
    st = know_file(view);
    if (st == ZRO_OK)
        st = map_world(view, size);
    if (st != ZRO_OK)
        return st;
    if (memcmp(view->world->nonce, nonce, sizeof view->nonce) != 0)
        return zro__fail(ZRO_ERR_FORMAT, "the memory behind the first rank's ticket is not what the ticket says");
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
    return view->alive != 0;
}
