#!/usr/bin/env python3
"""Writes a small sample pool, from docs/format.md alone, to test the independent reader with.

    make_sample.py [--clean] OUT

Without --clean the pool is one whose server was killed: no checkpoint, transactions in doubt, aborted ones.
Shares no code with the reader, so that a mistake in one shows against the other.
"""
import argparse, struct

PAGE, SLOT, LINE, PAGES, LANES, PIECE_K, LOG_LINES = 4096, 512, 64, 512, 2, 3, 63
INODE, TEXT, ATTR, LINKS, DEATH, ADD, DEL, MAP, SIZE, UNMAP, JOURNAL, RETIRE, PAD = range(1, 14)
OLD, NOW = 6, 7  # sessions
SECRET, UUID = bytes(range(100, 116)), bytes(range(1, 17))


def crc(seed, data):
    """CRC32C, bit by bit: slow, and plainly right."""
    c = seed ^ 0xFFFFFFFF
    for byte in data:
        c ^= byte
        for _ in range(8):
            c = (c >> 1) ^ (0x82F63B78 & -(c & 1))
    return c ^ 0xFFFFFFFF


def tag(nonce):
    return (nonce & 0xFFFFFFFF) ^ ((nonce >> 32) * 0x9E3779B1 & 0xFFFFFFFF) or 1


def le(*pairs):
    """le((value, bytes), ...) or bytes values, joined."""
    return b"".join(p if isinstance(p, bytes) else p[0].to_bytes(p[1], "little") for p in pairs)


def pad(data, size):
    assert len(data) <= size
    return data + bytes(size - len(data))


