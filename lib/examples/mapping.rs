//! By what pages the kernel maps a pool and a file in it, and what that costs: the time of opening, the memory for page tables.
//!
//!     cargo run --release -p lode --example mapping -- POOL [BYTES]
//!
//! The pool is one that `lode mkfs` has made, with room for a file of so many bytes (1 GiB). With a third word, a number,
//! it ends with an error if the kernel has mapped file or pool by pages that are smaller than so many KiB.

use std::error::Error;
use std::time::Instant;

use lode::{MapOptions, OpenOptions, Pool};

const NAME: &str = "mapped";

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let path = words.next().ok_or("usage: mapping POOL [BYTES [KIB]]")?;
    let bytes = words.next().map_or(Ok(1 << 30), |text| text.parse::<u64>())?;
    let least_kib = words.next().map_or(Ok(0), |text| text.parse::<u64>())?;

    let (tables_before, start) = (page_tables_kib()?, Instant::now());
    let pool = Pool::open(&path)?;
    let opened = start.elapsed();
    let file = pool
        .open_with(NAME, OpenOptions::new().read(true).write(true).create(true).truncate(true))?;
    file.allocate(0, bytes, false)?;
    println!("open: {:.1} ms", opened.as_secs_f64() * 1e3);
    let (tables_open, start) = (page_tables_kib()?, Instant::now());
    let map = file.map(0, bytes, MapOptions::new().write(true).populate(true))?;
    let mapped = start.elapsed();
    let tables_mapped = page_tables_kib()?;
    println!("map {} MiB, all of it: {:.1} ms", bytes >> 20, mapped.as_secs_f64() * 1e3);
    println!(
        "page tables (VmPTE): pool {} KiB, map {} KiB",
        tables_open.saturating_sub(tables_before),
        tables_mapped.saturating_sub(tables_open)
    );
    let (of_map, of_pool) = (map.mapped_pages(), pool.mapped_pages()?);
    println!("pages of the map: {}", text(of_map));
    println!("pages of the pool: {}", text(of_pool));
    // (Last: of pages of 1 GiB smaps takes apart what it shows.)
    let by_device = device_pages_kib(&path)?;
    println!("smaps, KernelPageSize of all that is mapped of it: {by_device:?} kB");
    let huge_bytes = |pages: Option<lode::MappedPages>| pages.map_or(0, |pages| pages.huge_bytes);
    let is_huge = huge_bytes(of_map) == bytes && huge_bytes(of_pool) >= bytes;
    drop(map);
    drop(file);
    pool.remove_file(NAME)?;
    pool.close()?;
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
