//! Random damage to images: of raw bytes, and of structure with the seals made right again.

use crate::format::{
    LINE, PAGE, Run, SLOT, Survey, page_of, seal_superblock, set_half, set_word, tag_of, word,
};
use crate::rng::Rng;

/// Damages bytes without a care; says what was done.
pub fn damage_bytes(image: &mut Vec<u8>, rng: &mut Rng) -> String {
    let len = image.len();
    let at = |rng: &mut Rng, image: &[u8], align: usize| -> usize {
        // Mostly where something is.
        for _ in 0..20 {
            let at = rng.below((len / align) as u64) as usize * align;
            if image[at..(at + 64).min(len)].iter().any(|&byte| byte != 0) {
                return at;
            }
        }
        rng.below((len / align) as u64) as usize * align
    };
    match rng.below(9) {
        0 => {
            let bits = 1 + rng.below(64);
            for _ in 0..bits {
                let place = at(rng, image, 1);
                image[place] ^= 1 << rng.below(8);
            }
            format!("{bits} bits flipped")
        }
        1 | 2 => {
            let place = at(rng, image, LINE);
            let byte = rng.below(64) as usize;
            image[place + byte] ^= 1 << rng.below(8);
            format!("a bit of byte {byte} of the line at {place:#x} flipped")
        }
        3 => {
            let place = at(rng, image, LINE);
            image[place..place + LINE].fill(rng.pick(&[0, 0xFF, 0x55]));
            format!("line at {place:#x} filled")
        }
        4 => {
            let place = at(rng, image, PAGE);
            image[place..place + PAGE].fill(rng.pick(&[0, 0xFF]));
            format!("page at {place:#x} filled")
        }
        5 => {
            let place = at(rng, image, PAGE);
            let bytes = (0..PAGE).map(|_| rng.bits() as u8).collect::<Vec<_>>();
            image[place..place + PAGE].copy_from_slice(&bytes);
            format!("page at {place:#x} random")
        }
        6 => copied(image, rng, PAGE),
        7 => {
            let unit = rng.pick(&[LINE, SLOT]);
            copied(image, rng, unit)
        }
        _ => {
            let keep = rng.below(len as u64) as usize;
            image.truncate(keep);
            format!("cut to {keep} bytes")
        }
    }
}

fn copied(image: &mut [u8], rng: &mut Rng, unit: usize) -> String {
    let units = (image.len() / unit) as u64;
    let (from, to) = (rng.below(units) as usize * unit, rng.below(units) as usize * unit);
    image.copy_within(from..from + unit, to);
    format!("{unit} bytes at {from:#x} copied to {to:#x}")
}

/// Changes a structure to something that makes no sense and seals it again.
pub fn damage_structure(image: &mut [u8], survey: &Survey, rng: &mut Rng) -> String {
    match rng.below(20) {
        0..9 => record(image, survey, rng),
        9..11 => anchor(image, survey, rng),
        11..14 => link(image, survey, rng),
        14..16 => superblock(image, survey, rng),
        16 => watermark(image, survey, rng),
        17 => death(image, survey, rng),
        _ if survey.segments.is_empty() => record(image, survey, rng),
        _ => checkpoint(image, survey, rng),
    }
}

/// A number that is likely to hurt.
fn bad_number(survey: &Survey, rng: &mut Rng) -> u64 {
    let pages = survey.superblock.pages;
    let log = &survey.logs[rng.below(survey.logs.len() as u64) as usize];
    match rng.below(16) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => u64::MAX >> 1,
        4 => 1 << rng.below(64),
        5 => pages,
        6 => pages - 1,
        7 => pages * 4096,
        8 => log.ino,
        9 => log.ino | (rng.below(16) << 56),
        10 => (log.ino * SLOT as u64) / 4096,
        11 => log.runs[log.runs.len() - 1].anchor as u64 / 4096,
        12 => log.runs[log.runs.len() - 1].anchor as u64,
        13 => rng.below(pages),
        14 => rng.below(1 << 20),
        _ => rng.bits(),
    }
}

