//! What the door costs, side by side in one run. Not a test: run it with
//! `cargo test --release --test speed -- --ignored --nocapture`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use std::hint::black_box;
use std::time::Instant;

use common::{PAGE, noise, shm};
use lode_pmem::{
    Counters, Door, FlushStrategy, Line, Mapped, RegionOptions, WindowMode, crc32c, crc32c_pieces,
};

/// A name and what it does in a round.
type Case<'a> = (String, Box<dyn FnMut(u64) + 'a>);

/// Prints the median nanoseconds of each case; rounds of all cases take turns.
fn compare(mut cases: Vec<Case<'_>>) {
    const ROUNDS: usize = 31;
    const CALLS: u64 = 2000;
    let mut times = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for (case, times) in cases.iter_mut().zip(&mut times) {
            let start = Instant::now();
            (0..CALLS).for_each(&mut case.1);
            times.push(start.elapsed().as_nanos() as f64 / CALLS as f64);
        }
    }
    for ((name, _), times) in cases.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("{name:<44} {:8.1} ns", times[ROUNDS / 2]);
    }
}

fn doors() -> Vec<(FlushStrategy, Door<Mapped>)> {
    let directory = shm();
    let all = FlushStrategy::available().into_iter();
    let instructions = all.filter(|one| *one != FlushStrategy::Msync);
    let doors = instructions.enumerate().map(|(i, strategy)| {
        let options = RegionOptions::new().flush(strategy).windows(WindowMode::None);
        let path = directory.path().join(i.to_string());
        let region = Mapped::create(path, 4 << 20, &options, false).unwrap();
        (strategy, Door::new(region))
    });
    doors.collect()
}

#[test]
#[ignore = "measures"]
fn stores() {
    let doors = doors();
    let counters = Counters::new();
    let page = noise(PAGE as usize + 8, 1);
    let page_at = |round: u64| (round * 7 % 1000) * PAGE;
    let line = Line([7; 64]);
    let memory = Mapped::create(
        shm().path().join("plain"),
        4 << 20,
        &RegionOptions::new().windows(WindowMode::None),
        false,
    )
    .unwrap();
    let mut cases: Vec<Case<'_>> = Vec::new();
    cases.push((
        "memcpy of 4 KiB".into(),
        Box::new(|round| {
            let to = memory.as_ptr().cast_mut().wrapping_add(page_at(round) as usize);
            // SAFETY: a page of a region that nothing guards.
            unsafe { black_box(page.as_ptr()).copy_to_nonoverlapping(to, PAGE as usize) };
            black_box(to);
        }),
    ));
    for (strategy, door) in &doors {
        let (page, counters) = (&page, &counters);
        let is_clwb = strategy.to_string().contains("clwb");
        if is_clwb {
            cases.push((
                format!("{strategy}: copy_nt of 4 KiB, aligned + fence"),
                Box::new(move |round| {
                    let page = &page[page.as_ptr().align_offset(8)..][..PAGE as usize];
                    door.window(PAGE, counters).copy_nt(page_at(round), black_box(page));
                    door.fence(counters).unwrap();
                }),
            ));
            cases.push((
                format!("{strategy}: copy_nt of 4 KiB at 8 + fence"),
                Box::new(move |round| {
                    let page = &page[..PAGE as usize];
                    door.window(PAGE, counters).copy_nt(page_at(round) + 8, black_box(page));
                    door.fence(counters).unwrap();
                }),
            ));
            cases.push((
                format!("{strategy}: zero_nt of 4 KiB + fence"),
                Box::new(move |round| {
                    door.window(PAGE, counters).zero_nt(page_at(round), PAGE);
                    door.fence(counters).unwrap();
                }),
            ));
            cases.push((
                format!("{strategy}: line + fence"),
                Box::new(move |round| {
                    let mut line = line;
                    line.0[..8].copy_from_slice(&black_box(round).to_le_bytes());
                    door.window(64, counters).store_line(page_at(round) + 64, &line);
                    door.fence(counters).unwrap();
                }),
            ));
        }
        cases.push((
            format!("{strategy}: word + fence"),
            Box::new(move |round| {
                door.window(64, counters).store_word(page_at(round), round);
                door.fence(counters).unwrap();
            }),
        ));
    }
    compare(cases);
}

#[test]
#[ignore = "measures"]
fn loads() {
    let door = Door::new(Mapped::anonymous(4 << 20, &RegionOptions::new()).unwrap());
    let counters = Counters::new();
    door.window(4 << 20, &counters).copy_nt(0, &noise(4 << 20, 2));
    let at = |round: u64| (round * 7 % 1000) * PAGE;
    let base = door.medium().as_ptr() as usize;
    let mut into = vec![0; 8192];
    let mut cases: Vec<Case<'_>> = Vec::new();
    let door = &door;
    cases.push((
        "a word by a plain load".into(),
        Box::new(move |round| {
            let from = (base + at(round) as usize) as *const u64;
            // SAFETY: a word of the region.
            black_box(unsafe { from.read_volatile() });
        }),
    ));
    cases.push((
        "load_word".into(),
        Box::new(move |round| {
            black_box(door.load_word(at(round)).unwrap());
        }),
    ));
    cases.push((
        "load_line".into(),
        Box::new(move |round| {
            black_box(door.load_line(at(round)).unwrap());
        }),
    ));
    for len in [24, 128, 256, 512, 1024, 4096] {
        for skew in [0, 3] {
            let mut into = into.clone();
            cases.push((
                format!("load of {len} B at {skew}"),
                Box::new(move |round| {
                    door.load(at(round) + skew, black_box(&mut into[..len])).unwrap();
                }),
            ));
        }
    }
    cases.push((
        "memcpy out of 4096 B".into(),
        Box::new(move |round| {
            let from = (base + at(round) as usize) as *const u8;
            // SAFETY: a page of the region into a buffer of two.
            unsafe { from.copy_to_nonoverlapping(into.as_mut_ptr(), 4096) };
            black_box(&mut into);
        }),
    ));
    compare(cases);
}

