//! System calls, as thin as they can be.
//!
//! They go by `syscall`, not by libc's functions of the same names: those are points where a thread
//! can be cancelled, and a thread that ends inside an allocator ends with its lock held. Addresses are
//! numbers here; who hands one in says that the memory there is this crate's (each caller works below the
//! lock on what it has reserved).
use core::ffi::CStr;

/// A result with the system's error number.
pub(crate) type Outcome<T> = Result<T, i32>;

/// No descriptor.
pub(crate) const NONE: i32 = -1;
/// Where this crate's descriptors are: programs close low ones, or put their own in their place.
const HIGH: usize = 512;

fn call6(number: libc::c_long, arguments: [usize; 6]) -> Outcome<usize> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: all callers are below, and hand in what the call of this number takes.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    usize::try_from(result).map_err(|_| errno())
}

fn call(number: libc::c_long, a: usize, b: usize, c: usize, d: usize) -> Outcome<usize> {
    call6(number, [a, b, c, d, 0, 0])
}

/// As [`call`], again after a signal.
fn again(number: libc::c_long, a: usize, b: usize, c: usize, d: usize) -> Outcome<usize> {
    loop {
        match call(number, a, b, c, d) {
            Err(libc::EINTR) => {}
            result => return result,
        }
    }
}

/// This thread's `errno`.
pub(crate) fn errno() -> i32 {
    // SAFETY: the address is this thread's errno, which lives as long as the thread.
    unsafe { *libc::__errno_location() }
}

/// Sets it.
pub(crate) fn set_errno(number: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = number };
}

/// `errno` is when this goes what it was when it was made: what frees and allocates must not change it.
pub(crate) struct KeepErrno(i32);

impl KeepErrno {
    pub(crate) fn new() -> Self {
        Self(errno())
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        set_errno(self.0);
    }
}

/// Milliseconds of a clock that nobody sets.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is the call's.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1000).wrapping_add(time.tv_nsec as u64 / 1_000_000)
}

/// This process.
pub(crate) fn pid() -> u32 {
    call(libc::SYS_getpid, 0, 0, 0, 0).unwrap_or(0) as u32
}

/// Waits while `word` is `value`; may come back earlier.
pub(crate) fn futex_wait(word: &core::sync::atomic::AtomicU32, value: u32) {
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let _ = call(libc::SYS_futex, word.as_ptr() as usize, op as usize, value as usize, 0);
}

/// Wakes one that waits.
pub(crate) fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    let _ = call(libc::SYS_futex, word.as_ptr() as usize, op as usize, 1, 0);
}

/// Waits while `word`, in memory that processes share, is `value`, for at most so long; may come back earlier.
pub(crate) fn futex_wait_shared(word: &core::sync::atomic::AtomicU32, value: u32, ms: u64) {
    let time = timespec(ms);
    let (place, op) = (word.as_ptr() as usize, libc::FUTEX_WAIT as usize);
    let _ = call(libc::SYS_futex, place, op, value as usize, (&raw const time) as usize);
}

/// Wakes another process that waits.
pub(crate) fn futex_wake_shared(word: &core::sync::atomic::AtomicU32) {
    let _ = call(libc::SYS_futex, word.as_ptr() as usize, libc::FUTEX_WAKE as usize, 1, 0);
}

fn timespec(milliseconds: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (milliseconds / 1000) as libc::time_t,
        tv_nsec: (milliseconds % 1000 * 1_000_000) as libc::c_long,
    }
}

// Descriptors.

pub(crate) fn close(descriptor: i32) {
    let _ = call(libc::SYS_close, descriptor as usize, 0, 0, 0);
}

/// Moves a descriptor that was just made up, out of programs' way; where it can't be, it stays. Close-on-exec either way.
/// [`NONE`] where the program has closed it meanwhile, and has another one there: that one is left alone.
pub(crate) fn raise(descriptor: i32) -> i32 {
    let was = identity(descriptor);
    for least in [HIGH, HIGH / 4, 16] {
        let moved =
            call(libc::SYS_fcntl, descriptor as usize, libc::F_DUPFD_CLOEXEC as usize, least, 0);
        if let Ok(moved) = moved {
            let moved = moved as i32;
            if identity(descriptor) == was {
                close(descriptor);
            }
            if identity(moved) != was {
                close(moved);
                return NONE;
            }
            return moved;
        }
    }
    descriptor
}

/// What a descriptor leads to: device and inode. None where it is closed.
pub(crate) fn identity(descriptor: i32) -> Option<(u64, u64)> {
    // SAFETY: a structure of numbers, for which zeros are values.
    let mut found: libc::stat = unsafe { core::mem::zeroed() };
    let place = (&raw mut found) as usize;
    call(libc::SYS_fstat, descriptor as usize, place, 0, 0).ok()?;
    Some((found.st_dev, found.st_ino))
}

