/* The same bits from every rule, whatever computes them: instruction sets, threads, splits into ranges, the caller's
 * floating-point mode.  What they are compared with is the base instruction set on one thread with the parameter whole. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/kernels.h"
#include "bed.h"
#include "settings.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { STEPS = 4 };

/* Steps with the same random gradients, whatever parameters they are cut into. */
static void train(bed *b, zro_optim *opt, uint64_t seed, int wild)
{
    for (int s = 0; s < STEPS; s++) {
        uint64_t random = zt_mix(seed, (uint64_t)s);

        bed_gradients(b, &random, 1, wild && s > 0);
        CHECK_OK(zro_optim_step(opt, NULL));
    }
}

static int same_slots(zro_optim *a, zro_optim *b)
{
    for (size_t i = 0; i < zro_optim_slots(a); i++) {
        zro_slot x, y;

        CHECK_OK(zro_optim_slot(a, 0, zro_optim_slot_name(a, i), &x));
        CHECK_OK(zro_optim_slot(b, 0, zro_optim_slot_name(a, i), &y));
        CHECK(x.present == y.present && x.dtype == y.dtype);
        if (x.present && !bed_equal_arrays(x.data, y.data, x.dtype, x.count < y.count ? x.count : y.count))
            return 0;
    }
    return 1;
}

/* Lengths of 1 to `most` pieces of n elements, at any place. */
static size_t cut(uint64_t *random, size_t n, size_t most, size_t *lengths)
{
    size_t pieces = 1 + zt_below(random, most), left = n;

    for (size_t i = 0; i + 1 < pieces; i++) {
        lengths[i] = zt_below(random, left + 1);
        left -= lengths[i];
    }
    lengths[pieces - 1] = left;
    return pieces;
}

static void bits(zt_rank *t)
{
    static const zro_kernels kernels[] = { ZRO_KERNELS_BASE, ZRO_KERNELS_AVX2, ZRO_KERNELS_AVX512 };
    size_t type = (size_t)t->arg, lengths[BED_MAX], compared = 0;

    for (size_t r = 0; r < SETTINGS; r++) {
        size_t count = 1500 + zt_below(&t->random, 3000);
        zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
        zro_optim *reference, *other;
        bed whole, pieces, start;

        config.masters = element_types[type].masters;
        config.rounding = element_types[type].rounding;
        config.settings.kernels = ZRO_KERNELS_BASE;
        bed_init(&whole, element_types[type].dtype, element_types[type].grad, &count, 1);
        bed_fill(&whole, &t->random);
        bed_split(&start, &whole, &count, 1);
        reference = bed_optim(&whole, settings[r], &config);
        train(&whole, reference, t->seed + r, 1);
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
            if (zro__kernels_get(kernels[k]) == NULL)
                continue;
            config.settings.kernels = kernels[k];
            for (uint32_t threads = 1; threads <= 3; threads++) {
                /* Random numbers of stochastic rounding belong to parameter and element: there only threads cut. */
                int is_whole = config.rounding == ZRO_STOCHASTIC || threads == 2;
                size_t n = is_whole ? 1 : cut(&t->random, count, 20, lengths);

                if (is_whole)
                    lengths[0] = count;
                config.settings.threads = threads;
                bed_split(&pieces, &start, lengths, n);
                other = bed_optim(&pieces, settings[r], &config);
                train(&pieces, other, t->seed + r, 1);
                if (!bed_equal(&whole, &pieces) || !same_slots(reference, other))
                    zt_fail(__FILE__, __LINE__, "%s on %s, %u threads, %zu pieces of %zu", settings[r],
                            zro__kernels_get(kernels[k])->name, threads, n, count);
                zro_optim_destroy(other);
                bed_free(&pieces);
                compared++;
            }
        }
        zro_optim_destroy(reference);
        bed_free(&whole);
        bed_free(&start);
    }
    zt_note(t, "%zu comparisons", compared);
}

#if defined(__x86_64__)
static zro_optim *optim_in_mode(bed *b, const char *rule, const zro_optim_config *config, unsigned mode)
{
    unsigned before = __builtin_ia32_stmxcsr();
    zro_optim *opt;

    __builtin_ia32_ldmxcsr(mode);
    opt = bed_optim(b, rule, config);
    __builtin_ia32_ldmxcsr(before);
    return opt;
}

