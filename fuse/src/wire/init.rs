//! The first request: which version and capabilities both sides go on with.

use std::io;

use fuse_abi::linux::{
    FUSE_INIT_EXT, FUSE_KERNEL_MINOR_VERSION, FUSE_KERNEL_VERSION, FUSE_MAX_PAGES, fuse_in_header,
    fuse_init_out, fuse_opcode,
};
use zerocopy::{FromBytes, IntoBytes};

use super::arguments::Arguments;
use super::channel::{Came, Channel};
use super::errno::Errno;
use super::reply::Answer;
use super::rings::OVER_IO_URING;

/// The oldest minor version that is served. (Before it some structures were smaller.)
const MINOR_MIN: u32 = 31;
/// Room for requests other than writes.
const REQUEST_BYTES: usize = 8192;

/// What the kernel says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Major version of the protocol.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// The most it reads ahead, in bytes.
    pub max_readahead: u32,
    /// The capabilities it has.
    pub flags: u64,
}

/// What a server would like.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Groups of capabilities: of each group all, or none where the kernel lacks one.
    pub groups: Vec<u64>,
    /// Most bytes that one write brings, and that one read asks for.
    pub max_write: u32,
    /// Most bytes that the kernel reads ahead.
    pub max_readahead: u32,
    /// Most requests that wait with nobody waiting for them, reading ahead for instance.
    pub max_background: u16,
}

/// What both sides go on with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// Minor version.
    pub minor: u32,
    /// Capabilities that are used.
    pub flags: u64,
    /// Capabilities that the kernel has.
    pub offered: u64,
}

impl Agreed {
    /// Whether requests come by io_uring.
    pub fn by_rings(&self) -> bool {
        self.flags & OVER_IO_URING != 0
    }
}

/// Why there is nothing to go on with.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The device failed.
    #[error("/dev/fuse failed before the first request was answered: {0}")]
    Device(#[from] io::Error),
    /// The mount is gone already.
    #[error("the mount was taken off before it was served")]
    Gone,
    /// The first request is not what it has to be.
    #[error("the kernel's first request on /dev/fuse is no introduction; is the kernel damaged?")]
    NoOffer,
    /// Requests are to come by io_uring, and can't.
    #[error(
        "requests can't come by io_uring here: it takes Linux 6.14, a process that may use io_uring, and, \
         by root, `echo Y > /sys/module/fuse/parameters/enable_uring`"
    )]
    NoRings,
    /// The kernel is too old.
    #[error(
        "the kernel speaks version {major}.{minor} of the FUSE protocol, and at least 7.{MINOR_MIN} \
         is needed; run Linux 5.4 or later"
    )]
    TooOld {
        /// Major version of the kernel's protocol.
        major: u32,
        /// Minor version.
        minor: u32,
    },
}

impl Offer {
    /// The kernel's introduction, and the number to answer.
    fn parse(bytes: &[u8]) -> Option<(u64, Self)> {
        let (header, rest) = fuse_in_header::read_from_prefix(bytes).ok()?;
        if header.len as usize != bytes.len() || header.opcode != fuse_opcode::FUSE_INIT as u32 {
            return None;
        }
        let mut all = Arguments::new(rest);
        // These have always been there; what follows, only with the flag that says so.
        let [major, minor, max_readahead, low] = all.take::<[u32; 4]>().ok()?;
        let high = if low & FUSE_INIT_EXT == 0 { 0 } else { all.take::<u32>().ok()? };
        let flags = u64::from(high) << 32 | u64::from(low);
        Some((header.unique, Self { major, minor, max_readahead, flags }))
    }
}

/// What to answer to an offer; none where the kernel is to make another, of our major version.
///
/// # Errors
/// [`InitError::TooOld`].
pub fn agree(offer: &Offer, wish: &Wish) -> Result<Option<(Agreed, fuse_init_out)>, InitError> {
    let Offer { major, minor, .. } = *offer;
    if major > FUSE_KERNEL_VERSION {
        return Ok(None);
    }
    if major < FUSE_KERNEL_VERSION || minor < MINOR_MIN {
        return Err(InitError::TooOld { major, minor });
    }
    // Without the first the capabilities above bit 31 would not be read; without the second
    // the kernel would cut writes at 128 KiB.
    let needed = [u64::from(FUSE_INIT_EXT), u64::from(FUSE_MAX_PAGES)];
    let groups = needed.iter().chain(&wish.groups);
    let flags =
        groups.filter(|group| offer.flags & **group == **group).fold(0, |all, one| all | one);
    let minor = minor.min(FUSE_KERNEL_MINOR_VERSION);
    let page = u32::try_from(rustix::param::page_size()).unwrap_or(4096);
    let answer = fuse_init_out {
        major: FUSE_KERNEL_VERSION,
        minor,
        max_readahead: wish.max_readahead.min(offer.max_readahead),
        flags: flags as u32,
        flags2: (flags >> 32) as u32,
        max_background: wish.max_background,
        // From here on the kernel makes who reads ahead wait.
        congestion_threshold: wish.max_background / 4 * 3,
        max_write: wish.max_write,
        time_gran: 1,
        max_pages: u16::try_from(wish.max_write.div_ceil(page)).unwrap_or(u16::MAX),
        ..fuse_init_out::default()
    };
    Ok(Some((Agreed { minor, flags, offered: offer.flags }, answer)))
}

