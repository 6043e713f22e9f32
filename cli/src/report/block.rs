//! Volumes, for people and for programs.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lode_block::VolumeInfo;
use serde::Serialize;

use crate::human::printable;
use crate::output::Report;
use crate::sizes::human;

/// A volume.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VolumeFacts {
    /// Its name, printable.
    pub(crate) name: String,
    /// Its name.
    #[serde(skip)]
    pub(crate) name_bytes: Vec<u8>,
    /// Its size in bytes.
    pub(crate) bytes: u64,
    /// Bytes of the pool that it takes, second copies and checksums apart.
    pub(crate) allocated_bytes: u64,
    /// Bytes of a sector.
    pub(crate) sector: u64,
    /// It takes space only for what is written.
    pub(crate) thin: bool,
}

impl From<&VolumeInfo> for VolumeFacts {
    fn from(info: &VolumeInfo) -> Self {
        Self {
            name: printable(&info.name),
            name_bytes: info.name.clone(),
            bytes: info.bytes,
            allocated_bytes: info.allocated_bytes,
            sector: info.settings.sector.bytes(),
            thin: info.settings.is_thin,
        }
    }
}

impl VolumeFacts {
    fn text(&self) -> String {
        let Self { name, bytes, sector, thin, .. } = self;
        let thin = if *thin { ", thin" } else { "" };
        format!("volume {name}, {}, sectors of {sector} bytes{thin}", human(*bytes))
    }
}

/// `lode block create`.
#[derive(Serialize)]
pub(crate) struct VolumeMade {
    /// The pool, or the directory it is mounted at.
    pub(crate) target: String,
    /// The new one.
    pub(crate) volume: VolumeFacts,
}

impl Report for VolumeMade {
    fn text(&self) -> String {
        format!("{}: {}\n", self.target, self.volume.text())
    }
}

/// `lode block resize`.
#[derive(Serialize)]
pub(crate) struct VolumeResized {
    /// The pool, or the directory it is mounted at.
    pub(crate) target: String,
    /// As it is now.
    pub(crate) volume: VolumeFacts,
}

impl Report for VolumeResized {
    fn text(&self) -> String {
        format!("{}: {}\n", self.target, self.volume.text())
    }
}

/// `lode block list`.
#[derive(Serialize)]
pub(crate) struct VolumeList {
    /// The pool, or the directory it is mounted at.
    pub(crate) target: String,
    /// All, by name.
    pub(crate) volumes: Vec<VolumeFacts>,
}

impl Report for VolumeList {
    fn text(&self) -> String {
        if self.volumes.is_empty() {
            return format!("{}: no volumes\n", self.target);
        }
        const NAME: &str = "name";
        let names = self.volumes.iter().map(|one| one.name.chars().count());
        let width = names.max().unwrap_or(0).max(NAME.len());
        let row = |name: &str, size: &str, taken: &str, sector: &str, kind: &str| {
            format!("{name:width$}  {size:>12}  {taken:>12}  {sector:>6}  {kind}\n")
        };
        let mut text = row(NAME, "size", "takes", "sector", "kind");
        for VolumeFacts { name, bytes, allocated_bytes, sector, thin, .. } in &self.volumes {
            let (size, taken) = (human(*bytes), human(*allocated_bytes));
            let kind = if *thin { "thin" } else { "whole" };
            text.push_str(&row(name, &size, &taken, &sector.to_string(), kind));
        }
        text
    }
}

/// `lode block delete`.
#[derive(Serialize)]
pub(crate) struct VolumeDeleted {
    /// The pool, or the directory it is mounted at.
    pub(crate) target: String,
    /// What is no more.
    pub(crate) name: String,
}

impl Report for VolumeDeleted {
    fn text(&self) -> String {
        format!("{}: volume {} is deleted\n", self.target, self.name)
    }
}

/// Where something is served.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ServedAt {
    /// Where clients find it.
    pub(crate) uris: Vec<String>,
    /// The device of the kernel, if it is served as one.
    pub(crate) device: Option<String>,
}

impl ServedAt {
    /// By this name, at a Unix socket and an address, as far as there are such.
    pub(crate) fn new(name: &str, (socket, address): (Option<&Path>, Option<SocketAddr>)) -> Self {
        let name = escaped(name.as_bytes());
        let unix = socket.map(|socket| {
            let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
            format!("nbd+unix:///{name}?socket={}", escaped(socket.as_os_str().as_bytes()))
        });
        let tcp = address.map(|address| format!("nbd://{address}/{name}"));
        Self { uris: unix.into_iter().chain(tcp).collect(), device: None }
    }

    /// As a device of the kernel.
    pub(crate) fn device(device: &Path) -> Self {
        Self { uris: Vec::new(), device: Some(device.display().to_string()) }
    }

    /// What scripts use of a device, or what it is and where.
    fn text(&self, what: &str) -> String {
        match &self.device {
            Some(device) => format!("{device}\n"),
            None => {
                let uris: String = self.uris.iter().map(|uri| format!("  {uri}\n")).collect();
                format!("{what}\n{uris}")
            }
        }
    }
}

