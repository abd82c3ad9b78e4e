/* Bytes, whatever they are, are refused with a text or are a state that goes round: packed and unpacked it is the same.  For
 * libFuzzer; replay.c runs the same on files. */
#include "safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zro.h"

/* Ends the process with a text, which is how a fuzzer hears of it. */
static void expect(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s; the last error: %s\n", what, zro_last_error());
    abort();
}

int accepts(const uint8_t *data, size_t bytes)
{
    zro_state *first = NULL, *second = NULL;
    void *packed, *again;
    size_t n, m;
    zro_status st = zro_state_unpack(data, bytes, &first);

    if (st != ZRO_OK) {
        expect(st == ZRO_ERR_FORMAT || st == ZRO_ERR_MEMORY, "bytes are refused with another status");
        expect(first == NULL && zro_last_error()[0] != '\0', "a refusal without a text, or with a state");
        return 0;
    }
    expect(zro_state_pack(first, &packed, &n) == ZRO_OK, "a state that was read cannot be written");
    expect(zro_state_unpack(packed, n, &second) == ZRO_OK, "a state that was written cannot be read");
    expect(zro_state_pack(second, &again, &m) == ZRO_OK, "a state that was read twice cannot be written");
    expect(n == m && memcmp(packed, again, n) == 0, "a state has changed by writing and reading");
    expect(zro_state_bytes(first) == zro_state_bytes(second), "slots have changed by writing and reading");
    zro_bytes_free(packed);
    zro_bytes_free(again);
    zro_state_destroy(first);
    zro_state_destroy(second);
    return 1;
}

#ifdef ZRO_FUZZER

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    accepts(data, bytes);
    return 0;
}

/* Mostly the length is made to fit the header again, which ends with the last brace; else nothing would come past it. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed)
{
    size_t n = LLVMFuzzerMutate(data, bytes, most), end = n;

    if (n < 8 || seed % 8 == 0)
        return n;
    while (end > 8 && data[end - 1] != '}')
        end--;
    for (int i = 0; i < 8; i++)
        data[i] = (uint8_t)((end - 8) >> 8 * i);
    return n;
}

#endif
