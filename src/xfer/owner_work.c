/* The owner's work: see progress.h. */
#include "base/point.h"
#include "xfer/progress.h"

enum { POOL_BYTES = 128 << 10 }; /* less than this is not worth waking threads for */

/* The pieces and destinations of one run, set up for tiles of it to be done by any thread. */
typedef struct job {
    zro__progress *f;
    zro__run run;
    int n_dst;
    int stream;       /* results are stored around the caches */
    const void **src; /* by order of addition; without reduction the one source */
    void **dst;
} job;

/* Elements [from, from + n) of the run: one piece. */
static void do_piece(const job *j, const void **src, void **dst, size_t from, size_t n)
{
    zro__progress *f = j->f;
    const zro__xfer *x = f->x;
    const zro__kernels *kernels = f->ranks->kernels;
    int n_src = x->reduces ? f->size : 1;

    for (int k = 0; k < n_src; k++)
        src[k] = j->src[k] == NULL ? NULL : (const char *)j->src[k] + from * f->in_size;
    for (int k = 0; k < j->n_dst; k++)
        dst[k] = (char *)j->dst[k] + from * f->out_size;
    if (x->apply != NULL)
        x->apply(x->apply_user,
                 &(zro__applied){ .run = { j->run.part, j->run.first + from, n },
                                  .reduce = x->reduces ? &f->reduce : NULL,
                                  .src = src,
                                  .own = (char *)x->out + f->parts[j->run.part].out_at + (j->run.first + from) * f->out_size,
                                  .dst = dst,
                                  .n_dst = j->n_dst,
                                  .stream = j->stream });
    else if (x->reduces)
        kernels->reduce(&f->reduce, src, dst, j->n_dst, n, j->stream);
    else
        kernels->copy(dst, j->n_dst, src[0], n * f->in_size, j->stream);
}

/* The same piece by piece, until the group breaks: what is left out then is missed by nobody. */
static void do_pieces(const job *j, const void **src, void **dst, size_t from, size_t n)
{
    zro__progress *f = j->f;
    size_t most = ZRO__TOUCH_BYTES / (f->in_size > f->out_size ? f->in_size : f->out_size);

    for (size_t at = 0; at < n; at += most) {
        (void)ZRO__POINT("owner.piece");
        if (zro__is_given_up(&f->ranks->board))
            return;
        (void)ZRO__POINT("owner.write");
        do_piece(j, src, dst, from + at, n - at < most ? n - at : most);
    }
}

/* Items are even shares of the run, one for each thread, so that each has arrays of pointers of its own. */
static void do_shares(void *ctx, size_t first_share, size_t last_share)
{
    const job *j = ctx;
    zro__progress *f = j->f;

    for (size_t i = first_share; i < last_share; i++) {
        size_t first, length;

        zro__cut_even(j->run.count, (int)f->ranks->threads, (int)i, &first, &length);
        do_pieces(j, f->ranks->scratch.src + (i + 1) * (size_t)f->size, f->ranks->scratch.dst + (i + 1) * (size_t)f->size,
                  first, length);
        f->ranks->kernels->fence(); /* each thread orders its own streamed stores */
    }
}

void zro__owner_do(zro__progress *f, const zro__run *run)
{
    zro__scratch *s = &f->ranks->scratch;
    const zro__part *part = &f->parts[run->part];
    size_t in_bytes = run->count * f->in_size, out_bytes = run->count * f->out_size;
    size_t out_at = part->out_at + run->first * f->out_size;
    job j = { f, *run, 0, f->bypass_caches, s->src, s->dst };
    uint64_t in_place = 0;

    for (int k = 0; k < (f->x->reduces ? f->size : 1); k++) {
        int r = f->x->reduces ? f->ranks->order[k] : part->source;

        if (!zro__reach_has(f, r, run->part)) {
            s->src[k] = NULL;
        } else if (s->in_of[r] != NULL) {
            s->src[k] = s->in_of[r] + zro__reach_piece_at(f, r, run->part) + run->first * f->in_size;
            in_place += r == f->me ? 0 : in_bytes;
        } else {
            s->src[k] = s->incoming[r];
            s->incoming[r] += in_bytes;
        }
    }
    for (int r = 0; r < f->size; r++) {
        if (!zro__reach_receives(f, f->me, r))
            continue;
        if (s->out_of[r] != NULL && s->twin[r] != r && s->out_of[s->twin[r]] == s->out_of[r])
            continue;
        if (s->out_of[r] != NULL) {
            s->dst[j.n_dst++] = s->out_of[r] + out_at;
            in_place += r == f->me ? 0 : out_bytes;
        } else if (s->outgoing[r] != NULL) {
            s->dst[j.n_dst++] = s->outgoing[r];
            s->outgoing[r] += out_bytes;
            /* The reader's cache has what the buffer held before: ordinary stores would have to ask for each line, unless it is the
             * buffer of a piece, which this rank has just read. */
            j.stream |= !f->answers;
        }
    }
    zro__count(&f->ranks->counters.direct_bytes, in_place);
    if (f->x->next != NULL)
        f->x->next(f->x->apply_user, run);
    if (f->ranks->pool != NULL && in_bytes + out_bytes >= POOL_BYTES)
        zro__pool_run(f->ranks->pool, do_shares, &j, f->ranks->threads);
    else
        do_pieces(&j, s->src + f->size, s->dst + f->size, 0, run->count);
}
