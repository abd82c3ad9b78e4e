"""What comparisons write: sections of a Markdown page between marks, and bar charts as SVG."""
import os
import time
from xml.sax.saxutils import escape


def quartiles(values):
    """First quartile, median and third quartile, by linear interpolation."""
    v = sorted(values)

    def at(q):
        place = q * (len(v) - 1)
        low = int(place)
        return v[low] + (v[min(low + 1, len(v) - 1)] - v[low]) * (place - low)
    return at(0.25), at(0.5), at(0.75)


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        name = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown processor")
    return f"{len(os.sched_getaffinity(0))} processors of {name}"


def today():
    return time.strftime("%Y-%m-%d", time.gmtime())


def table(head, rows):
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)])


def write_section(path, name, text):
    """Replaces what stands between the marks of that name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    with open(path, encoding="utf-8") as file:
        page = file.read()
    if page.count(begin) != 1 or page.count(end) != 1:
        raise SystemExit(f"{path}: must have one line {begin} and one line {end}")
    head, rest = page.split(begin)
    new = f"{head}{begin}\n{text}\n{end}{rest.split(end)[1]}"
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(new)
    os.replace(path + ".new", path)


def bars(title, note, rows):
    """An SVG of horizontal bars: rows are (label, first quartile, median, third quartile, ours)."""
    width, line, top = 460, 26, 56
    left = 24 + 7 * max(len(row[0]) for row in rows)
    height, scale = top + line * len(rows) + 34, width / max(row[3] for row in rows)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 90} {height}" font-family="sans-serif" '
           'font-size="13">', '<rect width="100%" height="100%" fill="#ffffff"/>',
           f'<text x="16" y="24" font-size="16" font-weight="bold">{escape(title)}</text>',
           f'<text x="16" y="{height - 12}" font-size="11" fill="#555555">{escape(note)}</text>']
    for i, (label, low, median, high, ours) in enumerate(rows):
        y = top + line * i
        colour = "#1b7f4b" if ours else "#8a94a6"
        out += [f'<text x="{left - 10}" y="{y + 13}" text-anchor="end">{escape(label)}</text>',
                f'<rect x="{left}" y="{y}" width="{median * scale:.1f}" height="17" fill="{colour}"/>',
                f'<path d="M{left + low * scale:.1f} {y + 8.5}H{left + high * scale:.1f}" stroke="#222222" stroke-width="1.5"/>',
                f'<text x="{left + high * scale + 8:.1f}" y="{y + 13}">{median:.2f}</text>']
    return "\n".join(out + ["</svg>", ""])
