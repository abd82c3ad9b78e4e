/* The built-in text: see text.h.  The assembler copies the file GPT_TEXT_FILE, which CMake puts together, into the program. */
#include "text.h"

__asm__(".section .rodata\n"
        ".balign 64\n"
        "gpt_text_begin:\n"
        ".incbin \"" GPT_TEXT_FILE "\"\n"
        "gpt_text_end:\n"
        ".previous\n");

extern const uint8_t gpt_text_begin[] __attribute__((visibility("hidden")));
extern const uint8_t gpt_text_end[] __attribute__((visibility("hidden")));

const uint8_t *gpt_text(size_t *bytes)
{
    *bytes = (size_t)(gpt_text_end - gpt_text_begin);
    return gpt_text_begin;
}