fn some_run<'s>(survey: &'s Survey, rng: &mut Rng) -> &'s Run {
    loop {
        let log = &survey.logs[rng.below(survey.logs.len() as u64) as usize];
        let run = &log.runs[rng.below(log.runs.len() as u64) as usize];
        if run.valid > 0 {
            return run;
        }
    }
}

fn record(image: &mut [u8], survey: &Survey, rng: &mut Rng) -> String {
    let run = some_run(survey, rng);
    let line = rng.below(run.valid as u64) as usize;
    let at = run.at(line);
    let number = bad_number(survey, rng);
    let kind = image[at];
    let what = match rng.below(13) {
        0 => {
            image[at] = rng.below(16) as u8;
            "kind".to_owned()
        }
        1 => {
            image[at + 1] = number as u8;
            "aux".to_owned()
        }
        2 => {
            image[at + 2 + rng.below(4) as usize] = rng.below(5) as u8;
            "part or parts".to_owned()
        }
        3 => {
            image[at + 6] = number as u8;
            "lane".to_owned()
        }
        4 => {
            let session = word(image, at + 8) >> 32;
            let session = rng.pick(&[0, session + 1, session.wrapping_sub(1), 0xFFFF_FFFF]);
            set_half(image, at + 12, session as u32);
            "session".to_owned()
        }
        5 => {
            set_half(image, at + 8, number as u32);
            "sequence".to_owned()
        }
        6 => {
            // Another record of the same log, a second time.
            let from = run.at(rng.below(run.valid as u64) as usize);
            image.copy_within(from..from + 56, at);
            "replaced by another record".to_owned()
        }
        _ => {
            let field = rng.pick(&[16usize, 20, 24, 24, 32, 32, 40, 48, 48]);
            if field == 16 || field == 20 {
                set_half(image, at + field, number as u32);
            } else if rng.once_in(3) {
                let near = word(image, at + field).wrapping_add(rng.below(9)).wrapping_sub(4);
                set_word(image, at + field, near);
            } else {
                set_word(image, at + field, number);
            }
            format!("field at {field}")
        }
    };
    run.seal(image, line);
    format!("record of kind {kind} at {at:#x}: {what}, number {number:#x}, sealed")
}

fn anchor(image: &mut [u8], survey: &Survey, rng: &mut Rng) -> String {
    let mut anchors: Vec<(usize, usize)> = survey.pieces.iter().map(|&at| (at, 16)).collect();
    for log in &survey.logs {
        anchors
            .extend(log.runs.iter().map(|run| (run.anchor, if run.room == 6 { 16 } else { 24 })));
    }
    let (at, nonce_at) = rng.pick(&anchors);
    let field = rng.pick(&[0usize, 4, 8, 16, 24, 32]);
    let number = bad_number(survey, rng);
    if field < 8 {
        set_half(image, at + field, number as u32);
    } else {
        set_word(image, at + field, number);
    }
    let nonce = word(image, at + nonce_at);
    survey.superblock.seal_anchor(image, at, nonce);
    // The records behind it chain on: with the old seeds, or with those of the new numbers.
    for run in survey.logs.iter().flat_map(|log| &log.runs).filter(|run| run.anchor == at) {
        let tag = if rng.once_in(2) { run.tag } else { tag_of(nonce) };
        Run { tag, ..run.clone() }.seal(image, 0);
    }
    format!("anchor at {at:#x}: field at {field} = {number:#x}, sealed")
}

