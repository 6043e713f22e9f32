//! Where a run is.

use std::fs;
use std::path::Path;

use lode_fuse::wire::RINGS_ALLOWED;
use lode_pmem::{Counters, Door, Mapped, Profile, RegionOptions};

use crate::error::Result;
use crate::place::Place;
use crate::report::Machine;

const HUGE: u64 = 2 << 20;
const SMALL: u64 = 4096;

/// This machine, and what pools lie on in `place`.
///
/// # Errors
/// Where no region can be made there.
pub fn here(place: &Place, emulate: Option<Profile>) -> Result<Machine> {
    let path = place.pools().join("probe");
    let options = RegionOptions { emulate, ..RegionOptions::new() };
    let region = Mapped::create(&path, 2 * HUGE, &options, true)?;
    let emulated = region.emulated().map(|emulated| emulated.to_string());
    let (flush, windows) = (region.strategy().to_string(), region.window_mode().to_string());
    let kind = region.kind().to_string();
    let page_bytes = page_bytes(region, &path);
    // It is only looked at; what stays goes with the place.
    let _ = fs::remove_file(&path);
    let medium = if place.is_root() { "of the run's own" } else { "of the machine's" };
    Ok(Machine {
        cpu: cpu().unwrap_or_else(|| "unknown".to_owned()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        flush,
        windows,
        medium: format!("{kind} {medium}"),
        page_bytes,
        load: load().unwrap_or_default(),
        fuse_io_uring: fs::read_to_string(RINGS_ALLOWED).is_ok_and(|text| text.trim() == "Y"),
        awake: false,
        emulated,
    })
}

/// Bytes of memory that can be had.
pub fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn cpu() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.trim_start_matches(['\t', ' ', ':']).to_owned())
}

fn load() -> Option<String> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next().map(str::to_owned)
}

/// The pages that a region at `path` is mapped by, once it has been touched.
fn page_bytes(region: Mapped, path: &Path) -> u64 {
    let (door, counters) = (Door::new(region), Counters::new());
    for at in (0..door.bytes()).step_by(SMALL as usize) {
        door.window(8, &counters).store_word(at, 1);
    }
    let maps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    if huge_kib(&maps, &path.to_string_lossy()) > 0 { HUGE } else { SMALL }
}

/// KiB of the mapping of `path` that are mapped by huge pages.
fn huge_kib(maps: &str, path: &str) -> u64 {
    let mut ours = false;
    let mut sum = 0;
    for line in maps.lines() {
        // The line of a mapping begins with its addresses, the others with a name and a colon.
        if !line.split(' ').next().is_some_and(|word| word.ends_with(':')) {
            ours = line.ends_with(path);
        } else if let Some(kib) = line.strip_prefix("ShmemPmdMapped:").filter(|_| ours) {
            sum += kib.trim().trim_end_matches("kB").trim().parse().unwrap_or(0);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_those_of_the_mapping_that_is_asked_for() {
        let maps = "7f00-7f01 rw-s 00000000 00:1c 3 /a/probe\nShmemPmdMapped:     4096 kB\n\
                    7f02-7f03 rw-s 00000000 00:1c 3 /b\nRss: 1 kB\nShmemPmdMapped:     2048 kB\n";
        assert_eq!(huge_kib(maps, "/a/probe"), 4096);
        assert_eq!(huge_kib(maps, "/b"), 2048);
        assert_eq!(huge_kib(maps, "/c"), 0);
    }

    #[test]
    fn a_machine_says_something_of_itself() {
        let base = tempfile::tempdir().unwrap();
        let place = Place::new(Some(base.path()), 64 << 20).unwrap();
        let machine = here(&place, None).unwrap();
        assert!(machine.cores >= 1 && !machine.kernel.is_empty() && !machine.cpu.is_empty());
        assert!(available().unwrap() > 1 << 20);
        assert_eq!(machine.emulated, None);
        let emulated = here(&place, Some(Profile::PCM)).unwrap().emulated.unwrap();
        assert!(emulated.starts_with("pcm (read +300 ns"), "{emulated}");
    }
}
