//! Each flush strategy that the CPU has leaves the same bytes; others are refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use common::{PAGE, noise, shm};
use lode_pmem::{Counters, Door, FlushStrategy, Line, Mapped, RegionError, RegionOptions, crc32c};

fn region(strategy: FlushStrategy) -> Door<Mapped> {
    let directory = shm();
    let options = RegionOptions::new().flush(strategy);
    let region = Mapped::create(directory.path().join("pool"), PAGE, &options, false).unwrap();
    assert_eq!(region.strategy(), strategy);
    Door::new(region)
}

#[test]
fn streamed_and_stored_at_every_alignment_and_length() {
    let counters = Counters::new();
    for strategy in FlushStrategy::available() {
        let door = region(strategy);
        let mut expected = vec![0; 512];
        for at in 0..64 {
            for len in 0..=200 {
                let new = noise(len, (at * 1000 + len) as u64);
                let mut window = door.window(3 * len as u64, &counters);
                window.copy_nt(at as u64, &new);
                window.zero_nt(at as u64 + 64, len as u64);
                window.store(at as u64 + 128, &new);
                window.flush(at as u64 + 128, len as u64);
                drop(window);
                door.fence(&counters).unwrap();
                expected[at..at + len].copy_from_slice(&new);
                expected[at + 64..at + 64 + len].fill(0);
                expected[at + 128..at + 128 + len].copy_from_slice(&new);
                let mut found = vec![0; 512];
                door.load(0, &mut found).unwrap();
                assert!(found == expected, "{strategy}: {len} bytes at {at}");
            }
        }
    }
}

/// Each piece's CRC, and the sum of all, computed plainly.
fn plainly(bytes: &[u8], piece: usize) -> (Vec<u32>, Vec<u8>) {
    let mut parity = vec![0; piece];
    let pieces = bytes.chunks_exact(piece);
    pieces.clone().for_each(|one| parity.iter_mut().zip(one).for_each(|(sum, byte)| *sum ^= byte));
    (pieces.map(|one| one.iter().fold(0, |crc, byte| crc32c(crc, &[*byte]))).collect(), parity)
}

#[test]
fn what_is_stored_with_its_sums_is_what_is_stored_without() {
    let counters = Counters::new();
    for strategy in FlushStrategy::available() {
        let door = Door::new(
            Mapped::create(
                shm().path().join("pool"),
                8 * PAGE,
                &RegionOptions::new().flush(strategy),
                false,
            )
            .unwrap(),
        );
        for (round, piece) in [64, 128, 512, 1024, 2048, 4096].into_iter().enumerate() {
            for len in [piece, 2 * piece, 3 * piece, 8 * piece, 9 * piece, 8192]
                .into_iter()
                .filter(|len| *len <= 8192)
            {
                for skew in [0, 1, 8, 63] {
                    let (at, parity_at) = (64 * skew as u64, 12288 + 64 * skew as u64);
                    let new = noise(len + skew, (round * 10_000 + len + skew) as u64);
                    let new = &new[skew..];
                    door.window(6 * PAGE, &counters).zero_nt(0, 6 * PAGE);
                    let mut crcs = Vec::new();
                    let mut window = door.window((len + piece) as u64, &counters);
                    let to = (at, parity_at);
                    window.copy_summed(to, new, piece / 64, |crc| crcs.push(crc));
                    drop(window);
                    door.fence(&counters).unwrap();
                    let what = format!("{strategy}: {len} bytes in pieces of {piece} at {at}");
                    let (wanted, parity) = plainly(new, piece);
                    assert_eq!(crcs, wanted, "{what}");
                    let mut expected = vec![0; 6 * PAGE as usize];
                    expected[at as usize..][..len].copy_from_slice(new);
                    expected[parity_at as usize..][..piece].copy_from_slice(&parity);
                    let mut found = vec![0; expected.len()];
                    door.load(0, &mut found).unwrap();
                    assert!(found == expected, "{what}");
                }
            }
        }
    }
}

