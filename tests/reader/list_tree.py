#!/usr/bin/env python3
"""Lists a mounted directory in exactly the lines of lode_reader.py, to compare the two.

    list_tree.py [--limit BYTES] DIR

Files over the limit are read by SEEK_DATA where the mount knows it; the hash does not depend on that.
"""
import argparse, hashlib, os, stat, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from basics import PAGE, escape, le64  # noqa: E402

LETTERS = {stat.S_IFREG: "f", stat.S_IFDIR: "d", stat.S_IFLNK: "l", stat.S_IFCHR: "c",
           stat.S_IFBLK: "b", stat.S_IFIFO: "p", stat.S_IFSOCK: "s"}


def data_pages(fd, size):
    """The first byte of each page that may have data."""
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA) // PAGE * PAGE
            end = os.lseek(fd, max(start, at), os.SEEK_HOLE)
        except OSError:  # ENXIO: only a hole is left
            return
        start = max(start, at)
        yield from range(start, end, PAGE)
        at = -(-end // PAGE) * PAGE


def content_hash(path, size, limit):
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        if not size > limit > 0:
            for data in iter(lambda: file.read(1 << 20), b""):
                digest.update(data)
            return digest.hexdigest()
        for at in data_pages(file.fileno(), size):
            page = os.pread(file.fileno(), PAGE, at).ljust(PAGE, b"\0")
            if page.count(0) != PAGE:
                digest.update(le64(at // PAGE) + page)
    return "sparse:" + digest.hexdigest()


def lines(top, limit):
    """Of the tree below top (bytes), sorted by the bytes of the paths."""
    found, todo = [], [b"/"]
    while todo:
        path = todo.pop()
        here = top + path.rstrip(b"/")
        info = os.lstat(here)
        letter = LETTERS[stat.S_IFMT(info.st_mode)]
        text = hashlib.sha256(os.readlink(here) if letter == "l" else b"").hexdigest()
        if letter == "f":
            text = content_hash(here, info.st_size, limit)
        size = info.st_size if letter in "fl" else 0
        found.append((path, "%s %04o %d %d %s %s" % (letter, stat.S_IMODE(info.st_mode), info.st_nlink, size, text, escape(path))))
        if letter == "d":
            todo += [path.rstrip(b"/") + b"/" + name for name in os.listdir(here)]
    return [line for _, line in sorted(found)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=os.fsencode)
    parser.add_argument("--limit", type=int, default=1 << 30, help="as in lode_reader.py")
    args = parser.parse_args()
    for line in lines(args.dir.rstrip(b"/"), args.limit):
        print(line)


if __name__ == "__main__":
    main()
