//! Walking a log (PROTOCOL I5).
//!
//! A walk ends at the first line that is not valid. Each line's seal stands for itself,
//! so what lies beyond is looked at too: whoever walks decides from that whether the
//! end is an end, a transaction cut off, or damage.

use alloc::boxed::Box;

use lode_pmem::{Line, Medium};

use super::append::{INLINE, Tail};
use crate::layout::{
    Body, DEATH_LINE, HEAD_AT, Header, INLINE_LINES, Identity, LINE, Link, LogHeader, Parsed,
    slot_at, stored_seal,
};
use crate::store::{LinkFound, LinkWord, Owner, Shape, Store};
use crate::{Error, Host, Ino, PAGE_BYTES, Result, Rule};

/// A record on the way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Offset of its line.
    pub(crate) at: u64,
    /// Ordinal of its page.
    pub(crate) ordinal: u32,
    /// What it is.
    pub(crate) parsed: Parsed,
}

/// One step of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A log page begins.
    Page { page: u64, nonce: u64, ordinal: u32 },
    /// A record line.
    Record(Found),
    /// The log's end, as far as its seals go.
    End,
}

/// A line found behind the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beyond {
    pub(crate) at: u64,
    /// The copy of it that is valid.
    pub(crate) line: Line,
    /// Its page has no valid header: that may be what its own transaction did not finish.
    pub(crate) in_ruin: bool,
    /// What the log page holds whose link word led to its page; nothing is said of the inline log.
    led_by: Option<Holds>,
}

impl Beyond {
    /// How it begins.
    pub(crate) fn header(&self) -> Header {
        Header::peek(&self.line)
    }

    /// Whether it may be nothing of this log: in a ruin, where a link led that an earlier life of its page left. That may be
    /// so where a crash may have torn the anchor line of a page that holds what led there.
    pub(crate) fn is_stale(&self, may_be_torn: impl FnOnce(Holds) -> bool) -> bool {
        self.in_ruin && self.led_by.is_some_and(may_be_torn)
    }

    /// Whether it may be one that is rolled back. (An opening before this one may have erased some of these.)
    pub(crate) fn is_void<M: Medium, H: Host>(&self, store: &Store<M, H>) -> bool {
        store.counted != u32::MAX
            && Parsed::parse(&self.line)
                .is_ok_and(|line| !line.body.has_epoch() || line.epoch > store.counted)
    }
}

/// A link word that is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BadLink {
    pub(crate) what: &'static str,
    /// Offset of the word.
    pub(crate) at: u64,
    /// What is in its page.
    pub(crate) holds: Holds,
}

/// Transactions with records in a page.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Holds {
    Nothing,
    /// One, which begins so.
    One(Header),
    Several,
}

impl Holds {
    /// The same with one more line, which begins so.
    fn and(self, header: Header) -> Self {
        match self {
            Holds::Nothing => Holds::One(header),
            Holds::One(first) if first.txid == header.txid => self,
            _ => Holds::Several,
        }
    }
}

/// A walk through one log.
pub(crate) struct Walk<'s, M: Medium, H: Host> {
    store: &'s Store<M, H>,
    owner: Owner,
    pub(crate) ino: Ino,
    pub(crate) nonce: u64,
    pub(crate) inline_dead: bool,
    head: LinkFound,
    anchor_at: u64,
    page_nonce: u64,
    tail: Tail,
    session: u32,
    epoch: u32,
    /// What this page (or the inline log) holds, as far as the walk has come.
    holds: Holds,
    bad_link: Option<BadLink>,
    started: bool,
    ended: bool,
    /// The epoch of the last records that count.
    until: u32,
    /// It ended at a record that does not count any more.
    passed: bool,
}

