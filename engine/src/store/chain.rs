//! The chains of inode tables as the medium has them: what recovery begins with, and the full
//! check compares with what is in use. A checkpoint knows them, too, and can mend them.

use alloc::vec::Vec;

use lode_pmem::{Line, Medium};

use super::{LinkWord, Owner, Piece, Shape, Store};
use crate::layout::{Anchor, HEAD_AT, LANE_CHAIN_AT, LINE, Link, PieceHeader};
use crate::{Corruption, Error, Host, PAGE_BYTES, Result, Rule};

const BAD_HEADER: &str = "header of an inode table is damaged";

impl<M: Medium, H: Host> Store<M, H> {
    /// Compares both copies of a lane's chain, while it can't change.
    pub(crate) fn compare_chain(&self, lane: u32) -> Result<()> {
        let walk = || self.walk_chain_of(Owner::Compared, lane, &mut |_| Ok(()));
        self.table.with_chain(lane, walk)
    }

    /// Shows every piece of a lane's chain. An error of `each` ends the walk, as damage does: what
    /// lies behind can't be found.
    pub(crate) fn walk_chain(
        &self,
        lane: u32,
        each: &mut dyn FnMut(Piece) -> Result<()>,
    ) -> Result<()> {
        self.walk_chain_of(Owner::Alive, lane, each)
    }

    fn walk_chain_of(
        &self,
        owner: Owner,
        lane: u32,
        each: &mut dyn FnMut(Piece) -> Result<()>,
    ) -> Result<()> {
        let mut link_at = self.geometry.lane_at(lane) + LANE_CHAIN_AT;
        loop {
            let follows = |link: &Link| {
                let header = self.piece_header(Owner::Dead, lane, link);
                header.is_ok_and(|header| header.is_some())
            };
            let link = self.load_link_to(owner, link_at, LinkWord::Next, &follows)?;
            let Some(link) = link.map_err(|what| Error::corrupt(what, link_at))? else {
                return Ok(());
            };
            if !self.geometry.holds(link.page, 1) {
                return Err(Error::corrupt("link outside the pool", link_at));
            }
            let at = link.page * PAGE_BYTES;
            let header = self.piece_header(owner, lane, &link)?;
            let header = header.ok_or(Error::corrupt(BAD_HEADER, at))?;
            let piece = Piece::new(header)?;
            if !self.geometry.holds_metadata(piece.run().page, piece.run().pages) {
                return Err(Error::corrupt("table piece outside the pool", at));
            }
            each(piece)?;
            link_at = at + HEAD_AT;
        }
    }

    /// The header of the piece of this lane that a link names.
    #[inline(never)]
    fn piece_header(&self, owner: Owner, lane: u32, link: &Link) -> Result<Option<PieceHeader>> {
        let at = link.page * PAGE_BYTES;
        let meant = |header: &PieceHeader| {
            let named = link.names(header.nonce) || self.host.leaves_out(Rule::LinkTag);
            u32::from(header.lane) == lane && named
        };
        let read =
            |line: &Line| self.anchor::<PieceHeader>(Rule::PieceSeal, line, at).filter(meant);
        let line = self.load_line_of(owner, at, Shape::Anchor, |line| read(line).is_some())?;
        Ok(read(&line))
    }

    /// The headers and links that are others than these pieces need, which are all there are, in the
    /// order of their chains.
    pub(crate) fn bad_chains(&self, pieces: &[Piece]) -> Result<Vec<BadChain>> {
        let mut bad = Vec::new();
        let mut pieces = pieces.iter().peekable();
        for lane in 0..self.geometry.lanes {
            let mut at = self.geometry.lane_at(lane) + LANE_CHAIN_AT;
            let mut header = None;
            loop {
                let next = pieces.next_if(|piece| u32::from(piece.header.lane) == lane);
                let next = next.map(|piece| piece.header);
                let link = next.map(|next| Link::new(next.page, next.nonce, false));
                bad.try_reserve(2)?;
                bad.extend(self.bad_header(header, link));
                let word = link.map_or(Link::none(&self.seed, at), |it| it.word(&self.seed, at));
                if !self.is_word(at, word).unwrap_or(false) {
                    bad.push(BadChain { at, header: None, link });
                }
                let Some(found) = next else { break };
                (at, header) = (found.page * PAGE_BYTES + HEAD_AT, next);
            }
        }
        Ok(bad)
    }

    /// The header of a piece, with the link that belongs in its line, where it is damaged.
    fn bad_header(&self, header: Option<PieceHeader>, link: Option<Link>) -> Option<BadChain> {
        let at = header?.page * PAGE_BYTES;
        let read = |line: &Line| self.anchor::<PieceHeader>(Rule::PieceSeal, line, at);
        let line = self.load_line(at, Shape::Anchor, |line| read(line) == header).ok();
        (line.and_then(|line| read(&line)) != header).then_some(BadChain { at, header, link })
    }

    /// Makes headers and links right. It must be durable before the checkpoint that knows them is
    /// given up.
    pub(crate) fn mend_chains(&self, bad: &[BadChain]) -> Result<()> {
        if bad.is_empty() {
            return Ok(());
        }
        for one in bad {
            match one.header {
                Some(header) => {
                    let line = header.line(&self.seed, one.at, one.link);
                    self.door.window(LINE, self.counters()).store_line(one.at, &line);
                }
                None => self.store_link(one.at, one.link),
            }
        }
        self.door.fence(self.counters())?;
        Ok(())
    }
}

/// The header of a piece or a link of a chain that is damaged, and what it should be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BadChain {
    at: u64,
    /// Of a header.
    header: Option<PieceHeader>,
    link: Option<Link>,
}

impl BadChain {
    /// As damage.
    pub(crate) fn damage(&self) -> Corruption {
        let what = match self.header {
            Some(_) => BAD_HEADER,
            None => "link to an inode table is damaged",
        };
        Corruption { what, at: self.at, ino: 0 }
    }
}
