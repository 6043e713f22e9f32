//! A kernel that asks for anything, of any inode, with any arguments.

use lode_engine::{AccessTimes, FormatOptions, OpenOptions};
use lode_testkit::rng::Rng;
use lode_testkit::{Memory, TestHost};

use super::*;
use crate::views::View;
use crate::wire::{
    Answer, Errno, Handler, NewFile, NodeId, Operation, Reply, Request, Scratch, Who,
};
use crate::wire::{parse, samples};

const REQUESTS: u64 = 60_000;
const VIEW: View = View { name: "view", text: |_| Ok("text\n".to_owned()) };

fn mounted() -> LodeFs<Memory, TestHost> {
    let memory = Memory::new(64 << 20);
    Pool::format(memory.clone(), TestHost::new(1), &FormatOptions::default()).unwrap();
    let pool = Pool::open(memory, TestHost::new(1), &OpenOptions::default()).unwrap();
    let flags = u64::from(FUSE_POSIX_ACL);
    let agreed = Agreed { minor: 40, flags, offered: flags };
    let views = Views::new(&[VIEW], Arc::default());
    let (state, notices) = (Arc::new(State::new(pool, None)), Notices::default());
    let (point, options) = (Default::default(), Default::default());
    let desk = Desk::new(Arc::clone(&state), point, options, None, notices.clone());
    LodeFs::new(state, &agreed, AccessTimes::Relative, views, Arc::new(desk), notices)
}

#[test]
fn without_views_their_numbers_are_nothing() {
    let mut fs = mounted();
    fs.views = Views::new(&[], Arc::default());
    let mut scratch = Scratch::new(4096);
    for node in [views::DIRECTORY, views::DIRECTORY + 1, snapshots::SNAPSHOTS.0, u64::MAX] {
        for sample in samples::all() {
            let bytes = samples::request(sample.opcode as u32, node, &sample.body);
            let Ok(request) = parse(&bytes).unwrap().request else { continue };
            let pass = fs.enter().unwrap();
            let answer = fs.answer(&pass, &request, &mut scratch);
            assert!(!matches!(answer, Ok(Answer::Attr(_))), "{node}: {:?}", request.operation);
        }
    }
    fs.state.stop().unwrap();
}

/// Numbers that are at the edge of something.
const EDGES: [u64; 12] =
    [0, 1, 2, 7, 4095, 4096, 1 << 20, u32::MAX as u64, 1 << 40, i64::MAX as u64, !0 - 1, !0];

/// A request of some kind, about `node`, some of whose arguments are replaced.
fn request(rng: &mut Rng, samples: &[samples::Sample], node: u64) -> Vec<u8> {
    let sample = &samples[rng.below(samples.len() as u64) as usize];
    let mut body = sample.body.clone();
    for _ in 0..rng.below(3) {
        let (words, _) = body.as_chunks_mut::<8>();
        let count = words.len() as u64;
        if count > 0 {
            let edge = rng.pick(&EDGES);
            words[rng.below(count) as usize] = edge.to_le_bytes();
        }
    }
    // Names get to differ; types and permissions get to be sensible now and then.
    if let Some(name) = body.iter_mut().rfind(|byte| byte.is_ascii_alphabetic()) {
        *name = b'a' + rng.below(26) as u8;
    }
    let kinds = [libc::S_IFREG, libc::S_IFDIR, libc::S_IFLNK, libc::S_IFIFO, 0];
    if let (Operation::Mknod { .. }, Some(mode)) = (&sample.operation, body.first_chunk_mut()) {
        *mode = (rng.pick(&kinds) | 0o755).to_le_bytes();
    }
    samples::request(sample.opcode as u32, node, &body)
}

/// Most bytes that the kernel has room for in the answer's data.
fn room(operation: &Operation<'_>) -> u32 {
    match *operation {
        Operation::Read { size, .. }
        | Operation::Readdir { size, .. }
        | Operation::Readdirplus { size, .. }
        | Operation::Getxattr { size, .. }
        | Operation::Listxattr { size } => size,
        _ => u32::MAX,
    }
}

