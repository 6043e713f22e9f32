//! By what pages the kernel maps a pool and a file in it, and what that costs: the time of opening, the memory for page tables.
//!
//!     cargo run --release -p lode --example mapping -- POOL [BYTES]
//!
//! The pool is one that `lode mkfs` has made, with room for one more file of so many bytes (1 GiB), which is gone at the end. With a third word, a number,
//! it ends with an error if the kernel has mapped file or pool by pages that are smaller than so many KiB.

use std::error::Error;
use std::time::Instant;

use lode::{File, MapOptions, OpenOptions, Pool};

/// A file that is there for as long as this runs.
const NAME: &str = ".lode-mapping-example";

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let path = words.next().ok_or("usage: mapping POOL [BYTES [KIB]]")?;
    let bytes = words.next().map_or(Ok(1 << 30), |text| text.parse::<u64>())?;
    let least_kib = words.next().map_or(Ok(0), |text| text.parse::<u64>())?;

    let (tables_before, start) = (page_tables_kib()?, Instant::now());
    let pool = Pool::open(&path)?;
    println!("open: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    // (Nobody else's file of that name is touched.)
    let file = pool.open_with(NAME, OpenOptions::new().read(true).write(true).create_new(true))?;
    let shown = allocate(&file, bytes).and_then(|()| {
        println!("page tables (VmPTE) of the pool: {} KiB", since(tables_before)?);
        show(&pool, &path, &file, bytes, least_kib)
    });
    drop(file);
    pool.remove_file(NAME)?;
    pool.close()?;
    shown
}

/// Gives the file its pages.
fn allocate(file: &File, bytes: u64) -> Result<(), Box<dyn Error>> {
    let failed = |error| format!("a file of {bytes} bytes: {error}");
    file.allocate(0, bytes, false).map_err(failed).map_err(Into::into)
}

/// Maps a file of so many bytes, and says how.
fn show(
    pool: &Pool,
    path: &str,
    file: &File,
    bytes: u64,
    least_kib: u64,
) -> Result<(), Box<dyn Error>> {
    let (tables_before, start) = (page_tables_kib()?, Instant::now());
    let map = file.map(0, bytes, MapOptions::new().write(true).populate(true))?;
    println!("map {} MiB, all of it: {:.1} ms", bytes >> 20, start.elapsed().as_secs_f64() * 1e3);
    println!("page tables (VmPTE) of the map: {} KiB", since(tables_before)?);
    let (of_map, of_pool) = (map.mapped_pages(), pool.mapped_pages()?);
    println!("pages of the map: {}", text(of_map));
    println!("pages of the pool: {}", text(of_pool));
    // (Last: of pages of 1 GiB smaps takes apart what it shows.)
    let by_device = device_pages_kib(path)?;
    println!("smaps, KernelPageSize of all that is mapped of it: {by_device:?} kB");
    let huge_bytes = |pages: Option<lode::MappedPages>| pages.map_or(0, |pages| pages.huge_bytes);
    let is_huge = huge_bytes(of_map) == bytes && huge_bytes(of_pool) >= bytes;
    // Of a DAX device smaps tells; of a file it says 4 kB whatever the kernel has done.
    let is_right = match by_device.iter().min() {
        Some(&least) if least > 4 => least >= least_kib,
        _ => least_kib <= 4 || least_kib <= 2048 && is_huge,
    };
    if !is_right {
        return Err(format!("not all is mapped by pages of {least_kib} KiB").into());
    }
    Ok(())
}

/// What the kernel takes more for page tables than it did.
fn since(before_kib: u64) -> Result<u64, Box<dyn Error>> {
    Ok(page_tables_kib()?.saturating_sub(before_kib))
}

fn text(pages: Option<lode::MappedPages>) -> String {
    match pages {
        Some(pages) => {
            format!(
                "{} KiB, of which {} KiB by huge ones",
                pages.bytes >> 10,
                pages.huge_bytes >> 10
            )
        }
        None => "the kernel does not tell".to_owned(),
    }
}

/// What the kernel takes for this process's page tables (of the smallest pages: higher levels are few).
fn page_tables_kib() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:"));
    Ok(line.and_then(|text| text.trim().strip_suffix("kB")).ok_or("no VmPTE")?.trim().parse()?)
}

/// What `/proc/self/smaps` says of the pages that each mapping of a path has.
fn device_pages_kib(path: &str) -> Result<Vec<u64>, Box<dyn Error>> {
    let smaps = std::fs::read_to_string("/proc/self/smaps")?;
    let (mut is_of_path, mut found) = (false, Vec::new());
    for line in smaps.lines() {
        if let Some(kib) = line.strip_prefix("KernelPageSize:") {
            if is_of_path {
                found.push(kib.trim().trim_end_matches("kB").trim().parse()?);
            }
        } else if line.split_whitespace().next().is_some_and(|word| !word.ends_with(':')) {
            is_of_path = line.ends_with(path);
        }
    }
    Ok(found)
}
