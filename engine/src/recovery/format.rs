//! Making a pool (mkfs).

use alloc::boxed::Box;
use alloc::vec::Vec;

use lode_pmem::{Door, Medium};

use crate::layout::{
    Anchor, Body, GROUP_LOG2_LEAST, GROUP_LOG2_MOST, Geometry, Header, Identity, LANE_BYTES,
    LANE_CHAIN_AT, LINE, LOCATOR_AT, LOG_LINES_LEAST, LOG_LINES_MOST, Link, LogHeader,
    POOL_PAGES_LEAST, PieceHeader, SLOT_BYTES, STRIP_LOG2_LEAST, STRIP_LOG2_MOST, SUPERBLOCK_BYTES,
    Superblock, Txid, Watermark, locator, put_seal,
};
use crate::{
    DEAD_ZONE_MOST, Error, FormatOptions, Host, LABEL_MAX, OpenOptions, PAGE_BYTES, Pool,
    Protection, Result, Rule, Unusable, mode,
};

/// The session that a new pool's first records belong to.
const FIRST_SESSION: u32 = 1;
/// A new piece of inode table takes at most this part of the pool.
const PIECE_PART: u64 = 128;
/// A group of pages with tables for strips takes at most this part, in all but small pools.
const GROUP_PART: u64 = 32;

/// Where the first metadata of a pool goes.
struct Places {
    piece: u64,
    root_log: u64,
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Makes a new, empty pool in the region; what was in it is lost.
    ///
    /// # Errors
    /// [`Error::Lent`] while programs have memory of the pool that is there.
    pub fn format(medium: M, host: H, options: &FormatOptions) -> Result<()> {
        let mut door = Door::new(medium);
        let superblock = plan_here(&door, &host, options)?;
        let places = place(&superblock);
        door.set_twins(superblock.geometry().twin_pages * PAGE_BYTES);
        erase_superblocks(&door, superblock.pages)?;
        store_first(&door, &host, &superblock, &places, options);
        let counters = lode_pmem::Counters::new();
        door.fence(&counters)?;
        // (What was there was erased, and is not torn.)
        crate::store::write_copies(&door, &host, &superblock, &counters)?;
        Self::open_and_close(door, host)
    }

    /// So that it is as any pool is that was closed. (A frame of its own.)
    #[inline(never)]
    fn open_and_close(door: Door<M>, host: H) -> Result<()> {
        let pool = Self::open_door(door, host, &OpenOptions::default())?;
        pool.close()
    }
}

/// The superblock of a new pool, where no program has memory of an old one.
#[inline(never)]
fn plan_here<M: Medium, H: Host>(
    door: &Door<M>,
    host: &H,
    options: &FormatOptions,
) -> Result<Box<Superblock>> {
    let mut is_held = false;
    door.for_each_held(&mut |_, _| is_held = true);
    if is_held {
        return Err(Error::Lent);
    }
    plan(door.bytes(), &|| random(host), host.now_ns(), options)
}

/// Whether [`Pool::format`] can make a pool so in a region of `bytes` bytes, asked before
/// there is one. Errors are those of `format`.
pub fn check_format(bytes: u64, options: &FormatOptions) -> Result<()> {
    plan(bytes, &|| [0; 16], 0, options).map(|_| ())
}

fn random<H: Host>(host: &H) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes.chunks_mut(8).zip([host.random(), host.random()]) {
        to.copy_from_slice(&from.to_le_bytes());
    }
    bytes
}

