//! Forks: a child gets memory of its own.
//!
//! The pool's pages are shared with a child by the kernel, as all pages of a file are. So the child, before
//! anything else of it runs, asks for chunks of its own (or takes DRAM), copies into them what it has inherited, and
//! puts them in its place; the parent's forking thread waits meanwhile, and has all of the allocator's locks. A child that
//! gets no further is not waited for: `fork_page` says how it is told.
//!
//! These handlers have to be registered before the allocator's: then they run after its own before a fork, and before
//! its own behind it, in the child too, where the allocator's locks may lie in shared pages until then.
//! No other thread is waited for: whatever lock another thread had is one that was taken before the fork.
use core::sync::atomic::{AtomicBool, Ordering};

use crate::fork_page::ForkPage;
use crate::memory::{self, Backing, Memory, PAGE, PAGES, SLOT, Stats, runs};
use crate::session::Session;
use crate::{keeper, sys};

static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Registers the handlers, once.
pub fn install() {
    if !INSTALLED.swap(true, Ordering::AcqRel) {
        // SAFETY: the handlers are there as long as this library is; they take and let go what is said with them.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    }
}

unsafe extern "C" fn prepare() {
    let _errno = sys::KeepErrno::new();
    let mut memory = memory::lock();
    if memory.is_on_block() {
        // (Parent and child would run on the same pages, and neither would ever come back.)
        sys::die(b"lode: a fork on a stack that is malloc's: give it a mapped one, or use --dram-below\n");
    }
    if memory.leave_stack().is_err() {
        sys::die(b"lode: no memory for the stack of a thread that forks\n");
    }
    if memory.stats.held > 0 {
        memory.fork = ForkPage::new();
    }
    core::mem::forget(memory);
}

unsafe extern "C" fn parent() {
    let _errno = sys::KeepErrno::new();
    // SAFETY: `prepare` has locked it in this thread.
    let mut memory = unsafe { memory::locked_before() };
    let seconds = memory.settings.fork_seconds;
    core::mem::replace(&mut memory.fork, ForkPage::NONE).await_child(seconds);
}

unsafe extern "C" fn child() {
    let _errno = sys::KeepErrno::new();
    // SAFETY: `prepare` has locked it in the thread that this one was forked from; there is no other one here.
    let mut memory = unsafe { memory::locked_before() };
    keeper::forget();
    memory.bell.close();
    let page = core::mem::replace(&mut memory.fork, ForkPage::NONE).of_child();
    if !page.is_there() && memory.stats.held > 0 {
        sys::die(b"lode: no page was left for a fork: its child can't have memory of its own\n");
    }
    memory.forget_unforked();
    let files = memory.disinherit();
    if page.is_there() {
        if memory.copy_inherited(&page, &files).is_err() {
            sys::die(b"lode: no memory for a fork's child\n");
        }
        if !page.finish() {
            // What was copied may be of different moments by now.
            sys::die(b"lode: a fork's child was too late with its copy of its parent's memory\n");
        }
    }
    for file in files.into_iter().filter(memory::File::is_there) {
        sys::close(file.descriptor);
    }
}

impl Memory {
    /// In a child: lets go of all that is the parent's, but what is to be copied. The parent's descriptors, to be closed.
    fn disinherit(&mut self) -> [memory::File; 8] {
        self.session.close();
        self.session = Session::NONE;
        self.forget_ready();
        let mut at = 0;
        while let Some(slot) = self.space.skip_unused(at) {
            at = slot + 1;
            let found = self.space.look(slot);
            if found.backing != Backing::Pool {
                continue;
            }
            if found.used == 0 {
                self.set_idle(slot, false);
                let _ = self.vacate_slot(slot);
            }
            if let Some(slot) = self.space.slot(slot) {
                slot.backing = if found.used == 0 { Backing::None } else { Backing::Inherited };
                slot.dirty = if found.used == 0 { [0; PAGES / 64] } else { slot.dirty };
            }
        }
        let dram = self.stats.dram;
        self.stats = Stats { dram, dram_peak: dram, ..Stats::default() };
        self.take_files()
    }

    fn copy_inherited(&mut self, page: &ForkPage, files: &[memory::File; 8]) -> Result<(), i32> {
        let (mut at, mut from_pool) = (0, true);
        let scratch = self.space.scratch_slot();
        while let Some(slot) = self.space.skip_unused(at) {
            at = slot + 1;
            let found = self.space.look(slot);
            if found.backing != Backing::Inherited {
                continue;
            }
            let wanted = if from_pool { self.inherited_from(slot) } else { 0 };
            from_pool = self.back_scratch(wanted)?;
            if self.space.is_for_maps(slot) {
                self.settle_mapped(scratch, slot)?;
                continue;
            }
            let (source, target) = (self.space.address(slot), self.space.address(scratch));
            if found.odd
                && let Some(file) =
                    files.get(usize::from(found.file)).filter(|file| file.is_there())
            {
                // (What its parent may not read is copied, too.)
                let start = u64::from(found.chunk) * SLOT as u64;
                sys::file_at(source, SLOT, file.descriptor, start)?;
            }
            // SAFETY: both slots are mapped; there is no other thread.
            runs(&found.dirty, |from, to| unsafe {
                sys::copy(source + from * PAGE, target + from * PAGE, (to - from) * PAGE);
            });
            self.settle(scratch, slot)?;
            page.has_copied();
        }
        Ok(())
    }

    /// Slots that are still to be copied, up to a frame of them.
    fn inherited_from(&mut self, slot: usize) -> usize {
        let (mut at, mut count) = (slot, 0);
        while count < 512
            && let Some(slot) = self.space.skip_unused(at)
        {
            at = slot + 1;
            count += usize::from(self.space.look(slot).backing == Backing::Inherited);
        }
        count
    }
}