/* A program that flushes subnormals and rounds towards zero gets the same bits, and its mode back. */
static void mode_is_kept(zt_rank *t)
{
    const unsigned odd = 0x1f80 | 0x8040 | 0x6000; /* FTZ, DAZ, towards zero */
    const size_t count = 3000;

    for (size_t r = 0; r < SETTINGS; r++) {
        zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
        unsigned before = __builtin_ia32_stmxcsr();
        zro_dtype type = r % 2 == 0 ? ZRO_F64 : ZRO_F32; /* f32 would hide the last bits of the clip factor */
        bed a, b;
        zro_optim *x, *y;

        config.clip_norm = 1;
        config.settings.threads = 1 + r % 2;
        bed_init(&a, type, type, &count, 1);
        bed_fill(&a, &t->random);
        bed_split(&b, &a, &count, 1);
        x = bed_optim(&a, settings[r], &config);
        train(&a, x, t->seed, 0);
        y = optim_in_mode(&b, settings[r], &config, odd);
        for (int s = 0; s < STEPS; s++) {
            uint64_t random = zt_mix(t->seed, (uint64_t)s);
            zro_status st;
            unsigned after;

            bed_gradients(&b, &random, 1, 0);
            __builtin_ia32_ldmxcsr(odd);
            st = zro_optim_step(y, NULL);
            after = __builtin_ia32_stmxcsr();
            __builtin_ia32_ldmxcsr(before);
            CHECK_OK(st);
            CHECK(after == odd);
        }
        CHECK(same_slots(x, y));
        CHECK(bed_equal(&a, &b));
        zro_optim_destroy(x);
        zro_optim_destroy(y);
        bed_free(&a);
        bed_free(&b);
    }
}
#endif

/* What NaN, infinity and parameters that are neither do to PyTorch's rules: one letter an element (f finite, n NaN, + and -
 * infinite) after each of three steps, of the parameter and then of each array of state. */
static const struct {
    const char *rule, *after[3];
} special[] = {
    { "sgd lr=0.1", { "n-+ffn+", "n-+ffn+", "n-+ffn+" } },
    { "sgd lr=0.1 momentum=0.9", { "n-+ffn+ n+-ffff", "n-+ffn+ n+-ffff", "n-+ffn+ n+-ffff" } },
    { "sgd lr=0.1 momentum=0.9 nesterov=1 weight_decay=0.1", { "n-+ffnn n+-ffn+", "nnnffnn nnnffnn", "nnnffnn nnnffnn" } },
    { "adam", { "nnnffn+ n+-ffff n++ffff", "nnnffn+ nnnffff n++ffff", "nnnffn+ nnnffff n++ffff" } },
    { "adam beta1=0.3", { "nnnffn+ nnnffff n++ffff", "nnnffn+ nnnffff n++ffff", "nnnffn+ nnnffff n++ffff" } },
    { "adam amsgrad=1",
      { "nnnffn+ n+-ffff n++ffff n++ffff", "nnnffn+ nnnffff n++ffff n++ffff", "nnnffn+ nnnffff n++ffff n++ffff" } },
    { "adamw", { "nnnffn+ n+-ffff n++ffff", "nnnffn+ nnnffff n++ffff", "nnnffn+ nnnffff n++ffff" } },
    { "adagrad", { "nnnffn+ n++ffff", "nnnffn+ n++ffff", "nnnffn+ n++ffff" } },
    { "adadelta", { "nnnffn+ n++ffff nnnffff", "nnnffn+ n++ffff nnnffff", "nnnffn+ n++ffff nnnffff" } },
    { "adamax", { "nnnffn+ n+-ffff n++ffff", "nnnffn+ nnnffff n++ffff", "nnnffn+ nnnffff n++ffff" } },
    { "rmsprop", { "nnnffn+ n++ffff", "nnnffn+ n++ffff", "nnnffn+ n++ffff" } },
    { "rmsprop momentum=0.9 centered=1",
      { "nnnffn+ n++ffff nnnffff n+-ffff", "nnnffn+ n++ffff nnnffff nnnffff", "nnnffn+ n++ffff nnnffff nnnffff" } },
    { "rprop", { "fffffn+ n+-ffff fffffff", "fffffn+ fffffff fffffff", "fffffn+ fffffff fffffff" } },
    { "asgd lr=0.1", { "n-+ffn+ n-+ffn+", "n-+ffn+ n-+ffn+", "n-+ffn+ n-+ffn+" } },
    { "asgd lr=0.1 t0=0", { "n-+ffn+ n-+ffn+", "n-+ffn+ n-+ffn+", "n-+ffn+ nnnffnn" } },
    { "nadam", { "nnnffn+ n+-ffff n++ffff", "nnnffn+ nnnffff n++ffff", "nnnffn+ nnnffff n++ffff" } },
    { "radam", { "n-+ffn+ n+-ffff n++ffff", "nnnffn+ nnnffff n++ffff", "nnnffn+ nnnffff n++ffff" } },
    { "radam beta2=0.5", { "n-+ffn+ n+-ffff n++ffff", "nnnffn+ nnnffff n++ffff", "nnnffn+ nnnffff n++ffff" } },
};

static char class_of(double x)
{
    return isnan(x) ? 'n' : !isinf(x) ? 'f' : x > 0 ? '+' : '-';
}

/* Those of a parameter and its arrays of state. */
static void classify(const zro_optim *opt, const bed *b, char *text)
{
    const size_t count = b->count[0];
    zro_slot slot;

    for (size_t i = 0; i < count; i++)
        *text++ = class_of(bed_get(b->params[0].data, ZRO_F32, i));
    for (size_t s = 0; s < zro_optim_slots(opt); s++) {
        CHECK_OK(zro_optim_slot(opt, 0, zro_optim_slot_name(opt, s), &slot));
        if (!slot.present || slot.count != count)
            continue;
        *text++ = ' ';
        for (size_t i = 0; i < count; i++)
            *text++ = class_of(bed_get(slot.data, ZRO_F32, i));
    }
    *text = '\0';
}