#[test]
fn whatever_is_asked_the_answer_has_its_size_and_the_pool_stays_whole() {
    let fs = mounted();
    let pass = fs.enter().unwrap();
    let pool = &pass.pool;
    let (mut rng, samples) = (Rng::new(7), samples::all());
    let (mut scratch, mut done) = (Scratch::new(MAX_WRITE as usize), 0);
    let new = lode_engine::NewInode { mode: 0o100_644, uid: 0, gid: 0, rdev: 0 };
    pool.create(pool.root(), b"old", &new).unwrap();
    pool.create_snapshot(b"snapshot").unwrap();
    let mut known = vec![1, views::DIRECTORY, views::DIRECTORY + 1, snapshots::SNAPSHOTS.0];
    known.push(pool.snapshot_root(b"snapshot").unwrap());
    for _ in 0..REQUESTS {
        let edge = rng.once_in(10);
        let node = if edge { rng.pick(&EDGES) } else { rng.pick(&known) };
        let bytes = request(&mut rng, &samples, node);
        let Ok(request) = parse(&bytes).unwrap().request else { continue };
        let answer = fs.answer(&pass, &request, &mut scratch);
        done += u64::from(answer.is_ok());
        if let Ok(Answer::Entry(entry) | Answer::Created(entry, _)) = &answer
            && entry.nodeid != 0
        {
            known.push(entry.nodeid);
        }
        if let Ok(Answer::Data(data)) = &answer {
            assert!(data.len() <= room(&request.operation) as usize, "{:?}", request.operation);
        }
        let reply = Reply::new(1, &answer).parts().concat();
        let (len, error) = (&reply[..4], i32::from_le_bytes(reply[4..8].try_into().unwrap()));
        assert_eq!(len, (reply.len() as u32).to_le_bytes());
        assert!((-511..=0).contains(&error), "{error}");
    }
    assert!(done > REQUESTS / 4 && known.len() > 100, "{done} done, {} found", known.len());
    pass.pins.clear(|ino| pool.release(ino));
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
    drop(pass);
    fs.state.stop().unwrap();
}

#[test]
fn a_file_is_made_and_opened_by_one_request_and_the_kernel_never_learns_not_to_send_it() {
    let fs = mounted();
    let pass = fs.enter().unwrap();
    pass.pool.create_snapshot(b"snapshot").unwrap();
    let in_snapshot = pass.pool.snapshot_root(b"snapshot").unwrap();
    let mut scratch = Scratch::new(4096);
    let mut make = |node: u64, flags: i32| {
        let file = NewFile { name: b"new", mode: 0o777, umask: 0o022, flags: flags as u32 };
        let who = Who { uid: 5, gid: 6, pid: 7 };
        let request = Request { node: NodeId(node), who, operation: Operation::Create(file) };
        match fs.answer(&pass, &request, &mut scratch) {
            Ok(Answer::Created(entry, open)) => Ok((entry, open.open_flags)),
            answer => Err(answer.unwrap_err()),
        }
    };
    let (made, flags) = make(1, libc::O_WRONLY | libc::O_EXCL).unwrap();
    assert_eq!(flags, fs.keeping.open_flags(libc::O_WRONLY as u32, false), "as if it was opened");
    let attr = pass.pool.lookup(pass.root, b"new").unwrap();
    assert_eq!((made.nodeid, made.attr.mode), (attr.ino, libc::S_IFREG | 0o755));
    assert_eq!((attr.uid, attr.gid, attr.mode), (5, 6, libc::S_IFREG | 0o755));
    assert!(pass.opened.has(attr.ino) && pass.pins.has(attr.ino), "open, and known");
    // (To that the kernel would answer all programs by two requests, for ever.)
    let views = [views::DIRECTORY, views::DIRECTORY + 1, snapshots::SNAPSHOTS.0];
    for node in [1, in_snapshot, attr.ino, 77].into_iter().chain(views) {
        let refused = make(node, libc::O_RDWR).unwrap_err();
        assert_ne!(refused, Errno::ENOSYS, "in {node}");
    }
    assert_eq!(make(1, 0), Err(Errno::new(libc::EEXIST)));
    assert_eq!(make(in_snapshot, 0), Err(Errno::new(libc::EROFS)));
    assert_eq!(make(snapshots::SNAPSHOTS.0, 0), Err(Errno::new(libc::EROFS)));
    let operation = Operation::Release { handle: 0 };
    let release =
        Request { node: NodeId(attr.ino), who: Who { uid: 0, gid: 0, pid: 0 }, operation };
    fs.answer(&pass, &release, &mut scratch).unwrap();
    assert!(!pass.opened.has(attr.ino) && pass.pins.has(attr.ino), "known, and not open");
    pass.pins.clear(|ino| pass.pool.release(ino));
    drop(pass);
    fs.state.stop().unwrap();
}
