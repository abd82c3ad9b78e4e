/* The built-in text: some of the project's own source and documents, put together when it is built. */
#ifndef GPT_TEXT_H
#define GPT_TEXT_H

#include <stddef.h>
#include <stdint.h>

const uint8_t *gpt_text(size_t *bytes);

#endif
