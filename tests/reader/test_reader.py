#!/usr/bin/env python3
"""Tests of the independent reader on the pools of make_sample.py:  python3 tests/reader/test_reader.py"""
import hashlib, json, os, random, subprocess, sys, tempfile, unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import list_tree, lode_reader, make_sample  # noqa: E402

PAGE, LIMIT = 4096, 1 << 30


def sparse_hash(extents):
    """Of [(offset, bytes)], each within one page."""
    digest = hashlib.sha256()
    for offset, data in extents:
        digest.update((offset // PAGE).to_bytes(8, "little") + data.ljust(PAGE, b"\0"))
    return "sparse:" + digest.hexdigest()


def line_of(path, kind, mode, links, size, content):
    name = "".join("\\\\" if b == 92 else chr(b) if 32 <= b < 127 else "\\x%02x" % b for b in path)
    found = sparse_hash(content) if isinstance(content, list) else hashlib.sha256(content).hexdigest()
    return "%s %04o %d %d %s %s" % (kind, mode, links, size if kind in "fl" else 0, found, name)


class Sample(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.folder.name, "pool")
        cls.samples = {clean: make_sample.build(clean) for clean in (True, False)}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def write(self, mem):
        with open(self.path, "wb") as file:
            file.write(mem)

    def run_reader(self, *options):
        command = [sys.executable, os.path.join(HERE, "lode_reader.py"), *options, self.path]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)

    def open(self, mem):
        self.write(mem)
        pool = lode_reader.Pool(self.path)
        self.seen = list(lode_reader.listing(pool, LIMIT))
        return pool

    def damaged(self, mem):
        """What the reader says of a damaged pool, or None; anything but Damage is an error of the reader."""
        try:
            self.open(mem)
        except lode_reader.Damage as damage:
            return str(damage)
        return None


class Listing(Sample):
    def test_lists_what_was_written(self):
        for clean, (pool, want) in self.samples.items():
            self.write(pool.mem)
            got = self.run_reader()
            self.assertEqual((got.returncode, got.stderr), (0, ""))
            self.assertEqual(got.stdout.splitlines(), [line_of(path, *want[path]) for path in sorted(want)])

    def test_json_says_the_same(self):
        pool, want = self.samples[False]
        self.write(pool.mem)
        got = json.loads(self.run_reader("--json").stdout)
        self.assertEqual((got["schema"], got["clean"], got["session"]), (1, False, make_sample.NOW))
        lines = ["{type} {mode} {links} {size} {hash} {path}".format(**one) for one in got["files"]]
        self.assertEqual(lines, [line_of(path, *want[path]) for path in sorted(want)])
        self.assertEqual([f["rdev"] for f in got["files"] if f["path"] == "/dir/chr"], [[1, 3]])
        cut = [f for f in got["files"] if f["path"] == "/cut"][0]
        self.assertEqual([cut[key] for key in ("uid", "gid", "mtime", "ctime", "atime")], [7, 8, 1, 10 ** 18 + 9, 3])

    def test_limit(self):
        pool, want = self.samples[True]
        self.write(pool.mem)
        by_path = {l.split()[5]: l.split()[4] for l in self.run_reader("--limit", "4096").stdout.splitlines() if l.count(" ") == 5}
        content = want[b"/pending"][4]
        self.assertEqual(by_path["/pending"], sparse_hash([(0, content[:PAGE]), (PAGE, content[PAGE:])]))
        self.assertEqual(by_path["/many"], hashlib.sha256(bytes(149)).hexdigest())

    def test_crc_and_tag(self):
        self.assertEqual(lode_reader.crc(0, b"123456789"), 0xE3069283)
        data = random.Random(1).randbytes(1000)
        for cut in range(0, 40):
            self.assertEqual(lode_reader.crc(lode_reader.crc(0, data[:cut]), data[cut:]), make_sample.crc(0, data))
        for nonce in (0, 1, 7 << 32 | 5, (1 << 64) - 1, 1 << 32 | 0x9E3779B1):
            self.assertEqual(lode_reader.tag_of(nonce), make_sample.tag(nonce))
        self.assertEqual(lode_reader.tag_of(1 << 32 | 0x9E3779B1), 1)

    def test_ranges_against_bytes(self):
        chance = random.Random(2)
        for _ in range(200):
            ranges, model = lode_reader.Ranges(), {}
            for _ in range(30):
                low, length = chance.randrange(60), chance.randrange(1, 20)
                if chance.random() < 0.6:
                    at = chance.randrange(1000)
                    ranges.put(low, length, at)
                    model.update({low + i: at + i for i in range(length)})
                else:
                    ranges.cut(low, low + length)
                    model = {k: v for k, v in model.items() if not low <= k < low + length}
                a, b = sorted((chance.randrange(80), chance.randrange(80)))
                got = {s + i: p + i for s, n, p in ranges.within(a, b) for i in range(n)}
                self.assertEqual(got, {k: v for k, v in model.items() if a <= k < b})

    def test_tree_lister_agrees(self):
        top = os.path.join(self.folder.name, "top")
        os.mkdir(top)
        with open(os.path.join(top, "sparse"), "wb") as file:
            file.write(b"a" * 100)
            file.seek(LIMIT + 5 * PAGE)
            file.write(b"end")
        os.symlink("sparse", os.path.join(top, "link\n"))
        got = {line.split(" ", 5)[5]: line.split(" ", 5) for line in list_tree.lines(top.encode(), LIMIT)}
        self.assertEqual(sorted(got), ["/", "/link\\x0a", "/sparse"])
        self.assertEqual(got["/sparse"][4], sparse_hash([(0, b"a" * 100), (LIMIT + 5 * PAGE, b"end")]))
        self.assertEqual(got["/link\\x0a"][3:5], ["6", hashlib.sha256(b"sparse").hexdigest()])


class DamageFound(Sample):
    def flips(self, clean):
        """(mark, what the reader says) for two random bits of everything that is sealed and matters."""
        chance, (pool, _) = random.Random(3), self.samples[clean]
        for mark in pool.marks:
            at, size, what, inode = mark
            if inode and (what != "death" if inode.dead else inode.moved and what == "record" and at < (inode.number + 1) * 512):
                continue  # means nothing any more
            for _ in range(2):
                mem = bytearray(pool.mem)
                mem[at + chance.randrange(size)] ^= 1 << chance.randrange(8)
                yield mark, self.damaged(mem)

    def test_clean_pool_every_flip_is_found(self):
        count = 0
        for (at, _, what, _), message in self.flips(True):
            count += 1
            if not what.startswith("watermark"):  # the other copy counts
                self.assertIsNotNone(message, "%s at %#x" % (what, at))
        self.assertGreater(count, 500)

    def test_killed_pool_every_flip_before_the_end_of_a_log_is_found(self):
        pool, _ = self.samples[False]
        whole, missed, count = self.listed(pool.mem), [], 0
        for (at, _, what, inode), message in self.flips(False):
            count += 1
            last = what == "record" and inode.last == at  # looks like a record that was never written
            if message is None and not last and self.seen != whole:
                missed.append("%s at %#x" % (what, at))
        self.assertEqual(missed, [])
        self.assertGreater(count, 500)

    def listed(self, mem):
        self.open(mem)
        return self.seen

    def test_whole_line_gone(self):
        for clean in (True, False):
            pool, _ = self.samples[clean]
            big = max((i for i in pool.inodes.values()), key=lambda i: sum(m[3] is i for m in pool.marks))
            records = [m[0] for m in pool.marks if m[3] is big and m[2] == "record"]
            for at in records[:None if clean else -2]:
                mem = bytearray(pool.mem)
                mem[at:at + 64] = bytes(64)
                self.assertIn("inode", self.damaged(mem) or "", hex(at))

    def test_link_that_is_needed_and_not_there(self):
        for clean, (pool, _) in self.samples.items():
            links = [at for at, _, what, inode in pool.marks if what == "link" and not (inode and inode.dead)]
            self.assertGreater(len(links), 5)
            for at in links:
                mem = bytearray(pool.mem)
                mem[at:at + 8] = bytes(8)
                self.assertIsNotNone(self.damaged(mem), hex(at))

    def test_killed_pool_seals_and_nonces(self):
        """Every byte of the seal before the last record, and of the page headers of a long log."""
        pool, _ = self.samples[False]
        many = max(pool.inodes.values(), key=lambda i: sum(m[3] is i for m in pool.marks))
        headers = [m[0] for m in pool.marks if m[3] is many and m[2] == "log page header"]
        self.assertEqual(len(headers), 3)
        for at in [many.last - 8 + i for i in range(8)] + [h + i for h in headers for i in (*range(40), *range(56, 64))]:
            mem = bytearray(pool.mem)
            mem[at] ^= 0x55
            self.assertIn("inode %d: a damaged line" % many.number, self.damaged(mem) or "", hex(at))

    def test_torn_watermark_is_no_damage(self):
        pool, want = self.samples[False]
        mem = bytearray(pool.mem)
        mem[PAGE + 256 + 64:PAGE + 256 + 128] = b"half a watermark".ljust(64, b"\0")
        self.assertEqual(len(self.open(mem).paths), len(want))
        mem[PAGE + 256] ^= 1
        self.assertIn("watermark", self.damaged(mem))

    def test_superblock(self):
        pool, _ = self.samples[True]
        for at in range(0, 512, 7):
            for base in (0, len(pool.mem) - PAGE):
                mem = bytearray(pool.mem)
                mem[base + at] ^= 16
                self.assertEqual(len(self.open(mem).notes), 1)
            mem[at] ^= 16
            self.assertIn("superblock", self.damaged(mem))

    def test_not_a_pool(self):
        pool, _ = self.samples[True]
        for mem, word in ((b"", "not a Lode pool"), (bytes(1 << 20), "not a Lode pool"), (pool.mem[:-PAGE], "cut off"),
                          (pool.mem[:-1], "cut off")):
            self.write(mem)
            got = self.run_reader()
            self.assertEqual((got.returncode, got.stdout), (1, ""))
            self.assertIn(word, got.stderr)

    def test_wild_damage_never_confuses_the_reader(self):
        """Random bytes anywhere: read, or Damage; never another exception."""
        chance = random.Random(4)
        for _ in range(150):
            pool, _ = self.samples[chance.random() < 0.5]
            mem = bytearray(pool.mem)
            for _ in range(chance.choice((1, 10, 100))):
                at = chance.choice(pool.marks)
                mem[at[0] + chance.randrange(at[1])] = chance.choice((0, 255, chance.randrange(256)))
            self.damaged(mem)

    def test_sealed_again(self):
        """Records changed before they were sealed, so that what lies behind the seals is reached."""
        real, chance = make_sample.Tx.commit, random.Random(5)
        for _ in range(150):
            victim = chance.randrange(120)
            state = [0]

            def commit(tx, lost=(), torn=()):
                state[0] += 1
                if state[0] == victim:
                    index = chance.choice([i for i, line in enumerate(tx.lines) if line[1] is not None])
                    inode, kind, aux, body = tx.lines[index]
                    body = bytearray(body or bytes(4))
                    body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
                    change = chance.randrange(4)
                    kind = chance.randrange(1, 14) if change == 0 and kind != make_sample.DEATH else kind
                    tx.lines[index] = inode, kind, chance.randrange(256) if change == 1 else aux, bytes(body)
                return real(tx, lost, torn)

            make_sample.Tx.commit = commit
            try:
                mem = make_sample.build(chance.random() < 0.5)[0].mem
            finally:
                make_sample.Tx.commit = real
            self.damaged(mem)


if __name__ == "__main__":
    unittest.main()