#[test]
#[ignore = "measures"]
fn checksums() {
    let bytes = noise(1 << 16, 3);
    let mut cases: Vec<Case<'_>> = Vec::new();
    for len in [8, 56, 64, 80, 512, 4096, 1 << 16] {
        let bytes = &bytes;
        cases.push((
            format!("crc32c of {len} B"),
            Box::new(move |round| {
                black_box(crc32c(round as u32, black_box(&bytes[..len])));
            }),
        ));
    }
    compare(cases);
}

#[test]
#[ignore = "measures"]
fn strips() {
    const PAGES: u64 = 16384;
    let region = Mapped::anonymous(PAGES * PAGE, &RegionOptions::new()).unwrap();
    let door = Door::new(region);
    let counters = Counters::new();
    let page = noise(PAGE as usize, 3);
    let data = PAGES * 3 / 4;
    let tables = data * PAGE;
    let any = move |round: u64| round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let (door, page, counters) = (&door, &page, &counters);
    let parity_at = move |at: u64| tables + at / 8;
    let crcs_at = move |at: u64| tables + data * 512 + at / 128;
    let mut cases: Vec<Case<'_>> = Vec::new();
    for piece in [512, 1024, 2048] {
        cases.push((
            format!("checksums of a page in pieces of {piece} B"),
            Box::new(move |_| {
                crc32c_pieces(black_box(page), piece, |crc| {
                    black_box(crc);
                })
            }),
        ));
    }
    for (what, far) in [("near", 64), ("far", data)] {
        cases.push((
            format!("load of 4 KiB, {what}"),
            Box::new(move |round| {
                door.load(any(round) % far * PAGE, black_box(&mut [0; 4096])).unwrap();
            }),
        ));
        cases.push((
            format!("load of 4 KiB with its sums, {what}"),
            Box::new(move |round| {
                let at = any(round) % far * PAGE;
                let mut into = [0; 4096];
                let into = black_box(&mut into);
                black_box(door.load_compared(at, into, 512, at / PAGE * 32, 0).unwrap());
            }),
        ));
        cases.push((
            format!("load of 4 KiB, then its sums, {what}"),
            Box::new(move |round| {
                let at = any(round) % far * PAGE;
                let mut into = [0; 4096];
                let into = black_box(&mut into);
                door.load(at, into).unwrap();
                crc32c_pieces(into, 512, |crc| {
                    black_box(crc);
                });
            }),
        ));
        cases.push((
            format!("copy_nt of 4 KiB + fence, {what}"),
            Box::new(move |round| {
                let at = any(round) % far * PAGE;
                door.window(PAGE, counters).copy_nt(at, black_box(page));
                door.fence(counters).unwrap();
            }),
        ));
        cases.push((
            format!("copy_nt of 4 KiB and 512 B + fence, {what}"),
            Box::new(move |round| {
                let at = any(round) % far * PAGE;
                let mut window = door.window(2 * PAGE, counters);
                window.copy_nt(at, black_box(page));
                window.copy_nt(parity_at(at), black_box(&page[..512]));
                drop(window);
                door.fence(counters).unwrap();
            }),
        ));
        cases.push((
            format!("copy_summed of 4 KiB + fence, {what}"),
            Box::new(move |round| {
                let at = any(round) % far * PAGE;
                let mut window = door.window(2 * PAGE, counters);
                window.copy_summed((at, parity_at(at)), black_box(page), 8, |crc| {
                    black_box(crc);
                });
                drop(window);
                door.fence(counters).unwrap();
            }),
        ));
        for (how, streamed) in [("streamed", true), ("through the cache", false)] {
            for copies in [1, 2] {
                cases.push((
                    format!("the same, {copies} x 32 B {how}, {what}"),
                    Box::new(move |round| {
                        let at = any(round) % far * PAGE;
                        let mut window = door.window(2 * PAGE, counters);
                        let tables = [crcs_at(at), crcs_at(at) + (1 << 20)];
                        for table in &tables[..copies] {
                            if !streamed {
                                door.prefetch(*table);
                            }
                        }
                        let mut crcs = [[0; 4]; 8];
                        let mut places = crcs.iter_mut();
                        window.copy_summed((at, parity_at(at)), black_box(page), 8, |crc| {
                            *places.next().unwrap() = crc.to_le_bytes();
                        });
                        for table in &tables[..copies] {
                            if streamed {
                                window.copy_nt(*table, crcs.as_flattened());
                            } else {
                                window.store(*table, crcs.as_flattened());
                                window.flush(*table, 32);
                            }
                        }
                        drop(window);
                        door.fence(counters).unwrap();
                    }),
                ));
            }
        }
    }
    compare(cases);
}

#[test]
#[ignore = "measures"]
fn windows() {
    let counters = Counters::new();
    let doors: Vec<_> = WindowMode::ALL
        .into_iter()
        .filter_map(|mode| Some((mode, Door::new(common::guarded(mode, 4)?))))
        .collect();
    let counters = &counters;
    let cases = doors.iter().map(|(mode, door)| {
        let open_store_close: Box<dyn FnMut(u64)> =
            Box::new(move |round| door.window(8, counters).store_word_lazily(0, round));
        (format!("window of {mode}, one word"), open_store_close)
    });
    compare(cases.collect());
}