/// A volume that is served.
#[derive(Serialize)]
pub(crate) struct ServedFacts {
    /// The volume.
    pub(crate) volume: VolumeFacts,
    /// Nothing can be written to it.
    pub(crate) read_only: bool,
    /// Where.
    #[serde(flatten)]
    pub(crate) at: ServedAt,
}

/// `lode block serve --raw`, once clients can come.
#[derive(Serialize)]
pub(crate) struct RawServed {
    /// The file or device.
    pub(crate) region: String,
    /// What it is made of.
    pub(crate) kind: String,
    /// Bytes in it.
    pub(crate) bytes: u64,
    /// Bytes of a sector.
    pub(crate) sector: u64,
    /// What keeps stray stores out.
    pub(crate) protect_io: String,
    /// How what is written reaches the memory.
    pub(crate) write_scheme: String,
    /// Nothing can be written to it.
    pub(crate) read_only: bool,
    /// What is written is durable when the request is answered; or else with the next flush.
    pub(crate) durable_when_written: bool,
    /// Where.
    #[serde(flatten)]
    pub(crate) at: ServedAt,
}

impl Report for RawServed {
    fn text(&self) -> String {
        let Self { region, kind, bytes, sector, protect_io, write_scheme, .. } = self;
        let only_read = if self.read_only { ", read-only" } else { "" };
        let size = human(*bytes);
        let durable = if self.durable_when_written { "when written" } else { "when flushed" };
        self.at.text(&format!(
            "{region}: {kind}, {size}, sectors of {sector} bytes, not atomic, durable {durable}, \
             {write_scheme}, protected by {protect_io}{only_read}"
        ))
    }
}

/// As a part of a URI: all but what may stand there as it is, and `/`, by its number.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'~' => text.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => text.push(char::from(*byte)),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// `lode block serve`, once clients can come.
#[derive(Serialize)]
pub(crate) struct VolumesServed {
    /// The pool.
    pub(crate) pool: String,
    /// What is served.
    pub(crate) exports: Vec<ServedFacts>,
}

impl Report for VolumesServed {
    fn text(&self) -> String {
        let text = |ServedFacts { volume, read_only, at }: &ServedFacts| {
            let only_read = if *read_only { ", read-only" } else { "" };
            at.text(&format!("{}: {}{only_read}", self.pool, volume.text()))
        };
        self.exports.iter().map(text).collect()
    }
}

/// `lode block attach`.
#[derive(Serialize)]
pub(crate) struct VolumeAttached {
    /// The volume's file.
    pub(crate) file: String,
    /// The loop device.
    pub(crate) device: String,
}

impl Report for VolumeAttached {
    // What scripts use.
    fn text(&self) -> String {
        format!("{}\n", self.device)
    }
}

/// `lode block detach`.
#[derive(Serialize)]
pub(crate) struct VolumeDetached {
    /// The volume's file.
    pub(crate) file: String,
    /// Loop devices that were ended.
    pub(crate) devices: Vec<String>,
}

impl Report for VolumeDetached {
    fn text(&self) -> String {
        self.devices.iter().map(|device| format!("{device}: {} is detached\n", self.file)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_volume_is_served_is_told_as_uris() {
        let address = "127.0.0.1:10809".parse().ok();
        let served = ServedAt::new("my disk#1", (Some(Path::new("/run/a b.sock")), address));
        assert_eq!(
            served.uris,
            [
                "nbd+unix:///my%20disk%231?socket=/run/a%20b.sock",
                "nbd://127.0.0.1:10809/my%20disk%231"
            ]
        );
    }

    #[test]
    fn devices_are_told_by_their_names_alone() {
        let volume = VolumeFacts {
            name: "v".into(),
            name_bytes: b"v".into(),
            bytes: 1,
            allocated_bytes: 1,
            sector: 512,
            thin: false,
        };
        let on = |device| ServedFacts {
            volume: volume.clone(),
            read_only: false,
            at: ServedAt::device(Path::new(device)),
        };
        let exports = vec![on("/dev/ublkb0"), on("/dev/ublkb12")];
        let text = VolumesServed { pool: "/p".into(), exports }.text();
        assert_eq!(text, "/dev/ublkb0\n/dev/ublkb12\n");
    }

    #[test]
    fn a_list_is_a_table_in_which_names_of_any_length_are_aligned() {
        let one = |name: &str, bytes: u64, thin| VolumeFacts {
            name: name.into(),
            name_bytes: name.into(),
            bytes,
            allocated_bytes: bytes / 2,
            sector: 512,
            thin,
        };
        let volumes = vec![one("a", 2 << 30, true), one("database", 1 << 20, false)];
        let text = VolumeList { target: "/p".into(), volumes }.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("name ") && lines[0].ends_with("  kind"), "{text}");
        assert!(lines[1].contains(" 2 GiB ") && lines[1].ends_with("  512  thin"), "{text}");
        assert!(lines[2].contains(" 512 KiB ") && lines[2].ends_with("  whole"), "{text}");
        let none = VolumeList { target: "/p".into(), volumes: Vec::new() };
        assert_eq!(none.text(), "/p: no volumes\n");
    }
}
