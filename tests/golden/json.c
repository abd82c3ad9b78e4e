/* Reading cases: see golden.h.
 *
 * All numbers are doubles here; an f32 one is rounded once more, which is right because nine digits are never halfway between
 * two f32.  Jansson itself refuses NaN, infinities, numbers that overflow, and keys that come twice. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "golden.h"

static const char *type_name(const json_t *json)
{
    if (json == NULL)
        return "missing";
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_NULL:
        return "null";
    default:
        return "a truth value";
    }
}

/* The next of some words separated by blanks, cut off their beginning; 0 after the last. */
static int next_word(const char **words, char *word, size_t bytes)
{
    size_t length;

    *words += strspn(*words, " ");
    length = strcspn(*words, " ");
    snprintf(word, bytes, "%.*s", (int)length, *words);
    *words += length;
    return length > 0;
}

static int has_word(const char *words, const char *wanted)
{
    char word[64];

    while (next_word(&words, word, sizeof word))
        if (strcmp(word, wanted) == 0)
            return 1;
    return 0;
}

int golden_object(golden_case *c, const char *what, json_t *json)
{
    if (json_is_object(json))
        return 1;
    golden_fail(c, "%s is %s, must be an object", what, type_name(json));
    return 0;
}

int golden_keys(golden_case *c, const char *what, json_t *json, const char *required, const char *optional)
{
    const char *rest = required;
    char word[64];

    if (!golden_object(c, what, json))
        return 0;
    while (next_word(&rest, word, sizeof word))
        if (json_object_get(json, word) == NULL) {
            golden_fail(c, "%s has no key \"%s\"", what, word);
            return 0;
        }
    for (void *at = json_object_iter(json); at != NULL; at = json_object_iter_next(json, at))
        if (!has_word(required, json_object_iter_key(at)) && !has_word(optional, json_object_iter_key(at))) {
            golden_fail(c, "%s has the key \"%s\", which is not known", what, json_object_iter_key(at));
            return 0;
        }
    return 1;
}

int golden_given(json_t *object, const char *key)
{
    json_t *json = json_object_get(object, key);

    return json != NULL && !json_is_null(json);
}

double golden_number(golden_case *c, json_t *object, const char *key, double otherwise)
{
    json_t *json = json_object_get(object, key);

    if (json == NULL)
        return otherwise;
    if (!json_is_number(json))
        golden_fail(c, "\"%s\" is %s, must be a number", key, type_name(json));
    return json_number_value(json);
}

uint32_t golden_count(golden_case *c, json_t *object, const char *key, uint32_t otherwise)
{
    double number = golden_number(c, object, key, otherwise);

    if (number >= 0 && number <= UINT32_MAX && floor(number) == number)
        return (uint32_t)number;
    golden_fail(c, "\"%s\" is %.17g, must be a whole number of 32 bits", key, number);
    return 0;
}

zro_switch golden_flag(golden_case *c, json_t *object, const char *key, zro_switch otherwise)
{
    json_t *json = json_object_get(object, key);

    if (json == NULL)
        return otherwise;
    if (!json_is_boolean(json))
        golden_fail(c, "\"%s\" is %s, must be true or false", key, type_name(json));
    return json_is_true(json) ? ZRO_ON : ZRO_OFF;
}

const char *golden_string(golden_case *c, json_t *object, const char *key, const char *otherwise)
{
    json_t *json = json_object_get(object, key);

    if (json == NULL)
        return otherwise;
    if (json_is_string(json))
        return json_string_value(json);
    golden_fail(c, "\"%s\" is %s, must be a string", key, type_name(json));
    return "";
}

size_t golden_word(golden_case *c, json_t *object, const char *key, const char *words, size_t otherwise)
{
    const char *wanted = golden_string(c, object, key, NULL), *rest = words;
    char word[64];

    if (wanted == NULL)
        return otherwise;
    for (size_t i = 0; next_word(&rest, word, sizeof word); i++)
        if (strcmp(word, wanted) == 0)
            return i;
    golden_fail(c, "\"%s\" is \"%s\", must be one of: %s", key, wanted, words);
    return otherwise;
}

zro_dtype golden_dtype(golden_case *c, json_t *object)
{
    return golden_word(c, object, "dtype", "float32 float64", 0) == 0 ? ZRO_F32 : ZRO_F64;
}

