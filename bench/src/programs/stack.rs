//! What one run lies on: put up, emptied of what caches hold, taken down and checked.
//!
//! What this file guarantees: all mounts of a run are below a directory of its own, and its devices are of files below it
//! or of the run's image; dropping the [`Stack`] takes away what is left of it, however far it came.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};

use super::subject::{Base, Subject};
use crate::error::{BenchError, Result};
use crate::file_system::{FileSystem, PATH};
use crate::place::{Place, run_program, take_away, take_off_unused, told_by};
use crate::subject::Programs;
use crate::subject::lode_mount::{make_pool, mount_pool, touched};

/// The volume's name.
const VOLUME: &str = "disk";
/// Bytes of sectors, of volumes and of the devices beside them.
const SECTOR: &str = "4096";
/// How often a pool is tried to be unmounted whose device is about to be gone.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// How large things are.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) pool: u64,
    /// A volume, an image, and what a tmpfs holds at most.
    pub(super) device: u64,
}

/// What all runs have in common.
pub(super) struct Ground<'a> {
    pub(super) place: &'a Place,
    pub(super) programs: &'a Programs,
    pub(super) sizes: Sizes,
    /// Beside the pools: memory that is there.
    image: PathBuf,
}

impl<'a> Ground<'a> {
    /// Makes the image, where a subject needs it.
    pub(super) fn new(
        place: &'a Place,
        programs: &'a Programs,
        sizes: Sizes,
        subjects: &[&Subject],
    ) -> Result<Self> {
        let mut ground = Self { place, programs, sizes, image: PathBuf::new() };
        if subjects.iter().any(|subject| matches!(subject.base, Base::Image(_))) {
            let room = sizes.device + (1 << 20);
            ground.image = place.tmpfs("images", &format!("size={room}"))?.join("image");
            let filled = File::create(&ground.image).and_then(|mut file| {
                io::copy(&mut io::Read::take(io::repeat(0), sizes.device), &mut file)
            });
            filled.map_err(|error| BenchError::io("filling", &ground.image, error))?;
        }
        Ok(ground)
    }

    fn pool(&self) -> PathBuf {
        self.place.pools().join("programs")
    }
}

/// What one run lies on.
pub(super) struct Stack<'a> {
    ground: &'a Ground<'a>,
    subject: &'static Subject,
    dir: PathBuf,
    /// Where programs are to work.
    root: PathBuf,
    /// Of the file system, if it is on one.
    device: Option<PathBuf>,
}

impl<'a> Stack<'a> {
    /// Puts up all of it, anew, below a directory of this name.
    pub(super) fn up(
        ground: &'a Ground<'a>,
        subject: &'static Subject,
        name: &str,
    ) -> Result<Self> {
        let dir = ground.place.new_dir(name)?;
        let root = dir.join("root");
        let mut stack = Self { ground, subject, dir, root, device: None };
        stack.new_dir(&stack.root)?;
        match &subject.base {
            Base::Memory(fs_type) => stack.mount_memory(fs_type)?,
            Base::Pool => {
                stack.make_pool(&stack.root)?;
                stack.mount_pool(&stack.root)?;
            }
            Base::Image(file_system) => {
                let mut losetup = Command::new("losetup");
                losetup.args(["--find", "--show", "--sector-size", SECTOR]).arg(&ground.image);
                stack.make(told_by(losetup.env("PATH", PATH), 0)?, file_system)?;
            }
            Base::Volume(file_system) => {
                stack.new_dir(&stack.below())?;
                stack.make_pool(&stack.below())?;
                stack.mount_pool(&stack.below())?;
                let bytes = ground.sizes.device.to_string();
                run_program(stack.block("create").args(["--size", &bytes, "--sector", SECTOR]))?;
                stack.make(told_by(&mut stack.block("attach"), 0)?, file_system)?;
            }
        }
        Ok(stack)
    }

    /// Where programs are to work.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Where the pool is mounted that has the volume.
    fn below(&self) -> PathBuf {
        self.dir.join("pool")
    }

    fn new_dir(&self, dir: &Path) -> Result<()> {
        fs::create_dir(dir).map_err(|error| BenchError::io("making the directory", dir, error))
    }

    fn mount_memory(&self, fs_type: &str) -> Result<()> {
        let mut mount = Command::new("mount");
        let size = format!("size={}", self.ground.sizes.device);
        mount.args(["-t", fs_type, "-o", if fs_type == "tmpfs" { &size } else { "defaults" }]);
        run_program(mount.arg("lode-bench").arg(&self.root).env("PATH", PATH))
    }

