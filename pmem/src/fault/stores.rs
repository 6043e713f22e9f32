//! Stores that wait: to views that were writable and are protected just now.
//!
//! The handler of SIGSEGV hands the address to whoever answers for the view, through a pipe, and sleeps until there is an
//! answer: then the store is done again, or, if it can't be, the fault goes on to whoever handled the signal before. The thread that
//! faults makes system calls and no others meanwhile, so it does not matter what it was doing; it must hold nothing that who
//! answers needs.
//!
//! What this file guarantees: all that the handler calls here is safe in one (atomics and system calls). Only stores to what was
//! guarded in this process wait; other stores fail as they did.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Release, SeqCst},
};
use std::sync::{Arc, OnceLock};

use super::{ERROR_CODE_STORE, Handled, install};

const SEGV_ACCERR: i32 = 2;

/// What a store that waits is told.
const WAITS: u32 = 0;
const MAY: u32 = 1;
const MAY_NOT: u32 = 2;

/// Where a view is mapped whose stores may wait. Never freed: used again when it has ended.
struct Place {
    taken: AtomicBool,
    base: AtomicUsize,
    /// 0 while there is none.
    len: AtomicUsize,
    /// Whom to ask, and in which process.
    asked: AtomicI32,
    process: AtomicU32,
    /// Whether stores have ever been kept from it: before that none waits.
    armed: AtomicBool,
    next: AtomicPtr<Place>,
}

static FIRST: AtomicPtr<Place> = AtomicPtr::new(null_mut());

fn places() -> impl Iterator<Item = &'static Place> {
    let at = |place: &AtomicPtr<Place>| {
        // SAFETY: places are made once, whole, and never freed.
        unsafe { place.load(Acquire).as_ref() }
    };
    std::iter::successors(at(&FIRST), move |place| at(&place.next))
}

/// A place that is this caller's.
fn take_place() -> &'static Place {
    if let Some(place) = places().find(|place| !place.taken.swap(true, SeqCst)) {
        return place;
    }
    let place: &'static Place = Box::leak(Box::new(Place {
        taken: AtomicBool::new(true),
        base: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        asked: AtomicI32::new(-1),
        process: AtomicU32::new(0),
        armed: AtomicBool::new(false),
        next: AtomicPtr::new(null_mut()),
    }));
    let new = std::ptr::from_ref(place).cast_mut();
    let mut first = FIRST.load(Acquire);
    loop {
        place.next.store(first, Release);
        match FIRST.compare_exchange(first, new, SeqCst, Acquire) {
            Ok(_) => return place,
            Err(other) => first = other,
        }
    }
}

/// Stores to views that wait for an answer.
#[derive(Debug)]
pub struct StoreFaults {
    asked: Arc<OwnedFd>,
    questions: OwnedFd,
}

/// A store that waits. It fails when this is dropped without an answer.
#[derive(Debug)]
pub struct StoreFault {
    question: *const Question,
    address: usize,
}

/// What the handler has on its stack while it waits.
struct Question {
    address: usize,
    answer: AtomicU32,
}

/// That stores to a view may wait; no more when it is dropped.
pub(crate) struct Guarded {
    place: &'static Place,
    /// Kept open: its number would become another's.
    _asked: Arc<OwnedFd>,
}

impl std::fmt::Debug for Guarded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guarded")
    }
}

impl Guarded {
    /// Before stores are kept from it for the first time.
    pub(crate) fn arm(&self) -> io::Result<()> {
        install(Handled::Segv)?;
        self.place.armed.store(true, SeqCst);
        Ok(())
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.place.len.store(0, SeqCst);
        self.place.taken.store(false, SeqCst);
    }
}

impl StoreFaults {
    /// For views of which nobody stores yet.
    ///
    /// # Errors
    /// Where the process has too many files open.
    pub fn new() -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: an array of two numbers.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: two descriptors that were just made, and are nobody's yet.
        let [questions, asked] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        Ok(Self { asked: Arc::new(asked), questions })
    }

    /// Lets stores to a mapping wait here, once it is armed.
    pub(crate) fn guard(&self, base: usize, len: usize) -> Guarded {
        let place = take_place();
        place.armed.store(false, SeqCst);
        place.base.store(base, SeqCst);
        place.asked.store(self.asked.as_raw_fd(), SeqCst);
        place.process.store(std::process::id(), SeqCst);
        place.len.store(len, SeqCst);
        Guarded { place, _asked: Arc::clone(&self.asked) }
    }

    /// Waits for the next store; `None` after [`StoreFaults::end`].
    pub fn next(&self) -> Option<StoreFault> {
        let mut question = [0; size_of::<usize>()];
        // (What is written here in one go is read in one go.)
        let mut pipe = std::mem::ManuallyDrop::new(
            // SAFETY: a descriptor that stays open, and is not closed by this.
            unsafe { std::fs::File::from_raw_fd(self.questions.as_raw_fd()) },
        );
        pipe.read_exact(&mut question).ok()?;
        let question = usize::from_le_bytes(question) as *const Question;
        // SAFETY: who asks waits for the answer, with the question on its stack.
        let address = unsafe { question.as_ref()? }.address;
        Some(StoreFault { question, address })
    }

    /// Lets [`StoreFaults::next`] say that there is no more.
    pub fn end(&self) {
        ask(self.asked.as_raw_fd(), 0);
    }
}

