//! What the kernel is told unasked: that something it keeps is not true any more.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fuse_abi::linux::{fuse_notify_code, fuse_notify_inval_inode_out, fuse_out_header};
use rustix::io::Errno as Code;
use zerocopy::IntoBytes;

use super::request::NodeId;

/// A way to tell the kernel of changes that it does not know to be some.
#[derive(Debug, Default)]
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
        let Some(device) = &self.0 else { return };
        let (header, body) = of_attributes(node);
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(body.as_bytes())];
        match rustix::io::writev(&**device, &parts) {
            // The kernel has forgotten the inode by itself, or all of the mount.
            Ok(_) | Err(Code::NOENT | Code::NODEV) => {}
            Err(error) => tracing::error!(node = node.0, %error, "the kernel took no notice"),
        }
    }
}

fn of_attributes(node: NodeId) -> (fuse_out_header, fuse_notify_inval_inode_out) {
    // An offset below 0: of no pages.
    let body = fuse_notify_inval_inode_out { ino: node.0, off: -1, len: 0 };
    let len = (size_of::<fuse_out_header>() + size_of_val(&body)) as u32;
    let error = fuse_notify_code::FUSE_NOTIFY_INVAL_INODE as i32;
    // Number 0 says that it is no answer.
    (fuse_out_header { len, error, unique: 0 }, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_has_the_size_the_kernel_expects() {
        let (header, body) = of_attributes(NodeId(7));
        assert_eq!([header.as_bytes(), body.as_bytes()].concat().len(), 40);
        assert_eq!((header.len, header.error, header.unique), (40, 2, 0));
        assert_eq!((body.ino, body.off, body.len), (7, -1, 0));
    }
}
