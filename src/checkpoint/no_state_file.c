/* A build without checkpoints: states can be made, loaded and broadcast, but neither written nor read. */
#include "base/settings.h"
#include "base/status.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* nothing here looks at what it would have to write or read */

ZRO__DEFINE_INIT(zro_save_config, ZRO_SAVE_CONFIG_INIT)

static zro_status refuse(const char *call)
{
    return zro__fail(ZRO_ERR_UNSUPPORTED, "%s: zro was built without checkpoints (ZRO_CHECKPOINT=OFF)", call);
}

zro_status zro_state_write(const zro_state *state, const char *path)
{
    return refuse("state_write");
}

zro_status zro_state_read(const char *path, zro_state **out)
{
    if (out != NULL)
        *out = NULL;
    return refuse("state_read");
}

zro_status zro_state_pack(const zro_state *state, void **bytes, size_t *n)
{
    if (bytes != NULL)
        *bytes = NULL;
    if (n != NULL)
        *n = 0;
    return refuse("state_pack");
}

zro_status zro_state_unpack(const void *bytes, size_t n, zro_state **out)
{
    if (out != NULL)
        *out = NULL;
    return refuse("state_unpack");
}

zro_status zro_optim_save(zro_optim *optim, const char *path, const zro_save_config *config)
{
    return refuse("optim_save");
}

zro_status zro_optim_resume(zro_optim *optim, const char *path, const zro_save_config *config)
{
    return refuse("optim_resume");
}