// SAFETY: the question is read, and answered, once, by whoever has this.
unsafe impl Send for StoreFault {}

impl StoreFault {
    /// Where the store goes.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Lets the store be done again: it can be done now.
    pub fn allow(self) {
        self.answer(MAY);
        // (Who waited goes on: what was on its stack is something else.)
        std::mem::forget(self);
    }

    fn answer(&self, answer: u32) {
        // SAFETY: as in `next`; there was no answer yet.
        let word = unsafe { &(*self.question).answer };
        let at = word.as_ptr();
        if word.compare_exchange(WAITS, answer, SeqCst, SeqCst).is_ok() {
            // (Who waited may be gone already. To wake nobody, at an address that was one, does no harm.)
            // SAFETY: the kernel looks for who waits at this address and touches nothing there.
            unsafe {
                let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
                libc::syscall(libc::SYS_futex, at, wake, i32::MAX);
            }
        }
    }
}

impl Drop for StoreFault {
    fn drop(&mut self) {
        self.answer(MAY_NOT);
    }
}

/// Writes a question, or the end of them. Says whether it could.
fn ask(pipe: i32, question: usize) -> bool {
    let bytes = question.to_le_bytes();
    loop {
        // SAFETY: so many bytes of the stack.
        match unsafe { libc::write(pipe, bytes.as_ptr().cast(), bytes.len()) } {
            written if written == bytes.len() as isize => return true,
            // SAFETY: the thread's own number.
            -1 if unsafe { *libc::__errno_location() } == libc::EINTR => {}
            _ => return false,
        }
    }
}

/// In the handler: if this is a store to what is guarded, waits for the answer. Says whether it can be done again.
pub(super) fn wait(info: &libc::siginfo_t, context: &libc::ucontext_t) -> bool {
    let is_store = context.uc_mcontext.gregs[libc::REG_ERR as usize] & ERROR_CODE_STORE != 0;
    if info.si_code != SEGV_ACCERR || !is_store {
        return false;
    }
    // SAFETY: this code carries an address.
    let address = unsafe { info.si_addr() } as usize;
    let holds = |place: &&Place| {
        let (base, len) = (place.base.load(SeqCst), place.len.load(SeqCst));
        address.checked_sub(base).is_some_and(|offset| offset < len)
    };
    let Some(place) = places().find(holds) else { return false };
    let asked = place.asked.load(SeqCst);
    // (A child has inherited the table, and the pipe, but not the memory: who answers there is another process.)
    if !place.armed.load(SeqCst) || place.process.load(SeqCst) != std::process::id() {
        return false;
    }
    // SAFETY: system calls with values of the stack; `errno` is as it was when this returns.
    unsafe {
        let errno = *libc::__errno_location();
        // No other handler runs here meanwhile: its own store to such a view would be the end.
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let question = Question { address, answer: AtomicU32::new(WAITS) };
        let answer = match ask(asked, &raw const question as usize) {
            true => wait_for(&question.answer),
            false => MAY_NOT,
        };
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut());
        *libc::__errno_location() = errno;
        answer == MAY
    }
}

fn wait_for(answer: &AtomicU32) -> u32 {
    loop {
        let now = answer.load(SeqCst);
        if now != WAITS {
            return now;
        }
        let none: *const libc::timespec = std::ptr::null();
        // SAFETY: the word is on this stack.
        unsafe {
            let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            libc::syscall(libc::SYS_futex, answer.as_ptr(), wait, WAITS, none);
        }
    }
}

/// Whether a store to these bytes may have to wait, now or soon: who holds what an answer needs must not store there.
#[inline]
pub fn stores_may_wait(bytes: &[u8]) -> bool {
    !FIRST.load(Acquire).is_null() && is_guarded(bytes.as_ptr() as usize, bytes.len())
}

#[cold]
fn is_guarded(at: usize, len: usize) -> bool {
    places().any(|place| {
        let (base, bytes) = (place.base.load(SeqCst), place.len.load(SeqCst));
        at < base.saturating_add(bytes) && base < at.saturating_add(len)
    })
}

/// Brings what threads have streamed to the memory, once they may not store there any more. It may wait in their
/// processors: the interrupt by which they lose their rights drives it out; where the kernel needs none for that, this one does.
pub(crate) fn drain() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    const PRIVATE_EXPEDITED: i32 = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
    if !invalidates_without_interrupt() {
        return;
    }
    // SAFETY: takes numbers.
    let call = |command: i32| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if !REGISTERED.swap(true, SeqCst) {
        call(REGISTER_PRIVATE_EXPEDITED);
    }
    call(PRIVATE_EXPEDITED);
}

/// Whether the processor has INVLPGB, by which the kernel takes rights from other processors without an interrupt.
fn invalidates_without_interrupt() -> bool {
    const LEAF: u32 = 0x8000_0008;
    static FOUND: OnceLock<bool> = OnceLock::new();
    #[allow(unused_unsafe)]
    // SAFETY: every processor of this architecture has the instruction, and says how far its leaves go.
    *FOUND.get_or_init(|| unsafe {
        std::arch::x86_64::__cpuid(0x8000_0000).eax >= LEAF
            && std::arch::x86_64::__cpuid(LEAF).ebx & 1 << 3 != 0
    })
}