/// Whether it is a device that is read by characters, as device DAX is.
pub(crate) fn is_device(descriptor: i32) -> bool {
    // SAFETY: a structure of numbers, for which zeros are values.
    let mut found: libc::stat = unsafe { core::mem::zeroed() };
    let place = (&raw mut found) as usize;
    call(libc::SYS_fstat, descriptor as usize, place, 0, 0).is_ok()
        && found.st_mode & libc::S_IFMT == libc::S_IFCHR
}

/// Whether the file lies in memory (tmpfs).
pub(crate) fn in_memory(descriptor: i32) -> bool {
    // SAFETY: a structure of numbers, for which zeros are values.
    let mut found: libc::statfs = unsafe { core::mem::zeroed() };
    let place = (&raw mut found) as usize;
    call(libc::SYS_fstatfs, descriptor as usize, place, 0, 0).is_ok()
        && found.f_type == libc::TMPFS_MAGIC
}

/// A pipe's two ends: to read, to write.
pub(crate) fn pipe() -> Outcome<(i32, i32)> {
    let mut ends = [0_i32; 2];
    call(libc::SYS_pipe2, ends.as_mut_ptr() as usize, libc::O_CLOEXEC as usize, 0, 0)?;
    let [read, write] = ends;
    Ok((raise(read), raise(write)))
}

/// Two sockets that are connected to each other, not blocking.
pub(crate) fn socket_pair() -> Outcome<(i32, i32)> {
    let mut ends = [0_i32; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let (family, place) = (libc::AF_UNIX as usize, ends.as_mut_ptr() as usize);
    call(libc::SYS_socketpair, family, kind as usize, 0, place)?;
    let [one, other] = ends;
    Ok((raise(one), raise(other)))
}

pub(crate) fn write(descriptor: i32, bytes: &[u8]) -> Outcome<usize> {
    again(libc::SYS_write, descriptor as usize, bytes.as_ptr() as usize, bytes.len(), 0)
}

/// Opens a file to append to it, and makes it.
pub(crate) fn append_to(path: &CStr) -> Outcome<i32> {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    let at = libc::AT_FDCWD as usize;
    again(libc::SYS_openat, at, path.as_ptr() as usize, flags as usize, 0o600)
        .map(|file| file as i32)
}

/// The name of the program that runs, as the kernel shortens it; ended by zeros.
pub(crate) fn program() -> [u8; 16] {
    let mut name = [0_u8; 16];
    let place = name.as_mut_ptr() as usize;
    let _ = call(libc::SYS_prctl, libc::PR_GET_NAME as usize, place, 0, 0);
    name
}

/// A connected socket, not blocking.
pub(crate) fn connect(path: &[u8]) -> Outcome<i32> {
    // SAFETY: a structure of numbers, for which zeros are values.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if path.is_empty() || path.len() >= address.sun_path.len() {
        return Err(libc::EINVAL);
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = *from as libc::c_char;
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let made = call(libc::SYS_socket, libc::AF_UNIX as usize, kind as usize, 0, 0)? as i32;
    let made = raise(made);
    let place = (&raw const address) as usize;
    let bytes = size_of::<libc::sockaddr_un>();
    match again(libc::SYS_connect, made as usize, place, bytes, 0) {
        Ok(_) => Ok(made),
        Err(error) => {
            close(made);
            Err(error)
        }
    }
}

/// The process at the other end of a connected socket: the one that made it listen, where it was connected to.
pub(crate) fn peer(socket: i32) -> Option<u32> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET as usize, libc::SO_PEERCRED as usize);
    let (place, length) = ((&raw mut found) as usize, (&raw mut bytes) as usize);
    call6(libc::SYS_getsockopt, [socket as usize, level, option, place, length, 0]).ok()?;
    u32::try_from(found.pid).ok()
}

/// Sends what it can; nobody gets a signal for it.
pub(crate) fn send(socket: i32, bytes: &[u8]) -> Outcome<usize> {
    let place = bytes.as_ptr() as usize;
    let flags = libc::MSG_NOSIGNAL as usize;
    again(libc::SYS_sendto, socket as usize, place, bytes.len(), flags)
}

