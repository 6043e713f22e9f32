//! Single pages of memory that is lent: they are told as such, are free in neither copy of metadata, and are moved nowhere.

use std::collections::BTreeMap;

use crate::uses::uses;
use lode_engine::{
    BadPage, Fallocate, FormatOptions, Host, Ino, LENT_BYTES, NewInode, OpenOptions, PAGE_BYTES,
    PagesUsed, Pool, Protection, Use, mode,
};
use lode_pmem::Medium;
use lode_testkit::{Healing, Memory, Poisoned, TestHost};

const BYTES: u64 = 32 << 20;
const PAGES: u64 = LENT_BYTES / PAGE_BYTES;
const NEW: NewInode = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };

fn made<M: Medium + Clone>(medium: &M, protection: Protection) -> Pool<M, TestHost> {
    let format = FormatOptions { protection, ..FormatOptions::default() };
    Pool::format(medium.clone(), TestHost::new(1), &format).unwrap();
    opened(medium)
}

fn opened<M: Medium + Clone>(medium: &M) -> Pool<M, TestHost> {
    Pool::open(medium.clone(), TestHost::new(2), &OpenOptions::default()).unwrap()
}

fn sound<M: Medium, H: Host>(pool: &Pool<M, H>) {
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
}

fn told<M: Medium, H: Host>(pool: &Pool<M, H>) -> Vec<PagesUsed> {
    let mut told = Vec::new();
    pool.for_each_use(&mut |run| told.push(run)).unwrap();
    told
}

/// Files with logs of several pages.
fn with_logs(pool: &Pool<Memory, TestHost>) {
    for number in 0..30_u64 {
        let name = number.to_string();
        let ino = pool.create(pool.root(), name.as_bytes(), &NEW).unwrap().ino;
        for part in 0..150 {
            pool.write(ino, part * 2 * PAGE_BYTES, b"something").unwrap();
        }
    }
}

#[test]
fn what_is_lent_is_told_as_that_each_page_once() {
    for protection in Protection::ALL {
        let memory = Memory::new(BYTES);
        let pool = made(&memory, protection);
        with_logs(&pool);
        pool.close().unwrap();
        // Of what is held files have a part; of what is lent they have none.
        memory.hold(5 * LENT_BYTES, 5 * LENT_BYTES);
        let pool = opened(&memory);
        let of = |pages: &BTreeMap<Use, u64>, used: Use| pages.get(&used).copied().unwrap_or(0);
        let (held, _) = uses(&pool);
        let part = of(&held, Use::Lent);
        assert!(part > 0 && part < 5 * PAGES, "{protection:?}: {part}");
        let lent = [(); 2].map(|()| pool.lend(0).unwrap());
        let (pages, _) = uses(&pool);
        assert_eq!(of(&pages, Use::Lent), part + 2 * PAGES, "{protection:?}");
        assert_eq!(of(&pages, Use::Free), of(&held, Use::Free) - 2 * PAGES, "{protection:?}");
        lent.iter().for_each(|chunk| pool.give_back(*chunk).unwrap());
        assert_eq!(uses(&pool).0, held, "{protection:?}");
        (5..10).for_each(|chunk| pool.give_back(chunk).unwrap());
        let (pages, _) = uses(&pool);
        assert_eq!(of(&pages, Use::Lent), 0);
        assert_eq!(of(&pages, Use::Free), of(&held, Use::Free) + part);
    }
}

#[test]
fn metadata_that_ends_gives_neither_copy_to_others_where_a_program_has_the_chunk_it_is_in() {
    let places: [fn(&PagesUsed) -> u64; 2] = [|run| run.page, |run| run.twin.unwrap()];
    for (protection, place) in [Protection::Metadata, Protection::Full]
        .into_iter()
        .flat_map(|it| places.map(|at| (it, at)))
    {
        let memory = Memory::new(BYTES);
        let pool = made(&memory, protection);
        with_logs(&pool);
        let logs = told(&pool).into_iter().filter(|run| run.used_for == Use::Logs);
        let mut chunks: Vec<u64> = logs.map(|run| place(&run) / PAGES).collect();
        chunks.dedup();
        let chunk = *chunks.last().unwrap();
        pool.close().unwrap();
        memory.hold(chunk * LENT_BYTES, LENT_BYTES);
        let pool = opened(&memory);
        for number in 0..30 {
            pool.unlink(pool.root(), number.to_string().as_bytes()).unwrap();
        }
        pool.maintain().unwrap();
        sound(&pool);
        let here = |run: &PagesUsed| {
            let (from, end) = (run.page.max(chunk * PAGES), (chunk + 1) * PAGES);
            (run.page + run.pages).min(end).saturating_sub(from)
        };
        let of = |used: Use| {
            told(&pool).iter().filter(|run| run.used_for == used).map(here).sum::<u64>()
        };
        assert_eq!(of(Use::Free), 0, "{protection:?}: chunk {chunk}");
        let (lent, free) = (of(Use::Lent), pool.space().pages_free);
        assert!(lent > PAGES / 2, "{lent}");
        pool.give_back(chunk).unwrap();
        assert_eq!((of(Use::Free), pool.space().pages_free), (lent, free + lent));
        sound(&pool);
    }
}

