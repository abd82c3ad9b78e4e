/* A case: its first failure and its memory.  See golden.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"

struct golden_block {
    struct golden_block *next;
    _Alignas(64) unsigned char bytes[];
};

void golden_begin(golden_case *c, const golden_options *options, json_t *json)
{
    memset(c, 0, sizeof *c);
    c->options = options;
    c->json = json;
    c->rank = c->step = c->param = c->element = GOLDEN_NOWHERE;
}

void golden_end(golden_case *c)
{
    while (c->blocks != NULL) {
        struct golden_block *block = c->blocks;

        c->blocks = block->next;
        free(block);
    }
}

int golden_ok(const golden_case *c)
{
    return !c->result.failed;
}

void golden_fail(golden_case *c, const char *format, ...)
{
    const struct {
        const char *name;
        size_t at;
    } places[] = { { "rank", c->rank }, { "step", c->step }, { "parameter", c->param }, { "element", c->element } };
    golden_result *r = &c->result;
    size_t used = 0;
    va_list arguments;

    if (r->failed)
        return;
    r->failed = 1;
    if (c->how != NULL)
        used = (size_t)snprintf(r->text, sizeof r->text, "%s: ", c->how);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (places[i].at != GOLDEN_NOWHERE)
            used += (size_t)snprintf(r->text + used, sizeof r->text - used, "%s %zu: ", places[i].name, places[i].at);
    va_start(arguments, format);
    vsnprintf(r->text + used, sizeof r->text - used, format, arguments);
    va_end(arguments);
}

int golden_call(golden_case *c, const char *call, zro_status status)
{
    if (status == ZRO_OK)
        return 1;
    if (golden_ok(c))
        c->result.echo = status == ZRO_ERR_PEER || status == ZRO_ERR_LOST;
    golden_fail(c, "%s: %s: %s", call, zro_status_name(status), zro_last_error());
    return 0;
}

void golden_about(golden_case *c, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(c->about, sizeof c->about, format, arguments);
    va_end(arguments);
}

void *golden_alloc(golden_case *c, size_t bytes)
{
    struct golden_block *block = aligned_alloc(64, (sizeof *block + bytes + 63) / 64 * 64);

    if (block == NULL) {
        fprintf(stderr, "golden: out of memory\n");
        exit(1);
    }
    memset(block->bytes, 0, bytes);
    block->next = c->blocks;
    c->blocks = block;
    return block->bytes;
}