/// The identity in an inode's slot, its head link and access time word.
#[inline(never)]
pub(crate) fn read_identity<M: Medium, H: Host>(
    store: &Store<M, H>,
    ino: Ino,
) -> Result<Option<(Identity, LinkFound, u64, u64)>> {
    let at = slot_at(ino);
    let read = |line: &Line| store.anchor::<Identity>(Rule::IdentitySeal, line, at);
    let line = store.load_line(at, Shape::Anchor, |line| read(line).is_some())?;
    let Some(identity) = read(&line) else {
        return Ok(None);
    };
    let follows = |link: &Link| leads_on(store, (ino, identity.nonce), 0, link);
    let head = store.load_link_to(Owner::Alive, at + HEAD_AT, LinkWord::Head, &follows)?;
    let is_life = |line: &Line| read(line) == Some(identity);
    let atime = store.load_atime(at, &line, &is_life)?;
    Ok(Some((identity, head, atime, stored_seal(&line))))
}

/// The death record of an inode's life, if its line is valid (committed or not).
#[inline(never)]
pub(crate) fn read_death<M: Medium, H: Host>(
    store: &Store<M, H>,
    identity: &Identity,
) -> Result<Option<Parsed>> {
    if store.host.leaves_out(Rule::DeathApart) {
        return death_in_log(store, identity);
    }
    let at = slot_at(identity.ino) + DEATH_LINE * LINE;
    let page = slot_at(identity.ino) / PAGE_BYTES;
    let seed = store.seed.log(identity.ino, identity.nonce, page, 0);
    let is_valid = |line: &Line| store.holds(Rule::DeathSeal, &seed, at, line);
    let line = store.load_line(at, Shape::Record, is_valid)?;
    if !is_valid(&line) {
        return Ok(None);
    }
    let damage = |what| Error::corrupt_inode(what, at, identity.ino);
    let parsed = Parsed::parse(&line).map_err(damage)?;
    match parsed.body {
        // (One that is rolled back did not happen.)
        Body::Death { .. } => Ok((parsed.epoch <= store.counted).then_some(parsed)),
        _ => Err(damage("death slot holds another record")),
    }
}

/// The death record among the records of a log, where the rule that sets it apart is left out.
#[cold]
fn death_in_log<M: Medium, H: Host>(
    store: &Store<M, H>,
    identity: &Identity,
) -> Result<Option<Parsed>> {
    let Some((_, head, _, seal)) = read_identity(store, identity.ino)? else { return Ok(None) };
    let mut walk = Walk::new(store, identity, head, seal)?;
    loop {
        match walk.step()? {
            Step::End => return Ok(None),
            Step::Record(Found { parsed, .. }) if matches!(parsed.body, Body::Death { .. }) => {
                return Ok(Some(parsed));
            }
            _ => {}
        }
    }
}

/// The header of the log page that a link leads to, if it is of the log of this inode's life and the one that is meant.
#[inline(never)]
fn linked_header<M: Medium, H: Host>(
    store: &Store<M, H>,
    (ino, nonce): (Ino, u64),
    link: &Link,
) -> Result<Option<(LogHeader, Line)>> {
    let at = link.page * PAGE_BYTES;
    let read = |line: &Line| store.anchor::<LogHeader>(Rule::LogPageSeal, line, at);
    // (Whose page it is has to be known before anything of it is mended.)
    let line = store.load_line_of(Owner::Dead, at, Shape::Anchor, |line| read(line).is_some())?;
    let header = read(&line).filter(|header| {
        let owned = header.ino == ino && header.owner_nonce == nonce;
        let meant = link.names(header.nonce) || store.host.leaves_out(Rule::LinkTag);
        owned && meant || store.host.leaves_out(Rule::LinkOwner)
    });
    Ok(header.map(|header| (header, line)))
}

/// Whether a link leads from the page of this inode's log that has this nonce (0: from its identity) to one behind that.
pub(crate) fn leads_on<M: Medium, H: Host>(
    store: &Store<M, H>,
    life: (Ino, u64),
    page_nonce: u64,
    link: &Link,
) -> bool {
    let header = linked_header(store, life, link);
    header.is_ok_and(|found| found.is_some_and(|(header, _)| header.nonce > page_nonce))
}

/// A link word that an earlier life of its page left, where a torn anchor line lacks its own.
const OLDER_PAGE: &str = "link to an older log page";

impl<'s, M: Medium, H: Host> Walk<'s, M, H> {
    /// A walk from the beginning of the log of an inode that is alive, or may be.
    pub(crate) fn new(
        store: &'s Store<M, H>,
        identity: &Identity,
        head: LinkFound,
        identity_seal: u64,
    ) -> Result<Box<Self>> {
        Self::new_of(Owner::Alive, store, identity, head, identity_seal)
    }

