#!/usr/bin/env python3
"""Transactions of a known pattern for SQLite, and the judge of what a kill left of them.

    sqlite_load.py steps DB MODE COUNT    so many transactions in a journal mode, then the whole content
    sqlite_load.py write DB MODE WRITER NOTES STOP
                                          transactions; each that was acknowledged is noted in NOTES
    sqlite_load.py read DB STOP           looks all the time: each state has to be a whole one
    sqlite_load.py judge DB WRITER:NOTES...
"""
import os, sqlite3, sys

PARTS = 20  # rows of a transaction
KEPT = 15  # transactions of a writer whose rows stay
TOTAL = 1000 * 8


def text(writer, number, part):
    """Some rows are larger than a page."""
    return ("%d %d %d, " % (writer, number, part)) * (1 + number * 31 * (part + 1) % 40 * (30 if part == 0 else 1))


def connect(path, mode=None):
    db = sqlite3.connect(path, timeout=30, isolation_level=None)
    db.execute("PRAGMA synchronous = FULL")
    if mode:
        now = db.execute("PRAGMA journal_mode = %s" % mode).fetchone()[0]
        assert now.upper() == mode, "the journal mode is " + now
        db.execute("PRAGMA wal_autocheckpoint = 40")
    return db


def make_tables(db):
    db.execute("BEGIN IMMEDIATE")
    db.execute("CREATE TABLE IF NOT EXISTS change(writer, number, part, text, PRIMARY KEY(writer, number, part))")
    db.execute("CREATE TABLE IF NOT EXISTS done(writer PRIMARY KEY, number)")
    db.execute("CREATE TABLE IF NOT EXISTS account(id PRIMARY KEY, amount)")
    db.executemany("INSERT OR IGNORE INTO account VALUES(?, 1000)", [(number,) for number in range(8)])
    db.execute("COMMIT")


def last(db, writer):
    row = db.execute("SELECT number FROM done WHERE writer = ?", (writer,)).fetchone()
    return row[0] if row else 0


def change(db, writer, number):
    db.execute("BEGIN IMMEDIATE")
    rows = [(writer, number, part, text(writer, number, part)) for part in range(PARTS)]
    db.executemany("INSERT INTO change VALUES(?, ?, ?, ?)", rows)
    db.execute("DELETE FROM change WHERE writer = ? AND number <= ?", (writer, number - KEPT))
    db.execute("UPDATE account SET amount = amount - ? WHERE id = ?", (number % 9, number % 8))
    db.execute("UPDATE account SET amount = amount + ? WHERE id = ?", (number % 9, (number * 3 + 1) % 8))
    db.execute("INSERT OR REPLACE INTO done VALUES(?, ?)", (writer, number))
    db.execute("COMMIT")


def wrong(db, writers):
    """What is not as whole transactions leave it, or None."""
    total = db.execute("SELECT sum(amount) FROM account").fetchone()[0]
    if total not in (None, TOTAL):
        return "the accounts add up to %s" % total
    for writer in writers:
        number = last(db, writer)
        rows = db.execute("SELECT number, part, text FROM change WHERE writer = ? ORDER BY 1, 2", (writer,)).fetchall()
        expected = [(old, part, text(writer, old, part))
                    for old in range(max(1, number - KEPT + 1), number + 1) for part in range(PARTS)]
        if rows != expected:
            return "writer %d: the rows of the transactions up to %d are wrong" % (writer, number)
    return None


def steps(path, mode, count):
    db = connect(path, mode)
    make_tables(db)
    for number in range(1, int(count) + 1):
        change(db, 1, number)
        if number % 7 == 0:  # and one that is taken back
            db.execute("BEGIN")
            db.execute("DELETE FROM change")
            db.execute("ROLLBACK")
        if number % 20 == 0:
            db.execute("VACUUM")
    assert wrong(db, [1]) is None
    print(db.execute("PRAGMA integrity_check").fetchone()[0])
    for line in db.iterdump():
        print(line)


def write(path, mode, writer, notes, stop):
    writer = int(writer)
    db = connect(path, mode)
    make_tables(db)
    number = last(db, writer)
    with open(notes, "ab", buffering=0) as noted:
        while not os.path.exists(stop):
            number += 1
            change(db, writer, number)
            noted.write(b"%d\n" % number)


def read(path, stop):
    db = connect(path)
    looks = 0
    while not os.path.exists(stop):
        db.execute("BEGIN")
        try:
            writers = [row[0] for row in db.execute("SELECT writer FROM done").fetchall()]
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            writers = []
        why = wrong(db, writers) if writers else None
        db.execute("COMMIT")
        looks += 1
        if why:
            sys.exit("a reader sees that " + why)


def judge(path, *pairs):
    db = connect(path)
    integrity = db.execute("PRAGMA integrity_check").fetchone()[0]
    if integrity != "ok":
        sys.exit("integrity_check: " + integrity)
    why = wrong(db, [int(pair.split(":", 1)[0]) for pair in pairs])
    if why:
        sys.exit(why)
    for pair in pairs:
        writer, notes = pair.split(":", 1)
        noted = open(notes).read().split() if os.path.exists(notes) else []
        acknowledged, there = int(noted[-1]) if noted else 0, last(db, int(writer))
        if not acknowledged <= there <= acknowledged + 1:
            sys.exit("writer %s: %d was acknowledged, %d is there" % (writer, acknowledged, there))
        print(there)


if __name__ == "__main__":
    {"steps": steps, "write": write, "read": read, "judge": judge}[sys.argv[1]](*sys.argv[2:])
