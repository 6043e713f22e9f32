//! What broke in NOVA, NOVA-Fortis, PMFS and WineFS, as others have found and told (docs/history.md has the table):
//! each test is named for the property that a bug of theirs broke. Its script is cut off everywhere, at every level of
//! protection; and with the bug put into this engine, it must fail.

use lode_engine::{Protection, Rule};

use self::holds::{holds, holds_by, holds_by_each_fence_of, holds_by_looking};

mod holds;

/// Found at every level.
const ALL: &[Protection] = &Protection::ALL;
/// Found where there is one copy: with two, both would have to be torn, or the pool is too large to be in pieces.
const ONCE: &[Protection] = &[Protection::None];
/// Found where data is written in place.
const PLAIN: &[Protection] = &[Protection::None, Protection::Metadata];
/// Found where metadata is there twice.
const TWICE: &[Protection] = &[Protection::Metadata, Protection::Full];
/// Found where data has checksums.
const FULL: &[Protection] = &[Protection::Full];

/// NOVA: recovery took the number of CPUs for granted.
#[test]
fn recovery_asks_nothing_of_the_number_of_cpus() {
    let script = "pool 160K lanes 4
        before:
            cpus 4
            crash
            create /a
            create /b
            mkdir /d
        ops:
            rename /a /d/a
            link /b /d/b
            cpus 1
            crash
            append /b 100
            cpus 3
            crash
            unlink /d/a";
    holds_by(Rule::EveryLane, ALL, script);
}

/// WineFS: recovery read the journal of another CPU.
#[test]
fn each_lane_is_judged_by_its_own_watermark() {
    let script = "pool 96K lanes 2 log-lines 4
        before:
            cpus 2
            crash
            mkdir /d
            create /k
            create /l
        ops:
            link /k /d/a
            unlink /d/a
            link /l /d/b
            link /k /d/c
            unlink /d/b
            link /l /d/e
            unlink /d/c
            maintain
            link /k /d/f
            rename /d/e /g
            rename /d/f /d/h";
    holds_by(Rule::WatermarkLane, ALL, script);
}

/// NOVA: a feature that was off took the flush with it.
#[test]
fn what_has_returned_is_durable_whatever_is_switched_off() {
    let script = "pool 128K relaxed
        before:
            create /f
            write /f 0 9000
        ops:
            write /f 100 50 2
            write /f 4000 300 3
            append /f 10 4
            chmod /f 0o600";
    holds_by(Rule::RelaxedWriteBack, PLAIN, script);
}

/// NOVA: recovery did not expect a log whose pointers are not there yet.
#[test]
fn logs_that_have_only_begun_are_recovered() {
    let modes: String = (1..10).map(|mode| format!("chmod /a 0o60{mode}\n")).collect();
    let modes = modes.replace("0o609", "0o600").replace("0o608", "0o601");
    let script = format!("pool 96K log-lines 4\nops:\ncreate /a\n{modes}link /a /b\nunlink /a");
    // (A link that is torn, and not taken for damage, takes longer scripts: `link-torn` of `lode crash mutants`.)
    holds(&script);
}

/// NOVA: the old entry became invalid in place before the journal was there.
#[test]
fn a_rename_shows_the_old_name_or_the_new_one() {
    let script = "pool 128K
        before:
            mkdir /d
            mkdir /e
            create /a
            create /d/b
        ops:
            rename /a /c
            rename /c /d/c
            rename /d/b /e/c
            rename /e /d/e";
    holds_by(Rule::RenameInOne, ALL, script);
}

/// NOVA: renaming over a file lost both names.
#[test]
fn a_rename_over_a_name_loses_neither() {
    let script = "pool 128K
        before:
            mkdir /d
            create /a
            append /a 100 1
            create /b
            append /b 200 2
            create /d/c
            link /b /d/l
            open /d/c 0
        ops:
            rename /a /b
            rename /b /d/c
            rename /d/l /d/c
            append @0 10 3";
    holds_by(Rule::VictimInOne, ALL, script);
}

