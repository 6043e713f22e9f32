//! Each page of a pool is used for one thing, and is told so once; twins are where metadata has such.

use std::collections::BTreeMap;

use lode_engine::{
    FormatOptions, NewInode, OpenOptions, Pool, Protection, Use, XattrChange, XattrWhen, mode,
};
use lode_testkit::{Memory, TestHost};

type TestPool = Pool<Memory, TestHost>;

const FILE: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };

/// The pages of each use, and of twins.
pub fn uses(pool: &TestPool) -> (BTreeMap<Use, u64>, u64) {
    let mut told = vec![0; pool.space().pages as usize];
    let (mut pages, mut twins) = (BTreeMap::new(), 0);
    let mut note = |first: u64, count: u64| {
        (first..first + count).for_each(|page| told[page as usize] += 1);
    };
    pool.for_each_use(&mut |run| {
        note(run.page, run.pages);
        *pages.entry(run.used_for).or_default() += run.pages;
        if let Some(twin) = run.twin {
            note(twin, run.pages);
            twins += run.pages;
        }
    })
    .unwrap();
    for (page, told) in told.iter().enumerate() {
        assert_eq!(*told, 1, "page {page} is told {told} times");
    }
    (pages, twins)
}

fn changed(pool: &TestPool) {
    let value = [7; 9000];
    for number in 0..300u64 {
        let name = format!("a file with a name of more than sixteen bytes {number}");
        let made = pool.create(pool.root(), name.as_bytes(), &FILE).unwrap();
        for part in 0..number % 9 {
            pool.write(made.ino, part * 8192, &vec![1; 100 * number as usize]).unwrap();
        }
        if number % 50 == 0 {
            let (name, when) = (&b"user.long"[..], XattrWhen::Always);
            let change = XattrChange { name, value: Some(&value), when };
            pool.setxattr(made.ino, &change).unwrap();
        }
        if number % 100 == 0 {
            pool.create_snapshot(format!("s{number}").as_bytes()).unwrap();
        }
        if number % 3 == 0 {
            pool.unlink(pool.root(), name.as_bytes()).unwrap();
        }
    }
}

#[test]
fn each_page_is_told_once_at_each_level_and_metadata_with_its_twin() {
    for protection in Protection::ALL {
        let medium = Memory::new(96 << 20);
        let format = FormatOptions { protection, ..FormatOptions::default() };
        Pool::format(&medium, TestHost::new(1), &format).unwrap();
        let pool = Pool::open(medium, TestHost::new(2), &OpenOptions::default()).unwrap();
        changed(&pool);
        let (pages, twins) = uses(&pool);
        let of = |used_for: Use| pages.get(&used_for).copied().unwrap_or_default();
        assert!(of(Use::Tables) > 0 && of(Use::Logs) > 0 && of(Use::Data) > 1000, "{pages:?}");
        let metadata = of(Use::Tables) + of(Use::Logs) + of(Use::Lanes);
        let wanted = match protection {
            Protection::None => 1,
            Protection::Metadata => metadata + 1,
            Protection::Full => metadata + 1 + of(Use::Checksums),
        };
        assert_eq!(twins, wanted, "{protection:?}");
        assert_eq!(of(Use::Parity) > 0, protection == Protection::Full);
        assert_eq!(of(Use::Free), pool.space().pages_free - waiting(&pool), "{protection:?}");
        let bytes = pool.manifest_bytes().unwrap();
        assert!(bytes.memory > bytes.checkpoint && bytes.checkpoint > 0, "{bytes:?}");
        pool.close().unwrap();
        let (medium, read_only) =
            (pool.medium().clone(), OpenOptions { read_only: true, ..OpenOptions::default() });
        let closed = Pool::open(medium, TestHost::new(3), &read_only).unwrap();
        let (after, _) = uses(&closed);
        assert_eq!(after.get(&Use::Tables), pages.get(&Use::Tables));
    }
}

fn waiting(pool: &TestPool) -> u64 {
    pool.gauges().unwrap().waiting_pages
}
