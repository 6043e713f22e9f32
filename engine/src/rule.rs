//! The rules of the commit protocol, each of which can be left out in a test.
//!
//! A crash tester is only as good as the mistakes it notices. Each rule names one way to
//! break the engine at the one place where the rule is kept: its host is asked there
//! ([`Host::leaves_out`](crate::Host::leaves_out)). A real host leaves none out, and the
//! compiler removes the question.

macro_rules! rules {
    ($($rule:ident $name:literal $what:literal;)*) => {
        /// A rule that a test host can leave out, one at a time.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Rule {
            $(#[doc = concat!("Left out: ", $what, ".")] $rule,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &'static [Rule] = &[$(Rule::$rule,)*];

            /// A short name, of words and hyphens.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Rule::$rule => $name,)*
                }
            }

            /// What happens where it is left out, and where the rule or the mistake comes from.
            pub const fn what(self) -> &'static str {
                match self {
                    $(Rule::$rule => $what,)*
                }
            }
        }
    };
}

rules! {
    RecordSeal "record-seal"
        "the checksum of a record line is not looked at, only its tag; PROTOCOL F1";
    DeathSeal "death-seal"
        "the checksum of a death record is not looked at, only its tag; PROTOCOL F4";
    IdentitySeal "identity-seal"
        "the checksum of an inode's identity is not looked at; PROTOCOL F3";
    LogPageSeal "log-page-seal"
        "the checksum of a log page's header is not looked at; PROTOCOL I5";
    PieceSeal "piece-seal"
        "the checksum of the header of a piece of inode table is not looked at; PROTOCOL I22";
    SuperblockSeal "superblock-seal"
        "the checksum of a superblock is not looked at; PROTOCOL I20";
    DeathApart "death-apart"
        "death records lie in the pages of logs; PROTOCOL F4";
    PageNonce "page-nonce"
        "the records of a log page are not sealed with the page's own nonce; PROTOCOL F1";
    SlotNonce "slot-nonce"
        "a new inode gets the nonce that every inode of its slot gets; PROTOCOL F3";
    LinkCheck "link-check" "the check in a link word is not looked at; PROTOCOL F3";
    LinkTag "link-tag" "a link is followed whatever its tag says; PROTOCOL I5";
    LinkOwner "link-owner"
        "a link is followed whatever its tag and the owner of its target are; PROTOCOL I5";
    LinkTorn "link-torn"
        "a link that a crash tore is taken for damage; seen in NOVA: recovery of null and partial log pointers";
    LinkWhole "link-whole" "a link word is stored as two halves; PROTOCOL F3";
    LinkBad "link-bad"
        "whatever link is bad, a crash has left it so; PROTOCOL I5";
    LinkDoubted "link-doubted"
        "a link word of an earlier life, left by a torn header, is believed; PROTOCOL I5";
    LookBeyond "look-beyond" "nobody looks behind a bad line; PROTOCOL I5";
    TailKnown "tail-known"
        "a log may end before the last seal that is known of it; PROTOCOL I5";
    LinksPastEnd "links-past-end"
        "links that lead past the end of a log are not cleared; PROTOCOL recovery 7";
    PagesRise "pages-rise"
        "a link to an older page of the same log is followed; PROTOCOL I5";
    CheckpointSum "checkpoint-sum" "the checksum of a checkpoint is not looked at; PROTOCOL I20";
    CheckpointSeal "checkpoint-seal"
        "the checksum of a checkpoint's header is not looked at; PROTOCOL I20";
    CheckpointSession "checkpoint-session"
        "a checkpoint counts whatever session it is of; PROTOCOL I20";
    SessionRaised "session-raised" "opening does not raise the session; PROTOCOL I20";
    RaisedQuiet "raised-quiet"
        "the session is raised while others are in a transaction; PROTOCOL F2";
    SuperblockFence "superblock-fence"
        "both superblock copies are written under one fence; PROTOCOL I20";
    SuperblockOrder "superblock-order"
        "the superblock copy that counts is written first; PROTOCOL I20";
    GrowOrder "grow-order"
        "a pool that grows says so before its second superblock is at the new end; PROTOCOL I20";
    LocatorSum "locator-sum"
        "the checksum of the line that says where the second superblock is is not looked at; PROTOCOL I20";
    Located "located"
        "nothing but the first superblock and the region's size says where the second one is; PROTOCOL I20";
    PartCount "part-count"
        "a transaction of which parts are missing counts as committed; PROTOCOL recovery 4";
    MiddleKept "middle-kept"
        "an unfinished transaction in the middle of a log is erased, not told; PROTOCOL recovery 5";
    FinishedBehind "finished-behind"
        "a bad line may lie before one of a finished transaction; PROTOCOL recovery 5";
    OneUnfinished "one-unfinished"
        "several transactions of one lane may be unfinished; PROTOCOL recovery 5";
    LaterSequence "later-sequence"
        "a later transaction of its lane counts as evidence, the watermark does not; PROTOCOL recovery 4";
    TransactionSession "transaction-session"
        "a transaction of an earlier session is judged by its parts; PROTOCOL recovery 4";
    WatermarkSession "watermark-session" "the watermark of another session counts; PROTOCOL F5";
    WatermarkSeal "watermark-seal" "the checksum of a watermark is not looked at; PROTOCOL F5";
    WatermarkFenced "watermark-fenced" "watermarks cover what is not fenced yet; PROTOCOL I11";
    WatermarkCopies "watermark-copies" "a watermark is stored over the last one; PROTOCOL F5";
    RoundEveryLane "round-every-lane"
        "a round stores the watermark of the lane alone that it runs in; PROTOCOL I11";
    SequenceOnce "sequence-once"
        "two threads that raise the session let lanes begin anew twice; PROTOCOL I4";
    WatermarkLane "watermark-lane"
        "every lane is judged by lane 0's watermark; seen in WineFS: recovery reads another CPU's journal";
    EveryLane "every-lane"
        "recovery looks at as many lanes as there are CPUs; seen in NOVA: the CPU count is taken for granted";
    ReplayInOrder "replay-in-order"
        "a record whose sequence is lower than that of the one before it is passed over; seen in NOVA: rebuilding compares with the wrong counter";
    ReplayFreesNothing "replay-frees-nothing"
        "what a truncation freed is freed again when its log is read; seen in NOVA-Fortis: truncate recovery";
    LocksToFence "locks-to-fence"
        "locks are released, and what was done is seen, before the fence; PROTOCOL I1 and I2";
    DeadEvidence "dead-evidence" "the lines of dead inodes are no evidence; PROTOCOL recovery 3";
    DeathHonoured "death-honoured" "an inode with a death record is taken for alive; PROTOCOL F4";
    AbortedErased "aborted-erased"
        "the lines of transactions that did not happen stay; PROTOCOL recovery 7";
    EraseBeforeRaise "erase-before-raise"
        "they are erased after the session is raised; PROTOCOL recovery 7 and 8";
    JudgeBeforeRebuild "judge-before-rebuild"
        "free space is rebuilt before transactions are judged; seen in PMFS: truncations are replayed before the free list is there";
    RoundForSlots "round-for-slots"
        "the slot of a dead inode is used again without a round; PROTOCOL I10";
    RoundForDeadPages "round-for-dead-pages"
        "the log pages of a dead inode are used again without a round; PROTOCOL I10";
    RoundForFast "round-for-fast" "fast collection makes no round; PROTOCOL I13";
    RoundForThorough "round-for-thorough" "thorough collection makes no round; PROTOCOL I12";
    BatchBeforeFence "batch-before-fence"
        "a round frees what came into quarantine while it fenced; PROTOCOL I11";
    OneRound "one-round" "two rounds run at a time; PROTOCOL I11";
    FreeAfterUnlinked "free-after-unlinked"
        "a page that fast collection unlinks is free before the fence; PROTOCOL I13";
    FreeAfterSwap "free-after-swap"
        "the pages of a rewritten log are free before its head is durable; PROTOCOL I12";
    InlineErased "inline-erased"
        "what lay in the places of an inline log stays behind what is written there anew; PROTOCOL I12";
    RewriteWhole "rewrite-whole"
        "a rewritten log does not say owner, mode and times; seen in NOVA: fields left out of a journal";
    TombstoneKept "tombstone-kept"
        "fast collection drops what ended records that are still there; PROTOCOL I14";
    FreeAfterFence "free-after-fence"
        "what a truncation frees is free before its record is durable; PROTOCOL I9";
    OverwrittenAfterFence "overwritten-after-fence"
        "pages that a write replaces are free before its record is durable; PROTOCOL I9";
    TwinsMended "twins-mended"
        "recovery leaves copies of metadata as they are that a crash has made differ; PROTOCOL I19, step 7";
    PieceZeroed "piece-zeroed" "a new piece of inode table is not zeroed; PROTOCOL I22";
    OrphansFreed "orphans-freed"
        "files that are unlinked but open are not freed by a clean unmount; PROTOCOL recovery 11";
    NamelessErased "nameless-erased"
        "a file that never had a name is kept by recovery; PROTOCOL recovery 11";
    CreateInOne "create-in-one" "the inode and its entry are two transactions; PROTOCOL I7";
    NameInOne "name-in-one"
        "the lines of a long name are a transaction of their own; seen in NOVA: names that cross a line";
    LinkInOne "link-in-one" "a new link and its count are two transactions; PROTOCOL F2";
    UnlinkInOne "unlink-in-one"
        "the end of an entry and of its inode's link are two transactions; seen in NOVA: unlinking a hard link is not atomic";
    RenameInOne "rename-in-one"
        "the old name is removed first; seen in NOVA: rename invalidates the old entry in place";
    VictimInOne "victim-in-one"
        "what is renamed over is dropped by a second transaction; seen in NOVA: renaming over a file loses both names";
    MovedParent "moved-parent"
        "a directory that moves keeps its old parent; seen in NOVA: directory renames";
    ExchangeInOne "exchange-in-one"
        "an exchange is two transactions, a name each; PROTOCOL F2";
    LinksAppended "links-appended"
        "a new count of links is stored over the last one; seen in NOVA: a link change in place outlives a crash";
    XattrInOne "xattr-in-one"
        "an extended attribute and the mode or the inode it came with are two transactions; seen in NOVA: an inode and its attributes";
    TimesInOne "times-in-one"
        "the times of a file are set one after the other; seen in PMFS: timestamps are not atomic";
    WriteInOne "write-in-one"
        "a write to several extents is several transactions; seen in WineFS: writes are not atomic";
    SizeInMap "size-in-map"
        "the size of an append is set by a second transaction; seen in NOVA-Fortis: an append loses its content";
    TruncateToZero "truncate-to-zero"
        "a truncation to nothing unmaps nothing; seen in NOVA: `if (end == 0) return`";
    TailZeroed "tail-zeroed"
        "bytes behind the end of a file are not zeroed before the size grows; PROTOCOL I17";
    JournalUsed "journal-used" "small overwrites go in place without the journal; PROTOCOL I16";
    JournalReplayed "journal-replayed"
        "journalled overwrites are not stored again after a crash; PROTOCOL I16";
    JournalMapped "journal-mapped"
        "journalled overwrites are stored again although their pages are mapped no more; PROTOCOL I16";
    JournalRetired "journal-retired"
        "journalled overwrites are stored again although later ones have retired them; PROTOCOL I16";
    JournalClipped "journal-clipped"
        "journalled overwrites are stored again where a truncation took the bytes away; PROTOCOL I16";
    JournalHalves "journal-halves"
        "the next overwrite is journalled where the last one still waits; PROTOCOL I16";
    CopyTail "copy-tail"
        "the last bytes of an unaligned copy are not written; seen in NOVA, PMFS and WineFS";
    TargetTail "target-tail"
        "the last bytes of a long target are not written; seen in NOVA: symlink";
    StripsWrittenBack "strips-written-back"
        "checksums and parity of file data stay in the cache; seen in NOVA-Fortis: data and its checksum";
    ParityKept "parity-kept"
        "a page's parity is not stored; seen in NOVA-Fortis: parity that is not that of its page";
    SecondChecksum "second-checksum"
        "checksums of file data are stored once; seen in NOVA-Fortis: replicas that are not written";
    StripsVerified "strips-verified"
        "file data is not compared with its checksums; seen in NOVA-Fortis: an option that is off unnoticed";
    ValueSum "value-sum"
        "the checksum of an extended attribute's value is not looked at; seen in NOVA-Fortis: data without one";
    ValueAfterFence "value-after-fence"
        "pages of a value that another replaces are free before its record is durable; PROTOCOL I9";
    SharedCopied "shared-copied"
        "what a snapshot sees is overwritten in place; seen in NOVA-Fortis: snapshots of mapped files";
    MapsProtected "maps-protected"
        "a snapshot is made while programs store through maps; NOVA-Fortis 4.1.3";
    MapsFollow "maps-follow"
        "a change of a mapped file puts pages in the place of those that a snapshot sees, and its maps show the old ones; NOVA-Fortis 4.1.3";
    ManifestsKept "manifests-kept"
        "what a snapshot sees is free when the file has it no more; NOVA-Fortis 4.1";
    SeenLogsKept "seen-logs-kept"
        "what a snapshot sees of a log is rewritten; seen in NOVA-Fortis: snapshots and collection";
    SnapshotWaits "snapshot-waits"
        "a snapshot does not wait for transactions that are under way; NOVA-Fortis 4.1.2";
    JournalSeen "journal-seen"
        "the journal page that a snapshot sees is used again";
    EndedFirst "ended-first"
        "what a snapshot kept is free before the record that ends it is durable";
    ReceivedInOne "received-in-one"
        "the mark of what is being received goes before the snapshot is there";
    AbandonSaid "abandon-said"
        "the mark of what was received does not say that it is given up when the pool is what it was";
    LaterEnded "later-ended"
        "snapshots later than what a pool is rolled back to stay on the list";
    SeenComesHome "seen-comes-home"
        "a log that snapshots see is written anew while overwrites in its journal have not come home";
    KeptSummed "kept-summed"
        "file data that only snapshots see gets no checksums when the pool does";
    ExemptSaid "exempt-said"
        "no record says which pages a program has mapped to store into, at level full";
    ExemptWhole "exempt-whole"
        "what is kept of pages is not made again before they are exempt no more";
    LentFree "lent-free"
        "a checkpoint says nothing of memory that was lent: its pages are neither free nor anybody's";
    LentApart "lent-apart"
        "pages that a program has are given to files as well";
    LentOwed "lent-owed"
        "what a file gives up of memory that a program has is free before the program has given it back";
    HeldKept "held-kept"
        "recovery asks nobody which memory programs hold on to whose owner is gone";
    SectorsReplayed "sectors-replayed"
        "writes in the sector journal are not stored again after a crash";
    SectorsSeal "sectors-seal"
        "the checksum of a line of the sector journal is not looked at";
    SectorsPlaces "sectors-places"
        "the next write of a lane of the sector journal goes where the data of the last one is";
    SectorsApart "sectors-apart"
        "a line of another lane stays that tells of the bytes that are written";
    SectorsEnded "sectors-ended"
        "who changes a file leaves the lines of the sector journal that tell of it";
    SectorsKnown "sectors-known"
        "who writes sectors where it has written before does not look whether the file has changed since";
    BesideKnown "beside-known"
        "who writes a file side by side with others does not look whether it has changed since";
    BesideLatest "beside-latest"
        "who writes a file side by side with others does not look whether a snapshot has been made since";
    SectorsAwaited "sectors-awaited"
        "a snapshot does not wait for writes that are in lanes of the sector journal";
    RepairsFenced "repairs-fenced"
        "a scrub tells that something is repaired while a power cut can still undo that";
    RelaxedWriteBack "relaxed-write-back"
        "relaxed writes stay in the cache; seen in NOVA: a feature that is off skips the flush";
}

#[cfg(test)]
mod tests {
    use super::Rule;

    #[test]
    fn names_are_words_and_hyphens_and_differ() {
        for (at, rule) in Rule::ALL.iter().enumerate() {
            let plain = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(rule.name().chars().all(plain) && !rule.what().is_empty(), "{rule:?}");
            assert!(Rule::ALL.iter().skip(at + 1).all(|other| other.name() != rule.name()));
        }
    }
}
