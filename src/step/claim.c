/* Claims: see claim.h. */
#include "step/claim.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/status.h"

zro_status zro__claim_agree(zro__board *board, zro__call call, const zro__claim *claim, zro_status mine)
{
    char text[ZRO__CLAIM_BYTES];
    uint64_t number = 0;
    zro_status st;
    size_t i = 0;

    snprintf(text, sizeof text, "%016" PRIx64, mine == ZRO_OK ? claim->hash : 0);
    st = zro__agree(board, call, "the ranks", text, &number, mine);
    if (st != ZRO_ERR_MISMATCH)
        return st;
    /* All ranks come here.  The MISMATCH may also be the failure of one rank, or the verdict of a broken group: then the next
     * vote fails in the same way. */
    do {
        text[0] = '\0';
        if (mine == ZRO_OK && i < claim->n)
            claim->describe(claim->user, i, text, sizeof text);
        st = zro__agree(board, call, claim->what, text, &number, mine);
    } while (st == ZRO_OK && ++i < claim->n);
    return st != ZRO_OK ? st : zro__fail(ZRO_ERR_MISMATCH, "%s", claim->otherwise);
}
