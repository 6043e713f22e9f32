//! CRC32C (Castagnoli), by the CPU's instruction where it has one.

/// The CRC32C of `bytes` continued from `seed` (0 to start; the usual
/// reflected polynomial 0x1EDC6F41 with inverted start and end, so that
/// `crc32c(crc32c(0, a), b)` is the CRC of `a` followed by `b`).
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    let mut crc = !seed;
    for &byte in bytes {
        crc = TABLE[((crc ^ u32::from(byte)) & 0xff) as usize] ^ (crc >> 8);
    }
    !crc
}

const TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};
