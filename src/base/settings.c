/* The settings that groups and optimizers have in common: see settings.h. */
#include "base/settings.h"

#include <string.h>

#include "base/bounds.h"
#include "base/kernels.h"
#include "base/status.h"

zro_status zro__settings_check(const zro_settings *s)
{
    const zro__bound bounds[] = { { "threads", s->threads, 1, 256, 0 }, { "fast", s->fast, 0, 1, ZRO__SWITCH } };
    zro_status st = zro__bounds_check("settings", bounds, 2);

    if (st != ZRO_OK)
        return st;
    if ((int)s->kernels < ZRO_KERNELS_AUTO || (int)s->kernels > ZRO_KERNELS_AVX512)
        return zro__fail(ZRO_ERR_INVALID, "settings: kernels = %d is none of auto, base, avx2, avx512", (int)s->kernels);
    if (zro__kernels_get(s->kernels) == NULL)
        return zro__fail(ZRO_ERR_UNSUPPORTED, "settings: this processor or build has no %s kernels",
                         s->kernels == ZRO_KERNELS_AVX512 ? "avx512" : "avx2");
    if ((int)s->log_level < ZRO_LOG_OFF || (int)s->log_level > ZRO_LOG_DEBUG)
        return zro__fail(ZRO_ERR_INVALID, "settings: log_level = %d is none of off, warn, info, debug", (int)s->log_level);
    return ZRO_OK;
}

zro_status zro__config_take(const char *type, const void *config, size_t least, void *out, size_t bytes)
{
    size_t size;

    if (config == NULL)
        return ZRO_OK;
    memcpy(&size, config, sizeof size);
    if (size < least || size > 4096)
        return zro__fail(ZRO_ERR_INVALID, "%s: struct_size = %zu; begin with its initializer", type, size);
    memcpy(out, config, size < bytes ? size : bytes);
    memcpy(out, &bytes, sizeof bytes);
    return ZRO_OK;
}

zro_status zro__config_give(const char *text, const void *from, size_t bytes, void *out)
{
    size_t size = 0;

    if (out != NULL)
        memcpy(&size, out, sizeof size);
    if (size < sizeof size || size > 4096)
        return zro__fail(ZRO_ERR_INVALID, "%s", text);
    memcpy(out, from, size < bytes ? size : bytes);
    memcpy(out, &size, sizeof size);
    return ZRO_OK;
}