    /// A walk from the beginning of an inode's log.
    #[inline(never)]
    pub(crate) fn new_of(
        owner: Owner,
        store: &'s Store<M, H>,
        identity: &Identity,
        head: LinkFound,
        identity_seal: u64,
    ) -> Result<Box<Self>> {
        let ino = identity.ino;
        let anchor_at = slot_at(ino);
        let tail = Tail {
            at: anchor_at + LINE,
            left: INLINE_LINES,
            seed: store.seed.log(ino, identity.nonce, anchor_at / PAGE_BYTES, 0),
            last_seal: identity_seal,
            ordinal: INLINE,
        };
        Ok(Box::new(Self {
            store,
            owner,
            ino,
            nonce: identity.nonce,
            inline_dead: head.is_ok_and(|head| head.is_some_and(|head| head.inline_dead)),
            head,
            anchor_at,
            page_nonce: 0,
            tail,
            session: 0,
            epoch: 0,
            holds: Holds::Nothing,
            bad_link: None,
            started: false,
            ended: false,
            until: if ino == store.snapshots.home() { u32::MAX } else { store.counted },
            passed: false,
        }))
    }

    /// Ends the walk in front of the first record that is born after this epoch.
    pub(crate) fn stop_after(&mut self, epoch: u32) {
        self.until = epoch;
    }

    /// Whether the walk ended in front of a record that is born too late.
    pub(crate) fn has_passed(&self) -> bool {
        self.passed
    }

    /// The next record, page, or the end; after the end, the end again.
    pub(crate) fn step(&mut self) -> Result<Step> {
        if !self.started {
            self.started = true;
            if self.inline_dead {
                let head = self.head.ok().flatten();
                let link = head.ok_or(self.damage("head without a page", self.anchor_at))?;
                if let Some(step) = self.enter(link)? {
                    return Ok(step);
                }
                // Not this life's: a word that a torn identity line left, or damage.
                self.inline_dead = false;
                self.head = Err("log page that begins a log is damaged");
            }
        }
        if self.ended {
            return Ok(Step::End);
        }
        if self.tail.left == 0 {
            if let Some(link) = self.link()?
                && let Some(step) = self.enter(link)?
            {
                return Ok(step);
            }
            self.ended = true;
            return Ok(Step::End);
        }
        self.record()
    }

    #[inline(never)]
    fn record(&mut self) -> Result<Step> {
        let at = self.tail.at;
        let seed = self.tail.seed;
        let is_sealed = |line: &Line| self.store.holds(Rule::RecordSeal, &seed, at, line);
        let line = self.store.load_line_of(self.owner, at, Shape::Record, is_sealed)?;
        let header = Header::peek(&line);
        if !is_sealed(&line) || self.store.aborted.contains(&header.txid) {
            self.ended = true;
            return Ok(Step::End);
        }
        if header.txid.session > self.store.session() {
            return Err(self.damage("record of a session that has not been yet", at));
        }
        // What a crash leaves of an earlier session is erased before the next one begins.
        if header.txid.session < self.session {
            return Err(self.damage("record of a session that had ended", at));
        }
        let parsed = Parsed::parse(&line).map_err(|what| self.damage(what, at))?;
        self.epoch_follows(&parsed)?;
        if parsed.body.has_epoch() && parsed.epoch > self.until {
            (self.passed, self.ended) = (true, true);
            return Ok(Step::End);
        }
        let apart = !self.store.host.leaves_out(Rule::DeathApart);
        if apart && matches!(parsed.body, Body::Death { .. }) {
            return Err(self.damage("death record outside its slot", at));
        }
        self.session = header.txid.session;
        self.holds = self.holds.and(header);
        self.tail.last_seal = stored_seal(&line);
        self.tail.at += LINE;
        self.tail.left -= 1;
        Ok(Step::Record(Found { at, ordinal: self.tail.ordinal, parsed }))
    }

