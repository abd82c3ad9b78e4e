/* Drives a rule's loop: see drive.h.  Compiled once per instruction set (base/isa.h).
 *
 * On processors that gain by it, everything that the loop will touch is prefetched some hundred elements ahead, what is
 * written for writing; then the loop is called for 64 elements at a time, as it always is where gradients are added up.  Otherwise
 * it is called for as many as there are, up to a piece that leaves the caches alone. */
#include "optim/drive.h"

#include <string.h>

#include "base/convert.h"
#include "base/dtype.h"
#include "base/isa.h"
#include "optim/random.h"

#define INLINE ZRO__INLINE
#define NOINLINE __attribute__((noinline))
#define ALIGNED __attribute__((aligned(64)))

typedef zro__f32 f32;
typedef zro__f64 f64;
typedef zro__h16 h16;

/* Elements of a call of the loop: on memory itself; of a tile, where nothing is prefetched. */
enum { PIECE = 4096, WIDE = 256 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static INLINE void *at(const void *base, size_t i, size_t size)
{
    return (char *)(uintptr_t)base + i * size;
}

/* Rounds to bf16 by chance: the nearer a number is to its upper neighbour, the more probably it becomes that one.  A random
 * number below one unit of bf16 is added to the bits, and the bits that bf16 does not have are cut off. */
static NOINLINE void narrow_by_chance(void *to, const void *from, size_t n, uint64_t key, uint64_t first)
{
    const f32 *restrict s = from;
    h16 *restrict d = to;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits = zro__f32_bits(s[i]), up = bits + (zro__random_at(key, first + i) & 0xffff);

        d[i] = ZRO__MAGNITUDE(bits) >= 0x7f800000 ? zro__bf16_from_f32(s[i]) : (uint16_t)(up >> 16);
    }
}

/* ---- factors ---- */

#define FACTORS(T)                                                                                                             \
    do {                                                                                                                       \
        T *restrict g = grad;                                                                                                  \
        const T unscale = (T)f->unscale, clip = (T)f->clip, high = (T)f->value, low = -high;                                   \
        if (f->unscale != 1)                                                                                                   \
            for (size_t i = 0; i < n; i++)                                                                                     \
                g[i] = g[i] * unscale;                                                                                         \
        if (f->clip != 1)                                                                                                      \
            for (size_t i = 0; i < n; i++)                                                                                     \
                g[i] = g[i] * clip;                                                                                            \
        if (f->value != 0)                                                                                                     \
            for (size_t i = 0; i < n; i++) {                                                                                   \
                g[i] = g[i] < low ? low : g[i];                                                                                \
                g[i] = g[i] > high ? high : g[i];                                                                              \
            }                                                                                                                  \
    } while (0)

static NOINLINE void apply_factors(void *grad, zro_dtype type, size_t n, const zro__factors *f)
{
    if (type == ZRO_F64)
        FACTORS(double);
    else
        FACTORS(float);
}

static INLINE int is_neutral(const zro__factors *f)
{
    return f->unscale == 1 && f->clip == 1 && f->value == 0;
}

/* ---- tiles ---- */

static NOINLINE void fill(void *to, zro_dtype type, double value, size_t n)
{
    if (type == ZRO_F64)
        for (size_t i = 0; i < n; i++)
            ((f64 *)to)[i] = value;
    else
        for (size_t i = 0; i < n; i++)
            ((f32 *)to)[i] = (float)value;
}

/* Gives n elements of fresh slots and masters their first values, when the loop is about to read them: a pass of its own would
 * wait for memory twice. */
static NOINLINE void begin_slots(const zro__drive *d, size_t done, size_t n)
{
    const size_t size = zro__float_bytes(d->type);

    if (d->fill_master)
        zro__convert(at(d->master, done, sizeof(float)), ZRO_F32, at(d->data, done, zro__float_bytes(d->data_type)),
                     d->data_type, n);
    for (size_t s = 0; s < d->n_slots; s++)
        if ((d->fill >> s & 1) != 0 && d->slots[s] != NULL)
            fill(at(d->slots[s], done, size), d->type, d->begin[s], n);
}

static INLINE void prefetch(const zro__drive *d, size_t from, size_t to, size_t size, size_t data_size, size_t grad_size)
{
    if (d->sources == NULL)
        zro__prefetch(d->grad, from * grad_size, to * grad_size, 0);
    else
        for (int k = 0; k < d->sources->reduce->n; k++)
            if (d->sources->src[k] != NULL)
                zro__prefetch(d->sources->src[k], from * grad_size, to * grad_size, 0);
    zro__prefetch(d->data, from * data_size, to * data_size, 1);
    if (d->master != NULL)
        zro__prefetch(d->master, from * size, to * size, 1);
    for (size_t s = 0; s < d->n_slots; s++)
        if (d->slots[s] != NULL)
            zro__prefetch(d->slots[s], from * size, to * size, 1);
}

static void set_tile(zro_rule_tile *t, void **slots, const zro__drive *d, size_t done, size_t n, size_t size)
{
    if (d->fill != 0 || d->fill_master)
        begin_slots(d, done, n);
    t->count = n;
    t->first = d->first + done;
    for (size_t s = 0; s < d->n_slots; s++)
        slots[s] = d->slots[s] != NULL ? at(d->slots[s], done, size) : NULL;
}