/// Receives what is there; with it a descriptor, where one comes along.
pub(crate) fn receive(socket: i32, bytes: &mut [u8]) -> Outcome<(usize, Option<i32>)> {
    #[repr(align(8))]
    struct Room([u8; 64]);
    let mut room = Room([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: a structure of numbers and pointers, for which zeros are values.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = room.0.as_mut_ptr().cast();
    message.msg_controllen = room.0.len();
    let place = (&raw mut message) as usize;
    let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as usize;
    let got = again(libc::SYS_recvmsg, socket as usize, place, flags, 0)?;
    let mut found = None;
    // SAFETY: the kernel has filled in the message; its parts are walked as cmsg(3) has it, and read without alignment.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(this) = head.as_ref() {
            if this.cmsg_level == libc::SOL_SOCKET && this.cmsg_type == libc::SCM_RIGHTS {
                let bytes = this.cmsg_len - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(head).cast::<i32>();
                for at in 0..bytes / size_of::<i32>() {
                    let descriptor = data.add(at).read_unaligned();
                    if found.is_none() { found = Some(descriptor) } else { close(descriptor) }
                }
            }
            head = libc::CMSG_NXTHDR(&raw const message, head);
        }
    }
    Ok((got, found.map(raise).filter(|it| *it != NONE)))
}

/// Waits until one of the descriptors can be read, or can be written where `write` says so; at most
/// `milliseconds`. Whether each can (or is closed at the other end).
pub(crate) fn poll<const N: usize>(
    descriptors: [i32; N],
    write: bool,
    milliseconds: u64,
) -> [bool; N] {
    let events = if write { libc::POLLOUT } else { libc::POLLIN };
    let mut polls = descriptors.map(|fd| libc::pollfd { fd, events, revents: 0 });
    let time = timespec(milliseconds);
    let place = (&raw const time) as usize;
    // Who waits looks at its clock, so a signal's cutting it off does no harm.
    let _ = call(libc::SYS_ppoll, polls.as_mut_ptr() as usize, N, place, 0);
    polls.map(|poll| poll.revents != 0)
}

/// How bytes of a file are locked for its open file description.
#[derive(Clone, Copy)]
pub(crate) enum Locked {
    /// For it alone.
    Alone = libc::F_WRLCK as isize,
    /// With others.
    Shared = libc::F_RDLCK as isize,
    /// Not.
    No = libc::F_UNLCK as isize,
}

/// Locks bytes of a file for its open file description, or unlocks them; all that follow, where `bytes` is 0.
pub(crate) fn lock_bytes(file: i32, at: u64, bytes: u64, how: Locked) -> Outcome<()> {
    // SAFETY: a structure of numbers, for which zeros are values.
    let mut range: libc::flock = unsafe { core::mem::zeroed() };
    range.l_type = how as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = at as libc::off_t;
    range.l_len = bytes as libc::off_t;
    let place = (&raw mut range) as usize;
    again(libc::SYS_fcntl, file as usize, libc::F_OFD_SETLK as usize, place, 0).map(|_| ())
}

/// Names this thread.
pub(crate) fn name_thread(name: &CStr) {
    let _ = call(libc::SYS_prctl, libc::PR_SET_NAME as usize, name.as_ptr() as usize, 0, 0);
}

/// Ends the process, for a reason that is said.
pub(crate) fn die(words: &[u8]) -> ! {
    let _ = write(libc::STDERR_FILENO, words);
    loop {
        let _ = call(libc::SYS_exit_group, 127, 0, 0, 0);
    }
}

// Memory.

const ALL: usize = (libc::PROT_READ | libc::PROT_WRITE) as usize;

fn mmap(
    at: usize,
    bytes: usize,
    rights: usize,
    flags: i32,
    file: i32,
    from: u64,
) -> Outcome<usize> {
    let arguments = [at, bytes, rights, flags as usize, file as usize, from as usize];
    call6(libc::SYS_mmap, arguments)
}

/// What this process may have, in bytes, of what an `RLIMIT_...` is about.
pub(crate) fn limit(what: libc::__rlimit_resource_t) -> usize {
    let mut found = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
    let place = (&raw mut found) as usize;
    let _ = call(libc::SYS_prlimit64, 0, what as usize, 0, place);
    usize::try_from(found.rlim_cur).unwrap_or(usize::MAX)
}

/// Address space without memory, wherever there is some.
pub(crate) fn reserve(bytes: usize) -> Outcome<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    mmap(0, bytes, libc::PROT_NONE as usize, flags, NONE, 0)
}

/// Puts address space without memory in the place of what is mapped there.
pub(crate) fn vacate(at: usize, bytes: usize) -> Outcome<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    mmap(at, bytes, libc::PROT_NONE as usize, flags, NONE, 0).map(|_| ())
}

/// Anonymous memory wherever there is room; zeros.
pub(crate) fn anonymous(bytes: usize) -> Outcome<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    mmap(0, bytes, ALL, flags, NONE, 0)
}

/// A page of zeros that children share.
pub(crate) fn shared_page() -> Outcome<usize> {
    mmap(0, 4096, ALL, libc::MAP_SHARED | libc::MAP_ANONYMOUS, NONE, 0)
}

