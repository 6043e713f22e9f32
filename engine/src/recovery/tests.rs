//! What memory has lost by the end of a session never reaches the medium.

#![allow(clippy::unwrap_used)]

use lode_testkit::Memory;

use crate::space::tests::TestHost;
use crate::{FormatOptions, NewInode, OpenOptions, Pool, mode};

const FILE: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };

fn open(memory: &Memory) -> Pool<Memory, TestHost> {
    Pool::open(memory.clone(), TestHost, &OpenOptions::default()).unwrap()
}

/// A session in which `flip` happens leaves a pool that is sound, with its file; clean or not.
fn session(flip: impl Fn(&Pool<Memory, TestHost>, u64), clean: bool) {
    let memory = Memory::new(2 << 20);
    let format = FormatOptions { lanes: 1, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost, &format).unwrap();
    let pool = open(&memory);
    let file = pool.create(pool.root(), b"file", &FILE).unwrap().ino;
    pool.append(file, &[7; 9000]).unwrap();
    flip(&pool, file);
    pool.close().unwrap();
    let pool = open(&memory);
    assert_eq!(pool.opening().clean, clean);
    assert_eq!(pool.lookup(pool.root(), b"file").unwrap().size, 9000);
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
}

#[test]
fn a_session_without_flips_leaves_a_checkpoint() {
    session(|_, _| (), true);
}

#[test]
fn a_flipped_bit_of_free_space_is_in_no_checkpoint() {
    // The last page that can be had is free; the first one is the root's.
    session(|pool, _| pool.store.space.flip(pool.store.geometry.end_page() - 1), false);
    session(|pool, _| pool.store.space.flip(pool.store.geometry.first_page()), false);
}

#[test]
fn a_flipped_bit_of_a_log_s_last_seal_is_in_no_checkpoint() {
    let flip = |pool: &Pool<Memory, TestHost>, file| {
        let slot = pool.store.table.find(file).unwrap();
        slot.piece.flip_tail(slot.index, 1 << 40);
    };
    session(flip, false);
}
