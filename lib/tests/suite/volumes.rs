//! Volumes of a pool are files that the library can map: a block device's sectors as memory.

use std::sync::Arc;

use crate::common::PoolFile;
use lode::{MapOptions, OpenOptions};
use lode_block::{NewVolume, Sector, Settings, Volume};
use lode_engine::Pool as Engine;
use lode_host::StdHost;
use lode_pmem::{Mapped, RegionOptions};

const MIB: u64 = 1 << 20;

fn engine(at: &PoolFile) -> Arc<Engine<Mapped, StdHost>> {
    let region = Mapped::open(&at.path, &RegionOptions::new()).unwrap();
    Arc::new(Engine::open(region, StdHost::new(), &lode_engine::OpenOptions::default()).unwrap())
}

#[test]
fn a_volume_is_mapped_and_is_the_same_as_its_sectors() {
    let at = PoolFile::new(32);
    let pool = engine(&at);
    let settings = Settings { sector: Sector::Small, is_thin: false };
    let new = NewVolume { bytes: 4 * MIB, settings, owner: (0, 0) };
    lode_block::create(&pool, b"v", &new).unwrap();
    let volume = Volume::open(Arc::clone(&pool), b"v").unwrap();
    volume.write(512, &[7; 512]).unwrap();
    drop(volume);
    Arc::try_unwrap(pool).ok().unwrap().close().unwrap();

    let library = at.open();
    let file = library
        .open_with(lode_block::PATH.to_owned() + "/v", OpenOptions::new().read(true).write(true))
        .unwrap();
    let mut options = MapOptions::new();
    options.write(true);
    let map = file.map(0, 4 * MIB, &options).unwrap();
    let mut sector = [0; 512];
    map.load(512, &mut sector).unwrap();
    assert_eq!(sector, [7; 512]);
    map.store(2 * MIB, &[9; 1024]).unwrap();
    map.persist(2 * MIB..2 * MIB + 1024).unwrap();
    drop((map, file));
    library.close().unwrap();

    let pool = engine(&at);
    let volume = Volume::open(Arc::clone(&pool), b"v").unwrap();
    let mut sectors = vec![0; 1024];
    volume.read(2 * MIB, &mut sectors).unwrap();
    assert_eq!(sectors, [9; 1024]);
}
