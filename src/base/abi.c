/* What bindings ask: the version, and the sizes of the public structs as this library was built. */
#include "zro.h"

const char *zro_version(void)
{
    return ZRO_VERSION;
}

const zro_abi_entry *zro_abi(size_t *count)
{
    static const zro_abi_entry entries[] = {
        { "zro_abi_entry", sizeof(zro_abi_entry) },       { "zro_settings", sizeof(zro_settings) },
        { "zro_link_request", sizeof(zro_link_request) }, { "zro_link", sizeof(zro_link) },
        { "zro_group_config", sizeof(zro_group_config) }, { "zro_stats", sizeof(zro_stats) },
    };

    if (count != NULL)
        *count = sizeof entries / sizeof *entries;
    return entries;
}
