//! CRC32C a byte at a time, for CPUs without the instruction.
// Tables of 256 entries, by bytes.
#![allow(clippy::indexing_slicing)]

/// Takes `bytes` into a running (inverted) CRC.
pub(super) fn update(mut crc: u32, bytes: &[u8]) -> u32 {
    for &byte in bytes {
        crc = step(crc, byte);
    }
    crc
}

/// Takes one byte into a running (inverted) CRC.
pub(super) const fn step(crc: u32, byte: u8) -> u32 {
    TABLE[((crc ^ byte as u32) & 0xff) as usize] ^ (crc >> 8)
}

const POLYNOMIAL_REFLECTED: u32 = 0x82F6_3B78;

static TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            let low = crc & 1;
            crc >>= 1;
            if low == 1 {
                crc ^= POLYNOMIAL_REFLECTED;
            }
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};
