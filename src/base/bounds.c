/* The bounds of configuration values: see bounds.h. */
#include "base/bounds.h"

#include <stdio.h>

#include "base/status.h"

static int is_inside(const zro__bound *b)
{
    double x = b->value;

    if ((b->flags & ZRO__SWITCH) != 0 && x != 0 && x != 1)
        return 0;
    return (b->flags & ZRO_OPEN_LOW ? x > b->low : x >= b->low) && (b->flags & ZRO_OPEN_HIGH ? x < b->high : x <= b->high);
}

/* What the value must be. */
static void describe(const zro__bound *b, char *text, size_t bytes)
{
    int is_open_low = (b->flags & ZRO_OPEN_LOW) != 0, is_open_high = (b->flags & ZRO_OPEN_HIGH) != 0;

    if ((b->flags & ZRO__SWITCH) != 0)
        snprintf(text, bytes, b->low == b->high ? b->low == 0 ? "off" : "on" : "on or off");
    else if (b->high < DBL_MAX)
        snprintf(text, bytes, "in %c%g, %g%c", is_open_low ? '(' : '[', b->low, b->high, is_open_high ? ')' : ']');
    else if (b->low <= -DBL_MAX)
        snprintf(text, bytes, b->high > DBL_MAX ? "a number" : "finite");
    else
        snprintf(text, bytes, "%s%s %g", b->high > DBL_MAX ? "" : "finite and ", is_open_low ? ">" : ">=", b->low);
}

zro_status zro__bounds_check(const char *what, const zro__bound *bounds, size_t n)
{
    char text[80];

    for (size_t i = 0; i < n; i++) {
        if (is_inside(&bounds[i]))
            continue;
        describe(&bounds[i], text, sizeof text);
        return zro__fail(ZRO_ERR_INVALID, "%s%s%s = %g, must be %s", what != NULL ? what : "", what != NULL ? ": " : "",
                         bounds[i].name, bounds[i].value, text);
    }
    return ZRO_OK;
}