    /// Along a log epochs never fall, and none has not been yet.
    fn epoch_follows(&mut self, parsed: &Parsed) -> Result<()> {
        if parsed.body.has_epoch() {
            if parsed.epoch < self.epoch || parsed.epoch > self.store.epoch() {
                return Err(self.damage("record of an impossible epoch", self.tail.at));
            }
            self.epoch = parsed.epoch;
        }
        Ok(())
    }

    /// The link out of the page the walk is in. One that is bad counts as none, and is
    /// remembered: an anchor line that a crash tore may lack its link word.
    fn link(&mut self) -> Result<Option<Link>> {
        let at = self.anchor_at + HEAD_AT;
        let parsed = if self.anchor_at == slot_at(self.ino) {
            self.head
        } else {
            match self.next_link(at)? {
                Ok(Some(link)) if link.inline_dead => Err("link word is impossible"),
                parsed => parsed,
            }
        };
        if let Err(what) = parsed
            && self.store.host.leaves_out(Rule::LinkTorn)
        {
            return Err(self.damage(what, at));
        }
        Ok(parsed.unwrap_or_else(|what| {
            self.note_bad_link(what);
            None
        }))
    }

    /// What the log page holds that the walk is in; nothing is said of the inline log.
    fn page_holds(&self) -> Option<Holds> {
        (self.anchor_at != slot_at(self.ino)).then_some(self.holds)
    }

    /// Remembers that the link word of the page the walk is in is none.
    fn note_bad_link(&mut self, what: &'static str) {
        let at = self.anchor_at + HEAD_AT;
        self.bad_link = Some(BadLink { what, at, holds: self.holds });
    }

    /// A link word met on the way that is none. After the walk's end.
    pub(crate) fn bad_link(&self) -> Option<BadLink> {
        self.bad_link
    }

    /// The header of a linked page, if it is the one the link means.
    #[inline(never)]
    fn header(&self, link: &Link) -> Result<Option<(LogHeader, Line)>> {
        if !self.store.geometry.holds_metadata(link.page, 1) {
            return Err(self.damage("link outside the pool", self.anchor_at + HEAD_AT));
        }
        linked_header(self.store, (self.ino, self.nonce), link)
    }

    /// Whether a page can not be the one after that with this nonce.
    fn is_older(&self, header: &LogHeader, nonce: u64) -> bool {
        let any = self.store.host.leaves_out(Rule::PagesRise);
        if any { header.nonce == nonce } else { header.nonce <= nonce }
    }

    #[inline(never)]
    fn enter(&mut self, link: Link) -> Result<Option<Step>> {
        let Some((header, line)) = self.header(&link)? else {
            return Ok(None);
        };
        if self.is_older(&header, self.page_nonce) {
            self.note_bad_link(OLDER_PAGE);
            return Ok(None);
        }
        self.page_nonce = header.nonce;
        self.mend_header(&link, &header, &line)?;
        self.holds = Holds::Nothing;
        self.anchor_at = link.page * PAGE_BYTES;
        self.tail = Tail {
            at: self.anchor_at + LINE,
            left: self.store.geometry.log_lines,
            seed: self.store.log_seed(self.ino, self.nonce, link.page, header.nonce),
            last_seal: stored_seal(&line),
            ordinal: self.tail.ordinal + 1,
        };
        let ordinal = self.tail.ordinal;
        Ok(Some(Step::Page { page: link.page, nonce: header.nonce, ordinal }))
    }

    /// Makes both copies of the header of a page of this log the same, and of its link word: that of the
    /// last page is not looked at otherwise. What the walk goes by is stored, should memory have gone bad since.
    #[inline(never)]
    fn mend_header(&self, link: &Link, header: &LogHeader, line: &Line) -> Result<()> {
        if self.store.geometry.twin_pages == 0 {
            return Ok(());
        }
        let at = link.page * PAGE_BYTES;
        let read = |line: &Line| self.store.anchor::<LogHeader>(Rule::LogPageSeal, line, at);
        let is_it = |line: &Line| read(line).as_ref() == Some(header);
        if !is_it(&self.store.load_line_of(self.owner, at, Shape::Anchor, is_it)?) {
            self.store.mend_lost(self.owner, at, line)?;
        }
        self.next_link(at + HEAD_AT).map(|_| ())
    }

