#!/usr/bin/env python3
"""Counts pixels by their colour in some rows of a picture:  pixels.py FILE.png TOP BOTTOM RRGGBB:LEAST ...

Fails, and says so, where fewer than LEAST pixels between TOP and BOTTOM have the colour.  Reads PNG as browsers write it: 8 bits, RGB or RGBA, not interlaced.
"""
import collections
import struct
import sys
import zlib


def chunks(data):
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        sys.exit("not a PNG file")
    at = 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at:at + 4])
        yield data[at + 4:at + 8], data[at + 8:at + 8 + length]
        at += length + 12


def paeth(a, b, c):
    p = a + b - c
    return min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]


def unfilter(kind, row, above, step):
    if kind == 2:
        return bytearray((x + b) & 255 for x, b in zip(row, above))
    for i in range(len(row)) if kind else ():
        left, corner = (row[i - step], above[i - step]) if i >= step else (0, 0)
        guess = left if kind == 1 else (left + above[i]) // 2 if kind == 3 else paeth(left, above[i], corner)
        row[i] = (row[i] + guess) & 255
    return row


def colours(path, top, bottom):
    with open(path, "rb") as f:
        parts = list(chunks(f.read()))
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", parts[0][1])
    if depth != 8 or kind not in (2, 6) or interlaced:
        sys.exit(f"{path}: depth {depth}, kind {kind}, interlaced {interlaced}")
    step = 3 if kind == 2 else 4
    data = zlib.decompress(b"".join(body for name, body in parts if name == b"IDAT"))
    above, count = bytearray(width * step), collections.Counter()
    for y in range(min(height, bottom)):
        at = y * (width * step + 1)
        above = unfilter(data[at], bytearray(data[at + 1:at + 1 + width * step]), above, step)
        if y < top:
            continue
        count.update(bytes(above[x:x + 3]) for x in range(0, len(above), step))
    return count


count = colours(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
bad = False
for wanted in sys.argv[4:]:
    colour, least = wanted.split(":")
    if count[bytes.fromhex(colour)] < int(least):
        print(f"{sys.argv[1]}, rows {sys.argv[2]} to {sys.argv[3]}: {count[bytes.fromhex(colour)]} pixels of #{colour}, and there should be {least}")
        bad = True
sys.exit(bad)
