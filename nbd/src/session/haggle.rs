//! The handshake: options and replies to them, until an export is chosen.

use std::sync::Arc;

use super::encryption::Encryption;
use super::next::Next;
use super::turn::Turn;
use crate::buffer::Buffer;
use crate::export::{Exports, Served};
use crate::wire::{
    ALLOCATION, CLIENT_FLAGS_BYTES, Choice, ClientFlags, Info, MAX_OPTION_BYTES, MAX_SKIPPED_BYTES,
    MetaQuery, OPTION_HEADER_BYTES, Opt, OptionHeader, Refused, Replies, Terms,
};

/// Blocks that a client which was told nothing about them keeps to, in bytes.
const USUAL_BLOCK: u32 = 512;

/// What was agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// Replies may have several chunks.
    pub structured: bool,
    /// There is block status.
    pub allocation: bool,
}

/// What came of a step.
pub enum Haggled {
    /// It goes on.
    Next(Next),
    /// An export was chosen: requests come.
    Chosen(Arc<Served>, Agreed),
}

/// What comes next from the client.
enum Stage {
    Flags,
    Header,
    Data(OptionHeader),
    /// Data of an option that is refused.
    Skip {
        option: u32,
        left: usize,
        refused: Refused,
    },
    /// The beginning of encryption, which was agreed on.
    Encrypt,
}

/// The handshake as far as it has come.
pub struct Haggle {
    exports: Arc<Exports>,
    flags: ClientFlags,
    stage: Stage,
    encryption: Encryption,
    structured: bool,
    /// The export whose allocation the client wants to know.
    allocation: Option<Arc<Served>>,
}

impl Haggle {
    /// At its beginning.
    pub fn new(exports: Arc<Exports>, encryption: Encryption) -> Self {
        let flags = ClientFlags { fixed_newstyle: false, no_zeroes: false };
        let stage = Stage::Flags;
        Self { exports, flags, stage, encryption, structured: false, allocation: None }
    }

    /// It is encrypted from here on. What was agreed on before, anybody may have said.
    pub fn encrypted(&mut self) {
        self.encryption = Encryption::Begun;
        self.stage = Stage::Header;
        (self.structured, self.allocation) = (false, None);
    }

    /// Does one thing.
    pub fn step(
        &mut self,
        input: &mut Buffer,
        output: &mut Buffer,
        turn: &mut Turn,
        closing: bool,
    ) -> Haggled {
        let needed = match &self.stage {
            Stage::Flags => CLIENT_FLAGS_BYTES,
            Stage::Header => OPTION_HEADER_BYTES,
            Stage::Data(header) => header.len as usize,
            Stage::Skip { left, .. } => usize::from(*left > 0),
            Stage::Encrypt => return Haggled::Next(Next::Encrypt),
        };
        let Some(bytes) = input.filled().get(..needed) else {
            return Haggled::Next(Next::Input(needed));
        };
        match &mut self.stage {
            Stage::Flags => {
                let Some(flags) = ClientFlags::parse(bytes) else {
                    return Haggled::Next(Next::End);
                };
                self.flags = flags;
                self.stage = Stage::Header;
                input.consume(needed);
                Haggled::Next(Next::Again)
            }
            Stage::Header => {
                turn.charge_request();
                let header = OptionHeader::parse(bytes);
                input.consume(needed);
                header.map_or(Haggled::Next(Next::End), |header| self.begin(header, output))
            }
            Stage::Data(header) => {
                let header = *header;
                self.stage = Stage::Header;
                let is_last = input.len() == needed;
                let next = self.answer(header, bytes, is_last, output, closing);
                input.consume(needed);
                next
            }
            Stage::Skip { option, left, refused } => {
                let skipped = input.len().min(*left);
                input.consume(skipped);
                *left -= skipped;
                if *left == 0 {
                    Replies::new(*option, output).refuse(*refused);
                    self.stage = Stage::Header;
                }
                Haggled::Next(Next::Again)
            }
            Stage::Encrypt => Haggled::Next(Next::Encrypt),
        }
    }

    /// Decides whether an option's data are looked at.
    fn begin(&mut self, header: OptionHeader, output: &mut Buffer) -> Haggled {
        let without_reply = header.option == Opt::ExportName;
        if !without_reply && !self.flags.fixed_newstyle {
            return Haggled::Next(Next::End);
        }
        let too_big = header.len > MAX_OPTION_BYTES;
        let admitted = self.encryption.admits(header.option);
        if without_reply && (too_big || !admitted) {
            return Haggled::Next(Next::End);
        }
        if header.len > MAX_SKIPPED_BYTES {
            Replies::new(header.number, output).refuse(Refused::TooBig);
            return Haggled::Next(Next::End);
        }
        let refused = match header.option {
            _ if !admitted => Some(Refused::TlsRequired),
            Opt::Unknown => Some(Refused::Unsupported),
            _ => too_big.then_some(Refused::TooBig),
        };
        self.stage = match refused {
            Some(refused) => {
                Stage::Skip { option: header.number, left: header.len as usize, refused }
            }
            None => Stage::Data(header),
        };
        Haggled::Next(Next::Again)
    }

