//! Devices made, started, stopped and deleted.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::process::{Pid, test_kill_process};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::Error;
use crate::parameters::DATA_BYTES;
use crate::wire::{
    ADD, ANY_DEVICE, CONTROL, ControlCommand, DEAD, DELETE, DELETE_ASYNC, GET_CPUS, GET_INFO,
    IOCTL_ENCODED, Info, NO_QUEUE, Parameters, SET_PARAMETERS, START, STOP,
};

/// What a device of Lode is known by, in the upper half of the number that the driver keeps; the lower half is the process.
const MARK: u64 = 0x4c6f_6465 << 32;
/// Where devices are to be seen.
const DEVICES: &str = "/sys/class/ublk-char";
/// What their names begin with there.
const PREFIX: &str = "ublkc";
/// Bytes of a set of CPUs: more than kernels have.
const CPUS_BYTES: usize = 1024;

/// The driver's control file.
pub struct Control {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: OwnedFd,
    /// Nobody knows when a command ends.
    is_lost: bool,
}

impl Control {
    /// Opens it.
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::Open`], [`Error::Ring`].
    pub fn open() -> Result<Self, Error> {
        let opened = OpenOptions::new().read(true).write(true).open(CONTROL);
        let file = opened.map_err(|error| {
            match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
                // (The file may be there by itself, without the driver.)
                Some(
                    rustix::io::Errno::NOENT | rustix::io::Errno::NODEV | rustix::io::Errno::NXIO,
                ) => Error::NoDriver,
                _ => Error::Open { path: CONTROL.into(), error },
            }
        })?;
        let mut builder = IoUring::builder();
        builder.dontfork();
        let ring = builder.build(1).map_err(Error::Ring)?;
        Ok(Self { ring, file: file.into(), is_lost: false })
    }

    /// Makes a device of so many queues, or fewer, of so many requests, or fewer.
    ///
    /// # Errors
    /// [`Error::Command`].
    pub fn add(&mut self, queues: u16, depth: u16) -> Result<Info, Error> {
        let info = Info {
            queues,
            depth,
            data_bytes: DATA_BYTES,
            device: ANY_DEVICE,
            process: -1,
            flags: IOCTL_ENCODED,
            mark: MARK | u64::from(std::process::id()),
            ..Info::default()
        };
        let added = self.call("make", ADD, ANY_DEVICE, 0, info.as_bytes())?;
        Info::read_from_bytes(&added).map_err(|_| Error::Shape)
    }

    /// Tells what a device is to be.
    ///
    /// # Errors
    /// [`Error::Command`].
    pub fn set(&mut self, device: u32, parameters: &Parameters) -> Result<(), Error> {
        self.call("take the parameters of", SET_PARAMETERS, device, 0, parameters.as_bytes())?;
        Ok(())
    }

    /// The CPUs whose requests a queue has, by their numbers.
    ///
    /// # Errors
    /// [`Error::Command`].
    pub fn cpus(&mut self, device: u32, queue: u16) -> Result<Vec<usize>, Error> {
        let none = [0; CPUS_BYTES];
        let set = self.call("tell the CPUs of", GET_CPUS, device, queue.into(), &none)?;
        Ok(members(&set))
    }

    /// Makes it a block device: from then on the kernel asks, of the partitions on it first.
    ///
    /// # Errors
    /// [`Error::Command`].
    pub fn start(&mut self, device: u32) -> Result<(), Error> {
        self.call("start", START, device, std::process::id().into(), &[])?;
        Ok(())
    }

    /// Makes it none any more. What the kernel still has to write is written before.
    ///
    /// # Errors
    /// [`Error::Command`].
    pub fn stop(&mut self, device: u32) -> Result<(), Error> {
        self.call("stop", STOP, device, 0, &[])?;
        Ok(())
    }

    /// Deletes it. Its number is that of no device any more once nobody has it open, or mounted: that is waited for only by
    /// kernels that can't leave it out.
    ///
    /// # Errors
    /// [`Error::Command`].
    pub fn delete(&mut self, device: u32) -> Result<(), Error> {
        let deleted = self.call("delete", DELETE_ASYNC, device, 0, &[]);
        deleted.or_else(|_| self.call("delete", DELETE, device, 0, &[]))?;
        Ok(())
    }

    /// Deletes what servers have left that were killed: their block devices are gone, their numbers are not.
    pub fn clean(&mut self) {
        for device in devices() {
            let info = self.call("tell of", GET_INFO, device, 0, Info::default().as_bytes());
            let info = info.ok().and_then(|bytes| Info::read_from_bytes(&bytes).ok());
            if info.is_some_and(|info| is_left(&info)) {
                let deleted = self.delete(device);
                tracing::info!(device, ?deleted, "a device was left by a server that is gone");
            }
        }
    }

    /// Gives a command with memory that it reads and may write to, and waits for its end; returns what is in the memory then.
    #[allow(unsafe_code)]
    fn call(
        &mut self,
        what: &'static str,
        number: u32,
        device: u32,
        value: u64,
        memory: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let failed = |error| Error::Command { what, error };
        if self.is_lost {
            return Err(failed(io::Error::other("a command before it was lost")));
        }
        let mut memory = memory.to_vec();
        let bytes = u16::try_from(memory.len()).map_err(|_| Error::Shape)?;
        let address = if memory.is_empty() { 0 } else { memory.as_mut_ptr().expose_provenance() };
        let command = ControlCommand {
            device,
            queue: NO_QUEUE,
            bytes,
            address: address as u64,
            value,
            ..ControlCommand::default()
        };
        let mut words = [0; 80];
        for (place, byte) in words.iter_mut().zip(command.as_bytes()) {
            *place = *byte;
        }
        let file = types::Fd(self.file.as_raw_fd());
        let submitted = opcode::UringCmd80::new(file, number).cmd(words).build();
        // SAFETY: the only memory that the command names is `memory`, which nobody else uses until the command has completed;
        // where that is not known, it is never freed.
        let pushed = unsafe { self.ring.submission().push(&submitted) };
        pushed.map_err(|_| failed(io::Error::other("there is a command before it")))?;
        match self.completed() {
            Ok(0..) => Ok(memory),
            Ok(code) => Err(failed(io::Error::from_raw_os_error(-code))),
            Err(error) => {
                // (What completes later would be taken for the end of another command.)
                self.is_lost = true;
                std::mem::forget(memory);
                Err(failed(error))
            }
        }
    }

    /// Waits for the one command.
    fn completed(&mut self) -> io::Result<i32> {
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if let Some(done) = self.ring.completion().next() {
                return Ok(done.result());
            }
        }
    }
}

/// Numbers of the devices that there are.
fn devices() -> Vec<u32> {
    let Ok(entries) = fs::read_dir(Path::new(DEVICES)) else { return Vec::new() };
    let number =
        |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok();
    entries.flatten().filter_map(number).collect()
}

/// What is in a set of the kernel's: bits of words, of which x86 has the lowest first.
fn members(set: &[u8]) -> Vec<usize> {
    let is_in = |bit: &usize| set.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
    (0..set.len() * 8).filter(is_in).collect()
}

/// Whether it is a device of Lode that is over, and whose process is no more.
fn is_left(info: &Info) -> bool {
    let process = i32::try_from(info.mark & u64::from(u32::MAX)).ok().and_then(Pid::from_raw);
    let is_gone = |process| test_kill_process(process) == Err(rustix::io::Errno::SRCH);
    info.mark & !u64::from(u32::MAX) == MARK && info.state == DEAD && process.is_some_and(is_gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_cpus_are_read_as_the_kernel_writes_them() {
        assert_eq!(members(&[0b101, 0, 0b1000_0000, 0]), [0, 2, 23]);
        assert_eq!(members(&[0; 16]), []);
    }

    #[test]
    fn only_devices_of_lode_whose_process_is_gone_are_left_ones() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = u64::from(child.id());
        child.wait().unwrap();
        let left = Info { mark: MARK | gone, state: DEAD, ..Info::default() };
        assert!(is_left(&left));
        assert!(!is_left(&Info { mark: gone, ..left }), "of somebody else");
        assert!(!is_left(&Info { state: 1, ..left }), "in use");
        let here = MARK | u64::from(std::process::id());
        assert!(!is_left(&Info { mark: here, ..left }), "not yet started");
        assert!(!is_left(&Info { mark: MARK, ..left }), "of no process");
    }
}
