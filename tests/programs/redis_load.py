#!/usr/bin/env python3
"""Transactions for Redis, and the judge of what a kill left of them. Speaks the protocol itself.

    redis_load.py write SOCKET WRITER NOTES    until the connection ends; what was acknowledged is in NOTES
    redis_load.py fill SOCKET COUNT            a known content of all types
    redis_load.py judge SOCKET WRITER:NOTES...
"""
import os, socket, sys

KEPT = 40


class Connection:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def send(self, *commands):
        data = b""
        for words in commands:
            words = [str(word).encode() for word in words]
            data += b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        self.socket.sendall(data)

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest

    def ask(self, *words):
        self.send(words)
        return self.reply()


def value(writer, number):
    return "%d:%d " % (writer, number) * (1 + number * 37 % 300)


def transaction(redis, writer, number):
    commands = [("MULTI",), ("INCR", "count:%d" % writer),
                ("SET", "value:%d:%d" % (writer, number % KEPT), value(writer, number)),
                ("RPUSH", "list:%d" % writer, number), ("LTRIM", "list:%d" % writer, -KEPT, -1),
                ("HSET", "hash:%d" % writer, number % KEPT, number), ("EXEC",)]
    redis.send(*commands)
    for _ in commands[1:]:
        redis.reply()
    return redis.reply()


def write(path, writer, notes):
    redis, writer = Connection(path), int(writer)
    number = int(redis.ask("GET", "count:%d" % writer) or 0)
    with open(notes, "ab", buffering=0) as noted:
        while True:
            number += 1
            try:
                done = transaction(redis, writer, number)
                assert done[0] == number, "INCR gave %s instead of %d" % (done[0], number)
                noted.write(b"%d\n" % number)
                if number % 500 == 0 and writer == 1:
                    redis.ask("BGREWRITEAOF")
            except OSError:  # the connection has ended, at whatever was asked
                return
            except RuntimeError:  # a rewrite is under way
                if number % 500 != 0:
                    raise


def fill(path, count):
    redis = Connection(path)
    for number in range(1, int(count) + 1):
        transaction(redis, 1, number)
        redis.ask("ZADD", "sorted", number * 7 % 100, "member-%d" % (number % 60))
        redis.ask("APPEND", "long", "x" * (number % 1000))
        redis.ask("PFADD", "distinct", number % 321)


def wrong(redis, writer, number):
    if number == 0:
        return None
    kept = list(range(max(1, number - KEPT + 1), number + 1))
    for old in kept:
        if redis.ask("GET", "value:%d:%d" % (writer, old % KEPT)) != value(writer, old).encode():
            return "the value of transaction %d" % old
        if redis.ask("HGET", "hash:%d" % writer, old % KEPT) != b"%d" % old:
            return "the field of transaction %d" % old
    if redis.ask("LRANGE", "list:%d" % writer, 0, -1) != [b"%d" % old for old in kept]:
        return "the list"
    return None


def judge(path, *pairs):
    redis = Connection(path)
    for pair in pairs:
        writer, notes = pair.split(":", 1)
        noted = open(notes).read().split() if os.path.exists(notes) else []
        acknowledged, there = int(noted[-1]) if noted else 0, int(redis.ask("GET", "count:" + writer) or 0)
        if not acknowledged <= there <= acknowledged + 1:
            sys.exit("writer %s: %d was acknowledged, %d is there" % (writer, acknowledged, there))
        why = wrong(redis, int(writer), there)
        if why:
            sys.exit("writer %s, of %d transactions: %s is wrong" % (writer, there, why))
        print(there)


if __name__ == "__main__":
    {"write": write, "fill": fill, "judge": judge}[sys.argv[1]](*sys.argv[2:])