    /// Makes the pool, and has its memory there, as persistent memory is; mounted at `dir` meanwhile.
    fn make_pool(&self, dir: &Path) -> Result<()> {
        let Ground { programs, sizes, .. } = self.ground;
        let plain = Programs { mount_options: Vec::new(), ..(*programs).clone() };
        // There is room for one: that of the last run goes first.
        match fs::remove_file(self.ground.pool()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(BenchError::io("removing", &self.ground.pool(), error));
            }
            _ => make_pool(&self.ground.pool(), sizes.pool, "none", programs)?,
        }
        mount_pool(&self.ground.pool(), dir, &[], &plain)?;
        drop(touched(dir, sizes.pool)?);
        self.unmount_pool(dir)
    }

    fn mount_pool(&self, dir: &Path) -> Result<()> {
        let Ground { programs, .. } = self.ground;
        mount_pool(&self.ground.pool(), dir, self.subject.pool_options, programs)
    }

    fn unmount_pool(&self, dir: &Path) -> Result<()> {
        let mut tries = 0;
        loop {
            match run_program(Command::new(&self.ground.programs.lode).arg("umount").arg(dir)) {
                Err(_) if tries < TRIES => tries += 1,
                done => return done,
            }
            sleep(PAUSE);
        }
    }

    fn block(&self, what: &str) -> Command {
        let mut command = Command::new(&self.ground.programs.lode);
        command.args(["block", what]).arg(self.below()).arg(VOLUME);
        command
    }

    /// Makes the file system on the device of this name, and mounts it.
    fn make(&mut self, device: String, file_system: &FileSystem) -> Result<()> {
        let device = PathBuf::from(device.trim());
        self.device = Some(device.clone());
        file_system.make(&device, file_system.keep)?;
        file_system.mount(&device, &self.root, self.subject.options)
    }

    fn file_system(&self) -> Option<(&'static FileSystem, &Path)> {
        match self.subject.base {
            Base::Image(file_system) | Base::Volume(file_system) => {
                self.device.as_deref().map(|device| (file_system, device))
            }
            _ => None,
        }
    }

    fn unmount(&self) -> Result<()> {
        take_off_unused(&self.root).map_err(|error| BenchError::io("unmounting", &self.root, error))
    }

    /// Unmounts and mounts again, so that the file system's cache holds nothing; of memory it is all there is.
    pub(super) fn cool(&self) -> Result<()> {
        match self.file_system() {
            Some((file_system, device)) => {
                self.unmount()?;
                self.forget();
                file_system.mount(device, &self.root, self.subject.options)
            }
            None if matches!(self.subject.base, Base::Pool) => {
                self.unmount_pool(&self.root)?;
                self.mount_pool(&self.root)
            }
            None => Ok(()),
        }
    }

    /// Has the kernel forget what it caches of the volume's file, which lies below the device.
    fn forget(&self) {
        if let Ok(file) = File::open(self.below().join(".lode/volumes").join(VOLUME)) {
            // Where it does not, a device is only faster than it should be, for all volumes alike.
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
        }
    }

    /// Takes it down in order. Returns how many checks of what was left there were: file systems and pools, all sound.
    ///
    /// # Errors
    /// Where something stays in use, or is not sound.
    pub(super) fn down(mut self) -> Result<u32> {
        let mut checks = 0;
        if let Some((file_system, device)) = self.file_system() {
            self.unmount()?;
            file_system.check(device)?;
            checks += 1;
        }
        match self.subject.base {
            Base::Memory(_) => self.unmount()?,
            Base::Pool => self.unmount_pool(&self.root)?,
            Base::Image(_) => self.end_device()?,
            Base::Volume(_) => {
                run_program(&mut self.block("detach"))?;
                self.device = None;
                self.unmount_pool(&self.below())?;
            }
        }
        if self.subject.has_pool() {
            let mut fsck = Command::new(&self.ground.programs.lode);
            run_program(fsck.args(["fsck", "-n"]).arg(self.ground.pool()))?;
            checks += 1;
        }
        Ok(checks)
    }

    fn end_device(&mut self) -> Result<()> {
        let Some(device) = self.device.take() else { return Ok(()) };
        run_program(Command::new("losetup").arg("-d").arg(device).env("PATH", PATH))
    }
}

impl Drop for Stack<'_> {
    fn drop(&mut self) {
        // Devices of volumes are ended with their pools' mounts.
        let taken = take_away(&self.dir);
        let ended = match self.subject.base {
            Base::Image(_) => self.end_device(),
            _ => Ok(()),
        };
        if let Err(error) = taken.and(ended) {
            eprintln!("lode bench: {error}; it is taken away at the end, or by the next run");
        }
    }
}