class Inode:
    """Where the next record of an inode goes."""

    dead = moved = False

    def __init__(self, pool, number, nonce):
        self.pool, self.number, self.nonce = pool, number, nonce
        at = number * SLOT
        self.link_at, self.next, self.left, self.last = at + 40, at + LINE, 6, None
        self.seed = self.inline_seed()
        self.tag = tag(nonce)

    def inline_seed(self):
        return self.pool.log_seed(self.number, self.nonce, self.number * SLOT // PAGE, 0)

    def new_page(self, moved=0):
        pool, page = self.pool, self.pool.alloc()
        nonce, at = pool.nonce(), page * PAGE
        pool.anchor(at, le(b"LLOG", (0, 4), (self.number, 8), (self.nonce, 8), (nonce, 8)), nonce, "log page header", self)
        pool.link(self.link_at, page, nonce, moved, self)
        self.link_at, self.next, self.left = at + 40, at + LINE, LOG_LINES
        self.seed, self.tag = pool.log_seed(self.number, self.nonce, page, tag(nonce)), tag(nonce)


class Tx:
    """A transaction: records gathered, then written with their parts numbered."""

    def __init__(self, pool, lane=0, session=OLD):
        self.pool, self.lane, self.session, self.lines = pool, lane, session, []
        pool.sequence[session, lane] = self.sequence = pool.sequence.get((session, lane), 0) + 1

    def add(self, inode, kind, body, aux=0, text=b""):
        """body: from byte 20 on (the epoch is put in front); text goes on in TEXT lines."""
        bodies = [(kind, aux, le((1, 4), body))]
        for i in range(0, len(text), 40):
            bodies.append((TEXT, len(text[i:i + 40]), text[i:i + 40]))
        waiting = sum(1 for line in self.lines if line[0] is inode)
        if inode.left - waiting < len(bodies):
            for _ in range(inode.left - waiting):
                self.lines.append((inode, PAD, 0, b""))
            self.lines.append((inode, None, 0, b""))  # roll over
        for one in bodies:
            self.lines.append((inode,) + one)
        return self

    def commit(self, lost=(), torn=()):
        """Writes all parts but those in `lost` (never stored) and `torn` (only their seal was)."""
        pool, part = self.pool, 0
        parts = sum(1 for line in self.lines if line[1] is not None)
        for inode, kind, aux, body in self.lines:
            if kind is None:
                inode.new_page()
                continue
            if kind == DEATH:
                at, seed, mark = inode.number * SLOT + 7 * LINE, inode.inline_seed(), tag(inode.nonce)
            else:
                assert inode.left > 0
                at, seed, mark = inode.next, inode.seed, inode.tag
                inode.next, inode.left = at + LINE, inode.left - 1
            head = le((kind, 1), (aux, 1), (part, 2), (parts, 2), (self.lane, 1), (self.sequence >> 32, 1),
                      (self.sequence & 0xFFFFFFFF, 4), (self.session, 4))
            payload = pad(head + body, 56)
            seal = le((crc(seed, le((at, 8)) + payload + le((mark, 4))), 4), (mark, 4))
            if part in torn:
                pool.mem[at + 56:at + LINE] = seal
            elif part not in lost:
                pool.mem[at:at + LINE] = payload + seal
                pool.note(at, LINE, "death" if kind == DEATH else "record", inode)
                if kind != DEATH:
                    inode.last = at
            part += 1
        return self


class Pool:
    def __init__(self):
        self.mem, self.marks, self.sequence, self.counter = bytearray(PAGES * PAGE), [], {}, 0
        self.seed = crc(0, UUID + SECRET)
        self.lane_page, self.next_page, self.pieces, self.inodes = 1, 2, [], {}
        self.used = {0, 1, PAGES - 1}
        for lane in range(LANES):
            at = self.lane_page * PAGE + lane * 256
            self.watermark(lane, 0, 1, 0, 1)
            self.watermark(lane, 1, 1, 0, 2)
            self.no_link(at + 128)

    def note(self, at, size, what, inode=None):
        """For the tests: what lies where."""
        self.marks.append((at, size, what, inode))

    def alloc(self, count=1):
        page, self.next_page = self.next_page, self.next_page + count
        self.used.update(range(page, page + count))
        return page

    def free(self, page, count=1):
        self.used.difference_update(range(page, page + count))

    def nonce(self, session=OLD):
        self.counter += 1
        return session << 32 | self.counter

    def log_seed(self, number, nonce, page, page_tag):
        return crc(self.seed, le((number, 8), (nonce, 8), (page, 8), (page_tag, 8)))

    def anchor(self, at, sealed, nonce, what, inode=None):
        sealed, mark = pad(sealed, 40), le((tag(nonce), 4))
        self.mem[at:at + LINE] = sealed + bytes(16) + le((crc(self.seed, sealed + mark + le((at, 8))), 4)) + mark
        self.no_link(at + 40)
        self.note(at, 40, what, inode)
        self.note(at + 56, 8, what + " seal", inode)

    def link(self, at, page, nonce, moved=0, inode=None):
        self.word(at, page | (tag(nonce) & 0xFFFF) << 34 | moved << 50)
        self.note(at, 8, "link", inode)

    def no_link(self, at):
        self.word(at, 0)

    def word(self, at, low):
        check = crc(self.seed, le((at, 8), (low, 8))) & 0xFFF
        check = check if low or check else 0xFFF
        self.mem[at:at + 8] = le((low | check << 52, 8))

    def fixed(self, at, body, magic, what):
        """A line with a constant tag."""
        body = pad(body, 56)
        self.mem[at:at + LINE] = body + le((crc(self.seed, body + magic + le((at, 8))), 4), magic)
        self.note(at, LINE, what)

    def piece(self, lane):
        page, nonce = self.alloc(1 << PIECE_K), self.nonce()
        link_at = next((p * PAGE + 40 for p, l, _ in reversed(self.pieces) if l == lane), self.lane_page * PAGE + lane * 256 + 128)
        self.anchor(page * PAGE, le(b"LTBL", (PIECE_K, 1), (lane, 1), (0, 2), (page, 8), (nonce, 8)), nonce, "piece header")
        self.link(link_at, page, nonce)
        self.pieces.append((page, lane, nonce))
        return page

    def watermark(self, lane, copy, session, sequence, version):
        self.fixed(self.lane_page * PAGE + lane * 256 + copy * LINE,
                   le(b"LWAT", (session, 4), (sequence, 8), (version, 8)), b"LWAT", "watermark %d" % copy)

    def identity(self, number, session=OLD):
        inode = Inode(self, number, self.nonce(session))
        self.anchor(number * SLOT, le(b"LINO", (0, 4), (number, 8), (inode.nonce, 8)), inode.nonce, "identity", inode)
        self.inodes[number] = inode
        return inode

    def superblock(self, checkpoint=(0, 0)):
        block = le(b"LODEPOOL", (1, 4), (SLOT, 4), (0, 24), UUID, SECRET, (PAGES, 8), (LANES, 4), (self.lane_page, 4),
                   (0, 1), (0, 1), (PIECE_K, 1), (LOG_LINES, 1), (0, 4), (self.root.number, 8), (self.root.nonce, 8), (10 ** 18, 8), (0, 8),
                   pad(b"sample", 64), (9, 8), (NOW, 4), (1, 4), (checkpoint[0], 8), (checkpoint[1], 4))
        block = pad(block, 508)
        for at in (0, (PAGES - 1) * PAGE):
            self.mem[at:at + SLOT] = block + le((crc(0, block), 4))

    def data(self, pages, text=b""):
        page = self.alloc(pages)
        self.mem[page * PAGE:page * PAGE + len(text)] = text
        return page

    def checkpoint(self):
        """Written in two segments of one page each, behind everything else."""
        first = self.alloc(2)
        second = first + 1
        free, page = [], 0
        while page < PAGES:
            run = page
            while run < PAGES and run not in self.used:
                run += 1
            if run > page:
                free.append((page, run - page))
            page = run + 1
        numbers = [len(self.pieces), len(free)]
        for page, lane, nonce in self.pieces:
            numbers += [page, PIECE_K, lane, nonce]
            for slot in range(1, PAGE // SLOT << PIECE_K):
                inode = self.inodes.get(page * 8 + slot)
                at = inode.last if inode and not inode.dead else None
                numbers.append(int.from_bytes(self.mem[at + 56:at + LINE], "little") if at else 0)
        for one in free:
            numbers += one
        stream = b"".join(le((n, 8)) for n in numbers)
        cut = len(stream) // 3  # not at a multiple of 8
        for page, following, part in ((first, second, stream[:cut]), (second, 0, stream[cut:])):
            body = le(b"LCKP", (NOW, 4), (1, 8), (following, 8), (len(part), 8), (crc(0, part), 4))
            self.fixed(page * PAGE, body, b"LCKP", "checkpoint header")
            self.mem[page * PAGE + LINE:page * PAGE + LINE + len(part)] = part
            self.note(page * PAGE + LINE, len(part), "checkpoint")
        return first, NOW


class Tree(Pool):
    """Operations on the pool, each a transaction."""

    def create(self, parent, name, mode, special=b"", aux=0, text=b"", links=1, lane=0, session=OLD, lost=(), torn=(), when=10 ** 18):
        inode = self.identity(self.slots[lane].pop(0), session)
        tx = Tx(self, lane, session)
        tx.add(inode, INODE, le((mode, 2), (links, 2), (1000, 4), (100, 4), (when, 8), special), aux, text)
        self.entry(tx, parent, inode, name, mode, when)
        tx.commit(lost, torn)
        inode.mode = mode
        return inode

    def entry(self, tx, parent, inode, name, mode, when=10 ** 18 + 1):
        inode.add_part = sum(1 for line in tx.lines if line[1] is not None)
        left = parent.left - sum(1 for line in tx.lines if line[0] is parent)
        lines = 1 + -(-max(0, len(name) - 16) // 40)
        inode.add_part += left if left < lines else 0  # PADs come first
        inode.add_tx = tx
        word = inode.number | mode >> 12 << 56
        tx.add(parent, ADD, le((tag(inode.nonce), 4), (when, 8), (word, 8), name[:16]), len(name), name[16:])

    def remove(self, tx, parent, inode):
        add = inode.add_tx
        tx.add(parent, DEL, le((add.session, 4), (10 ** 18 + 2, 8), (add.lane << 40 | add.sequence, 8), (inode.add_part, 2)))

    def mkdir(self, parent, name, **more):
        return self.create(parent, name, 0o040755, le((parent.number, 8)), **more)

    def symlink(self, parent, name, target):
        return self.create(parent, name, 0o120777, target[:16], len(target), target[16:])

    def one(self, inode, kind, body, aux=0, **how):
        return Tx(self, **how).add(inode, kind, body, aux).commit()

    def map(self, inode, first, page, pages, size, **how):
        return self.one(inode, MAP, le((pages, 4), (first, 8), (page, 8), (10 ** 18 + 5, 8), (size, 8)), **how)

    def file(self, parent, name, content, **how):
        inode = self.create(parent, name, 0o100644, **how)
        pages = -(-len(content) // PAGE)
        if pages:
            inode.page = self.data(pages, content)
            self.map(inode, 0, inode.page, pages, len(content), **how)
        return inode

    def journal(self, inode, offset, content, at, **how):
        """The new bytes in a journal page, not at their place yet.  `at`: offset in the journal page."""
        page = self.data(1)
        self.mem[page * PAGE + at:page * PAGE + at + len(content)] = content
        body = le((len(content), 4), (offset, 8), (page * PAGE + at, 8), (10 ** 18 + 6, 8), (inode.page * PAGE + offset, 8))
        self.one(inode, JOURNAL, body, **how)
        return page


LONG_NAME, LONGEST, ODD_NAME = b"a long name " * 10, b"n" * 255, b"odd \\\n\xff\xc3\xa9"
TARGET_10, TARGET_60, TARGET_136, TARGET_200 = b"0123456789", b"t" * 59 + b"!", b"u" * 136, b"dir/" * 50
TERA = 1 << 40


def build(clean=False):
    """Returns the pool and {path: (type, mode, links, size, content or [(offset, bytes)])}."""
    pool = Tree()
    pieces = [pool.piece(lane) for lane in range(LANES)] + [pool.piece(0)]
    pool.slots = [[pieces[0] * 8 + n for n in range(1, 64)], [pieces[1] * 8 + n for n in range(1, 64)]]
    pool.slots[0] = pool.slots[0][:10] + [pieces[2] * 8 + 5] + pool.slots[0][10:]  # some in the second piece
    root = pool.root = pool.identity(pool.slots[0].pop(0))
    root.mode = 0o040755
    pool.one(root, INODE, le((0o040755, 2), (1, 2), (0, 4), (0, 4), (10 ** 18, 8), (root.number, 8)))
    want = {b"/": ("d", 0o755, 4, 0, b"")}

    def expect(path, inode, content=b"", links=1, size=None, mode=None):
        kind = {0o10: "f", 4: "d", 0o12: "l", 1: "p", 2: "c", 6: "b", 0o14: "s"}[inode.mode >> 12]
        want[path] = (kind, inode.mode & 0o7777 if mode is None else mode, links, len(content) if size is None else size, content)

    # every type, names short and long, targets short and long
    expect(b"/empty", pool.create(root, b"empty", 0o100600))
    hello = pool.file(root, b"hello", b"Hello, pool\n")
    directory = pool.mkdir(root, b"dir", lane=1)
    sub = pool.mkdir(directory, b"sub")
    expect(b"/dir", directory, links=3)
    expect(b"/dir/sub", sub, links=2)
    tx = Tx(pool)
    tx.add(hello, LINKS, le((2, 4), (0, 8), (10 ** 18 + 1, 8)))
    pool.entry(tx, directory, hello, b"hello again", hello.mode)
    tx.commit()
    expect(b"/hello", hello, b"Hello, pool\n", links=2)
    expect(b"/dir/hello again", hello, b"Hello, pool\n", links=2)
    for name in (LONG_NAME, LONGEST, ODD_NAME, b"x" * 16, b"y" * 17, b"z" * 56, b"w" * 57):
        expect(b"/" + name, pool.file(root, name, name), name)
    for name, target in ((b"link10", TARGET_10), (b"link60", TARGET_60), (b"link16", b"s" * 16), (b"link136", TARGET_136)):
        expect(b"/dir/" + name, pool.symlink(directory, name, target), target)
    link = pool.create(directory, b"link200", 0o120777)
    pool.map(link, 0, pool.data(1, TARGET_200), 1, len(TARGET_200))
    expect(b"/dir/link200", link, TARGET_200)
    for name, mode in ((b"fifo", 0o010644), (b"sock", 0o140755), (b"chr", 0o020600), (b"blk", 0o060660)):
        expect(b"/dir/" + name, pool.create(directory, name, mode, le((1, 4), (3, 4))))

    # extents, holes, truncation, punching
    two = pool.create(root, b"two extents", 0o100644)
    a, b = pool.data(2, b"A" * 8192), pool.data(1, b"B" * 4096)
    pool.map(two, 0, a, 2, 8192)
    pool.map(two, 5, b, 1, 5 * PAGE + 100)
    expect(b"/two extents", two, b"A" * 8192 + bytes(3 * PAGE) + b"B" * 100)
    cut = pool.file(root, b"cut", b"C" * 3 * PAGE)
    pool.free(cut.page + 1, 2)
    pool.one(cut, UNMAP, le((0, 4), (1, 8), (1, 8), (10 ** 18, 8), (3 * PAGE, 8)))
    pool.map(cut, 2, pool.data(1, b"D" * PAGE), 1, 3 * PAGE)
    pool.one(cut, SIZE, le((1, 4), (2 * PAGE + 10, 8), (10 ** 18, 8)))
    pool.one(cut, ATTR, le((0o100755, 2), (0, 2), (7, 4), (8, 4), (1, 8), (10 ** 18 + 9, 8), (3, 8)))
    expect(b"/cut", cut, b"C" * PAGE + bytes(PAGE) + b"D" * 10, mode=0o755)
    big = pool.create(root, b"tera", 0o100644)
    pool.map(big, 3, pool.data(2, b"T" * PAGE), 2, 5 * PAGE)  # its second page is all zeros
    pool.map(big, TERA // PAGE - 1, pool.data(1, b"END"), 1, TERA - 1)
    expect(b"/tera", big, [(3 * PAGE, b"T" * PAGE), (TERA - PAGE, b"END")], size=TERA - 1)

    # journalled overwrites: pending, retired, of one transaction, clipped
    pending = pool.file(root, b"pending", b"p" * 5000)
    pool.free(pool.journal(pending, 100, b"RETIRED", 500))
    pool.mem[pending.page * PAGE + 100:pending.page * PAGE + 107] = b"retired"
    pool.journal(pending, 4090, b"JOURNAL ENTRY", 64)
    content = bytearray(b"p" * 5000)
    content[100:107], content[4090:4103] = b"retired", b"JOURNAL ENTRY"
    expect(b"/pending", pending, bytes(content))
    retired = pool.file(root, b"retired", b"r" * 100)
    pool.free(pool.journal(retired, 0, b"never seen", 0))
    pool.one(retired, RETIRE, b"")
    expect(b"/retired", retired, b"r" * 100)
    clipped = pool.file(root, b"clipped", b"c" * 200)
    pool.journal(clipped, 90, b"0123456789abcdefghij", 0)
    pool.one(clipped, SIZE, le((1, 4), (100, 8), (10 ** 18, 8)))
    pool.mem[clipped.page * PAGE + 100:clipped.page * PAGE + 200] = bytes(100)
    pool.one(clipped, SIZE, le((0, 4), (200, 8), (10 ** 18, 8)))
    expect(b"/clipped", clipped, b"c" * 90 + b"0123456789" + bytes(100))

    # a moved log, a full log that rolled over, a name that needs PADs
    moved = pool.file(root, b"moved", b"m" * 10)
    for i in range(4):
        pool.one(moved, ATTR, le((0o100600, 2), (0, 2), (0, 4), (0, 4), (1, 8), (2, 8), (3, 8)))
    moved.new_page(moved=1)
    moved.moved = True
    pool.one(moved, INODE, le((0o100640, 2), (1, 2), (0, 4), (0, 4), (10 ** 18, 8)))
    pool.map(moved, 0, moved.page, 1, 10)
    expect(b"/moved", moved, b"m" * 10, mode=0o640)
    many = pool.create(root, b"many", 0o100644)
    for i in range(150):
        pool.one(many, SIZE, le((1, 4), (i, 8), (10 ** 18, 8)))
    expect(b"/many", many, bytes(149))
    padded = pool.mkdir(root, b"padded", lane=1)
    want[b"/"] = ("d", 0o755, 4, 0, b"")
    for i in range(5):
        name = b"%d " % i + b"long name" * 10
        expect(b"/padded/" + name, pool.create(padded, name, 0o100644))
    expect(b"/padded", padded, links=2)

    # unlinked: one dead inode, one whose file is still open; a file renamed over another
    dead = pool.file(root, b"dead", b"dead")
    tx = Tx(pool)
    pool.remove(tx, root, dead)
    tx.add(dead, DEATH, le((0, 12), (10 ** 18, 8))).commit()
    dead.dead = True
    pool.free(dead.page)
    source, target = pool.file(root, b"source", b"moved over"), pool.file(root, b"target", b"old")
    tx = Tx(pool)
    pool.remove(tx, root, target)
    pool.remove(tx, root, source)
    pool.entry(tx, root, source, b"target", source.mode)
    tx.add(target, DEATH, le((0, 12), (10 ** 18, 8))).commit()
    target.dead = True
    pool.free(target.page)
    expect(b"/target", source, b"moved over")

    if not clean:
        current(pool, root, directory, moved, expect)
    pool.watermark(0, 0, NOW, 3, 4)
    pool.watermark(0, 1, NOW, 2, 3)
    pool.watermark(1, 0, OLD, 1000, 4)  # of another session: does not count
    pool.watermark(1, 1, OLD, 999, 3)
    pool.superblock(pool.checkpoint() if clean else (pool.next_page, NOW - 1))
    return pool, want


def current(pool, root, directory, moved, expect):
    """What the session that did not end well left behind."""
    now = dict(session=NOW)
    # sequences 1 to 3 of lane 0 are settled by the watermark, even with a part gone: like after a collection
    for name in (b"settled 1", b"settled 2"):
        expect(b"/" + name, pool.create(root, name, 0o100644, **now))
    tx = Tx(pool, **now)
    gone = pool.identity(pool.slots[0].pop(0), NOW)
    tx.add(gone, INODE, le((0o100644, 2), (0, 2)))
    tx.add(directory, ATTR, le((0o040700, 2), (0, 2), (1000, 4), (100, 4), (1, 8), (2, 8), (3, 8)))
    tx.commit(lost=[0])
    expect(b"/dir", directory, links=3, mode=0o700)
    # above the watermark, all parts there, of lane 1 without a watermark
    expect(b"/dir/whole", pool.file(directory, b"whole", b"whole", lane=1, **now), b"whole")
    # created and deleted again: the create's other part is in the log of a dead inode
    short = pool.create(root, b"short life", 0o100644, **now)
    tx = Tx(pool, **now)
    pool.remove(tx, root, short)
    tx.add(short, DEATH, le((0, 12), (10 ** 18, 8))).commit()
    short.dead = True
    # a DEL whose ADD was collected
    pool.one(root, DEL, le((OLD, 4), (10 ** 18 + 2, 8), (1 << 40 | 12345, 8), (1, 2)), **now)
    # whole, but the words in a new identity or page header were never stored: there is what was there before
    zero, old = (pool.create(root, name, 0o100644, **now) for name in (b"zero head", b"old head"))
    pool.mem[zero.number * SLOT + 40:zero.number * SLOT + 48] = bytes(8)
    pool.word(old.number * SLOT + 40, moved.next // PAGE | 1 << 50)  # a rewritten log of an earlier life of the slot
    expect(b"/zero head", zero)
    expect(b"/old head", old)
    long = pool.create(root, b"torn header", 0o100644, **now)
    for i in range(6):
        pool.one(long, SIZE, le((1, 4), (i, 8), (10 ** 18, 8)), **now)
    pool.mem[long.link_at:long.link_at + 8] = b"old data"
    expect(b"/torn header", long, bytes(5))
    # aborted at the end of root's log, the inode's record never stored (lane 0); and, with a long name whose
    # second line is torn and third is there, at the end of the directory's log (lane 1)
    pool.create(root, b"aborted", 0o100644, lost=[0], **now)
    pool.create(directory, b"aborted, with a name of three lines" + b"." * 30, 0o100644, lane=1, torn=[2], **now)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--clean", action="store_true")
    args = parser.parse_args()
    with open(args.out, "wb") as file:
        file.write(build(args.clean)[0].mem)


if __name__ == "__main__":
    main()
