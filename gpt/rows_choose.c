/* Which table of rows.h this processor runs. */
#include "rows.h"

extern const gpt_rows_table gpt_rows_base;
#if defined(GPT_X86)
extern const gpt_rows_table gpt_rows_avx2, gpt_rows_avx512;
#endif

const gpt_rows_table *gpt_rows(void)
{
#if defined(GPT_X86)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vl"))
        return &gpt_rows_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &gpt_rows_avx2;
#endif
    return &gpt_rows_base;
}