/// A file without a name that has a chunk, all of it written, of which a line is bad, and that is known.
fn with_bad_page(pool: &Pool<Poisoned<Memory>, TestHost>) -> (Ino, BadPage) {
    let ino = pool.create_nameless(pool.root(), &NEW, &[]).unwrap().ino;
    pool.fallocate(ino, Fallocate::Allocate { keep_size: false }, 0, LENT_BYTES).unwrap();
    let bytes = vec![7; LENT_BYTES as usize];
    pool.write(ino, 0, &bytes).unwrap();
    let extents = pool.dump_inode(ino).unwrap().extents;
    assert!(extents.len() == 1 && extents[0].pool_offset.is_multiple_of(LENT_BYTES), "{extents:?}");
    let at = extents[0].pool_offset + 9 * PAGE_BYTES;
    pool.medium().poison(at, 1);
    pool.read(ino, 9 * PAGE_BYTES, &mut [0; 100]).unwrap();
    let bad = BadPage { page: at / PAGE_BYTES, lines: 1, in_use: true };
    assert_eq!(pool.bad_memory().unwrap(), [bad]);
    (ino, bad)
}

#[test]
fn a_page_that_has_gone_bad_is_moved_unless_a_program_has_it_as_memory() {
    for is_lent in [false, true] {
        let medium = Poisoned::new(Memory::new(BYTES), Healing::Never);
        let pool = made(&medium, Protection::Full);
        let (ino, bad) = with_bad_page(&pool);
        let file = pool.take_over(ino).unwrap();
        let chunk = is_lent.then(|| pool.lend_part(&file, 0).unwrap());
        assert!(chunk.is_none_or(|chunk| chunk == bad.page / PAGES));
        let before = pool.dump_inode(ino).unwrap().extents;
        let mut scrub = pool.begin_scrub().unwrap();
        while !scrub.is_over() {
            pool.scrub(&mut scrub, 1 << 20).unwrap();
        }
        let after = pool.dump_inode(ino).unwrap().extents;
        assert_eq!(before == after, is_lent, "{after:?}");
        pool.let_go(file);
        pool.maintain().unwrap();
        // Nobody gets it then.
        if let Some(chunk) = chunk {
            let free = pool.space().pages_free;
            pool.give_back(chunk).unwrap();
            assert_eq!(pool.space().pages_free, free + PAGES - 1);
        }
        assert_eq!(pool.bad_memory().unwrap(), [BadPage { in_use: false, ..bad }]);
        sound(&pool);
    }
}

#[test]
fn of_what_is_locked_all_chunks_are_held_that_it_is_in() {
    let memory = Memory::new(BYTES);
    made(&memory, Protection::None).close().unwrap();
    let chunk = |number: u64| number * LENT_BYTES;
    for (at, len, held) in [
        (chunk(3), 1, vec![3]),
        (chunk(3) + 5000, 10, vec![3]),
        (chunk(4) - 1, 1, vec![3]),
        (chunk(4) - 1, 2, vec![3, 4]),
        (chunk(3) + 1, LENT_BYTES, vec![3, 4]),
        (chunk(3), LENT_BYTES, vec![3]),
        (chunk(14) + 1, u64::MAX, vec![14, 15]),
        (BYTES + 1, 10, vec![]),
    ] {
        memory.hold(at, len);
        let pool = opened(&memory);
        assert_eq!(pool.lent().unwrap(), held, "{len} at {at}");
        held.iter().for_each(|chunk| pool.give_back(*chunk).unwrap());
        sound(&pool);
        pool.close().unwrap();
        memory.hold_nothing();
    }
}
