"""What the reader of pools is made of: checksums, numbers in bytes, ranges of bytes (docs/format.md)."""
import bisect, struct

PAGE, SLOT, LINE, FOREVER = 4096, 512, 64, 1 << 76


class Damage(Exception):
    """What is wrong, and where."""


def need(condition, message, *values):
    if not condition:
        raise Damage(message % values)

EIGHT_BYTES, TABLES = struct.Struct("<II"), [list(range(256))]
for _ in range(8):
    TABLES[0] = [c >> 1 ^ (0x82F63B78 if c & 1 else 0) for c in TABLES[0]]
for _ in range(7):
    TABLES.append([TABLES[0][c & 255] ^ c >> 8 for c in TABLES[-1]])


def crc(seed, data):
    """CRC32C of data, continuing seed; eight bytes a step."""
    t0, t1, t2, t3, t4, t5, t6, t7 = TABLES
    c, whole = seed ^ 0xFFFFFFFF, len(data) & ~7
    for x, y in EIGHT_BYTES.iter_unpack(data[:whole]):
        x ^= c
        c = (t7[x & 255] ^ t6[x >> 8 & 255] ^ t5[x >> 16 & 255] ^ t4[x >> 24]
             ^ t3[y & 255] ^ t2[y >> 8 & 255] ^ t1[y >> 16 & 255] ^ t0[y >> 24])
    for byte in data[whole:]:
        c = t0[(c ^ byte) & 255] ^ c >> 8
    return c ^ 0xFFFFFFFF


def tag_of(nonce):
    return (nonce & 0xFFFFFFFF ^ (nonce >> 32) * 0x9E3779B1 & 0xFFFFFFFF) or 1


def u16(line, at): return struct.unpack_from("<H", line, at)[0]
def u32(line, at): return struct.unpack_from("<I", line, at)[0]
def u64(line, at): return struct.unpack_from("<Q", line, at)[0]
def i64(line, at): return struct.unpack_from("<q", line, at)[0]
def le32(*numbers): return struct.pack("<%dI" % len(numbers), *numbers)
def le64(*numbers): return struct.pack("<%dQ" % len(numbers), *numbers)


class Ranges:
    """Byte ranges of a file, sorted and disjoint, each with the pool offset of its first byte."""

    def __init__(self):
        self.items = []  # (start, length, pool offset)

    def first(self, low):
        at = bisect.bisect_left(self.items, (low,))
        return at - (at > 0 and sum(self.items[at - 1][:2]) > low)

    def cut(self, low, high):
        first, last = self.first(low), bisect.bisect_left(self.items, (high,))
        left = [(start, low - start, at) for start, _, at in self.items[first:last][:1] if start < low]
        right = [(high, start + n - high, at + high - start) for start, n, at in self.items[first:last][-1:] if start + n > high]
        self.items[first:last] = left + right

    def put(self, start, length, at):
        self.cut(start, start + length)
        bisect.insort(self.items, (start, length, at))

    def within(self, low, high):
        for start, length, at in self.items[self.first(low):bisect.bisect_left(self.items, (high,))]:
            begin = max(start, low)
            yield begin, min(start + length, high) - begin, at + begin - start


def escape(path):
    return "".join("\\\\" if b == 92 else chr(b) if 32 <= b < 127 else "\\x%02x" % b for b in path)