    fn answer(
        &mut self,
        header: OptionHeader,
        data: &[u8],
        is_last: bool,
        output: &mut Buffer,
        closing: bool,
    ) -> Haggled {
        let mut replies = Replies::new(header.number, output);
        let answered = match header.option {
            Opt::ExportName => return self.enter_without_reply(data, output, closing),
            Opt::Abort => {
                replies.acknowledge();
                return Haggled::Next(Next::End);
            }
            _ if closing => Err(Refused::Shutdown),
            Opt::Go => match self.tell(data, &mut replies) {
                Ok(served) => {
                    replies.acknowledge();
                    return self.enter(served);
                }
                Err(refused) => Err(refused),
            },
            Opt::Info => self.tell(data, &mut replies).map(|_| ()),
            Opt::List => self.list(data, &mut replies),
            Opt::StructuredReply if !data.is_empty() => Err(Refused::Invalid),
            Opt::StructuredReply => {
                self.structured = true;
                Ok(())
            }
            Opt::ListMetaContext => self.list_contexts(data, &mut replies),
            Opt::SetMetaContext => self.set_contexts(data, &mut replies),
            Opt::StartTls => match self.start_tls(data) {
                // What stands behind was sent by anybody, and must not count as what an encrypted client says.
                Ok(()) if !is_last => {
                    tracing::debug!("a client sent more behind STARTTLS; it is left");
                    return Haggled::Next(Next::End);
                }
                Ok(()) => {
                    replies.acknowledge();
                    self.stage = Stage::Encrypt;
                    return Haggled::Next(Next::Again);
                }
                Err(refused) => Err(refused),
            },
            Opt::Unknown => Err(Refused::Unsupported),
        };
        match answered {
            Ok(()) => replies.acknowledge(),
            Err(refused) => replies.refuse(refused),
        }
        Haggled::Next(Next::Again)
    }

    fn start_tls(&self, data: &[u8]) -> Result<(), Refused> {
        if data.is_empty() { self.encryption.begin() } else { Err(Refused::Invalid) }
    }

    fn list(&self, data: &[u8], replies: &mut Replies<'_>) -> Result<(), Refused> {
        if !data.is_empty() {
            return Err(Refused::Invalid);
        }
        self.exports.iter().for_each(|served| replies.server(&served.name, &served.description));
        Ok(())
    }

    /// Tells all that was asked about an export.
    fn tell(&self, data: &[u8], replies: &mut Replies<'_>) -> Result<Arc<Served>, Refused> {
        let choice = Choice::parse(data).ok_or(Refused::Invalid)?;
        let served = self.exports.find(choice.name).ok_or(Refused::Unknown)?;
        replies.info(Info::Export(self.terms(served)));
        if choice.wants_name {
            replies.info(Info::Name(&served.name));
        }
        if choice.wants_description && !served.description.is_empty() {
            replies.info(Info::Description(&served.description));
        }
        // Who does not ask may still listen: what else than whole blocks it asks for is refused.
        if choice.wants_block_sizes || served.block_sizes().min() > USUAL_BLOCK {
            replies.info(Info::BlockSizes(served.block_sizes()));
        }
        Ok(Arc::clone(served))
    }

    fn terms(&self, served: &Served) -> Terms {
        let read_only = served.device.read_only();
        Terms { size: served.size(), read_only, structured: self.structured }
    }

    fn enter_without_reply(&self, data: &[u8], output: &mut Buffer, closing: bool) -> Haggled {
        let name = Choice::parse_name(data).map(|choice| choice.name);
        match name.and_then(|name| self.exports.find(name)) {
            Some(served) if !closing => {
                self.terms(served).start(self.flags.no_zeroes, output);
                self.enter(Arc::clone(served))
            }
            _ => Haggled::Next(Next::End),
        }
    }

    fn enter(&self, served: Arc<Served>) -> Haggled {
        // What was agreed on about one export does not hold for another.
        let allocation = self.allocation.as_ref().is_some_and(|of| Arc::ptr_eq(of, &served));
        let agreed = Agreed { structured: self.structured, allocation };
        Haggled::Chosen(served, agreed)
    }

    fn query<'a>(&self, data: &'a [u8]) -> Result<(MetaQuery<'a>, &Arc<Served>), Refused> {
        if !self.structured {
            return Err(Refused::Invalid);
        }
        let query = MetaQuery::parse(data).ok_or(Refused::Invalid)?;
        let served = self.exports.find(query.name).ok_or(Refused::Unknown)?;
        Ok((query, served))
    }

    fn list_contexts(&self, data: &[u8], replies: &mut Replies<'_>) -> Result<(), Refused> {
        let (query, _) = self.query(data)?;
        let all = query.queries.is_empty();
        if all || query.queries.iter().any(|query| ["base:", ALLOCATION.0].contains(query)) {
            // Numbers are given when one is chosen.
            replies.context(ALLOCATION.0, 0);
        }
        Ok(())
    }

    fn set_contexts(&mut self, data: &[u8], replies: &mut Replies<'_>) -> Result<(), Refused> {
        // Also where this fails.
        self.allocation = None;
        let (query, served) = self.query(data)?;
        if query.queries.contains(&ALLOCATION.0) {
            replies.context(ALLOCATION.0, ALLOCATION.1);
            self.allocation = Some(Arc::clone(served));
        }
        Ok(())
    }
}
