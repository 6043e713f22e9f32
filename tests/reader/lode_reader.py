#!/usr/bin/env python3
"""An independent reader of Lode pools, written from docs/format.md alone ("section" is one of that page).
One line a file, sorted by the bytes of the path:  TYPE MODE LINKS SIZE HASH PATH
  TYPE  f file, d directory, l symlink, c and b devices, p fifo, s socket;  MODE octal, without the type
  SIZE  bytes of a file or of a symlink's target, 0 for all others
  HASH  sha256 of the content (symlink: of its target; others: of nothing).  A file larger than the limit has `sparse:`
        and the sha256 of, for each page that is not all zeros, its number (8 bytes, little-endian) and its 4096 bytes
  PATH  from `/`; bytes outside 0x20-0x7e are \\xNN, a backslash is \\\\
Exit status: 0 read, 1 damaged or no pool (the reason on stderr, nothing on stdout), 2 usage.  The pool must not be mounted.
"""
import argparse, collections, hashlib, json, mmap, os, struct, sys
from types import SimpleNamespace

from basics import FOREVER, LINE, PAGE, SLOT, Damage, Ranges, crc, escape, i64, le32, le64, need, tag_of, u16, u32, u64

INODE, TEXT, ATTR, LINKS, DEATH, ADD, DEL, MAP, SIZE, UNMAP, JOURNAL, RETIRE, PAD, XATTR, XDEL, EXEMPT, WHOLE = range(1, 18)
TYPES = {0o04: "d", 0o10: "f", 0o12: "l", 0o02: "c", 0o06: "b", 0o01: "p", 0o14: "s"}
FIELDS = {  # what a record sets: attribute, type as in struct, offset (section 8); `base` is what the atime word counts from
    INODE: "mode H 20 links H 22 uid I 24 gid I 28 mtime q 32 ctime q 32 atime q 32 btime q 32 base q 32",
    ATTR: "mode H 20 uid I 24 gid I 28 mtime q 32 ctime q 40 atime q 48 base q 40", LINKS: "links I 20 parent Q 24 ctime q 32",
    ADD: "mtime q 24 ctime q 24", DEL: "mtime q 24 ctime q 24", MAP: "mtime q 40 ctime q 40 size Q 48",
    SIZE: "mtime q 32 ctime q 32 size Q 24", UNMAP: "mtime q 40 ctime q 40 size Q 48", JOURNAL: "mtime q 40 ctime q 40", **dict.fromkeys((XATTR, XDEL), "ctime q 24")}
FIELDS = {kind: [(a, "<" + b, int(c)) for a, b, c in zip(*[iter(text.split())] * 3)] for kind, text in FIELDS.items()}
PLACE = {ADD: "d", DEL: "d", MAP: "fl", SIZE: "fl", UNMAP: "fl", JOURNAL: "fl", RETIRE: "fl", EXEMPT: "fl", WHOLE: "fl", TEXT: "", DEATH: ""}
Record = collections.namedtuple("Record", "kind aux part parts tx at")  # tx: session, lane, sequence


