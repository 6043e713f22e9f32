//! Bytes of a whole connection: the handshake, and requests of a device.
//!
//! Four bytes in front say what is served and how the client's bytes come; see `Setup`. Nothing panics, the device is
//! called as it may be, memory is bounded, and all that goes out is what the [reference](crate::reference) expects.

use std::sync::Arc;
use std::time::Duration;

use crate::buffer::Buffer;
use crate::device::BlockSizes;
use crate::disk::Disk;
use crate::export::{Export, Exports};
use crate::reference::{Reference, check};
use crate::session::{Encryption, Session, Step, Turn};

/// Most that waits to go out (docs/nbd.md): 256 KiB and a piece, with what stands in front of them, and the replies of
/// one option.
const OUTPUT_BYTES: usize = (256 << 10) + (1 << 20) + (64 << 10);
/// Most memory of a direction: a piece, and what waits; memory grows in steps.
const HELD_BYTES: usize = OUTPUT_BYTES + (64 << 10);
/// Zeros that are put behind what a client sends, if so much is wanted.
const PADDING_BYTES: usize = 3 << 20;
/// The wish to encrypt, behind which a client waits.
const START_TLS: &[u8] = b"IHAVEOPT\0\0\0\x05\0\0\0\0";

/// What is served, and how.
struct Setup {
    size: u64,
    sizes: BlockSizes,
    read_only: bool,
    bad: u64,
    encryption: Encryption,
    /// The client waits when it wants to encrypt.
    polite: bool,
    padding: usize,
    /// Its bytes come in pieces of about this size; 0: all at once.
    pieces: u8,
    /// The server ends at this step; 0: not at all.
    closing: u8,
    turn: usize,
}

impl Setup {
    fn new([mode, pieces, closing, turn]: [u8; 4]) -> Self {
        let min = [1, 512, 4096, 1 << 16][usize::from(mode & 3)];
        let sizes = BlockSizes::new(min, min.max(4096), BlockSizes::MAX).expect("sizes");
        let encryption = match mode >> 2 & 3 {
            0 => Encryption::Impossible,
            1 => Encryption::Possible,
            _ => Encryption::Required,
        };
        let size = if mode & 32 != 0 { (5 << 19) + 77 } else { (96 << 10) + 77 };
        let bad = if mode & 128 != 0 { size / 2 } else { u64::MAX };
        Self {
            size,
            sizes,
            read_only: mode & 16 != 0,
            bad,
            encryption,
            polite: mode >> 2 & 3 != 3,
            padding: if mode & 64 != 0 { PADDING_BYTES } else { 0 },
            pieces,
            closing,
            turn: 1 << (8 + turn % 16),
        }
    }

    /// How much comes next; `waits` is where the client waits, from the end.
    fn piece(&self, rest: &[u8], step: usize, waits: &mut Vec<usize>) -> usize {
        let mut piece = match self.pieces {
            0 => rest.len(),
            size => 1 + (usize::from(size) * (step % 7)) / 2,
        };
        while waits.pop_if(|left| *left >= rest.len()).is_some() {}
        if let Some(left) = waits.last() {
            piece = piece.min(rest.len() - left);
        }
        piece.clamp(1, rest.len())
    }
}

/// Where a client waits that wants to encrypt: how much is left to be said then, the least first.
fn waits(polite: bool, input: &[u8]) -> Vec<usize> {
    let wishes = input.windows(START_TLS.len()).enumerate().rev();
    let wishes = wishes.filter(|(_, part)| polite && *part == START_TLS);
    wishes.map(|(at, _)| input.len() - at - START_TLS.len()).collect()
}

/// Holds one.
pub fn run(data: &[u8]) {
    let Some((setup, input)) = data.split_first_chunk::<4>() else {
        return;
    };
    let setup = Setup::new(*setup);
    let size = setup.size - setup.size % u64::from(setup.sizes.min());
    let reference = Reference::new(size, setup.encryption, setup.bad != u64::MAX);
    let (said, heard, ended) = converse(setup, input);
    check(reference, &said, &heard, ended);
}

/// What was said and heard by the client, and whether the server has ended it.
fn converse(mut setup: Setup, mut rest: &[u8]) -> (Vec<u8>, Vec<u8>, bool) {
    let disk = Disk::new(setup.size, setup.sizes, setup.read_only, setup.bad);
    let export = Export::new("e", Arc::new(disk));
    let mut waits = waits(setup.polite, rest);
    let exports = Arc::new(Exports::new(vec![export.described("d")], Some("e".into())));
    let (mut input, mut output) = (Buffer::default(), Buffer::default());
    let mut session = Session::new(exports, setup.encryption, &mut output);
    let (mut said, mut heard) = (Vec::new(), Vec::new());
    for step in 0_usize.. {
        let closing = setup.closing > 0 && step >= usize::from(setup.closing);
        let mut turn = Turn::new(setup.turn, Duration::MAX);
        let reached = session.advance(&mut input, &mut output, &mut turn, closing);
        assert!(output.len() <= OUTPUT_BYTES, "{} bytes wait", output.len());
        assert!(output.capacity() <= HELD_BYTES && input.capacity() <= HELD_BYTES);
        heard.extend(output.filled());
        output.consume(usize::MAX);
        match reached {
            Step::End => return (said, heard, true),
            Step::Turn | Step::Output => {}
            Step::Encrypt => {
                assert!(input.is_empty(), "what was said before would count");
                session.encrypted();
            }
            Step::Input(needed) => {
                assert!(needed > input.len() && needed <= 1 << 20, "{needed} bytes are wanted");
                let missing = needed - input.len();
                let piece = match rest.len() {
                    0 if missing <= setup.padding => {
                        setup.padding -= missing;
                        vec![0; missing]
                    }
                    0 => return (said, heard, false),
                    _ => {
                        let (piece, behind) = rest.split_at(setup.piece(rest, step, &mut waits));
                        rest = behind;
                        piece.to_vec()
                    }
                };
                input.append(&piece);
                said.extend(piece);
            }
        }
        // More than any small input is worth.
        if heard.len() > 64 << 20 {
            break;
        }
    }
    (said, heard, true)
}
