//! Dumps: everything about an inode, with the place of each byte in the pool.

use alloc::vec::Vec;

use lode_pmem::Medium;

use crate::inode::Body as Kind;
use crate::layout::{Body, Identity, Parsed, slot_at};
use crate::log::{Step, Walk, read_death, read_identity};
use crate::store::LinkFound;
use crate::{Error, ExtentDump, Host, Ino, InodeDump, PAGE_BYTES, Pool, RecordDump, Result};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Everything about one inode, offsets in the pool included.
    pub fn dump_inode(&self, ino: Ino) -> Result<InodeDump> {
        let node = self.node(ino)?;
        let state = node.read(&self.store)?;
        // (Of one in a snapshot, too.)
        let ino = state.log.ino;
        let identity = read_identity(&self.store, ino)?;
        let (identity, head, _, seal) = identity.ok_or(Error::Stale)?;
        let mut dump = InodeDump {
            attr: state.attr(),
            nonce: identity.nonce,
            slot_at: slot_at(ino),
            log_pages: Vec::new(),
            records: Vec::new(),
            extents: Vec::new(),
        };
        self.dump_log(&identity, (head, seal), &mut dump)?;
        if let Kind::File(file) = &state.body {
            dump.extents.try_reserve(file.extents.len())?;
            dump.extents.extend(file.extents.iter().map(|extent| ExtentDump {
                file_offset: extent.file_page * PAGE_BYTES,
                pool_offset: extent.page * PAGE_BYTES,
                bytes: extent.pages * PAGE_BYTES,
                class: extent.class as u8,
            }));
        }
        Ok(dump)
    }

    #[inline(never)]
    fn dump_log(
        &self,
        identity: &Identity,
        (head, seal): (LinkFound, u64),
        dump: &mut InodeDump,
    ) -> Result<()> {
        let mut walk = Walk::new(&self.store, identity, head, seal)?;
        loop {
            match walk.step()? {
                Step::Page { page, .. } => {
                    dump.log_pages.try_reserve(1)?;
                    dump.log_pages.push(page * PAGE_BYTES);
                }
                Step::Record(found) => {
                    dump.records.try_reserve(1)?;
                    dump.records.push(dump_record(found.at, &found.parsed)?);
                }
                Step::End => break,
            }
        }
        if let Some(death) = read_death(&self.store, identity)? {
            let at = slot_at(identity.ino) + crate::layout::DEATH_LINE * crate::layout::LINE;
            dump.records.try_reserve(1)?;
            dump.records.push(dump_record(at, &death)?);
        }
        Ok(())
    }
}

#[inline(never)]
fn dump_record(at: u64, parsed: &Parsed) -> Result<RecordDump> {
    let (mut fields, mut text) = (Vec::new(), Vec::new());
    fields.try_reserve_exact(8)?;
    text.try_reserve_exact(crate::layout::TEXT_BYTES)?;
    if parsed.body.has_epoch() {
        fields.push(("epoch", u64::from(parsed.epoch)));
    }
    put_body(&parsed.body, &mut |pairs| fields.extend_from_slice(pairs), &mut text);
    let header = &parsed.header;
    Ok(RecordDump {
        at,
        kind: parsed.body.name(),
        session: header.txid.session,
        lane: header.txid.lane,
        sequence: header.txid.sequence,
        part: header.part,
        parts: header.parts,
        fields,
        text,
    })
}

/// Takes in fields by name.
type Put<'p> = dyn FnMut(&[(&'static str, u64)]) + 'p;

/// Fields and text of a record; `text` has room for the longest.
fn put_body(body: &Body, put: &mut Put<'_>, text: &mut Vec<u8>) {
    match body {
        Body::Inode { mode, links, uid, gid, time_ns, extra, text: len } => {
            put(&[
                ("mode", u64::from(*mode)),
                ("links", u64::from(*links)),
                ("uid", u64::from(*uid)),
                ("gid", u64::from(*gid)),
                ("time_ns", *time_ns as u64),
            ]);
            if *len > 0 {
                text.extend_from_slice(extra.get(..usize::from(*len).min(16)).unwrap_or(extra));
            } else {
                let word = extra.first_chunk::<8>().copied().unwrap_or_default();
                put(&[("extra", u64::from_le_bytes(word))]);
            }
        }
        Body::Text { len, bytes } => {
            text.extend_from_slice(bytes.get(..usize::from(*len)).unwrap_or(bytes));
        }
        Body::Attr { mode, uid, gid, mtime_ns, ctime_ns, atime_ns } => put(&[
            ("mode", u64::from(*mode)),
            ("uid", u64::from(*uid)),
            ("gid", u64::from(*gid)),
            ("mtime_ns", *mtime_ns as u64),
            ("ctime_ns", *ctime_ns as u64),
            ("atime_ns", *atime_ns as u64),
        ]),
        Body::Links { links, parent, ctime_ns } => put(&[
            ("links", u64::from(*links)),
            ("parent", *parent),
            ("ctime_ns", *ctime_ns as u64),
        ]),
        Body::Death { born, ctime_ns } => {
            put(&[("born", u64::from(*born)), ("ctime_ns", *ctime_ns as u64)]);
        }
        Body::Add { name_len, replaces, tag, time_ns, ino, kind, head } => {
            put(&[
                ("tag", u64::from(*tag)),
                ("time_ns", *time_ns as u64),
                ("ino", *ino),
                ("type", u64::from(*kind)),
                ("replaces", u64::from(*replaces)),
            ]);
            text.extend_from_slice(head.get(..usize::from(*name_len).min(16)).unwrap_or(head));
        }
        Body::Del { txid, part, time_ns } => put(&[
            ("of_session", u64::from(txid.session)),
            ("time_ns", *time_ns as u64),
            ("of_lane", u64::from(txid.lane)),
            ("of_sequence", txid.sequence),
            ("of_part", u64::from(*part)),
        ]),
        other => put_file(other, put),
    }
}

fn put_file(body: &Body, put: &mut Put<'_>) {
    match *body {
        Body::Map { class, pages, file_page, page, time_ns, size } => put(&[
            ("class", class as u64),
            ("pages", u64::from(pages)),
            ("file_page", file_page),
            ("page", page),
            ("time_ns", time_ns as u64),
            ("size", size),
        ]),
        Body::Size { class, truncate, size, time_ns } => put(&[
            ("class", class as u64),
            ("flags", u64::from(truncate)),
            ("size", size),
            ("time_ns", time_ns as u64),
        ]),
        Body::Unmap { file_page, pages, time_ns, size } => put(&[
            ("file_page", file_page),
            ("pages", pages),
            ("time_ns", time_ns as u64),
            ("size", size),
        ]),
        Body::Exempt { file_page, pages } | Body::Whole { file_page, pages } => {
            put(&[("file_page", file_page), ("pages", pages)]);
        }
        Body::Journal { len, file_offset, journal_at, time_ns, home_at } => put(&[
            ("bytes", u64::from(len)),
            ("file_offset", file_offset),
            ("journal_at", journal_at),
            ("time_ns", time_ns as u64),
            ("home_at", home_at),
        ]),
        Body::Xattr { name_len, runs, value_len, crc, time_ns } => put(&[
            ("value_bytes", u64::from(value_len)),
            ("time_ns", time_ns as u64),
            ("crc", u64::from(crc)),
            ("runs", u64::from(runs)),
            ("name_bytes", u64::from(name_len)),
        ]),
        Body::Xdel { name_len, time_ns } => {
            put(&[("time_ns", time_ns as u64), ("name_bytes", u64::from(name_len))])
        }
        _ => {}
    }
}
