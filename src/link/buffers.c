/* Buffers of messages: see buffers.h. */
#include "link/buffers.h"

enum { LINE = 64, IDLE_MAX = 16 << 20 };

#define IDLE_BUDGET (UINT64_C(1) << 32)

/* Stands before the bytes. */
struct zro__buffer {
    zro__buffer *next; /* of its class, while it has no user */
    int class, users;
    _Alignas(LINE) char data[];
};

/* Each class holds one line more than a power of two: most messages are powers of two long, and some have a byte behind them. */
static size_t class_bytes(int class)
{
    return sizeof(zro__buffer) + LINE + ((size_t)LINE << class);
}

static zro__buffer *buffer_of(const void *data)
{
    return (zro__buffer *)(void *)((char *)(uintptr_t)data - offsetof(zro__buffer, data));
}

/* 16 KB in a group of 64, so that what all ranks of a machine keep stays small beside what they need anyway.  In groups of up to
 * 8 everything is kept: there messages are long, and their pages, got anew each time, would cost as much as sending them. */
size_t zro__buffers_most_idle(int size)
{
    uint64_t n = (uint64_t)size, bytes = IDLE_BUDGET / (n * n * n);

    return bytes < IDLE_MAX ? (size_t)bytes : IDLE_MAX;
}

void *zro__buffers_take(zro__buffers *b, size_t bytes)
{
    zro__buffer *buffer;
    int class = 0;

    while (class_bytes(class) - sizeof *buffer < bytes && class < ZRO__BUFFER_CLASSES)
        class ++;
    if (class == ZRO__BUFFER_CLASSES)
        return NULL;
    buffer = b->unused[class];
    if (buffer != NULL) {
        b->unused[class] = buffer->next;
        b->idle -= class_bytes(class);
    } else {
        buffer = zro__alloc(NULL, ZRO__KIND_HANDLE, class_bytes(class));
        if (buffer == NULL)
            return NULL;
        atomic_fetch_add_explicit(b->counter, class_bytes(class), memory_order_relaxed);
        buffer->class = class;
    }
    buffer->users = 1;
    return buffer->data;
}

void zro__buffers_share(void *data)
{
    buffer_of(data)->users++;
}

int zro__buffer_users(const void *data)
{
    return buffer_of(data)->users;
}

static void free_buffer(zro__buffers *b, zro__buffer *buffer)
{
    atomic_fetch_sub_explicit(b->counter, class_bytes(buffer->class), memory_order_relaxed);
    zro__free(buffer);
}

void zro__buffers_give(zro__buffers *b, void *data)
{
    zro__buffer *buffer = buffer_of(data);
    size_t bytes = class_bytes(buffer->class);

    if (--buffer->users > 0)
        return;
    if (b->idle + bytes > b->most_idle) {
        free_buffer(b, buffer);
        return;
    }
    b->idle += bytes;
    buffer->next = b->unused[buffer->class];
    b->unused[buffer->class] = buffer;
}

void zro__buffers_close(zro__buffers *b)
{
    for (int class = 0; class < ZRO__BUFFER_CLASSES; class ++) {
        while (b->unused[class] != NULL) {
            zro__buffer *buffer = b->unused[class];

            b->unused[class] = buffer->next;
            free_buffer(b, buffer);
        }
    }
}
