#!/usr/bin/env python3
"""Transactions for LMDB, and the judge of what a kill left of them.

    lmdb_load.py fill DIR COUNT            a known content
    lmdb_load.py write DIR WRITER NOTES STOP   transactions; each that was acknowledged is in NOTES
    lmdb_load.py read DIR STOP             looks all the time: each state has to be a whole one
    lmdb_load.py judge DIR WRITER:NOTES...
"""
import os, sys

import lmdb

PARTS, KEPT = 12, 25


def value(writer, number, part):
    """Some are larger than a page."""
    return b"%d %d %d, " % (writer, number, part) * (1 + number * 13 * (part + 1) % 50 * (20 if part == 0 else 1))


def key(writer, number, part):
    return b"%04d/%08d/%02d" % (writer, number, part)


def connect(path):
    return lmdb.open(path, map_size=64 << 20, max_dbs=4)


def last(txn, writer):
    return int(txn.get(b"done-%d" % writer, b"0"))


def change(env, writer, number):
    with env.begin(write=True) as txn:
        for part in range(PARTS):
            txn.put(key(writer, number, part), value(writer, number, part))
            if number > KEPT:
                txn.delete(key(writer, number - KEPT, part))
        txn.put(b"done-%d" % writer, b"%d" % number)


def wrong(txn, writer):
    number = last(txn, writer)
    cursor, found = txn.cursor(), []
    start = b"%04d/" % writer
    if cursor.set_range(start):
        for name, data in cursor:
            if not name.startswith(start):
                break
            found.append((name, data))
    expected = [(key(writer, old, part), value(writer, old, part))
                for old in range(max(1, number - KEPT + 1), number + 1) for part in range(PARTS)]
    if found != expected:
        return "writer %d: the entries of the transactions up to %d are wrong" % (writer, number)
    return None


def fill(path, count):
    with connect(path) as env:
        other = env.open_db(b"other", dupsort=True)
        for number in range(1, int(count) + 1):
            change(env, 1, number)
            with env.begin(write=True, db=other) as txn:
                txn.put(b"%d" % (number % 10), b"%d" % number)
        txn = env.begin(write=True)
        txn.put(b"taken back", b"")
        txn.abort()
        os.mkdir(path + ".copy")
        env.copy(path + ".copy", compact=True)
        print(env.stat())


def write(path, writer, notes, stop):
    writer, env = int(writer), connect(path)
    with env.begin() as txn:
        number = last(txn, writer)
    with open(notes, "ab", buffering=0) as noted:
        while not os.path.exists(stop):
            number += 1
            change(env, writer, number)
            noted.write(b"%d\n" % number)


def read(path, stop):
    env = connect(path)
    while not os.path.exists(stop):
        with env.begin() as txn:
            for writer in (1, 2):
                why = wrong(txn, writer)
                if why:
                    sys.exit("a reader sees that " + why)


def judge(path, *pairs):
    env = connect(path)
    with env.begin() as txn:
        for pair in pairs:
            writer, notes = pair.split(":", 1)
            noted = open(notes).read().split() if os.path.exists(notes) else []
            acknowledged, there = int(noted[-1]) if noted else 0, last(txn, int(writer))
            if not acknowledged <= there <= acknowledged + 1:
                sys.exit("writer %s: %d was acknowledged, %d is there" % (writer, acknowledged, there))
            why = wrong(txn, int(writer))
            if why:
                sys.exit(why)
            print(there)


if __name__ == "__main__":
    {"fill": fill, "write": write, "read": read, "judge": judge}[sys.argv[1]](*sys.argv[2:])