#[inline(never)]
fn plan(
    bytes: u64,
    random: &dyn Fn() -> [u8; 16],
    now_ns: i64,
    options: &FormatOptions,
) -> Result<Box<Superblock>> {
    let pages = bytes / PAGE_BYTES;
    if pages < POOL_PAGES_LEAST {
        let least = POOL_PAGES_LEAST * PAGE_BYTES;
        return Err(Error::NotAPool(Unusable::TooSmall { least }));
    }
    let label_fits = options.label.len() <= LABEL_MAX && !options.label.contains(&0);
    let lines_fit = (LOG_LINES_LEAST..=LOG_LINES_MOST).contains(&options.log_lines);
    let lanes_fit = (1..=256).contains(&options.lanes);
    if !lanes_fit || !lines_fit || !label_fits || options.dead_zone > DEAD_ZONE_MOST {
        return Err(Error::Invalid);
    }
    let mut label = [0; LABEL_MAX];
    for (to, from) in label.iter_mut().zip(&options.label) {
        *to = *from;
    }
    let mut uuid = options.uuid.unwrap_or_else(random);
    if options.uuid.is_none() {
        // A random UUID says so: version 4, variant 1 (RFC 9562).
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
    }
    let part = (pages / PIECE_PART).max(1);
    let mut superblock = Box::new(Superblock {
        features: [0; 3],
        uuid,
        secret: random(),
        pages,
        lanes: options.lanes,
        protection: options.protection,
        twin_log2: twin_log2(options),
        strip_log2: 0,
        group_log2: 0,
        group_before: 0,
        page_class: options.page_class,
        piece_log2: part.ilog2().min(9) as u8,
        log_lines: options.log_lines,
        root: 0,
        root_nonce: u64::from(FIRST_SESSION) << 32 | 1,
        created_ns: now_ns,
        label,
        update: 1,
        session: FIRST_SESSION,
        epoch: 1,
        checkpoint: 0,
        checkpoint_session: 0,
        rollback: 0,
        snapshots: 0,
        snapshots_nonce: 0,
        losses: None,
        sectors: None,
        bad: Vec::new(),
    });
    // A piece of table lies on one side of the border between twins.
    superblock.piece_log2 = match options.protection {
        Protection::None => superblock.piece_log2,
        Protection::Metadata | Protection::Full => superblock.piece_log2.min(superblock.twin_log2),
    };
    if options.protection == Protection::Full {
        plan_strips(&mut superblock, options)?;
    }
    superblock.root = place(&superblock).piece * (PAGE_BYTES / SLOT_BYTES) + 1;
    let geometry = superblock.geometry();
    if geometry.first_page() + 4 > geometry.end_page() {
        return Err(Error::NotAPool(Unusable::Geometry("no room behind the lane table")));
    }
    let places = place(&superblock);
    let piece_fits = geometry.holds_metadata(places.piece, 1 << superblock.piece_log2);
    if !piece_fits || 2 * geometry.twin_pages > geometry.end_page() {
        let least = least_pages(&geometry) * PAGE_BYTES;
        return Err(Error::NotAPool(Unusable::TooSmall { least }));
    }
    Ok(superblock)
}

/// The fewest pages of a pool, as far as they are known: there may have to be some more.
fn least_pages(geometry: &Geometry) -> u64 {
    let twins = 3 * geometry.twin_pages;
    twins.max(geometry.strips.pool_pages_least()).max(POOL_PAGES_LEAST)
}

/// Groups are small parts of the pool, so that little is lost where the last one is cut off, and so large that a
/// scribble does not reach a checksum and its copy.
pub(crate) fn plan_strips(superblock: &mut Superblock, options: &FormatOptions) -> Result<()> {
    let log2 = options.strip_bytes.checked_ilog2().unwrap_or_default() as u8;
    let possible = options.strip_bytes.is_power_of_two()
        && (STRIP_LOG2_LEAST..=STRIP_LOG2_MOST).contains(&log2);
    if !possible {
        return Err(Error::Invalid);
    }
    superblock.strip_log2 = log2;
    let part = (superblock.pages / GROUP_PART).max(1).ilog2() as u8;
    superblock.group_log2 = part.clamp(GROUP_LOG2_LEAST, GROUP_LOG2_MOST);
    while superblock.group_log2 < GROUP_LOG2_MOST
        && superblock.geometry().strips.apart() <= options.dead_zone + PAGE_BYTES
    {
        superblock.group_log2 += 1;
    }
    let geometry = superblock.geometry();
    if geometry.strips.pool_pages_least() > superblock.pages {
        let least = least_pages(&geometry) * PAGE_BYTES;
        return Err(Error::NotAPool(Unusable::TooSmall { least }));
    }
    Ok(())
}

/// log2 of the pages between twins: the next power of two above the dead zone, so that no scribble as
/// long as that reaches the same line of both, and at least the pages of the lane table.
fn twin_log2(options: &FormatOptions) -> u8 {
    match options.protection {
        Protection::None => 0,
        Protection::Metadata | Protection::Full => least_twin_log2(options),
    }
}

/// The same where metadata has twins.
pub(crate) fn least_twin_log2(options: &FormatOptions) -> u8 {
    let zone_pages = options.dead_zone.min(DEAD_ZONE_MOST).div_ceil(PAGE_BYTES) + 1;
    let table_pages = 1 + (u64::from(options.lanes) * LANE_BYTES).div_ceil(PAGE_BYTES);
    let pages = zone_pages.max(table_pages).next_power_of_two();
    pages.trailing_zeros() as u8
}

