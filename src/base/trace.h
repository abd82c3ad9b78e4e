/* A trace: what each rank did when, as slices of time that Perfetto (ui.perfetto.dev) and chrome://tracing draw.
 *
 * A rank that traces has one zro__trace, shared by all its groups and threads; a rank that does not has NULL, and then each of the
 * two inline functions is one branch.  A slice is recorded when it ends: it is copied into a buffer that open has allocated, and the
 * buffer is written to the file when it is half full and the program's own thread comes along, when it is full, when the program
 * asks for it, when a group breaks or is destroyed.  A rank that is killed loses what it has not written.
 *
 * Tracing never fails a training: what goes wrong after open is a warning, once, and ends the trace of this rank.
 *
 * The file.  All ranks of a machine write to one file, which is a JSON array in the "trace event format": one event per line, a
 * comma before every line but the first, and the closing bracket on a line of its own.
 *
 *   [
 *   {"args":{"job":"...","clock_ns":"...","unix_ns":"..."},"name":"zro_job","ph":"M","pid":0}
 *   ,{"name":"process_name","ph":"M","pid":0,"args":{"name":"rank 0"}}
 *   ,{"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"program"}}
 *   ,{"name":"bucket","ph":"X","pid":0,"tid":2,"ts":1234.567,"dur":89.012,"args":{"index":0,"bytes":4096}}
 *   ]
 *
 * pid is the rank in the first group; ts and dur are microseconds, ts since the first rank of the machine opened the file (clock_ns,
 * of the monotonic clock, which all processes of a machine share; unix_ns, of the day, lines up the files of several machines).
 *
 * A rank writes under a lock of the file (flock, which the kernel drops if its holder dies), over the closing bracket, and each write
 * ends with a new one.  So the file is valid JSON whenever nobody is writing, whichever ranks have died.  A rank that is killed
 * inside its write may leave half a line: the next writer of any rank cuts it off.  Should there be none, the file lacks its bracket,
 * which the format allows and its readers accept.
 *
 * The ranks of a job recognise its file by the number in the first line, whoever of them comes first; a file with another number is
 * an old one and begun anew.  If the number changes later, another job writes to the file now, and this one leaves it alone.
 *
 * Why not a file per rank: the trace is looked at to see ranks beside each other, and a merge is one step more between the user and
 * the picture.  Writes are rare (once per 512 slices) and short, so the lock is hardly ever waited for, and never for long: for a rank
 * whose buffer is full 100 ms are a failure, too. */
#ifndef ZRO_BASE_TRACE_H
#define ZRO_BASE_TRACE_H

#include "base/clock.h"
#include "base/memory.h"
#include "zro.h"

typedef struct zro__trace zro__trace;

/* Opens the file.  job: the same number on all ranks that share it, and on no others.  SYSTEM: it cannot be opened, locked or
 * written; the text has path and reason. */
zro_status zro__trace_open(zro__account *account, const zro_settings *settings, const char *path, uint64_t job, int rank,
                           zro__trace **out);
void zro__trace_close(zro__trace *trace); /* writes what there is; takes NULL */

/* Writes what there is; takes NULL.  0: that has failed, now or before. */
int zro__trace_flush(zro__trace *trace);
const char *zro__trace_path(const zro__trace *trace);

/* Names the calling thread; takes NULL. */
void zro__trace_thread(zro__trace *trace, const char *name);

/* Records a slice of the calling thread.  The name is copied, up to 31 bytes.  index: a number of what is named, or -1; bytes: how
 * much it is about, or 0. */
void zro__trace_record(zro__trace *trace, uint64_t begun, const char *name, int64_t index, uint64_t bytes);

/* How slices are made: begin, what is to be measured, end, on the same thread and nested as blocks are. */
static inline uint64_t zro__trace_begin(const zro__trace *trace)
{
    return trace == NULL ? 0 : zro__now_ns();
}

static inline void zro__trace_end(zro__trace *trace, uint64_t begun, const char *name, int64_t index, uint64_t bytes)
{
    if (begun != 0)
        zro__trace_record(trace, begun, name, index, bytes);
}

#endif
