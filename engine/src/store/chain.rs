//! The chains of inode tables as the medium has them: what recovery begins with, and the full
//! check compares with what is in use.

use lode_pmem::Medium;

use super::{Piece, Store};
use crate::layout::{HEAD_AT, LANE_CHAIN_AT, PieceHeader};
use crate::{Error, Host, PAGE_BYTES, Result, Rule};

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
}