/// NOVA: renaming a directory lost both names.
#[test]
fn a_directory_that_moves_has_its_new_parent() {
    let script = "pool 128K
        before:
            mkdir /d
            mkdir /d/x
            mkdir /e
        ops:
            rename /d/x /e/x
            rename /e/x /y
            rename /y /d/x exchange
            rename /e /d/e";
    let script = script.replace("rename /y /d/x exchange", "mkdir /d/x\nrename /y /d/x exchange");
    holds_by(Rule::MovedParent, ALL, &script);
}

/// NOVA: the undo journal of an entry left out fields.
#[test]
fn what_replaces_a_record_says_all_that_it_said() {
    let script = "pool 128K log-lines 4
        before:
            create /a 0o100640
            chown /a 3 4
            setattr /a atime=5 mtime=6
        ops:
            link /a /b
            unlink /b
            link /a /c
            unlink /c
            chmod /a 0o601
            chmod /a 0o602
            chmod /a 0o603
            maintain
            chmod /a 0o604
            chmod /a 0o605";
    holds_by(Rule::RewriteWhole, ALL, script);
}

/// NOVA: a link-change entry that was updated in place outlived the crash.
#[test]
fn a_count_of_links_goes_with_the_names() {
    let script = "pool 128K
        before:
            create /a
            mkdir /d
        ops:
            link /a /b
            link /a /d/c
            unlink /b
            link /a /b
            unlink /a";
    holds_by(Rule::LinksAppended, ALL, script);
}

/// NOVA: unlinking a hard link was not atomic.
#[test]
fn a_hard_link_ends_with_its_count() {
    let script = "pool 128K
        before:
            create /a
            mkdir /d
            link /a /d/b
            link /a /d/c
        ops:
            unlink /d/b
            unlink /a
            unlink /d/c";
    holds_by(Rule::UnlinkInOne, ALL, script);
}

/// NOVA: rebuilding compared with the wrong counter, and dropped writes through other descriptors.
#[test]
fn writes_by_several_handles_are_replayed_in_their_order() {
    // (What only looks leaves one of the two lanes behind the other.)
    let ahead = "write @0 0 100 1\nread @0 0 10\n".repeat(6);
    let script = format!(
        "pool 160K lanes 2\nbefore:\ncreate /a\nopen /a 0\nopen /a 1\n{ahead}ops:\nwrite @1 0 3000 2\n\
         write @0 0 3000 3\nappend @1 10 5"
    );
    holds_by(Rule::ReplayInOrder, ALL, &script);
}

/// NOVA: `if (end == 0) return`.
#[test]
fn a_truncation_to_nothing_leaves_nothing() {
    let script = "pool 128K
        before:
            create /a
            write /a 0 9000
            create /b
            append /b 4096
        ops:
            truncate /a 0
            truncate /a 9000
            truncate /b 0
            append /b 1
            punch /a 0 4096
            punch /b 0 1
            truncate /a 4096
            zero /a 0 4096";
    holds_by(Rule::TruncateToZero, ALL, script);
}

/// NOVA-Fortis: recovery of a truncation freed blocks twice.
#[test]
fn what_a_truncation_frees_is_freed_once() {
    let script = "pool 128K
        before:
            create /a
            write /a 0 20000
            create /b
        ops:
            truncate /a 5000
            append /b 9000 2
            truncate /a 0
            append /a 5000 3
            crash
            append /b 5000 4";
    holds_by(Rule::ReplayFreesNothing, ALL, script);
}

/// PMFS: truncations were replayed before the free list was there.
#[test]
fn a_truncation_before_a_crash_finds_its_free_space() {
    let script = "pool 128K lanes 2
        before:
            cpus 2
            crash
            create /a
            write /a 0 20000
            mkdir /d
            create /d/b
            open /d/b 0
            append @0 9000
        ops:
            truncate /a 4096
            unlink /d/b
            rename /a /d/a
            crash
            append /d/a 9000";
    holds_by(Rule::JudgeBeforeRebuild, ALL, script);
}