/// Anonymous memory in the place of what is mapped there; zeros.
pub(crate) fn anonymous_at(at: usize, bytes: usize) -> Outcome<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    mmap(at, bytes, ALL, flags, NONE, 0).map(|_| ())
}

/// A part of a file in the place of what is mapped there.
pub(crate) fn file_at(at: usize, bytes: usize, file: i32, from: u64) -> Outcome<()> {
    mmap(at, bytes, ALL, libc::MAP_SHARED | libc::MAP_FIXED, file, from).map(|_| ())
}

/// Has all pages of a range mapped; where the system can't, they come when they are touched.
pub(crate) fn populate(at: usize, bytes: usize, by_reading: bool) {
    let how = if by_reading { libc::MADV_POPULATE_READ } else { libc::MADV_POPULATE_WRITE };
    let _ = again(libc::SYS_madvise, at, bytes, how as usize, 0);
}

/// Gives pages of anonymous memory up: they are zeros again.
pub(crate) fn discard(at: usize, bytes: usize) -> Outcome<()> {
    call(libc::SYS_madvise, at, bytes, libc::MADV_DONTNEED as usize, 0).map(|_| ())
}

/// Moves what is mapped at `from` to `to`, over what is mapped there. At `from` stays a mapping without
/// pages: no other thread's memory can come there in between.
pub(crate) fn move_pages(from: usize, to: usize, bytes: usize) -> Outcome<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    call6(libc::SYS_mremap, [from, bytes, bytes, flags as usize, to, 0]).map(|_| ())
}

/// `mmap` as it is asked for.
pub(crate) fn mmap_as(
    at: usize,
    bytes: usize,
    rights: i32,
    flags: i32,
    file: i32,
    from: usize,
) -> Outcome<usize> {
    mmap(at, bytes, rights as usize, flags, file, from as u64)
}

/// Unmaps what is mapped there.
pub(crate) fn unmap(at: usize, bytes: usize) -> Outcome<()> {
    call(libc::SYS_munmap, at, bytes, 0, 0).map(|_| ())
}

/// Says what may be done with memory.
pub(crate) fn protect(at: usize, bytes: usize, rights: i32) -> Outcome<()> {
    call(libc::SYS_mprotect, at, bytes, rights as usize, 0).map(|_| ())
}

/// `madvise`.
pub(crate) fn advise(at: usize, bytes: usize, advice: i32) -> Outcome<()> {
    call(libc::SYS_madvise, at, bytes, advice as usize, 0).map(|_| ())
}

/// `msync`.
pub(crate) fn msync(at: usize, bytes: usize, flags: i32) -> Outcome<()> {
    call(libc::SYS_msync, at, bytes, flags as usize, 0).map(|_| ())
}

/// `mremap`.
pub(crate) fn remap(at: usize, old: usize, new: usize, flags: i32, to: usize) -> Outcome<usize> {
    call6(libc::SYS_mremap, [at, old, new, flags as usize, to, 0])
}

/// Moves anonymous memory to `to`, over what is mapped there; nothing is left at `from`.
pub(crate) fn move_away(from: usize, to: usize, bytes: usize) -> Outcome<()> {
    remap(from, bytes, bytes, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, to).map(|_| ())
}

/// Maps the pages of a file that are mapped at `from` at `to`, too, readable and writable; over what is mapped there.
pub(crate) fn twin(from: usize, to: usize, bytes: usize) -> Outcome<()> {
    remap(from, 0, bytes, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, to)?;
    protect(to, bytes, libc::PROT_READ | libc::PROT_WRITE)
}

/// Has this thread take no signals; what it took before.
pub(crate) fn block_signals() -> u64 {
    let (all, mut before) = (u64::MAX, 0_u64);
    let places = ((&raw const all) as usize, (&raw mut before) as usize);
    let how = libc::SIG_SETMASK as usize;
    let _ = call(libc::SYS_rt_sigprocmask, how, places.0, places.1, size_of::<u64>());
    before
}

/// Has it take the signals again that it took.
pub(crate) fn restore_signals(before: u64) {
    let how = libc::SIG_SETMASK as usize;
    let place = (&raw const before) as usize;
    let _ = call(libc::SYS_rt_sigprocmask, how, place, 0, size_of::<u64>());
}

/// Fills memory with zeros.
///
/// # Safety
/// `bytes` from `at` are mapped, writable, and nobody's.
pub(crate) unsafe fn zero(at: usize, bytes: usize) {
    // SAFETY: as the caller says.
    unsafe { core::ptr::write_bytes(at as *mut u8, 0, bytes) };
}

/// Copies memory.
///
/// # Safety
/// `bytes` from both are mapped and don't overlap; those from `to` are nobody's.
pub(crate) unsafe fn copy(from: usize, to: usize, bytes: usize) {
    // SAFETY: as the caller says.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
}
