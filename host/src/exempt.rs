//! What the log says of files that programs have mapped to store into: which bytes have no checksums, and when they have them
//! again.

use lode_engine::{ExemptRange, Exemption};

/// Says what becomes of checksums.
pub(crate) fn tell(what: Exemption, of: ExemptRange) {
    let ExemptRange { ino: inode, offset: file_offset, bytes } = of;
    let says = match what {
        Exemption::Begins => "no checksums from now on: a program has this mapped to store into",
        Exemption::Ends => "has checksums again: it is not mapped any more",
        Exemption::EndsForSnapshot => {
            "has checksums for a snapshot: pages that a program stores to again have none from then on"
        }
        Exemption::EndsAfterCrash => {
            "was mapped when the pool was left: its checksums are now of what is there, right or not"
        }
        Exemption::Stays => {
            "has no checksums still: there is no room for them. Where a snapshot was made just now, what it has of this has none"
        }
        Exemption::StaysAfterCrash => {
            "was mapped when the pool was left: no checksums until it is opened for writing, with room for them"
        }
    };
    match what {
        Exemption::EndsAfterCrash | Exemption::Stays | Exemption::StaysAfterCrash => {
            tracing::warn!(inode, file_offset, bytes, "{says}");
        }
        // (Snapshots may be made many times a second, and programs that store wait for them.)
        Exemption::EndsForSnapshot => tracing::debug!(inode, file_offset, bytes, "{says}"),
        _ => tracing::info!(inode, file_offset, bytes, "{says}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// Who listens, and writes each event as a line.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            self.0 += &format!(" {}={value:?}", field.name());
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut line = Line(event.metadata().level().to_string());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn the_log_says_which_bytes_of_which_file_have_no_checksums() {
        let lines = Lines::default();
        let of = ExemptRange { ino: 77, offset: 8192, bytes: 12288 };
        let all = [
            Exemption::Begins,
            Exemption::Ends,
            Exemption::EndsForSnapshot,
            Exemption::EndsAfterCrash,
            Exemption::Stays,
            Exemption::StaysAfterCrash,
        ];
        tracing::subscriber::with_default(lines.clone(), || all.map(|what| tell(what, of)));
        let told = lines.0.lock().unwrap();
        assert_eq!(told.len(), all.len(), "{told:?}");
        for line in told.iter() {
            for part in ["inode=77", "file_offset=8192", "bytes=12288", "checksums"] {
                assert!(line.contains(part), "{part} in {line}");
            }
        }
        let loud: Vec<bool> = told.iter().map(|line| line.starts_with("WARN")).collect();
        assert_eq!(loud, [false, false, false, true, true, true]);
    }
}