json_t *golden_list(golden_case *c, json_t *object, const char *key)
{
    json_t *json = json_object_get(object, key);

    if (json_is_array(json) && json_array_size(json) > 0)
        return json;
    if (json_is_array(json))
        golden_fail(c, "\"%s\" is an empty list", key);
    else
        golden_fail(c, "\"%s\" is %s, must be a list", key, type_name(json));
    return NULL;
}

golden_vector golden_read_vector(golden_case *c, const char *what, json_t *json, zro_dtype dtype)
{
    golden_vector vector = { NULL, 0 };
    size_t count = json_array_size(json);

    if (!json_is_array(json)) {
        golden_fail(c, "\"%s\" is %s, must be a list of numbers", what, type_name(json));
        return vector;
    }
    vector.data = golden_alloc(c, count * zro_dtype_bytes(dtype));
    for (size_t i = 0; i < count; i++) {
        json_t *element = json_array_get(json, i);

        if (!json_is_number(element)) {
            golden_fail(c, "\"%s\" has in place %zu %s, must be a number", what, i, type_name(element));
            return vector;
        }
        golden_put(vector.data, dtype, i, json_number_value(element));
        if (!isfinite(golden_element(vector.data, dtype, i)))
            golden_fail(c, "\"%s\": %.17g is no float32", what, json_number_value(element));
    }
    vector.count = count;
    return vector;
}

golden_counts golden_read_counts(golden_case *c, const char *what, json_t *json)
{
    golden_vector numbers = golden_read_vector(c, what, json, ZRO_F64);
    golden_counts counts = { golden_alloc(c, numbers.count * sizeof *counts.at), numbers.count };

    for (size_t i = 0; i < counts.n; i++) {
        double number = golden_element(numbers.data, ZRO_F64, i);

        if (number >= 0 && number <= UINT32_MAX && floor(number) == number)
            counts.at[i] = (size_t)number;
        else
            golden_fail(c, "\"%s\" has %.17g, must be whole numbers of 32 bits", what, number);
    }
    return counts;
}

golden_count_lists golden_read_count_lists(golden_case *c, json_t *object, const char *key)
{
    json_t *list = golden_list(c, object, key);
    size_t n = json_array_size(list);
    golden_count_lists lists = { golden_alloc(c, n * sizeof *lists.at), n };

    for (size_t i = 0; i < n; i++)
        lists.at[i] = golden_read_counts(c, key, json_array_get(list, i));
    return lists;
}

golden_vectors golden_read_vector_list(golden_case *c, const char *what, json_t *list, zro_dtype dtype, golden_null null,
                                       const golden_vectors *like)
{
    golden_vectors vectors = { NULL, 0, dtype };

    if (json_array_size(list) == 0) {
        golden_fail(c, "\"%s\" is %s, must be a list that is not empty", what, type_name(list));
        return vectors;
    }
    if (like != NULL && json_array_size(list) != like->n) {
        golden_fail(c, "\"%s\" has %zu lists, must have %zu", what, json_array_size(list), like->n);
        return vectors;
    }
    vectors.n = json_array_size(list);
    vectors.at = golden_alloc(c, vectors.n * sizeof *vectors.at);
    for (size_t i = 0; i < vectors.n; i++) {
        json_t *element = json_array_get(list, i);

        c->param = i;
        if (null == GOLDEN_NULL_IS_ABSENT && json_is_null(element))
            continue;
        vectors.at[i] = golden_read_vector(c, what, element, dtype);
        if (golden_ok(c) && like != NULL && vectors.at[i].count != like->at[i].count)
            golden_fail(c, "\"%s\" has %zu elements, must have %zu", what, vectors.at[i].count, like->at[i].count);
    }
    c->param = GOLDEN_NOWHERE;
    return vectors;
}

golden_vectors golden_read_vectors(golden_case *c, json_t *object, const char *key, zro_dtype dtype, golden_null null,
                                   const golden_vectors *like)
{
    json_t *list = golden_list(c, object, key);
    golden_vectors none = { NULL, 0, dtype };

    return list != NULL ? golden_read_vector_list(c, key, list, dtype, null, like) : none;
}
