#!/usr/bin/env python3
"""Lists all that a directory tree is, in lines that are equal for equal trees.

    listing.py [--times] [--holes] [--without NAME]... DIR

A line has: type and mode, owner, links, size, device, other name of the same file that was listed first,
modification time (--times), extended attributes and access control lists, hash of what is in it, path.
"""
import argparse, hashlib, os, stat


def content(path, info):
    if stat.S_ISLNK(info.st_mode):
        return hashlib.sha256(os.readlink(path)).hexdigest()
    if not stat.S_ISREG(info.st_mode):
        return "-"
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        for data in iter(lambda: file.read(1 << 20), b""):
            digest.update(data)
    return digest.hexdigest()


def attributes(path):
    names = sorted(os.listxattr(path, follow_symlinks=False))
    found = [name.encode() + b"=" + os.getxattr(path, name, follow_symlinks=False) for name in names]
    return hashlib.sha256(b"\0".join(found)).hexdigest()[:16] + "/%d" % len(names) if names else "-"


def has_hole(path, info):
    """Only whether: file systems differ in how large a hole has to be."""
    if not stat.S_ISREG(info.st_mode):
        return "-"
    return "hole" if info.st_blocks * 512 + 65536 < info.st_size else "full"


def line(path, shown, args, first):
    info = os.lstat(path)
    is_dir = stat.S_ISDIR(info.st_mode)
    node = (info.st_dev, info.st_ino)
    fields = [stat.filemode(info.st_mode), "%d:%d" % (info.st_uid, info.st_gid), str(info.st_nlink),
              "-" if is_dir else str(info.st_size),
              "%d:%d" % (os.major(info.st_rdev), os.minor(info.st_rdev)),
              ascii(first.setdefault(node, shown)) if not is_dir and info.st_nlink > 1 else "-",
              attributes(path), content(path, info)]
    if args.times:
        fields.append(str(info.st_mtime_ns))
    if args.holes:
        fields.append(has_hole(path, info))
    return " ".join(fields + [ascii(shown)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=os.fsencode)
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--holes", action="store_true")
    parser.add_argument("--without", type=os.fsencode, action="append", default=[])
    args = parser.parse_args()
    first, todo = {}, [b"."]
    while todo:
        shown = todo.pop()
        path = os.path.join(args.dir, shown)
        print(line(path, shown, args, first))
        if stat.S_ISDIR(os.lstat(path).st_mode):
            names = sorted(name for name in os.listdir(path) if name not in args.without)
            todo += [shown + b"/" + name for name in reversed(names)]


if __name__ == "__main__":
    main()
