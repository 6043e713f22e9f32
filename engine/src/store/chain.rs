//! The chains of inode tables as the medium has them: what recovery begins with, and the full
//! check compares with what is in use. A checkpoint knows them, too, and can mend them.

use alloc::vec::Vec;

use lode_pmem::Medium;

use super::{Piece, Store};
use crate::layout::{HEAD_AT, LANE_CHAIN_AT, Link, PieceHeader};
use crate::{Corruption, Error, Host, PAGE_BYTES, Result, Rule};

impl<M: Medium, H: Host> Store<M, H> {
    /// Shows every piece of a lane's chain. An error of `each` ends the walk, as damage does: what
    /// lies behind can't be found.
    pub(crate) fn walk_chain(
        &self,
        lane: u32,
        each: &mut dyn FnMut(Piece) -> Result<()>,
    ) -> Result<()> {
        let mut link_at = self.geometry.lane_at(lane) + LANE_CHAIN_AT;
        loop {
            let word = self.door.load_word(link_at)?;
            let link = self.parse_link(word, link_at);
            let Some(link) = link.map_err(|what| Error::corrupt(what, link_at))? else {
                return Ok(());
            };
            if !self.geometry.holds(link.page, 1) {
                return Err(Error::corrupt("link outside the pool", link_at));
            }
            let at = link.page * PAGE_BYTES;
            let line = self.door.load_line(at)?;
            let meant = |header: &PieceHeader| {
                let named = link.names(header.nonce) || self.host.leaves_out(Rule::LinkTag);
                u32::from(header.lane) == lane && named
            };
            let header = self.anchor::<PieceHeader>(Rule::PieceSeal, &line, at).filter(meant);
            let header = header.ok_or(Error::corrupt("header of a table piece is damaged", at))?;
            let piece = Piece::new(header)?;
            if !self.geometry.holds(piece.run().page, piece.run().pages) {
                return Err(Error::corrupt("table piece outside the pool", at));
            }
            each(piece)?;
            link_at = at + HEAD_AT;
        }
    }

    /// The links that are others than these pieces need, which are all there are, in the order of
    /// their chains.
    pub(crate) fn bad_links(&self, pieces: &[Piece]) -> Result<Vec<BadLink>> {
        let mut bad = Vec::new();
        let mut pieces = pieces.iter().peekable();
        for lane in 0..self.geometry.lanes {
            let mut at = self.geometry.lane_at(lane) + LANE_CHAIN_AT;
            loop {
                let next = pieces.next_if(|piece| u32::from(piece.header.lane) == lane);
                let link = next.map(|next| Link::new(next.header.page, next.header.nonce, false));
                let word = link.map_or(Link::none(&self.seed, at), |it| it.word(&self.seed, at));
                if self.door.load_word(at) != Ok(word) {
                    bad.try_reserve(1)?;
                    bad.push(BadLink { at, link });
                }
                let Some(next) = next else { break };
                at = next.next_at();
            }
        }
        Ok(bad)
    }

    /// Makes links right. It must be durable before the checkpoint that knows them is given up.
    pub(crate) fn mend_links(&self, bad: &[BadLink]) -> Result<()> {
        if bad.is_empty() {
            return Ok(());
        }
        for one in bad {
            self.store_link(one.at, one.link);
        }
        self.door.fence(self.counters())?;
        Ok(())
    }
}

/// A link of a chain that is damaged, and what it should be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BadLink {
    at: u64,
    link: Option<Link>,
}

impl BadLink {
    /// As damage.
    pub(crate) fn damage(&self) -> Corruption {
        Corruption { what: "link to an inode table is damaged", at: self.at, ino: 0 }
    }
}
