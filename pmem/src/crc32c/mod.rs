//! CRC32C (Castagnoli), by the CPU's instruction where it has one.
//!
//! What this file guarantees: the same value whichever way it is computed. No
//! vector register is used where there is no operating system, so that it works in a kernel.

mod table;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
pub(crate) mod wide;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

/// The CRC32C of `bytes` continued from `seed` (0 to start; the usual
/// reflected polynomial 0x1EDC6F41 with inverted start and end, so that
/// `crc32c(crc32c(0, a), b)` is the CRC of `a` followed by `b`).
#[inline]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if x86::available() {
        // SAFETY: the CPU has the instruction.
        return !unsafe { x86::update(!seed, bytes) };
    }
    !table::update(!seed, bytes)
}

/// The CRC32C of each piece of `piece` bytes of `bytes`, from 0, to `each` in turn; what is left behind the last whole
/// piece has none. Several at once take less time than one by one.
///
/// # Panics
/// Where `piece` is 0.
#[inline]
pub fn crc32c_pieces(bytes: &[u8], piece: usize, mut each: impl FnMut(u32)) {
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    if wide::takes(piece) {
        // SAFETY: it takes such pieces here.
        return unsafe { wide::pieces(bytes, piece, each) };
    }
    let mut fours = bytes.chunks_exact(4 * piece);
    for four in fours.by_ref() {
        let mut pieces = four.chunks_exact(piece);
        crc32c_four(core::array::from_fn(|_| pieces.next().unwrap_or_default()))
            .into_iter()
            .for_each(&mut each);
    }
    fours.remainder().chunks_exact(piece).for_each(|piece| each(crc32c(0, piece)));
}

/// Whether the CRC32C of each piece of `piece` bytes of `bytes`, from 0, is the one of `kept` (little-endian), in turn.
pub(crate) fn are_crcs(bytes: &[u8], piece: usize, kept: &[[u8; 4]]) -> bool {
    let mut are_same = true;
    let mut kept = kept.iter();
    crc32c_pieces(bytes, piece, |crc| are_same &= kept.next() == Some(&crc.to_le_bytes()));
    are_same
}

/// The CRC32C of each of four pieces of equal length, from 0: at once, which takes the time of one or two.
#[inline]
fn crc32c_four(pieces: [&[u8]; 4]) -> [u32; 4] {
    #[cfg(target_arch = "x86_64")]
    if x86::available() {
        // SAFETY: the CPU has the instruction.
        return unsafe { x86::four(pieces) };
    }
    pieces.map(|piece| crc32c(0, piece))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::{crc32c, crc32c_four, crc32c_pieces, table};

    fn by_table(seed: u32, bytes: &[u8]) -> u32 {
        !table::update(!seed, bytes)
    }

    #[test]
    fn check_vectors() {
        let ascending: [u8; 32] = core::array::from_fn(|i| i as u8);
        let descending: [u8; 32] = core::array::from_fn(|i| 31 - i as u8);
        let vectors: [(&[u8], u32); 6] = [
            (b"", 0),
            (b"123456789", 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
            (&descending, 0x113f_db5c),
        ];
        for (bytes, crc) in vectors {
            assert_eq!(crc32c(0, bytes), crc);
            assert_eq!(by_table(0, bytes), crc);
        }
    }

    #[test]
    fn instruction_and_table_agree_at_every_length_and_alignment() {
        let bytes: [u8; 6000] = core::array::from_fn(|i| (i * i / 7 + i) as u8);
        for start in 0..9 {
            for len in (0..1600).chain([2047, 4096, 5991]) {
                let part = &bytes[start..start + len];
                assert_eq!(crc32c(7, part), by_table(7, part), "{start} {len}");
            }
        }
    }

    #[test]
    fn four_at_once_are_those_one_by_one() {
        let bytes: [u8; 9000] = core::array::from_fn(|i| (i * i / 5 + i) as u8);
        for len in [0, 1, 7, 8, 63, 512, 1024, 2048, 2055] {
            let pieces = core::array::from_fn(|i| &bytes[i * (len + 3)..][..len]);
            assert_eq!(crc32c_four(pieces), pieces.map(|piece| by_table(0, piece)), "{len}");
        }
    }

    #[test]
    fn those_of_pieces_are_those_one_by_one() {
        let bytes: [u8; 8300] = core::array::from_fn(|i| (i * i / 3 + i * 7) as u8);
        for piece in [1, 100, 256, 512, 768, 1024, 2048, 4096, 4100] {
            for start in [0, 1, 63] {
                let mut expected =
                    bytes[start..].chunks_exact(piece).map(|piece| by_table(0, piece));
                crc32c_pieces(&bytes[start..], piece, |crc| {
                    assert_eq!(Some(crc), expected.next(), "{piece} {start}");
                });
                assert_eq!(expected.next(), None, "{piece}");
            }
        }
        for byte in [0, 0xff] {
            crc32c_pieces(&[byte; 1024], 512, |crc| assert_eq!(crc, by_table(0, &[byte; 512])));
        }
    }

    #[test]
    fn continues_at_every_split() {
        let bytes: [u8; 700] = core::array::from_fn(|i| (i * 31) as u8);
        let whole = crc32c(0, &bytes);
        for split in 0..bytes.len() {
            let (a, b) = bytes.split_at(split);
            assert_eq!(crc32c(crc32c(0, a), b), whole);
        }
    }
}