/// Waits for the kernel's first request and agrees with it.
///
/// # Errors
/// See [`InitError`]; where the kernel made an offer it is told.
pub fn shake_hands(channel: &Channel, wish: &Wish) -> Result<Agreed, InitError> {
    let mut bytes = Vec::with_capacity(REQUEST_BYTES);
    loop {
        match channel.receive(&mut bytes)? {
            Came::Request => {}
            Came::Nothing => continue,
            Came::End => return Err(InitError::Gone),
        }
        let (unique, offer) = Offer::parse(&bytes).ok_or(InitError::NoOffer)?;
        let answer =
            |out: &fuse_init_out| channel.answer(unique, &Ok(Answer::data(out.as_bytes())));
        match agree(&offer, wish) {
            Ok(Some((agreed, out))) => {
                tracing::debug!(?offer, ?agreed, "the kernel introduced itself");
                answer(&out);
                return Ok(agreed);
            }
            Ok(None) => answer(&fuse_init_out {
                major: FUSE_KERNEL_VERSION,
                minor: FUSE_KERNEL_MINOR_VERSION,
                ..fuse_init_out::default()
            }),
            Err(error) => {
                channel.answer(unique, &Err(Errno::EPROTO));
                return Err(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish() -> Wish {
        let groups = vec![0b1, 0b110, 1 << 40];
        Wish { groups, max_write: 1 << 20, max_readahead: 1 << 20, max_background: 64 }
    }

    fn offer(minor: u32, flags: u64) -> Offer {
        Offer { major: 7, minor, max_readahead: 128 << 10, flags }
    }

    fn agreed(offer: Offer) -> (Agreed, fuse_init_out) {
        agree(&offer, &wish()).unwrap().unwrap()
    }

    #[test]
    fn the_minor_version_is_the_older_of_both() {
        assert_eq!(agreed(offer(31, 0)).1.minor, 31);
        assert_eq!(agreed(offer(36, 0)).0.minor, 36);
        assert_eq!(agreed(offer(999, 0)).1.minor, FUSE_KERNEL_MINOR_VERSION);
    }

    #[test]
    fn another_major_version_is_asked_for_or_refused() {
        let newer = Offer { major: 8, ..offer(0, 0) };
        assert!(agree(&newer, &wish()).unwrap().is_none());
        for old in [offer(30, 0), Offer { major: 6, ..offer(99, 0) }] {
            let error = agree(&old, &wish()).unwrap_err();
            assert!(matches!(error, InitError::TooOld { .. }));
            assert!(error.to_string().contains("at least 7.31"), "{error}");
        }
    }

    #[test]
    fn of_a_group_of_capabilities_all_are_taken_or_none() {
        let ext = u64::from(FUSE_INIT_EXT);
        assert_eq!(agreed(offer(40, 0b011)).0.flags, 0b001);
        assert_eq!(agreed(offer(40, 0b110)).0.flags, 0b110);
        assert_eq!(agreed(offer(40, 0b1111)).0.flags, 0b111, "none that nobody asked for");
        let (all, out) = agreed(offer(40, u64::MAX));
        assert_eq!(all.flags, 0b111 | 1 << 40 | ext | u64::from(FUSE_MAX_PAGES));
        assert_eq!((out.flags, out.flags2), (all.flags as u32, 1 << 8));
    }

    #[test]
    fn limits_are_those_of_the_wish_as_far_as_the_kernel_goes() {
        let (_, out) = agreed(offer(40, u64::MAX));
        assert_eq!((out.max_readahead, out.max_write), (128 << 10, 1 << 20));
        assert_eq!((out.max_background, out.congestion_threshold), (64, 48));
        assert_eq!(u32::from(out.max_pages) * rustix::param::page_size() as u32, 1 << 20);
        assert_eq!((out.time_gran, out.as_bytes().len()), (1, 64));
    }

    fn introduction(words: &[u32]) -> Vec<u8> {
        let len = 40 + 4 * words.len() as u32;
        let opcode = fuse_opcode::FUSE_INIT as u32;
        let header = fuse_in_header { len, opcode, unique: 3, ..fuse_in_header::default() };
        [header.as_bytes(), words.as_bytes()].concat()
    }

    #[test]
    fn introductions_of_old_and_new_kernels_are_read() {
        let old = introduction(&[7, 31, 5, 9]);
        let expected = Offer { major: 7, minor: 31, max_readahead: 5, flags: 9 };
        assert_eq!(Offer::parse(&old), Some((3, expected)));
        let new = introduction(&[7, 45, 5, FUSE_INIT_EXT, 2, 0, 0]);
        assert_eq!(Offer::parse(&new).unwrap().1.flags, u64::from(FUSE_INIT_EXT) | 2 << 32);
        let lying = introduction(&[7, 45, 5, FUSE_INIT_EXT]);
        assert_eq!(Offer::parse(&lying), None);
        for short in 0..old.len() {
            assert_eq!(Offer::parse(&old[..short]), None);
        }
        let mut other = old.clone();
        other[4] = fuse_opcode::FUSE_LOOKUP as u8;
        assert_eq!(Offer::parse(&other), None);
    }
}