/// The root's log page comes first, then the first piece of table, aligned to its size; both on the lower
/// side where they have twins.
fn place(superblock: &Superblock) -> Places {
    let geometry = superblock.geometry();
    let lower = |page: u64| match page & geometry.twin_pages {
        0 => page,
        _ => page.next_multiple_of(2 * geometry.twin_pages),
    };
    // (Behind the tables of strips, where they do not fit in front of them.)
    let fit = |page: u64, pages: u64| {
        let mut page = lower(page.next_multiple_of(pages));
        while !geometry.holds_metadata(page, pages) && page < geometry.end_page() {
            page = lower(page + pages);
        }
        page
    };
    let root_log = fit(geometry.first_page(), 1);
    let piece = fit(root_log + 1, 1 << superblock.piece_log2);
    Places { piece, root_log }
}

/// A crash in the middle of making a pool leaves no pool.
#[inline(never)]
fn erase_superblocks<M: Medium>(door: &Door<M>, pages: u64) -> Result<()> {
    let counters = lode_pmem::Counters::new();
    for at in Superblock::places(pages) {
        door.window(PAGE_BYTES, &counters).zero_nt(at, PAGE_BYTES);
    }
    debug_assert!(SUPERBLOCK_BYTES as u64 <= PAGE_BYTES);
    Ok(door.fence(&counters)?)
}

#[inline(never)]
fn store_first<M: Medium, H: Host>(
    door: &Door<M>,
    host: &H,
    superblock: &Superblock,
    places: &Places,
    options: &FormatOptions,
) {
    let (seed, geometry) = (superblock.seed(), superblock.geometry());
    let counters = lode_pmem::Counters::new();
    let session = u64::from(FIRST_SESSION) << 32;
    let (root, nonce) = (superblock.root, superblock.root_nonce);
    let (log_nonce, piece_nonce) = (session | 2, session | 3);
    let piece_bytes = PAGE_BYTES << superblock.piece_log2;
    let lane_bytes = (geometry.first_page() - 1) * PAGE_BYTES;
    let lane_words = u64::from(superblock.lanes) * (2 * LINE + 8);
    let zeros = lane_bytes + piece_bytes + PAGE_BYTES;
    let mut window = door.window(2 * zeros + lane_words + 9 * LINE, &counters);
    let mut zero = |at, bytes| {
        window.zero_nt(at, bytes);
        if let Some(twin) = door.twin_of(at) {
            window.zero_nt(twin, bytes);
        }
    };
    zero(PAGE_BYTES, lane_bytes);
    zero(places.piece * PAGE_BYTES, piece_bytes);
    zero(places.root_log * PAGE_BYTES, PAGE_BYTES);
    for lane in 0..superblock.lanes {
        for copy in 0..2 {
            let at = geometry.lane_at(lane) + copy * LINE;
            let mark = Watermark { session: FIRST_SESSION, sequence: 0, version: 2 - copy };
            window.store_line(at, &mark.line(&seed, at));
        }
        let at = geometry.lane_at(lane) + LANE_CHAIN_AT;
        window.store_word(at, Link::none(&seed, at));
    }
    let chain_at = geometry.lane_at(0) + LANE_CHAIN_AT;
    let piece_at = places.piece * PAGE_BYTES;
    let piece = PieceHeader {
        log2_pages: superblock.piece_log2,
        lane: 0,
        page: places.piece,
        nonce: piece_nonce,
    };
    window.store_line(piece_at, &piece.line(&seed, piece_at, None));
    let link = Link::new(places.piece, piece_nonce, false);
    window.store_word(chain_at, link.word(&seed, chain_at));
    let root_at = root * SLOT_BYTES;
    let head = Some(Link::new(places.root_log, log_nonce, true));
    window.store_line(root_at, &Identity { ino: root, nonce }.line(&seed, root_at, head));
    let log_at = places.root_log * PAGE_BYTES;
    let header = LogHeader { ino: root, owner_nonce: nonce, nonce: log_nonce };
    let header = header.line(&seed, log_at, None);
    window.store_line(log_at, &header);
    let first = Body::Inode {
        mode: (mode::DIRECTORY | options.root_mode & 0o7777) as u16,
        links: 1,
        uid: options.root_uid,
        gid: options.root_gid,
        time_ns: superblock.created_ns,
        extra: crate::inode::head_of_word(root),
        text: 0,
    };
    let txid = Txid { session: FIRST_SESSION, lane: 0, sequence: 1 };
    window.store_line(LOCATOR_AT, &locator(superblock.pages));
    let mut line = first.encode(&Header { txid, part: 0, parts: 1 }, superblock.epoch);
    let unsealed = host.leaves_out(Rule::PageNonce);
    let log = seed.log(root, nonce, places.root_log, if unsealed { 0 } else { log_nonce });
    let seal = log.seal(log_at + LINE, &line);
    put_seal(&mut line, seal);
    window.store_line(log_at + LINE, &line);
}