    /// The link word at `at`, of the page with the nonce that the walk has come to.
    fn next_link(&self, at: u64) -> Result<LinkFound> {
        let follows =
            |link: &Link| leads_on(self.store, (self.ino, self.nonce), self.page_nonce, link);
        self.store.load_link_to(self.owner, at, LinkWord::Next, &follows)
    }

    /// Where the log ended.
    pub(crate) fn tail(&self) -> Tail {
        self.tail
    }

    /// Offset of a link word behind the log's end that should say there is no link, and does not.
    pub(crate) fn link_past_end(&self) -> Result<Option<u64>> {
        let at = self.anchor_at + HEAD_AT;
        let none = self.store.is_link(at, Link::none(&self.store.seed, at))?;
        Ok((!none).then_some(at))
    }

    /// Shows every valid line behind the end.
    pub(crate) fn beyond(&mut self, each: &mut dyn FnMut(Beyond)) -> Result<()> {
        self.beyond_in_page(self.tail, each)?;
        let mut link = self.link()?;
        let mut nonce = self.page_nonce;
        let mut led_by = self.page_holds();
        while let Some(next) = link {
            let at = next.page * PAGE_BYTES;
            let Some((header, line)) = self.header(&next)? else {
                return self.beyond_in_ruin(&next, led_by, each);
            };
            if self.is_older(&header, nonce) {
                if nonce == self.page_nonce {
                    self.note_bad_link(OLDER_PAGE);
                }
                return Ok(());
            }
            nonce = header.nonce;
            let seed = self.store.log_seed(self.ino, self.nonce, next.page, header.nonce);
            let left = self.store.geometry.log_lines;
            let last_seal = stored_seal(&line);
            let tail = Tail { at: at + LINE, left, seed, last_seal, ordinal: 0 };
            let mut holds = Holds::Nothing;
            self.beyond_in_page(tail, &mut |beyond| {
                holds = holds.and(beyond.header());
                each(beyond);
            })?;
            led_by = Some(holds);
            let follows = |link: &Link| leads_on(self.store, (self.ino, self.nonce), nonce, link);
            let next_at = at + HEAD_AT;
            let next = self.store.load_link_to(Owner::Dead, next_at, LinkWord::Next, &follows)?;
            link = next.unwrap_or(None);
        }
        Ok(())
    }

    #[inline(never)]
    fn beyond_in_page(&self, tail: Tail, each: &mut dyn FnMut(Beyond)) -> Result<()> {
        let mut at = tail.at;
        for _ in 0..tail.left {
            // (Nothing behind the end is mended: it is erased, or not of this log.)
            let is_valid = |line: &Line| tail.seed.holds(at, line);
            let line = self.store.load_line_of(Owner::Dead, at, Shape::Record, is_valid)?;
            if is_valid(&line) {
                each(Beyond { at, line, in_ruin: false, led_by: None });
            }
            at += LINE;
        }
        Ok(())
    }

    /// A linked page whose header is not valid: either the header never became durable,
    /// or it was damaged. Its records tell their own tag, and hold for this inode's life only.
    #[inline(never)]
    fn beyond_in_ruin(
        &self,
        link: &Link,
        led_by: Option<Holds>,
        each: &mut dyn FnMut(Beyond),
    ) -> Result<()> {
        let mut at = link.page * PAGE_BYTES + LINE;
        for _ in 0..self.store.geometry.log_lines {
            let is_valid = |line: &Line| {
                let tag = (stored_seal(line) >> 32) as u32;
                let seed = self.store.seed.log_by_tag(self.ino, self.nonce, link.page, tag);
                tag as u16 == link.tag && seed.holds(at, line)
            };
            let line = self.store.load_line_of(Owner::Dead, at, Shape::Record, is_valid)?;
            if is_valid(&line) {
                each(Beyond { at, line, in_ruin: true, led_by });
            }
            at += LINE;
        }
        Ok(())
    }

    fn damage(&self, what: &'static str, at: u64) -> Error {
        Error::corrupt_inode(what, at, self.ino)
    }
}
