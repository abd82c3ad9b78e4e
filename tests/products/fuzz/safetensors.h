/* What is done with an input; safetensors.c. */
#ifndef ZRO_TESTS_FUZZ_SAFETENSORS_H
#define ZRO_TESTS_FUZZ_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

/* Whether the bytes are a state; ends the process if something is wrong with the answer. */
int accepts(const uint8_t *data, size_t bytes);

#endif