fn link(image: &mut [u8], survey: &Survey, rng: &mut Rng) -> String {
    let mut places: Vec<usize> = survey.pieces.iter().map(|at| at + 40).collect();
    let lanes = survey.superblock.lanes;
    places.extend((0..lanes).map(|lane| survey.superblock.lane_table + lane * 256 + 128));
    let mut targets: Vec<u64> = survey.pieces.iter().map(|at| (at / PAGE) as u64).collect();
    for log in &survey.logs {
        places.push(log.ino as usize * SLOT + 40);
        for run in &log.runs {
            places.push(run.anchor + 40);
            targets.push((run.anchor / PAGE) as u64);
        }
    }
    let at = rng.pick(&places);
    let page = if rng.once_in(4) { bad_number(survey, rng) } else { rng.pick(&targets) };
    // The tag that the target has, where it has one.
    let target = (page as usize).saturating_mul(PAGE);
    let tag = match image.get(target..target.saturating_add(LINE)) {
        Some(_) => crate::format::half(image, target + 60),
        None => 1,
    };
    let before = page_of(word(image, at));
    let new = survey.superblock.link(at, page, tag, rng.once_in(3));
    set_word(image, at, new);
    format!("link at {at:#x} to page {before:#x} now leads to {page:#x}, checked")
}

fn superblock(image: &mut [u8], survey: &Survey, rng: &mut Rng) -> String {
    let number = bad_number(survey, rng);
    let field = rng.pick(&[
        8usize, 12, 16, 24, 32, 72, 80, 84, 88, 89, 90, 91, 96, 104, 120, 128, 192, 200, 204, 208,
        216, 220,
    ]);
    let copies = rng.pick(&[vec![0], vec![image.len() - PAGE], vec![0, image.len() - PAGE]]);
    for &at in &copies {
        match field {
            88..92 => image[at + field] = number as u8,
            8 | 12 | 80 | 84 | 200 | 204 | 216 | 220 => {
                set_half(image, at + field, number as u32);
            }
            _ => set_word(image, at + field, number),
        }
        seal_superblock(image, at);
    }
    format!("superblock {copies:?}: field at {field} = {number:#x}, sealed")
}

fn watermark(image: &mut [u8], survey: &Survey, rng: &mut Rng) -> String {
    let lane = rng.below(survey.superblock.lanes as u64) as usize;
    let at = survey.superblock.lane_table + lane * 256 + rng.below(2) as usize * LINE;
    image[at..at + 4].copy_from_slice(b"LWAT");
    let number = bad_number(survey, rng);
    match rng.below(3) {
        0 => set_half(image, at + 4, number as u32),
        1 => set_word(image, at + 8, number),
        _ => set_word(image, at + 16, number),
    }
    survey.superblock.seal_placed(image, at);
    format!("watermark of lane {lane}: {number:#x}, sealed")
}

/// A death of something alive, the root included, or a dead inode with a changed death.
fn death(image: &mut [u8], survey: &Survey, rng: &mut Rng) -> String {
    let log = &survey.logs[rng.below(survey.logs.len() as u64) as usize];
    let at = log.ino as usize * SLOT + 7 * LINE;
    let from = some_run(survey, rng).first;
    image.copy_within(from..from + 56, at);
    image[at] = if rng.once_in(5) { rng.below(16) as u8 } else { 5 };
    if rng.once_in(2) {
        set_word(image, at + 24, 0);
    }
    survey.seal_death(image, log);
    format!("death of inode {}, sealed", log.ino)
}

fn checkpoint(image: &mut [u8], survey: &Survey, rng: &mut Rng) -> String {
    let (at, _) = rng.pick(&survey.segments);
    let number = bad_number(survey, rng);
    // An earlier change may have made it too large.
    let bytes = (word(image, at + 24) as usize).min(image.len() - at - LINE);
    let what = if rng.once_in(3) || bytes < 8 {
        let field = rng.pick(&[4usize, 8, 16, 24]);
        if field == 4 {
            set_half(image, at + 4, number as u32);
        } else {
            set_word(image, at + field, number);
        }
        format!("header field at {field}")
    } else {
        // The counts at its start hurt most.
        let words = (bytes / 8) as u64;
        let index = if rng.once_in(2) { rng.below(words.min(4)) } else { rng.below(words) };
        set_word(image, at + LINE + index as usize * 8, number);
        let crc = lode_pmem::crc32c(0, &image[at + LINE..at + LINE + bytes]);
        set_half(image, at + 32, crc);
        format!("word {index}")
    };
    survey.superblock.seal_placed(image, at);
    format!("checkpoint at {at:#x}: {what} = {number:#x}, sealed")
}