/// NOVA-Fortis: a flush without a fence between an entry and its replica; a checksum between the initialising of a log and of its replica.
#[test]
fn copies_of_metadata_say_the_same_after_a_crash() {
    let script = "pool 128K log-lines 4
        ops:
            create /a
            mkdir /d
            rename /a /d/b
            chmod /d/b 0o601
            chmod /d/b 0o602
            chmod /d/b 0o603
            link /d/b /a
            unlink /d/b
            crash
            create /c";
    holds_by(Rule::TwinsMended, TWICE, script);
}

/// NOVA-Fortis: checksums that nothing repaired after a crash.
#[test]
fn data_and_its_checksums_go_together() {
    let script = "pool 128K
        before:
            create /a
            write /a 0 6000 3
        ops:
            write /a 0 8192 4
            write /a 100 50 5
            append /a 700 6
            truncate /a 5000
            truncate /a 9000
            append /a 10 7";
    holds_by(Rule::StripsWrittenBack, FULL, script);
}

/// NOVA-Fortis: the same, of parity.
#[test]
fn parity_is_that_of_its_page() {
    let script = "pool 128K
        create /a
        write /a 0 9000 1
        write /a 100 50 2
        truncate /a 5000";
    holds_by_looking(Rule::ParityKept, Protection::Full, script);
}

/// NOVA-Fortis: replicas that were not written.
#[test]
fn checksums_of_data_are_there_twice() {
    let script = "pool 128K
        create /a
        write /a 0 9000 1
        append /a 10 2";
    holds_by_looking(Rule::SecondChecksum, Protection::Full, script);
}

/// NOVA-Fortis, as its users told: protection that was silently off.
#[test]
fn checksums_that_are_there_are_looked_at() {
    let script = "pool 128K
        create /a
        write /a 0 9000 1
        write /a 4000 200 2";
    holds_by_looking(Rule::StripsVerified, Protection::Full, script);
}

/// The same, of what is not file data.
#[test]
fn a_value_with_pages_of_its_own_has_a_checksum() {
    let script = "pool 128K
        create /a
        setxattr /a user.x 9000 1";
    holds_by_looking(Rule::ValueSum, Protection::None, script);
}

/// PMFS, WineFS: no fence behind the data of a write.
#[test]
fn data_is_there_when_a_write_returns() {
    let script = "pool 128K
        before:
            create /a
            write /a 0 5000
        ops:
            write /a 0 4096 2
            write /a 4000 2000 3
            append /a 100 4
            append /a 9000 5";
    holds_by_each_fence_of("engine/src/file/", script);
}

/// NOVA: the tail of the journal could be there before its entries.
#[test]
fn a_small_overwrite_is_in_the_journal_before_a_record_says_so() {
    let script = "pool 128K
        before:
            create /a
            write /a 0 6000 1
        ops:
            write /a 100 50 2
            write /a 120 200 3
            truncate /a 700";
    holds_by(Rule::JournalUsed, PLAIN, script);
}

/// PMFS, WineFS: the line of an end that is no multiple of 8 was not flushed. NOVA: a write lost its last bytes.
#[test]
fn bytes_at_odd_ends_are_written() {
    let writes: String = (1..8).map(|odd| format!("write /a {} {odd} 2\n", odd * 67)).collect();
    let appends: String = (1..10).map(|odd| format!("append /b {odd} 3\n")).collect();
    let script = format!(
        "pool 192K\nbefore:\ncreate /a\nwrite /a 0 600\ncreate /b\nops:\n{writes}{appends}"
    );
    holds_by(Rule::CopyTail, ALL, &script);
    let relaxed = script.replace("192K", "192K relaxed");
    holds_by(Rule::CopyTail, ALL, &relaxed);
}

/// NOVA: a symbolic link lost the last bytes of its target.
#[test]
fn the_last_bytes_of_a_target_are_written() {
    let targets: String = [1, 7, 57, 63, 64, 65, 900, 1021]
        .map(|len| format!("symlink /s{len} %=0.{len}\n"))
        .concat();
    holds_by(Rule::TargetTail, ALL, &format!("pool 192K\nops:\n{targets}"));
}

