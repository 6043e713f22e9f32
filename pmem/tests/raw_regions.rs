//! Raw regions: what is written is there whatever keeps others out and however it is stored; what is stray dies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use std::fs;
use std::path::Path;
use std::sync::mpsc::channel;

use common::{End, PAGE, disk, in_other_process, noise, shm};
use lode_pmem::{
    ProtectIo, RawError, RawOptions, RawRegion, RegionError, RegionKind, Slowdown, Stray,
    WriteScheme,
};

const BYTES: u64 = 64 * PAGE;

/// A region of zeros, or `None` and a line that says why there is none.
fn raw(path: &Path, options: RawOptions) -> Option<RawRegion> {
    fs::File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .unwrap()
        .set_len(BYTES)
        .unwrap();
    match RawRegion::open(path, &options) {
        Ok(region) => Some(region),
        Err(RegionError::NoWindows { why, .. }) => {
            eprintln!("skipped: {why}");
            None
        }
        Err(RegionError::NoSuchInstruction { missing, .. }) => {
            eprintln!("skipped: this CPU has no {missing}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn protected(path: &Path, protect: ProtectIo) -> Option<RawRegion> {
    raw(path, RawOptions { protect: Some(protect), ..RawOptions::default() })
}

fn every_way(mut each: impl FnMut(ProtectIo, WriteScheme)) {
    for protect in ProtectIo::ALL {
        for scheme in WriteScheme::ALL {
            each(protect, scheme);
        }
    }
}

#[test]
fn what_is_written_is_read_in_every_way() {
    let dir = shm();
    every_way(|protect, scheme| {
        let path = dir.path().join(format!("{protect}-{scheme}"));
        let options = RawOptions { protect: Some(protect), scheme, ..RawOptions::default() };
        let Some(region) = raw(&path, options) else { return };
        assert_eq!((region.bytes(), region.kind()), (BYTES, RegionKind::Tmpfs));
        let mut model = vec![0; BYTES as usize];
        for (at, len) in [(0, 512), (PAGE - 512, 1024), (3 * PAGE, 5 * PAGE), (BYTES - 512, 512)] {
            let bytes = noise(len as usize, at + len);
            region.write(at, &bytes).unwrap();
            model[at as usize..(at + len) as usize].copy_from_slice(&bytes);
        }
        region.zero(4 * PAGE + 512, PAGE).unwrap();
        model[4 * PAGE as usize + 512..5 * PAGE as usize + 512].fill(0);
        let parts = noise(3 * PAGE as usize, 7);
        region.write_run(9 * PAGE, 3 * PAGE, parts.chunks(PAGE as usize)).unwrap();
        model[9 * PAGE as usize..12 * PAGE as usize].copy_from_slice(&parts);
        let mut read = vec![0; BYTES as usize];
        region.read(0, &mut read).unwrap();
        assert!(read == model, "{protect} {scheme}");
        region.write_back(0, BYTES).unwrap();
        region.sync().unwrap();
        let was_durable = region.is_durable_when_written();
        assert_eq!(was_durable, scheme != WriteScheme::Cached);
        drop(region);
        assert!(fs::read(&path).unwrap() == model, "{protect} {scheme}");
    });
}

#[test]
fn who_may_not_begin_stores_nothing_and_who_may_gets_the_pass_back() {
    let dir = shm();
    every_way(|protect, scheme| {
        let path = dir.path().join(format!("{protect}-{scheme}"));
        let options = RawOptions { protect: Some(protect), scheme, ..RawOptions::default() };
        let Some(region) = raw(&path, options) else { return };
        let (written, mut read) = (noise(PAGE as usize, 5), vec![1; PAGE as usize]);
        assert_eq!(region.write_if(PAGE, &written, || None::<u8>).unwrap(), None);
        region.read(PAGE, &mut read).unwrap();
        assert!(read.iter().all(|byte| *byte == 0), "{protect} {scheme}");
        assert_eq!(region.write_if(PAGE, &written, || Some(7)).unwrap(), Some(7));
        region.read(PAGE, &mut read).unwrap();
        assert_eq!(read, written, "{protect} {scheme}");
        // Outside nobody is asked.
        let asked = region.write_if(BYTES, &written, || -> Option<u8> { panic!("asked") });
        assert!(matches!(asked, Err(RawError::Outside { .. })));
    });
}

#[test]
fn nothing_outside_and_no_part_of_a_line_is_touched() {
    let dir = shm();
    for protect in ProtectIo::ALL {
        let Some(region) = protected(&dir.path().join("region"), protect) else { continue };
        let line = &mut [0u8; 64][..];
        for at in [BYTES, BYTES - 32, 32, u64::MAX - 63, u64::MAX - 127] {
            assert!(matches!(region.read(at, line), Err(RawError::Outside { .. })), "{at}");
            assert!(matches!(region.write(at, line), Err(RawError::Outside { .. })), "{at}");
            assert!(matches!(region.zero(at, 64), Err(RawError::Outside { .. })), "{at}");
            assert!(matches!(region.write_back(at, 64), Err(RawError::Outside { .. })), "{at}");
        }
        assert!(matches!(region.write(0, &line[..32]), Err(RawError::Outside { .. })));
        // More than was said.
        let parts = [&[1u8; 64][..], &[1u8; 64][..]];
        let told = region.write_run(0, 64, parts.into_iter());
        assert!(matches!(told, Err(RawError::Outside { at: 64, len: 64 })), "{told:?}");
        let mut read = [9; 128];
        region.read(0, &mut read).unwrap();
        assert_eq!((read[0], read[64]), (1, 0));
    }
}

#[test]
fn a_region_for_reading_is_not_written() {
    let dir = shm();
    for protect in ProtectIo::ALL {
        let path = dir.path().join("region");
        let options = RawOptions { protect: Some(protect), ..RawOptions::default() };
        let Some(region) = raw(&path, options) else { continue };
        region.write(0, &[7; 512]).unwrap();
        drop(region);
        let Some(region) = raw(&path, RawOptions { read_only: true, ..options }) else { continue };
        // Beside other readers.
        let other = raw(&path, RawOptions { read_only: true, ..options }).unwrap();
        assert!(matches!(region.write(0, &[8; 512]), Err(RawError::ReadOnly)));
        assert!(matches!(region.zero(0, 512), Err(RawError::ReadOnly)));
        region.sync().unwrap();
        let mut read = [0; 512];
        other.read(0, &mut read).unwrap();
        assert_eq!(read, [7; 512]);
    }
}

#[test]
fn one_at_a_time_uses_it() {
    let dir = shm();
    let path = dir.path().join("region");
    let first = protected(&path, ProtectIo::PrivateMap).unwrap();
    for protect in [ProtectIo::None, ProtectIo::PrivateMap] {
        let options = RawOptions { protect: Some(protect), ..RawOptions::default() };
        assert!(matches!(RawRegion::open(&path, &options), Err(RegionError::Busy { .. })));
    }
    drop(first);
    protected(&path, ProtectIo::None).unwrap();
}

#[test]
fn an_ordinary_file_is_durable_at_barriers() {
    let dir = disk();
    let Some(region) = protected(&dir.path().join("region"), ProtectIo::None) else { return };
    if region.kind() != RegionKind::File {
        eprintln!("skipped: there is no ordinary file here");
        return;
    }
    assert!(!region.is_durable_when_written());
    region.write(0, &[7; 512]).unwrap();
    region.sync().unwrap();
}

#[test]
fn slower_memory_takes_longer() {
    let dir = shm();
    let slow = Slowdown::new(1000).unwrap();
    let options = RawOptions {
        protect: Some(ProtectIo::None),
        slow_read: slow,
        slow_write: slow,
        ..RawOptions::default()
    };
    let region = raw(&dir.path().join("slow"), options).unwrap();
    let plain = protected(&dir.path().join("plain"), ProtectIo::None).unwrap();
    let mut bytes = vec![1; BYTES as usize];
    // The best of some tries: others may have the processor meanwhile.
    let best = |work: &mut dyn FnMut()| {
        let time = |_| {
            let begin = std::time::Instant::now();
            work();
            begin.elapsed()
        };
        (0..5).map(time).min().unwrap()
    };
    let written = [&plain, &region].map(|it| best(&mut || it.write(0, &bytes).unwrap()));
    assert!(written[1] > written[0] * 100, "{written:?}");
    let read = [&plain, &region].map(|it| best(&mut || it.read(0, &mut bytes).unwrap()));
    assert!(read[1] > read[0] * 100, "{read:?}");
}

/// What of the file is gone is an error to whoever asks for it, and to nobody else.
#[test]
fn a_file_that_is_made_shorter_has_what_is_left() {
    for dir in [shm(), disk()] {
        every_way(|protect, scheme| {
            let path = dir.path().join(format!("{protect}-{scheme}"));
            let options = RawOptions { protect: Some(protect), scheme, ..RawOptions::default() };
            let Some(region) = raw(&path, options) else { return };
            let way = format!("{protect}, {scheme}");
            let is_cut = |done: Result<(), RawError>, from: u64| {
                let is_so = matches!(done, Err(RawError::Cut { at }) if at == from);
                assert!(is_so, "{way}: {done:?} from {from}");
            };
            let (bytes, end) = (noise(2 * PAGE as usize, 1), 8 * PAGE);
            region.write(end - PAGE, &bytes).unwrap();
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_len(end).unwrap();
            // Of what was stored in front of that, too.
            is_cut(region.write_back(end - PAGE, 2 * PAGE), end);
            is_cut(region.read(end - PAGE, &mut vec![0; 2 * PAGE as usize]), end);
            is_cut(region.write(BYTES - PAGE, &bytes[..PAGE as usize]), BYTES - PAGE);
            is_cut(region.zero(end, BYTES - end), end);
            for at in [end - 64, end, end + 512] {
                is_cut(region.write(at, &bytes[..4096]), at.max(end));
                is_cut(region.read(at, &mut [0; 4096]), at.max(end));
            }
            region.write(end - PAGE, &bytes[..PAGE as usize]).unwrap();
            region.write_back(0, end).unwrap();
            region.sync().unwrap();
            let mut read = vec![0; PAGE as usize];
            region.read(end - PAGE, &mut read).unwrap();
            assert!(read == bytes[..PAGE as usize], "{way}");
            // Shorter once more, and not by whole pages.
            file.set_len(PAGE + 512).unwrap();
            is_cut(region.write(2 * PAGE, &[1; 64]), 2 * PAGE);
            is_cut(region.read(PAGE, &mut read), PAGE + 512);
            region.write(PAGE, &[7; 512]).unwrap();
            drop(region);
            assert_eq!(fs::read(&path).unwrap()[PAGE as usize..], [7; 512], "{way}");
        });
    }
}

#[test]
fn many_threads_find_a_file_made_shorter_at_once() {
    let dir = shm();
    let path = dir.path().join("region");
    let region = protected(&path, ProtectIo::None).unwrap();
    std::thread::scope(|scope| {
        let writers = [0, 1, 2, 3].map(|thread| {
            let region = &region;
            scope.spawn(move || {
                let bytes = noise(2 * PAGE as usize, thread);
                let mut lost = 0;
                for at in (0..20 * BYTES / PAGE).map(|page| page % 63 * PAGE) {
                    match region.write(at, &bytes) {
                        Ok(()) => assert!(lost == 0 || at < 32 * PAGE),
                        Err(RawError::Cut { .. }) => lost += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                lost
            })
        });
        std::thread::sleep(std::time::Duration::from_micros(200));
        fs::File::options().write(true).open(&path).unwrap().set_len(32 * PAGE).unwrap();
        for writer in writers {
            writer.join().unwrap();
        }
    });
    assert!(matches!(region.write(40 * PAGE, &[1; 64]), Err(RawError::Cut { .. })));
    region.write(0, &[1; 64]).unwrap();
}

/// Between accesses nothing of the region is in the address space.
#[test]
fn private_maps_are_gone_after_each_access() {
    let dir = shm();
    let path = dir.path().join("nowhere-to-be-found");
    let is_mapped =
        || fs::read_to_string("/proc/self/maps").unwrap().contains("nowhere-to-be-found");
    let region = protected(&path, ProtectIo::PrivateMap).unwrap();
    assert!(!is_mapped());
    region.write(PAGE, &noise(PAGE as usize, 1)).unwrap();
    region.read(0, &mut vec![0; BYTES as usize]).unwrap();
    assert!(!is_mapped());
    let mut was_mapped = false;
    let parts = std::iter::once_with(|| {
        was_mapped = is_mapped();
        &[1; 64][..]
    });
    region.write_run(0, 64, parts).unwrap();
    assert!(was_mapped && !is_mapped());
}

/// What this thread does with a region, alone or while another thread is in the middle of a write.
fn ends(name: &str, protect: ProtectIo, beside: bool, stray: Stray) -> End {
    in_other_process(name, || {
        let dir = shm();
        let Some(region) = protected(&dir.path().join("region"), protect) else { return false };
        fs::remove_dir_all(dir.path()).unwrap();
        region.write(0, &[1; 64]).unwrap();
        region.read(0, &mut [0; 64]).unwrap();
        if !beside {
            region.stray(stray);
            return true;
        }
        std::thread::scope(|scope| {
            // (A thread is born with the rights of its maker: so it is there before the write.)
            let (say, said) = channel::<()>();
            let region = &region;
            let other = scope.spawn(move || said.recv().is_ok().then(|| region.stray(stray)));
            let parts = std::iter::once_with(|| {
                say.send(()).unwrap();
                other.join().unwrap();
                &[1; 64][..]
            });
            // (Of another page than the stray one.)
            region.write_run(PAGE, 64, parts).unwrap();
        });
        true
    })
}

fn dies(name: &str, protect: ProtectIo, beside: bool, stray: Stray) {
    let end = ends(name, protect, beside, stray);
    assert!([End::Signal(libc::SIGSEGV), End::Skipped].contains(&end), "{end:?}");
}

fn lives(name: &str, protect: ProtectIo, beside: bool, stray: Stray) {
    let end = ends(name, protect, beside, stray);
    assert!([End::Code(0), End::Skipped].contains(&end), "{end:?}");
}

#[test]
fn none_keeps_nothing_out() {
    lives("none_keeps_nothing_out", ProtectIo::None, true, Stray::Store);
}

#[test]
fn key_keeps_stores_out() {
    dies("key_keeps_stores_out", ProtectIo::Key, false, Stray::Store);
}

#[test]
fn key_keeps_stores_of_others_out_during_a_write() {
    dies("key_keeps_stores_of_others_out_during_a_write", ProtectIo::Key, true, Stray::Store);
}

#[test]
fn key_lets_anybody_load() {
    lives("key_lets_anybody_load", ProtectIo::Key, true, Stray::Load);
}

#[test]
fn key_rw_keeps_stores_out() {
    dies("key_rw_keeps_stores_out", ProtectIo::KeyRw, false, Stray::Store);
}

#[test]
fn key_rw_keeps_stores_of_others_out_during_a_write() {
    dies("key_rw_keeps_stores_of_others_out_during_a_write", ProtectIo::KeyRw, true, Stray::Store);
}

#[test]
fn key_rw_keeps_loads_out() {
    dies("key_rw_keeps_loads_out", ProtectIo::KeyRw, false, Stray::Load);
}

#[test]
fn key_rw_keeps_loads_of_others_out_during_a_write() {
    dies("key_rw_keeps_loads_of_others_out_during_a_write", ProtectIo::KeyRw, true, Stray::Load);
}

#[test]
fn mprotect_keeps_stores_out() {
    dies("mprotect_keeps_stores_out", ProtectIo::Mprotect, false, Stray::Store);
}

#[test]
fn mprotect_keeps_stores_to_other_pages_out_during_a_write() {
    let name = "mprotect_keeps_stores_to_other_pages_out_during_a_write";
    dies(name, ProtectIo::Mprotect, true, Stray::Store);
}