static void special_values(zt_rank *t)
{
    static const double first[] = { NAN, INFINITY, -INFINITY, 0, 1e15, 0.5, 0.5 };
    const size_t count = 7;

    (void)t;
    for (size_t r = 0; r < sizeof special / sizeof *special; r++) {
        zro_optim *opt;
        bed b;

        bed_init(&b, ZRO_F32, ZRO_F32, &count, 1);
        for (size_t i = 0; i < count; i++)
            bed_set(b.params[0].data, ZRO_F32, i, i == 5 ? NAN : i == 6 ? INFINITY : 1.5);
        opt = bed_optim(&b, special[r].rule, NULL);
        for (int s = 0; s < 3; s++) {
            char got[128];

            for (size_t i = 0; i < count; i++)
                bed_set(b.params[0].grad, ZRO_F32, i, s == 0 ? first[i] : s == 1 ? 0.5 : -0.25);
            CHECK_OK(zro_optim_step(opt, NULL));
            classify(opt, &b, got);
            if (strcmp(got, special[r].after[s]) != 0)
                zt_fail(__FILE__, __LINE__, "%s, step %d: %s, PyTorch has %s", special[r].rule, s + 1, got,
                        special[r].after[s]);
        }
        zro_optim_destroy(opt);
        bed_free(&b);
    }
}

/* A parameter without a gradient is left alone, whatever the rule would do to one whose gradient is zero. */
static void absent_is_not_zero(zt_rank *t)
{
    const size_t counts[] = { 100, 100 };

    for (size_t r = 0; r < SETTINGS; r++) {
        zro_optim *opt;
        zro_slot slot;
        char before[100 * sizeof(float)], slots[ZRO_MAX_SLOTS][100 * sizeof(float)];
        bed b;

        bed_init(&b, ZRO_F32, ZRO_F32, counts, 2);
        bed_fill(&b, &t->random);
        opt = bed_optim(&b, settings[r], NULL);
        train(&b, opt, t->seed, 0);
        memcpy(before, b.params[1].data, sizeof before);
        for (size_t s = 0; s + 1 < zro_optim_slots(opt); s++) {
            CHECK_OK(zro_optim_slot(opt, 1, zro_optim_slot_name(opt, s), &slot));
            if (slot.present)
                memcpy(slots[s], slot.data, slot.count * zro_dtype_bytes(slot.dtype));
        }
        memset(b.params[0].grad, 0, sizeof before);
        memset(b.params[1].grad, 0, sizeof before);
        if (r % 2 == 0)
            b.params[1].grad_present = 0;
        else
            b.params[1].requires_grad = 0;
        CHECK_OK(zro_optim_step(opt, NULL));
        CHECK(memcmp(before, b.params[1].data, sizeof before) == 0);
        for (size_t s = 0; s + 1 < zro_optim_slots(opt); s++) {
            CHECK_OK(zro_optim_slot(opt, 1, zro_optim_slot_name(opt, s), &slot));
            if (slot.present)
                CHECK(memcmp(slots[s], slot.data, slot.count * zro_dtype_bytes(slot.dtype)) == 0);
            CHECK_OK(zro_optim_slot(opt, 0, zro_optim_slot_name(opt, s), &slot));
            if (slot.present && slot.count == 1 && strcmp(zro_optim_slot_name(opt, s), "step") == 0)
                CHECK(*(double *)slot.data == STEPS + 1);
        }
        zro_optim_destroy(opt);
        bed_free(&b);
    }
}

const zt_case cases_optim_bits[] = {
    { "optim_bits_f32", bits, 0, ZT_BOTH, 0, 120, 0, 0 },
    { "optim_bits_f64", bits, 0, ZT_BOTH, 0, 120, 0, 1 },
    { "optim_bits_bf16", bits, 0, ZT_BOTH, 0, 120, 0, 2 },
    { "optim_bits_f16", bits, 0, ZT_BOTH, 0, 120, 0, 3 },
    { "optim_bits_bf16_f32", bits, 0, ZT_BOTH, 0, 120, 0, 4 },
    { "optim_bits_bf16_alone", bits, 0, ZT_BOTH, 0, 120, 0, 5 },
    { "optim_bits_f16_alone", bits, 0, ZT_BOTH, 0, 120, 0, 6 },
    { "optim_bits_f32_bf16", bits, 0, ZT_BOTH, 0, 120, 0, 7 },
    { "optim_bits_f64_f32", bits, 0, ZT_BOTH, 0, 120, 0, 8 },
    { "optim_bits_f32_f64", bits, 0, ZT_BOTH, 0, 120, 0, 9 },
    { "optim_bits_stochastic", bits, 0, ZT_BOTH, 0, 120, 0, 10 },
#if defined(__x86_64__)
    { "optim_bits_mode", mode_is_kept, 0, ZT_BOTH, 0, 0, 0, 0 },
#endif
    { "optim_special_values", special_values, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_absent", absent_is_not_zero, 0, ZT_BOTH, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
