//! How long a region is open for a write, how long it takes to open it, and what page tables it takes: a key, which maps all of it,
//! against pages that are mapped for each access (PMBD, section IV.B.2).

use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

use lode_pmem::{ProtectIo, RawOptions, RawRegion};

use super::subject::region_file;
use crate::report::Figure;
use crate::stats::median;

/// What is compared; a key stands for all that map the region once.
const PROTECTIONS: [ProtectIo; 5] = ProtectIo::ALL;
const WRITES: usize = 2000;
const OPENINGS: usize = 7;
const PAGE: u64 = 4096;

/// All of it, of regions of these sizes.
///
/// # Errors
/// No region can be made.
pub fn measure(dir: &Path, sizes: &[u64]) -> io::Result<Vec<Figure>> {
    let mut all = Vec::new();
    for &bytes in sizes {
        let path = dir.join("windows");
        region_file(&path, bytes)?;
        let is_smallest = sizes.iter().min() == Some(&bytes);
        for protect in PROTECTIONS {
            let options = RawOptions { protect: Some(protect), ..RawOptions::default() };
            // (Keys are not everywhere: what is left out is told by the rows.)
            let Ok(region) = RawRegion::open(&path, &options) else { continue };
            // (First: what else is done makes page tables, too.)
            all.push(page_tables(&region)?);
            if is_smallest {
                all.extend(open_times(&region)?);
            }
            drop(region);
            all.push(opening(&path, &options, bytes)?);
        }
        fs::remove_file(&path)?;
    }
    Ok(all)
}

fn figure(workload: String, protect: ProtectIo, what: &str, value: f64, unit: &str) -> Figure {
    let (what, unit) = (what.to_owned(), unit.to_owned());
    Figure { workload, subject: protect.to_string(), what, value, unit }
}

/// How long the region is open for one write.
fn open_times(region: &RawRegion) -> io::Result<Vec<Figure>> {
    let mut all = Vec::new();
    for bytes in super::cell::SIZES {
        let data = vec![1; bytes as usize];
        let places = region.bytes() / bytes;
        let mut times = Vec::with_capacity(WRITES);
        for number in 0..WRITES as u64 {
            let open = region.write_watched(number % places * bytes, &data);
            times.push(open.map_err(io::Error::other)?.as_nanos() as f64);
        }
        let workload = format!("write-{}k", bytes >> 10);
        let open = match region.protect() {
            // It never closes.
            ProtectIo::None => f64::INFINITY,
            _ => median(&times),
        };
        if open.is_finite() {
            all.push(figure(
                workload,
                region.protect(),
                "open for a write, from before to after",
                open,
                "ns",
            ));
        }
    }
    Ok(all)
}

/// Page tables of the process, once each page of the region was read.
fn page_tables(region: &RawRegion) -> io::Result<Figure> {
    let before = vm_pte()?;
    let mut line = [0; 64];
    for page in 0..region.bytes() / PAGE {
        region.read(page * PAGE, &mut line).map_err(io::Error::other)?;
    }
    let bytes = vm_pte()?.saturating_sub(before) as f64;
    let what = "page tables, after a look at each page";
    Ok(figure(title(region.bytes()), region.protect(), what, bytes, "bytes"))
}

fn opening(path: &Path, options: &RawOptions, bytes: u64) -> io::Result<Figure> {
    let mut times = Vec::new();
    for _ in 0..OPENINGS {
        let begin = Instant::now();
        let region = RawRegion::open(path, options).map_err(io::Error::other)?;
        times.push(begin.elapsed().as_nanos() as f64 / 1e3);
        drop(region);
    }
    let protect = options.protect.unwrap_or(ProtectIo::None);
    Ok(figure(title(bytes), protect, "to open it", median(&times), "us"))
}

fn title(bytes: u64) -> String {
    format!("region of {} MiB", bytes >> 20)
}

/// Bytes of page tables of this process.
fn vm_pte() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmPTE:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("/proc/self/status has no VmPTE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(all: &[Figure], workload: &str, subject: &str, what: &str) -> Option<f64> {
        let same = |one: &&Figure| {
            one.workload == workload && one.subject == subject && one.what.starts_with(what)
        };
        all.iter().find(same).map(|one| one.value)
    }

    #[test]
    fn private_maps_take_no_page_tables_and_are_open_for_a_moment() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        // (Page tables are the whole process's, in which other tests map and unmap meanwhile.)
        let few = |all: &[Figure]| {
            let tables = |subject| value(all, "region of 32 MiB", subject, "page tables").unwrap();
            tables("private-map") < 16_384.0 && tables("private-map") <= tables("none")
        };
        let mut tries = (0..10).map(|_| measure(dir.path(), &[8 << 20, 32 << 20]).unwrap());
        // (With huge pages one page of tables is enough.)
        let all = tries.find(|all| few(all)).expect("private maps take page tables");
        let value =
            |workload: &str, subject: &str, what: &str| value(&all, workload, subject, what);
        let smallest = value("region of 8 MiB", "none", "page tables").unwrap();
        assert!(smallest > 0.0, "{all:?}");
        let open = value("write-4k", "private-map", "open").unwrap();
        assert!(open > 0.0 && open < 1e6, "{open}");
        assert_eq!(value("write-4k", "none", "open"), None, "it never closes");
        assert!(value("region of 8 MiB", "mprotect", "to open").unwrap() > 0.0);
    }
}