class Pool:
    def __init__(self, path):
        self.notes, self.claims, self.parts, self.highest = [], {}, {}, {}
        with open(path, "rb") as file:
            length = file.seek(0, os.SEEK_END)
            need(length >= 3 * PAGE, "not a Lode pool: only %d bytes", length)
            self.mem = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.read_superblock(length)
        self.read_checkpoint()
        self.watermarks = [self.read_watermark(self.lane_page * PAGE + lane * 256) for lane in range(self.lanes)]
        logs = [log for lane in range(self.lanes) for log in self.read_table(lane)]
        need(not self.pieces, "the checkpoint has pieces of inode table that no lane has: %s", list(self.pieces))
        self.judge(logs)
        inodes = [self.replay(log) for log in logs if log.records and not log.dead]
        self.inodes = {inode.number: inode for inode in inodes if inode}
        self.paths = dict(self.walk())
        self.check()

    def read_superblock(self, length):
        """Section 1."""

        def copy(at):
            block = self.mem[at:at + SLOT]
            if block[:8] != b"LODEPOOL" or u32(block, 12) != SLOT or crc(0, block[:508]) != u32(block, 508):
                return None
            need(u32(block, 8) == 1, "format version %d; this reader knows 1", u32(block, 8))
            return block
        first = copy(0)
        line = self.mem[1024:1024 + LINE]  # says how many pages there are, should the first superblock be lost
        located = u64(line, 8) if line[:4] == b"LEND" and crc(0, line[:60]) == u32(line, 60) else length // PAGE
        end = (u64(first, 72) if first else located) * PAGE
        need(end <= length, "the pool is cut off: %d bytes of %d", length, end)
        second = copy(end - PAGE)
        need(first or second, "not a Lode pool, or both superblocks are damaged")
        need(first is None or second is None or first[40:84] == second[40:84], "the superblocks differ in identity or size")
        self.notes += ["superblock %s is not valid; the other counts" % n for n, c in (("A", first), ("B", second)) if not c]
        best = max((s for s in (first, second) if s), key=lambda s: u64(s, 192))
        self.pages, self.lanes, self.lane_page, self.session = u64(best, 72), u32(best, 80), u32(best, 84), u32(best, 200)
        need(self.pages * PAGE == end and 1 <= self.lanes <= 256 and self.lane_page == 1, "superblock: impossible pages or lanes")
        need(u64(best, 32) <= 1 and best[88] == 0, "unknown features %#x or protection level %d", u64(best, 32), best[88])
        self.log_lines = best[91]
        need(4 <= self.log_lines <= 63, "superblock: %d record lines of a log page", self.log_lines)
        self.uuid, self.root, self.seed = best[40:56].hex(), (u64(best, 96), u64(best, 104)), crc(0, best[40:72])
        self.clean = u64(best, 208) if u32(best, 216) == self.session else 0  # first page of a checkpoint that counts
        self.claims.update({0: (1, "superblock A"), self.pages - 1: (1, "superblock B")})
        self.first_page = 1 - -self.lanes * 256 // PAGE
        self.claim(1, self.first_page - 1, "lane table")

    def claim(self, page, count, owner):
        need(0 < count <= self.pages - page, "%s: pages %d+%d are outside the pool", owner, page, count)
        need(page not in self.claims, "page %d belongs to two: %s, %s", page, owner, self.claims.get(page))
        self.claims[page] = count, owner

    def anchor(self, at, magic, nonce_at):
        """The line at `at`, whether it is valid, and the seal it should have."""
        line = self.mem[at:at + LINE]
        tag = le32(tag_of(u64(line, nonce_at)))
        seal = le32(crc(self.seed, line[:40] + tag + le64(at))) + tag
        return line, line[:4] == magic and line[56:] == seal, seal

    def fixed(self, at, magic):
        """A line with a constant tag (watermark, segment header), or None."""
        line = self.mem[at:at + LINE]
        return line if line[:4] == magic and line[56:] == le32(crc(self.seed, line[:56] + magic + le64(at))) + magic else None

    def link(self, at, head=False):
        """Section 3: None for no link, False for a bad word; or page, low half of the tag, whether the inline log is dead."""
        word, low = u64(self.mem, at), u64(self.mem, at) & (1 << 52) - 1
        page, dead = low & (1 << 34) - 1, low >> 50
        check = crc(self.seed, le64(at, low)) & 0xFFF
        if word >> 52 != (check if low or check else 0xFFF):
            return False
        if low == 0:
            return None
        return (page, low >> 34 & 0xFFFF, dead) if dead <= head and self.first_page <= page < self.pages - 1 else False

    def read_watermark(self, at):
        """Section 4."""
        lines = [self.fixed(a, b"LWAT") for a in (at, at + LINE)]
        best = max((line for line in lines if line and u64(line, 16) < 1 << 63), key=lambda line: u64(line, 16), default=None)
        need(best, "both watermarks at %#x are damaged", at)
        return u64(best, 8) if u32(best, 4) == self.session else 0

    def read_checkpoint(self):
        """Section 10.  Fills self.pieces: page -> (k, lane, nonce), last seals of the logs."""
        page, stream, self.pieces, at = self.clean, b"", {}, 2
        while page:
            head = self.fixed(page * PAGE, b"LCKP") if page < self.pages - 1 else None
            need(head and u32(head, 4) == self.session, "checkpoint: no valid segment at page %d", page)
            self.claim(page, u64(head, 8), "checkpoint at page %d" % page)
            data = self.mem[page * PAGE + LINE:(page + u64(head, 8)) * PAGE][:u64(head, 24)]
            need(crc(0, data) == u32(head, 32), "checkpoint: the bytes in the segment at page %d are damaged", page)
            stream, page = stream + data, u64(head, 16)
        numbers = struct.unpack("<%dQ" % (len(stream) // 8), stream[:len(stream) & ~7]) + (0, 0)
        for _ in range(numbers[0]):
            need(at + 3 <= len(numbers) and numbers[at + 1] <= 9, "checkpoint: piece %d is damaged", len(self.pieces))
            slots = PAGE // SLOT << numbers[at + 1]
            self.pieces[numbers[at]] = numbers[at + 1:at + 4], numbers[at + 3:at + 3 + slots]
            at += 3 + slots
        need(at + 2 * numbers[1] == max(2, len(numbers) - 2), "checkpoint: %d bytes are not what is in it", len(stream))
        for page, count in zip(numbers[at:-2:2], numbers[at + 1:-2:2]):
            self.claim(page, count, "free extent at page %d" % page)

    def read_table(self, lane):
        """Section 5."""
        at = self.lane_page * PAGE + lane * 256 + 128
        while self.link(at) is not None:
            link = self.link(at)
            need(link, "link word at %#x is damaged", at)
            page, (head, good, _) = link[0], self.anchor(link[0] * PAGE, b"LTBL", 16)
            good = good and tag_of(u64(head, 16)) & 0xFFFF == link[1] and (head[5], u64(head, 8)) == (lane, page) and head[4] <= 9
            need(good, "inode table piece at page %d is damaged", page)
            self.claim(page, 1 << head[4], "inode table piece at page %d" % page)
            mine = head[4], lane, u64(head, 16)
            where, seals = self.pieces.pop(page, (mine, None))
            need(where == mine and bool(seals) == bool(self.clean), "the checkpoint has no such piece at page %d", page)
            for number in range(page * 8 + 1, page + (1 << head[4]) << 3):
                log = self.read_inode(number)
                seal = u64(self.mem, log.records[-1].at + 56) if log and log.records and not log.death else 0
                need(not seals or seal == seals[number - page * 8], "inode %d: its log does not end as the checkpoint says", number)
                if log:
                    yield log
            at = page * PAGE + 40

    def sealed(self, seed, tag, at):
        """Is the record line at `at` valid?"""
        line = self.mem[at:at + LINE]
        return line[60:] == tag and crc(seed, le64(at) + line[:56] + tag) == u32(line, 56)

    def record(self, at, there=True):
        kind, aux, part, parts, lane, high, low, session = struct.unpack_from("<BBHHBBII", self.mem, at)
        rec = Record(kind, aux, part, parts, (session, lane, high << 32 | low), at)
        need(1 <= kind <= WHOLE and part < parts and lane < self.lanes and session <= self.session,
             "record at %#x: impossible kind, part, lane or session", at)
        if session == self.session:  # the only ones that can be in doubt
            count, seen = self.parts.setdefault(rec.tx, (parts, set()))
            need(count == parts and part not in seen, "record at %#x: its transaction has %d parts, or this one twice", at, count)
            seen.update([part] * there)
            self.highest[lane] = max(self.highest.get(lane, 0), rec.tx[2])
        return rec

    def read_inode(self, number):
        """Section 6."""
        at, (line, good, _) = number * SLOT, self.anchor(number * SLOT, b"LINO", 16)
        if not good or u64(line, 8) != number:
            return None
        log = SimpleNamespace(number=number, nonce=u64(line, 16), owner=line[8:24], records=[], ahead=[], pages=[], death=None, damage=None)
        seed, tag = crc(self.seed, line[8:24] + le64(at // PAGE, 0)), line[60:]
        if self.sealed(seed, tag, at + 7 * LINE):
            log.death = self.record(at + 7 * LINE)
            need(log.death.kind == DEATH, "record at %#x is in the place of a death", log.death.at)
        try:
            self.read_log(log, at, seed, tag)
        except Damage as damage:
            log.damage = damage  # means nothing if the inode turns out to be dead
        return log

    def page_nonce(self, log, link, last):
        """Of the page that `link` leads to, if it is one of this log behind the page with nonce `last`; or 0."""
        line, valid, _ = self.anchor(link[0] * PAGE, b"LLOG", 24)
        nonce = u64(line, 24)
        return nonce if valid and line[8:24] == log.owner and nonce > last and tag_of(nonce) & 0xFFFF == link[1] else 0

    def read_log(self, log, at, seed, tag):
        """Section 7.  Fills log.records; behind the first bad line log.ahead instead."""
        link, count, good, last = self.link(at + 40, head=True), 6, True, 0
        if link and link[2]:
            link, count = (link, 0) if self.page_nonce(log, link, 0) else (False, 6)
        while True:
            lines = range(at + LINE, at + LINE + count * LINE, LINE)
            found = [self.record(line) for line in lines if self.sealed(seed, tag, line)]
            for rec, line in zip(found, lines):
                good = good and rec.at == line
                need(not log.records or rec.tx[0] >= log.records[-1].tx[0], "record at %#x: its session is too low", rec.at)
                (log.records if good else log.ahead).append(rec)
            good = good and len(found) == count
            torn = len({rec.tx for rec in found}) <= 1 and not any(map(self.fenced, found))
            need(link is not False or torn, "inode %d: the link at %#x or its target is damaged", log.number, at + 40)
            if not link:
                return
            at, count, last = link[0] * PAGE, self.log_lines, self.page_nonce(log, link, last)
            if not last:
                lines = [line for line in range(at + LINE, at + LINE + count * LINE, LINE) if self.in_ruin(log, link, line)]
                log.ahead += [self.record(line, there=False) for line in lines]
                return
            log.pages += [link[0]] * good
            seed, tag = crc(self.seed, log.owner + le64(link[0], tag_of(last))), le32(tag_of(last))
            link = self.link(at + 40)

    def in_ruin(self, log, link, at):
        """Is the line a record of this log, in a page without a header that could be followed?"""
        tag = u32(self.mem, at + 60)
        return tag & 0xFFFF == link[1] and self.sealed(crc(self.seed, log.owner + le64(link[0], tag)), le32(tag), at)

    def fenced(self, rec):
        """Certain, even without its other parts."""
        session, lane, sequence = rec.tx
        return session < self.session or self.clean or sequence <= self.watermarks[lane]

    def committed(self, rec):
        return self.fenced(rec) or len(self.parts[rec.tx][1]) == rec.parts

    def judge(self, logs):
        """Section 9."""
        doubt = {}
        for log in logs:
            log.dead = log.death is not None and self.committed(log.death)
            if log.dead:
                continue
            need(not log.damage, "%s", log.damage)
            done = [rec for rec in log.records if self.committed(rec)]
            tail = log.records[len(done):] + log.ahead + ([log.death] if log.death else [])
            need(log.records[:len(done)] == done, "inode %d: records behind an unfinished transaction", log.number)
            for rec in tail:
                need(not self.committed(rec), "inode %d: a damaged line before the record at %#x", log.number, rec.at)
                one = rec.tx == tail[0].tx == doubt.setdefault(rec.tx[1], rec.tx)
                need(one and self.highest[rec.tx[1]] == rec.tx[2], "record at %#x: unfinished, not the last of its lane", rec.at)
            log.records = done

    def replay(self, log):
        """Section 8."""
        inode = SimpleNamespace(number=log.number, nonce=log.nonce, size=0, found=0, xattrs={}, map=Ranges(), over=Ranges(), home=Ranges(), over_tx=None)
        added, records = {}, iter(log.records)
        for rec in records:
            line = self.mem[rec.at:rec.at + 56]
            for field, form, at in FIELDS.get(rec.kind, ()):
                setattr(inode, field, struct.unpack_from(form, line, at)[0])
            need((rec.kind == INODE) == (rec is log.records[0]), "record at %#x: kind %d in a wrong place", rec.at, rec.kind)
            if rec.kind == INODE:
                inode.type = TYPES.get(inode.mode >> 12, "")
                inode.parent, inode.rdev = u64(line, 40), (u32(line, 40), u32(line, 44))
                inode.target = self.text(rec, line[40:], rec.aux, records) if inode.type == "l" else b""
            elif rec.kind == ADD:
                name, child = self.text(rec, line[40:], rec.aux, records), u64(line, 32)
                need(not set(name) & set(b"/\0") and name not in (b"", b".", b".."), "record at %#x: impossible name", rec.at)
                if child >> 60 & 1:  # replaces the entry of this name
                    added = {key: entry for key, entry in added.items() if entry[0] != name}
                added[rec.tx + (rec.part,)] = name, (child & (1 << 56) - 1, TYPES.get(child >> 56 & 15), u32(line, 20))
            elif rec.kind == DEL:  # by session, lane, sequence, part
                added.pop((u32(line, 20), line[37], u64(line, 32) & (1 << 40) - 1, u16(line, 40)), None)
            elif rec.kind in (XATTR, XDEL):
                length = (8 * line[36] or u32(line, 20)) if rec.kind == XATTR else 0
                text = self.text(rec, b"", rec.aux + length, records)
                inode.xattrs.pop(text[:rec.aux], None)
                if rec.kind == XATTR:
                    inode.xattrs[text[:rec.aux]] = line, text[rec.aux:]
            elif rec.kind in (MAP, SIZE, UNMAP, JOURNAL, RETIRE):
                self.replay_data(inode, rec, line)
            need(inode.type and inode.type in PLACE.get(rec.kind, "fdlcbps"), "record at %#x: kind %d in a file of type %s",
                 rec.at, rec.kind, inode.type)
        if inode.type != "d" and inode.links == 0:
            return None  # it never had a name
        inode.entries = dict(added.values())
        need(len(inode.entries) == len(added), "directory %d: two entries of one name", log.number)
        inode.atime = max((inode.base, inode.atime), (i64(self.mem, log.number * SLOT + 48),) * 2)[1]
        for start, n, at in inode.home.items:
            mapped = [(a - p, m) for p, m, a in inode.map.within(start, start + n)]
            good = sum(m for _, m in mapped) == n and all(by == at - start for by, _ in mapped)
            need(good, "inode %d: journalled bytes at %#x of the file are mapped elsewhere", log.number, start)
        journal = {page for _, n, at in inode.over.items for page in range(at // PAGE, (at + n - 1) // PAGE + 1)}
        for page, count in [(p, 1) for p in (*journal, *log.pages)] + [(at // PAGE, n // PAGE) for _, n, at in inode.map.items]:
            self.claim(page, count, "inode %d" % log.number)
        inode.xattrs = {name: self.value(log, *where) for name, where in inode.xattrs.items()}
        if inode.type == "l" and not inode.target:
            inode.target = b"".join(self.mem[at:at + n] for _, n, at in inode.map.within(0, min(inode.size, PAGE)))
        return inode

    def value(self, log, line, text):
        """The value of an extended attribute: in its record, or in pages of its own."""
        if not line[36]:
            return text
        runs = [(word & (1 << 48) - 1, word >> 48) for word in struct.unpack("<%dQ" % line[36], text)]
        for page, count in runs:
            self.claim(page, count, "an extended attribute of inode %d" % log.number)
        data = b"".join(self.mem[page * PAGE:(page + count) * PAGE] for page, count in runs)[:u32(line, 20)]
        need(crc(0, data) == u32(line, 32), "inode %d: the value of an extended attribute is damaged", log.number)
        return data

    def text(self, rec, head, length, records):
        """The name, target or value in a record (`head`) and in the TEXT lines behind it."""
        text = head[:min(length, 16)]
        while len(text) < length:
            more = next(records, rec)
            good = (more.kind, more.tx, more.aux) == (TEXT, rec.tx, min(length - len(text), 40))
            need(good, "record at %#x: its text does not go on", rec.at)
            text += self.mem[more.at + 16:more.at + 16 + more.aux]
        return text

    def replay_data(self, inode, rec, line):
        low, high = u64(line, 24) * PAGE, FOREVER
        if rec.kind in (MAP, JOURNAL, RETIRE) and rec.tx != inode.over_tx:  # what was journalled before is in place
            inode.over, inode.home, inode.over_tx = Ranges(), Ranges(), rec.tx
        if rec.kind == JOURNAL:
            inode.over.put(u64(line, 24), u32(line, 20), u64(line, 32))
            inode.home.put(u64(line, 24), u32(line, 20), u64(line, 48))
        elif rec.kind == SIZE:
            low = inode.size if u32(line, 20) & 1 else high
        elif rec.kind in (MAP, UNMAP):
            high = low + (u32(line, 20) if rec.kind == MAP else u64(line, 32)) * PAGE
        if rec.kind in (MAP, SIZE, UNMAP):
            inode.over.cut(low, high)
            inode.home.cut(low, high)
            inode.map.cut(-(-low // PAGE) * PAGE, high)
        if rec.kind == MAP:
            inode.map.put(low, high - low, u64(line, 32) * PAGE)

    def walk(self):
        root = self.inodes.get(self.root[0])
        need(root and (root.nonce, root.type) == (self.root[1], "d"), "no root directory at inode %d", self.root[0])
        root.found, todo = 1, [(b"", root)]
        while todo:
            path, inode = todo.pop()
            yield path or b"/", inode
            for name, (number, kind, tag) in inode.entries.items():
                child, here = self.inodes.get(number), path + b"/" + name
                need(child and tag_of(child.nonce) == tag and child.type == kind, "%s: no such inode %d", escape(here), number)
                child.found += 1
                need(kind != "d" or (child.found, child.parent) == (1, inode.number), "%s: it has another parent", escape(here))
                todo.append((here, child))

    def check(self):
        for inode in self.inodes.values():
            links = 1 if inode.type == "d" else inode.links
            need(links == inode.found, "inode %d has %d entries where %d belong", inode.number, inode.found, links)
            if inode.type == "d":
                inode.links = 2 + sum(kind == "d" for _, kind, _ in inode.entries.values())
        claims = sorted(self.claims.items())
        for (page, (count, owner)), (following, (_, other)) in zip(claims, claims[1:]):
            need(page + count <= following, "page %d belongs to two: %s, %s", following, owner, other)
            need(page + count == following or not self.clean, "page %d belongs to nobody", page + count)


def content_hash(pool, inode, limit):
    digest, done, chunk = hashlib.sha256(inode.target), 0, 1 << 20
    sparse, zeros = inode.size > limit > 0, bytes(chunk)
    for start, length, at in [*inode.map.within(0, inode.size), (inode.size, 0, 0)] if inode.type == "f" else ():
        for hole in range(done, start, chunk) if not sparse else ():
            digest.update(zeros[:start - hole])
        for offset in range(start, start + length, chunk):
            n = min(chunk, start + length - offset)
            data = bytearray(pool.mem[at + offset - start:at + offset - start + n])
            for a, m, source in inode.over.within(offset, offset + n):
                data[a - offset:a - offset + m] = pool.mem[source:source + m]
            for page in range(0, n, PAGE) if sparse else ():
                content = data[page:page + PAGE].ljust(PAGE, b"\0")
                if content != zeros[:PAGE]:
                    digest.update(le64((offset + page) // PAGE) + content)
            digest.update(b"" if sparse else data)
        done = start + length
    return ("sparse:" if sparse else "") + digest.hexdigest()


def listing(pool, limit):
    for path, inode in sorted(pool.paths.items()):
        inode.hash = getattr(inode, "hash", None) or content_hash(pool, inode, limit)
        size = {"f": inode.size, "l": len(inode.target)}.get(inode.type, 0)
        one = {key: getattr(inode, key) for key in "type links hash uid gid mtime ctime atime btime".split()}
        one["xattrs"] = {escape(name): hashlib.sha256(value).hexdigest() for name, value in inode.xattrs.items()}
        yield dict(one, mode="%04o" % (inode.mode & 0o7777), size=size, path=escape(path), inode=inode.number,
                   rdev=inode.rdev if inode.type in "cb" else (0, 0))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pool")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--limit", type=int, default=1 << 30, help="larger files get a `sparse:` hash (default 1 GiB; 0: none do)")
    args = parser.parse_args()
    try:
        pool = Pool(args.pool)
        files = list(listing(pool, args.limit))
    except (Damage, OSError) as problem:
        sys.exit("lode_reader: %s: %s" % (args.pool, problem))
    sys.stderr.writelines("lode_reader: %s: note: %s\n" % (args.pool, note) for note in pool.notes)
    lines = ["{type} {mode} {links} {size} {hash} {path}".format(**one) for one in files]
    whole = dict(schema=1, uuid=pool.uuid, session=pool.session, clean=bool(pool.clean), notes=pool.notes, files=files)
    print(json.dumps(whole, indent=1) if args.json else "\n".join(lines))

if __name__ == "__main__":
    main()
