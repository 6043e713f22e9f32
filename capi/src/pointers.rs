//! Pointers of C, checked as far as they can be: against NULL, misalignment and lengths that can't be.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::slice;

use crate::border::{Failure, Outcome};

/// Structures of options are no larger than this, whatever version of the library they are for.
const LARGEST: usize = 4096;

/// What a handle leads to.
///
/// # Safety
/// The handle is NULL, or came from this library and was not closed.
#[inline]
pub(crate) unsafe fn handle<'a, T>(handle: *mut T) -> Outcome<&'a T> {
    if handle.is_null() || !handle.is_aligned() {
        return Err(Failure::Argument(libc::EINVAL, "this is no handle"));
    }
    // SAFETY: it is neither NULL nor misaligned; the rest is the caller's promise.
    Ok(unsafe { &*handle })
}

/// What a handle leads to, for one who has it alone.
///
/// # Safety
/// As for [`handle`], and nobody else uses it meanwhile.
pub(crate) unsafe fn exclusive<'a, T>(given: *mut T) -> Outcome<&'a mut T> {
    // SAFETY: the caller's promise is this one. What it comes to is looked at by nobody.
    unsafe { handle(given) }?;
    // SAFETY: it is neither NULL nor misaligned, as was just found; the rest is the caller's promise.
    Ok(unsafe { &mut *given })
}

/// Takes back what a handle leads to; then there is no such handle any more.
///
/// # Safety
/// The handle is NULL, or came from this library (a `Box`), was not closed, and is used by nobody else.
pub(crate) unsafe fn take<T>(handle: *mut T) -> Outcome<Box<T>> {
    if handle.is_null() || !handle.is_aligned() {
        return Err(Failure::Argument(libc::EINVAL, "this is no handle"));
    }
    // SAFETY: it is neither NULL nor misaligned; the rest is the caller's promise.
    Ok(unsafe { Box::from_raw(handle) })
}

/// A string.
///
/// # Safety
/// The pointer is NULL, or leads to bytes that end with a NUL and stay as they are meanwhile.
#[inline]
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Outcome<&'a OsStr> {
    if text.is_null() {
        return Err(Failure::Argument(libc::EFAULT, "a string is NULL"));
    }
    // SAFETY: it is not NULL; the rest is the caller's promise.
    Ok(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()))
}

/// A path.
///
/// # Safety
/// As [`text`].
#[inline]
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Outcome<&'a Path> {
    // SAFETY: the caller's promise is this one.
    Ok(Path::new(unsafe { text(path) }?))
}

/// Whether `len` bytes can be at an address.
#[inline]
fn check_bytes(start: *const c_void, len: usize) -> Outcome<()> {
    if len > isize::MAX as usize {
        return Err(Failure::Argument(libc::EINVAL, "no buffer can be of this length"));
    }
    if start.is_null() || (start as usize).checked_add(len).is_none() {
        return Err(Failure::Argument(libc::EFAULT, "no buffer can be at this address"));
    }
    Ok(())
}

/// Bytes to be read.
///
/// # Safety
/// There are `len` bytes at `start`, if it can be at all; nobody changes them meanwhile.
#[inline]
pub(crate) unsafe fn bytes<'a>(start: *const c_void, len: usize) -> Outcome<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    check_bytes(start, len)?;
    // SAFETY: address and length are possible; the rest is the caller's promise.
    Ok(unsafe { slice::from_raw_parts(start.cast(), len) })
}

/// An array of structures of which any bytes are a value.
///
/// # Safety
/// There are `count` of them at `start`, if they can be there at all; nobody changes them meanwhile.
pub(crate) unsafe fn items<'a, T: Copy>(start: *const T, count: usize) -> Outcome<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    let len = count.saturating_mul(size_of::<T>());
    check_bytes(start.cast(), len)?;
    if !start.is_aligned() {
        return Err(Failure::Argument(libc::EFAULT, "no structure can be at this address"));
    }
    // SAFETY: address, alignment and length are possible; the rest is the caller's promise.
    Ok(unsafe { slice::from_raw_parts(start, count) })
}

