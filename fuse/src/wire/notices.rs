//! What the kernel is told unasked: that something it keeps is not true any more.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fuse_abi::linux::{
    fuse_notify_code, fuse_notify_inval_entry_out, fuse_notify_inval_inode_out, fuse_out_header,
};
use rustix::io::Errno as Code;
use zerocopy::IntoBytes;

use super::request::NodeId;

/// Notice that no name the kernel keeps is to be believed unasked: known to Linux 6.16 and later.
const ALL_NAMES: i32 = 8;

/// A way to tell the kernel of changes that it does not know to be some.
#[derive(Clone, Debug, Default)]
pub struct Notices(Option<Arc<OwnedFd>>);

impl Notices {
    /// Through this descriptor of the device.
    pub(super) fn new(device: Arc<OwnedFd>) -> Self {
        Self(Some(device))
    }

    /// The attributes of an inode are others than those the kernel may keep. Its pages stay.
    ///
    /// This waits for nobody: the kernel takes no lock that a request is made under.
    pub fn attributes(&self, node: NodeId) {
        // An offset below 0: of no pages.
        self.inode(node, -1);
    }

    /// The same, and its pages are others, too. Those that were stored to through mappings are written first.
    ///
    /// It may wait for requests of others to be answered.
    pub fn contents(&self, node: NodeId) {
        self.inode(node, 0);
    }

    /// All names are to be asked for again, in all directories, before they are believed. False where the kernel
    /// does not know such a notice. This waits for nobody.
    pub fn all_names(&self) -> bool {
        match self.tell(ALL_NAMES, &[]) {
            Err(Code::INVAL) => false,
            told => {
                note(NodeId::ROOT, told);
                true
            }
        }
    }

    /// A name in a directory is to be asked for again.
    ///
    /// It may wait for requests of others to be answered.
    pub fn name(&self, parent: NodeId, name: &[u8]) {
        let Ok(namelen) = u32::try_from(name.len()) else { return };
        let body = fuse_notify_inval_entry_out { parent: parent.0, namelen, flags: 0 };
        let code = fuse_notify_code::FUSE_NOTIFY_INVAL_ENTRY as i32;
        note(parent, self.tell(code, &[body.as_bytes(), name, b"\0"]));
    }

    fn inode(&self, node: NodeId, off: i64) {
        let body = fuse_notify_inval_inode_out { ino: node.0, off, len: 0 };
        let code = fuse_notify_code::FUSE_NOTIFY_INVAL_INODE as i32;
        note(node, self.tell(code, &[body.as_bytes()]));
    }

    fn tell(&self, code: i32, body: &[&[u8]]) -> Result<(), Code> {
        let Some(device) = &self.0 else { return Ok(()) };
        let header = header(code, body);
        let mut parts = vec![IoSlice::new(header.as_bytes())];
        parts.extend(body.iter().map(|part| IoSlice::new(part)));
        rustix::io::writev(&**device, &parts).map(drop)
    }
}

/// The header of a notice.
fn header(error: i32, body: &[&[u8]]) -> fuse_out_header {
    let bytes = size_of::<fuse_out_header>() + body.iter().map(|part| part.len()).sum::<usize>();
    // Number 0 says that it is no answer.
    fuse_out_header { len: bytes as u32, error, unique: 0 }
}

fn note(node: NodeId, told: Result<(), Code>) {
    match told {
        // The kernel has forgotten the inode by itself, or all of the mount.
        Ok(()) | Err(Code::NOENT | Code::NODEV | Code::NOTDIR) => {}
        Err(error) => tracing::error!(node = node.0, %error, "the kernel took no notice"),
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    /// What the kernel reads of a notice.
    fn told(tell: impl FnOnce(&Notices)) -> Vec<u8> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (kernel, ours) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        tell(&Notices::new(Arc::new(ours)));
        let mut bytes = vec![0; 100];
        let read = rustix::io::read(&kernel, &mut bytes[..]).unwrap();
        bytes.truncate(read);
        bytes
    }

    fn words(bytes: &[u8]) -> Vec<u64> {
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    }

    #[test]
    fn notices_have_the_sizes_the_kernel_expects() {
        // Length and code, the number, and what is told.
        let below_0 = u64::MAX;
        let attributes = told(|notices| notices.attributes(NodeId(7)));
        assert_eq!(words(&attributes), [2 << 32 | 40, 0, 7, below_0, 0]);
        let contents = told(|notices| notices.contents(NodeId(7)));
        assert_eq!(words(&contents), [2 << 32 | 40, 0, 7, 0, 0]);
        assert_eq!(words(&told(|notices| assert!(notices.all_names()))), [8 << 32 | 16, 0]);
        let name = told(|notices| notices.name(NodeId(7), b"letters"));
        assert_eq!(words(&name)[..4], [3 << 32 | 40, 0, 7, 7]);
        assert_eq!(&name[32..], b"letters\0");
    }
}
