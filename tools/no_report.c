/* `zro report` where zro was built without jansson, which reads the log. */
#include "tool.h"

static int report_main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    tool_say(&tool_report, "zro was built without jansson (ZRO_CHECKPOINT=OFF), which reads the log (Debian: libjansson-dev)");
    return 1;
}

const tool tool_report = {
    "report",
    "make a page of a training's log",
    "usage: zro report [-o FILE] RUN\n"
    "\n"
    "Makes a page of a training's log.  This zro was built without jansson and cannot do it.\n",
    report_main,
};