/// Bytes to be written, which need not have been before: they come from C, where any is a value.
///
/// # Safety
/// There are `len` bytes at `start`, if it can be at all; nobody else uses them meanwhile.
#[inline]
pub(crate) unsafe fn bytes_mut<'a>(start: *mut c_void, len: usize) -> Outcome<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    check_bytes(start, len)?;
    // SAFETY: address and length are possible; the rest is the caller's promise.
    Ok(unsafe { slice::from_raw_parts_mut(start.cast(), len) })
}

/// Where a structure is to be stored.
///
/// # Safety
/// There is a place for a `T` at `place`, if it can be at all.
pub(crate) unsafe fn place<'a, T>(place: *mut T) -> Outcome<&'a mut MaybeUninit<T>> {
    if place.is_null() || !place.is_aligned() {
        return Err(Failure::Argument(libc::EFAULT, "no structure can be at this address"));
    }
    // SAFETY: it is neither NULL nor misaligned; the rest is the caller's promise.
    Ok(unsafe { &mut *place.cast() })
}

/// A structure of numbers and pointers alone, of which any bytes are a value, zeros too; and which
/// begins with its size.
///
/// # Safety
/// Exactly that, with `repr(C)`.
pub(crate) unsafe trait Extensible: Copy {
    /// Bytes of its first version.
    const FIRST: usize;
}

/// A structure of options that begins with its size, as the caller has it. What an older caller
/// does not have is 0. What only a newer one has must be 0.
///
/// # Safety
/// There are as many bytes at `start` as the first eight say; nobody changes them meanwhile.
pub(crate) unsafe fn options<T: Extensible>(start: *const T) -> Outcome<T> {
    // SAFETY: all fields of a `T` may be zero.
    let mut all = unsafe { MaybeUninit::<T>::zeroed().assume_init() };
    if start.is_null() {
        return Ok(all);
    }
    // SAFETY: it is not NULL; that there is a size is the caller's promise.
    let size = unsafe { start.cast::<usize>().read_unaligned() };
    if size < T::FIRST {
        return Err(Failure::Argument(libc::EINVAL, "the size of the options is not set"));
    }
    if size > LARGEST {
        return Err(Failure::Argument(libc::E2BIG, "the size of the options can't be"));
    }
    // SAFETY: there are `size` bytes by the caller's promise.
    let given = unsafe { bytes(start.cast(), size) }?;
    let (known, unknown) = given.split_at(size.min(size_of::<T>()));
    if unknown.iter().any(|byte| *byte != 0) {
        return Err(Failure::Argument(libc::E2BIG, "the options are of a newer version"));
    }
    // SAFETY: `known` is no longer than a `T`, which is ours, and any bytes are a value of it.
    unsafe { std::ptr::copy_nonoverlapping(known.as_ptr(), (&raw mut all).cast(), known.len()) };
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Sample {
        size: usize,
        one: u64,
        two: u64,
    }

    // SAFETY: numbers alone, the size first.
    unsafe impl Extensible for Sample {
        const FIRST: usize = 16;
    }

    /// What comes of so many words, or the error number.
    fn read(words: &[u64]) -> Result<(u64, u64), i32> {
        // SAFETY: each test gives as many words as the first says, or one that is refused.
        let read = unsafe { options::<Sample>(words.as_ptr().cast()) };
        match read {
            Ok(sample) => Ok((sample.one, sample.two)),
            Err(Failure::Argument(number, _)) => Err(number),
            Err(_) => unreachable!(),
        }
    }

    #[test]
    fn options_of_other_versions_are_read() {
        assert_eq!(read(&[16, 1]), Ok((1, 0)), "an older caller");
        assert_eq!(read(&[24, 1, 2]), Ok((1, 2)));
        assert_eq!(read(&[32, 1, 2, 0]), Ok((1, 2)), "a newer caller who asks for nothing new");
        assert_eq!(read(&[32, 1, 2, 3]), Err(libc::E2BIG));
        assert_eq!(read(&[20, 1, u64::MAX]), Ok((1, 0xffff_ffff)), "half a field");
    }

    #[test]
    fn sizes_that_can_not_be_are_refused() {
        for size in [0, 1, 15] {
            assert_eq!(read(&[size, 1, 2]), Err(libc::EINVAL));
        }
        for size in [4097, u64::MAX] {
            assert_eq!(read(&[size, 1, 2]), Err(libc::E2BIG));
        }
    }
}