/* One tile whose gradient or parameter is not in the loop's type, or whose gradient is unscaled or clipped first. */
static INLINE void do_tile(const zro__drive *d, zro_rule_tile *t, size_t done, size_t n, const void *reduced, void *grad,
                           void *data)
{
    const size_t size = zro__float_bytes(d->type);
    void *there = at(d->data, done, zro__float_bytes(d->data_type));

    t->grad = reduced != NULL ? reduced : at(d->grad, done, zro__float_bytes(d->grad_type));
    if (d->grad_type != d->type || !is_neutral(d->factors)) {
        zro__convert(grad, d->type, t->grad, d->grad_type, n);
        if (!is_neutral(d->factors))
            apply_factors(grad, d->type, n, d->factors);
        t->grad = grad;
    }
    t->data = d->data_type == d->type ? there : d->master != NULL ? at(d->master, done, size) : data;
    if (t->data == data)
        zro__convert(data, d->type, there, d->data_type, n);
    d->loop(t);
    if (t->data == there)
        return;
    if (d->stochastic && d->data_type == ZRO_BF16)
        narrow_by_chance(there, t->data, n, d->key, t->first);
    else
        zro__convert(there, d->data_type, t->data, d->type, n);
}

/* What the sum of two f32 gradients that are both there is multiplied by; 0 if these are other sources, or must be divided.  In one
 * cell or in two, it is the same sum. */
static float pair_factor(const zro__sources *s)
{
    const zro__reduce *r = s->reduce;

    if (r->n != 2 || r->weight != NULL || r->dtype != ZRO_F32 || s->src[0] == NULL || s->src[1] == NULL)
        return 0;
    if (r->op == ZRO_SUM)
        return 1;
    return r->op == ZRO_AVG && zro__is_power_of_two(r->divisor) ? 1 / (float)r->divisor : 0;
}

/* The same as the kernel's tile, in place of a call. */
static INLINE void add_pair(void *sum, const void *first, const void *second, float by)
{
    f32 *restrict v = sum;
    const f32 *a = first, *b = second;

    for (size_t i = 0; i < ZRO__TILE; i++)
        v[i] = (a[i] + b[i]) * by;
}

/* With several sources: a tile of them is added up, goes through the loop while it is in the nearest cache, and is stored wherever
 * the result belongs.  Larger tiles are slower: the sum and the loop do not overlap in the processor then. */
static NOINLINE void drive_sources(const zro__drive *d)
{
    double sum[ZRO__TILE] ALIGNED, grad[ZRO__TILE] ALIGNED, data[ZRO__TILE] ALIGNED;
    const size_t size = zro__float_bytes(d->type), data_size = zro__float_bytes(d->data_type);
    const size_t grad_size = zro__float_bytes(d->grad_type), ahead = d->ahead;
    const zro__sources *s = d->sources;
    const float by = pair_factor(s);
    const int elsewhere = s->n_dst > 1 || (s->n_dst == 1 && s->dst[0] != d->data);
    size_t n;
    void *slots[ZRO_MAX_SLOTS];
    zro_rule_tile t = { 0, NULL, NULL, slots, d->scalars, d->user, d->param, 0 };

    for (size_t done = 0; done < d->count; done += n) {
        n = least(ZRO__TILE, d->count - done);
        if (ahead != 0 && d->count - done > ahead)
            prefetch(d, done + ahead, least(done + ahead + n, d->count), size, data_size, grad_size);
        if (by != 0 && n == ZRO__TILE)
            add_pair(sum, at(s->src[0], done, sizeof(f32)), at(s->src[1], done, sizeof(f32)), by);
        else
            d->kernels->reduce_tile(s->reduce, s->src, done, n, sum);
        set_tile(&t, slots, d, done, n, size);
        do_tile(d, &t, done, n, sum, grad, data);
        for (int k = 0; elsewhere && k < s->n_dst; k++) {
            void *dst = at(s->dst[k], done, data_size);

            d->kernels->copy(&dst, 1, at(d->data, done, data_size), n * data_size, s->stream);
        }
    }
}

static void drive(const zro__drive *d)
{
    double grad[WIDE] ALIGNED, data[WIDE] ALIGNED;
    const size_t size = zro__float_bytes(d->type), data_size = zro__float_bytes(d->data_type);
    const size_t grad_size = zro__float_bytes(d->grad_type), ahead = d->ahead;
    const int direct = d->grad_type == d->type && d->data_type == d->type && is_neutral(d->factors);
    const size_t step = d->whole ? d->count : ahead != 0 ? ZRO__TILE : direct ? PIECE : WIDE;
    size_t n;
    void *slots[ZRO_MAX_SLOTS];
    zro_rule_tile t = { 0, NULL, NULL, slots, d->scalars, d->user, d->param, 0 };

    if (d->sources != NULL) {
        drive_sources(d);
        return;
    }
    for (size_t done = 0; done < d->count; done += n) {
        n = least(step, d->count - done);
        if (ahead != 0 && d->count - done > ahead)
            prefetch(d, done + ahead, least(done + ahead + n, d->count), size, data_size, grad_size);
        set_tile(&t, slots, d, done, n, size);
        if (direct) {
            t.grad = at(d->grad, done, grad_size);
            t.data = at(d->data, done, data_size);
            d->loop(&t);
        } else if (d->whole) {
            do_tile(d, &t, done, n, NULL, d->scratch, at(d->scratch, n, size));
        } else {
            do_tile(d, &t, done, n, NULL, grad, data);
        }
    }
}

const zro__drive_fn ZRO__OF_ISA(zro__drive_) = drive;