#[test]
fn what_is_loaded_with_its_sums_is_what_is_loaded_without() {
    const CRCS_AT: u64 = 8 * PAGE;
    let region = Mapped::anonymous(16 * PAGE, &RegionOptions::new()).unwrap();
    let (door, counters) = (Door::new(region), Counters::new());
    let content = noise(8 * PAGE as usize, 9);
    door.window(8 * PAGE, &counters).copy_nt(0, &content);
    door.fence(&counters).unwrap();
    let lengths = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20];
    for piece in [1, 100, 512, 1024, 2048, 4096] {
        for len in lengths.map(|count| (count * piece).min(6 * 4096 / piece * piece)) {
            for at in [0, 1, 64, 512, 4096, 4032] {
                for skew in [0, 1, 8] {
                    // Guard bytes around show a load that writes too much.
                    let mut into = vec![0xee; len + 2 + skew];
                    let bytes = &mut into[1 + skew..=len + skew];
                    let crcs_at = CRCS_AT + (len + at + 4 * skew) as u64 % 97;
                    let crcs = plainly(&content[at..at + len], piece).0;
                    let mut crcs: Vec<_> = crcs.into_iter().map(u32::to_le_bytes).collect();
                    let mut is_so = |crcs: &[[u8; 4]]| {
                        // (What is kept beside them is of others.)
                        let kept = crcs.as_flattened();
                        let beside = kept.len() as u64 + 16;
                        let mut window = door.window(2 * beside, &counters);
                        window.store(crcs_at - 8, &vec![0xa5; beside as usize]);
                        window.store(crcs_at, kept);
                        drop(window);
                        let ahead = [0, 1, 513, 4096, 9000, u64::MAX][(len + skew) % 6];
                        door.load_compared(at as u64, bytes, piece, crcs_at, ahead).unwrap()
                    };
                    let is_like_them = is_so(&crcs);
                    // Each bit of each of them counts.
                    for crc in 0..crcs.len().min(17) {
                        let bit = (crc * 7 + len + at) % 32;
                        crcs[crc][bit / 8] ^= 1 << (bit % 8);
                        assert!(!is_so(&crcs), "bit {bit} of {crc}, {len} in {piece} at {at}");
                        crcs[crc][bit / 8] ^= 1 << (bit % 8);
                    }
                    let fewer = crcs.split_last().map(|(_, fewer)| !is_so(fewer));
                    let what = format!("{len} bytes in pieces of {piece} at {at}");
                    assert!(into[1 + skew..=len + skew] == content[at..at + len], "{what}");
                    assert_eq!((into[skew], into[len + 1 + skew]), (0xee, 0xee), "{what}");
                    assert!(is_like_them && fewer.unwrap_or(true), "{what}");
                }
            }
        }
    }
    let end = 16 * PAGE;
    assert!(door.load_compared(end - 511, &mut [0; 512], 512, 0, 0).is_err());
    assert!(door.load_compared(u64::MAX - 63, &mut [0; 512], 512, 0, 0).is_err());
    for crcs_at in [end - 31, end, u64::MAX - 31, u64::MAX] {
        assert_eq!(door.load_compared(0, &mut [0; 4096], 512, crcs_at, 0), Ok(false));
    }
}

#[test]
fn lines_and_words() {
    let counters = Counters::new();
    for strategy in FlushStrategy::available() {
        let door = region(strategy);
        let line = Line(noise(64, 5).try_into().unwrap());
        let mut window = door.window(1000, &counters);
        window.store_line(64, &line);
        window.store_word(PAGE - 8, u64::MAX - 1);
        window.store_word_lazily(0, 77);
        drop(window);
        door.fence(&counters).unwrap();
        assert_eq!(door.load_line(64), Ok(line), "{strategy}");
        assert_eq!(door.load_word(PAGE - 8), Ok(u64::MAX - 1));
        assert_eq!(door.load_word(0), Ok(77));
        assert_eq!(door.load_line(128), Ok(Line::ZERO));
    }
}

#[test]
fn loads_of_every_alignment_and_length() {
    let door = Door::new(Mapped::anonymous(4 * PAGE, &RegionOptions::new()).unwrap());
    let counters = Counters::new();
    let content = noise(4 * PAGE as usize, 9);
    door.window(4 * PAGE, &counters).copy_nt(0, &content);
    door.fence(&counters).unwrap();
    for at in 0..80 {
        for len in (0..300).chain(500..530).chain([1000, 4095, 4096, 8192]) {
            // Guard bytes around show a load that writes too much.
            let mut into = vec![0xee; len + 2];
            door.load(at as u64, &mut into[1..=len]).unwrap();
            assert!(into[1..=len] == content[at..at + len], "{len} bytes at {at}");
            assert_eq!((into[0], into[len + 1]), (0xee, 0xee));
        }
    }
    assert!(door.load(4 * PAGE - 7, &mut [0; 8]).is_err());
    assert!(door.load(u64::MAX, &mut [0; 8]).is_err());
    assert!(door.load_word(4).is_err());
    assert!(door.load_word(4 * PAGE).is_err());
}

#[test]
fn an_instruction_that_the_cpu_lacks_is_refused_by_name() {
    let all = ["movdir64b+clwb", "avx512+clwb", "sse2+clflushopt"];
    for name in all {
        let strategy: FlushStrategy = name.parse().unwrap();
        let outcome = Mapped::anonymous(PAGE, &RegionOptions::new().flush(strategy));
        if FlushStrategy::available().contains(&strategy) {
            assert_eq!(outcome.unwrap().strategy(), strategy);
        } else {
            let error = outcome.unwrap_err();
            assert!(matches!(error, RegionError::NoSuchInstruction { .. }));
            let text = error.to_string();
            assert!(text.contains(name) && text.contains("this CPU has no"), "{text}");
        }
    }
}

#[test]
fn memory_has_no_msync() {
    let options = RegionOptions::new().flush(FlushStrategy::Msync);
    let error = Mapped::anonymous(PAGE, &options).unwrap_err();
    assert!(matches!(error, RegionError::NoMsync { .. }), "{error}");
}