/// WineFS: a write in strict mode was not atomic.
#[test]
fn a_write_to_many_pages_is_there_whole_or_not() {
    // (In a pool whose free pages do not follow each other: the write is in pieces.)
    let alternating = "append /b 4096\nappend /c 4096\n".repeat(17);
    let script = format!(
        "pool 192K
        before:
            create /a
            write /a 0 4096
            create /b
            create /c
            {alternating}
            unlink /c
        ops:
            write /a 100 30000 2
            write /a 4000 9000 3"
    );
    holds_by(Rule::WriteInOne, ONCE, &script);
}

/// NOVA: names of 64 bytes and more broke.
#[test]
fn names_that_cross_lines_are_whole() {
    let lens = [40, 55, 56, 57, 63, 64, 65, 127, 128, 255];
    let ops: String = lens
        .map(|len| {
            format!("create /%=0.{len}\nrename /%=0.{len} /d/%=1.{len}\nunlink /d/%=1.{len}\n")
        })
        .concat();
    holds_by(Rule::NameInOne, ALL, &format!("pool 192K\nbefore:\nmkdir /d\nops:\n{ops}"));
}

/// NOVA-Fortis: an append or an update lost the content.
#[test]
fn an_append_comes_with_its_size() {
    let script = "pool 128K
        before:
            create /a
            append /a 100
        ops:
            append /a 50 2
            append /a 5000 3
            crash
            append /a 1 4
            write /a 0 100 5";
    holds_by(Rule::SizeInMap, ALL, script);
}

/// PMFS: timestamps were not atomic.
#[test]
fn times_are_set_at_once() {
    let script = "pool 96K
        before:
            create /a
        ops:
            setattr /a atime=1000000007 mtime=2000000009
            setattr /a atime=-1 mtime=3 mode=0o600 size=5000";
    holds_by(Rule::TimesInOne, ALL, script);
}

/// NOVA: an inode was there without what was to come with it.
#[test]
fn an_inode_comes_with_its_attributes() {
    let script = "pool 128K
        before:
            create /a
        ops:
            create-with /b 0o100600 user.x 9
            setattr-with /a user.x 300 1 mode=0o604
            setattr-with /a user.x 5000 2 mode=0o644";
    holds_by(Rule::XattrInOne, ALL, script);
}

/// NOVA-Fortis, as its users told: snapshots with checksums of metadata, and of mapped files.
#[test]
fn snapshots_keep_what_is_overwritten() {
    let script = "pool 160K
        before:
            create /f
            append /f 9000
            snapshot a
        ops:
            write /f 100 50 2
            write /f 0 4096 3
            truncate /f 5000
            crash
            write /f 4500 10 4
            drop a";
    holds_by(Rule::SharedCopied, ALL, script);
}

/// NOVA-Fortis: snapshots and the collection of logs.
#[test]
fn snapshots_and_the_collection_of_logs_go_together() {
    let modes: String = (0..14).map(|mode| format!("chmod /k 0o6{mode:02o}\n")).collect();
    let script = format!(
        "pool 160K log-lines 4\nbefore:\ncreate /k\nsnapshot a\n{modes}\nops:\nchmod /k 0o600\nsnapshot b\n\
         chmod /k 0o601\ndrop a\nchmod /k 0o602\nmaintain\nchmod /k 0o603"
    );
    holds_by(Rule::SeenLogsKept, ALL, &script);
}

/// NOVA-Fortis: a write failed after a recovery. PMFS: memory used after it was freed, on a remount.
#[test]
fn a_recovered_pool_takes_writes_and_is_mounted_again() {
    let script = "pool 160K lanes 2
        before:
            create /a
            append /a 9000
            mkdir /d
            create /d/b
            open /d/b 0
        ops:
            write /a 100 50 2
            unlink /d/b
            crash
            append /a 5000 3
            remount
            truncate /a 100
            crash
            remount
            unlink /a";
    holds(script);
}
