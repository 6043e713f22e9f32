//! Volumes of a pool, which this command has opened or a server has mounted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use lode_block::{Error, NewVolume, Settings};
use lode_fuse::control::Client;
use lode_fuse::mountpoint::Mounted;
use serde::Deserialize;
use serde_json::{Value, json};

use super::refused;
use crate::ask::understand;
use crate::commands::snapshot;
use crate::explain::mount_failure;
use crate::failure::{Failure, Kind, Result};
use crate::human::printable;
use crate::mounts;
use crate::output::Output;
use crate::region;
use crate::report::VolumeFacts;

/// Where a mount shows its snapshots.
const SNAPSHOTS: &str = ".lode/snapshots";
/// How long a volume that is open may take to be closed: who has closed it is gone before the server knows.
const PATIENCE: Duration = Duration::from_secs(1);

/// What can be done to volumes.
pub(super) trait Volumes {
    fn create(&mut self, name: &OsStr, bytes: u64, settings: Settings) -> Result<VolumeFacts>;
    fn list(&mut self) -> Result<Vec<VolumeFacts>>;
    fn resize(&mut self, name: &OsStr, bytes: u64, may_shrink: bool) -> Result<VolumeFacts>;
    fn delete(&mut self, name: &OsStr) -> Result<()>;
}

/// Where the pool is mounted that is meant by `target`, which is `clean`, if it is.
///
/// # Errors
/// `NotMounted` and `Usage` for what is inside a mount, with what to name instead.
pub(super) fn mount_of(target: &Path, clean: &Path) -> Result<Option<Mounted>> {
    match inside(clean) {
        Some(failure) => Err(failure.at(target)),
        None => snapshot::mount_of(target, clean),
    }
}

/// What to say to who names something of volumes that is inside a mount.
fn inside(clean: &Path) -> Option<Failure> {
    let is_whole = mounts::at(clean).ok()?.is_some();
    let mount = (!is_whole).then(|| mounts::around(clean))??;
    let below = clean.strip_prefix(&mount.point).ok()?;
    let whole = mount.point.display();
    if let Ok(file) = below.strip_prefix(lode_block::PATH)
        && let Some(name) = file.file_name()
    {
        let name = printable(name.as_bytes());
        return Some(
            Failure::usage(format!("this is the file of volume {name}, not a pool"))
                .advise(format!("name the mount and the volume: {whole} {name}")),
        );
    }
    let mut snapshot = below.strip_prefix(SNAPSHOTS).ok()?.components();
    let name = snapshot.next()?;
    let place = mount.point.join(SNAPSHOTS).join(name).join(lode_block::PATH);
    let (place, name) = (place.display(), printable(name.as_os_str().as_bytes()));
    Some(Failure::new(Kind::NotMounted, format!("this is the snapshot {name} of the pool mounted at {whole}"))
        .advise(format!(
            "its volumes are files in {place}, which can be read: `losetup --find --show --read-only FILE`, or \
             `lode block serve --raw --read-only FILE --socket PATH`; a pool that is not mounted can be mounted as it \
             was, by `lode mount -o ro,snapshot={name} POOL DIR`; for the volumes of now name {whole}"
        )))
}

/// Does `work` with the volumes of a pool.
pub(super) fn with<R>(
    target: &Path,
    read_only: bool,
    output: &Output,
    work: impl FnOnce(&mut dyn Volumes) -> Result<R>,
) -> Result<R> {
    let clean = mounts::clean_path(target)?;
    if let Some(mount) = mount_of(target, &clean)? {
        mounts::must_answer(&mount)?;
        let client = Client::for_mount(&mount.point);
        let client = client.map_err(|error| mount_failure(&mount.point, &error))?;
        return work(&mut InMount { client, dir: mount.point.clone() });
    }
    let mut pool = InPool { path: &clean, pool: region::open_pool(&clean, read_only, output)? };
    let done = work(&mut pool);
    if !read_only {
        let closed = pool.pool.close().map_err(|error| Failure::engine(&clean, &error));
        // What went wrong first is what to tell.
        return done.and_then(|done| closed.map(|()| done));
    }
    done
}

/// A pool that this command has opened.
struct InPool<'a> {
    path: &'a Path,
    pool: region::MappedPool,
}

impl InPool<'_> {
    fn done<R>(&self, name: &OsStr, result: lode_block::Result<R>) -> Result<R> {
        result.map_err(|error| refused(self.path, name, &error))
    }
}

impl Volumes for InPool<'_> {
    fn create(&mut self, name: &OsStr, bytes: u64, settings: Settings) -> Result<VolumeFacts> {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let new = NewVolume { bytes, settings, owner };
        let made = lode_block::create(&self.pool, name.as_bytes(), &new);
        self.done(name, made).map(|info| VolumeFacts::from(&info))
    }

    fn list(&mut self) -> Result<Vec<VolumeFacts>> {
        let all = self.done(OsStr::new(""), lode_block::list(&self.pool))?;
        Ok(all.iter().map(VolumeFacts::from).collect())
    }

    fn resize(&mut self, name: &OsStr, bytes: u64, may_shrink: bool) -> Result<VolumeFacts> {
        let resized = lode_block::resize(&self.pool, name.as_bytes(), bytes, may_shrink, |ino| {
            self.pool.is_held(ino)
        });
        self.done(name, resized).map(|info| VolumeFacts::from(&info))
    }

    fn delete(&mut self, name: &OsStr) -> Result<()> {
        let held = |ino| self.pool.is_held(ino);
        self.done(name, lode_block::delete(&self.pool, name.as_bytes(), held))
    }
}

/// A pool that a server has mounted.
struct InMount {
    client: Client,
    dir: PathBuf,
}

/// What a server says that did not do it.
#[derive(Deserialize)]
struct Refused {
    why: String,
    reason: String,
    bytes: Option<u64>,
    errno: i32,
}

/// A volume, as a server tells of it.
#[derive(Deserialize)]
struct Told {
    name: Vec<u8>,
    bytes: u64,
    allocated_bytes: u64,
    sector: u64,
    thin: bool,
}

/// A part of a server's list.
#[derive(Deserialize)]
struct Listed {
    volumes: Vec<Told>,
    more: bool,
}

/// A server's answer about one volume.
#[derive(Deserialize)]
struct One {
    volume: Told,
}

impl From<Told> for VolumeFacts {
    fn from(told: Told) -> Self {
        let Told { name, bytes, allocated_bytes, sector, thin } = told;
        Self { name: printable(&name), name_bytes: name, bytes, allocated_bytes, sector, thin }
    }
}

impl InMount {
    fn ask(&mut self, request: &Value, name: &OsStr) -> Result<Value> {
        let dir = self.dir.as_path();
        let answer = self.client.request(request).map_err(|error| mount_failure(dir, &error))?;
        match answer.get("refused") {
            None => Ok(answer),
            Some(told) => Err(explained(dir, name, understand(dir, told.clone())?)),
        }
    }

    /// Asks for what is not done to a volume that is open, and again for a moment where it is: what was closed just now the kernel tells
    /// the server of later.
    fn ask_when_closed(&mut self, request: &Value, name: &OsStr) -> Result<Value> {
        let began = Instant::now();
        loop {
            match self.ask(request, name) {
                Err(failure) if failure.kind == Kind::Busy && began.elapsed() < PATIENCE => {
                    thread::sleep(PATIENCE / 20);
                }
                Err(failure) if failure.kind == Kind::Busy => {
                    let what = used(&self.dir.join(lode_block::PATH).join(name));
                    return Err(Failure { what, ..failure });
                }
                done => return done,
            }
        }
    }

    fn ask_of_one(&mut self, request: &Value, name: &OsStr) -> Result<VolumeFacts> {
        let answer = self.ask(request, name)?;
        let One { volume } = understand(&self.dir, answer)?;
        Ok(volume.into())
    }
}

/// Who uses a volume's file, as far as that can be seen from here: for people.
fn used(file: &Path) -> String {
    let processes =
        mounts::users(file).into_iter().map(|(pid, name)| format!("process {pid} ({name})"));
    let users: Vec<String> = mounts::loops_of(file).into_iter().chain(processes).collect();
    if users.is_empty() {
        "the volume is in use".into()
    } else {
        format!("the volume is in use by {}", users.join(", "))
    }
}

/// The same as of a pool that this command has opened.
fn explained(dir: &Path, name: &OsStr, told: Refused) -> Failure {
    let Refused { why, reason, bytes, errno } = told;
    let bytes = bytes.unwrap_or(0);
    let is = |error: &lode_engine::Error| errno == error.errno();
    let error = match reason.as_str() {
        "not_found" => Error::NotFound,
        "exists" => Error::Exists,
        "bad_name" => Error::BadName,
        "bad_size" => Error::BadSize { most: bytes },
        "shrinks" => Error::Shrinks { bytes },
        "in_use" => Error::InUse,
        "not_a_volume" => Error::NotAVolume,
        _ if is(&lode_engine::Error::NoSpace) => Error::Pool(lode_engine::Error::NoSpace),
        _ if is(&lode_engine::Error::ReadOnly) => Error::Pool(lode_engine::Error::ReadOnly),
        _ => return Failure::new(Kind::Failed, why).at(dir),
    };
    refused(dir, name, &error)
}

impl Volumes for InMount {
    fn create(&mut self, name: &OsStr, bytes: u64, settings: Settings) -> Result<VolumeFacts> {
        let request = json!({
            "op": "volume-create",
            "name": name.as_bytes(),
            "bytes": bytes,
            "sector": settings.sector.bytes(),
            "thin": settings.is_thin,
        });
        self.ask_of_one(&request, name)
    }

    fn list(&mut self) -> Result<Vec<VolumeFacts>> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let mut request = json!({ "op": "volumes" });
            if let (Some(after), Value::Object(fields)) = (&after, &mut request) {
                fields.insert("after".to_owned(), json!(after));
            }
            let answer = self.ask(&request, OsStr::new(""))?;
            let Listed { volumes, more } = understand(&self.dir, answer)?;
            // An answer that does not go on would be asked for for ever.
            let last = volumes.last().map(|one| one.name.clone());
            let goes_on = more && last > after;
            all.extend(volumes.into_iter().map(VolumeFacts::from));
            after = last;
            if !goes_on {
                return Ok(all);
            }
        }
    }

    fn resize(&mut self, name: &OsStr, bytes: u64, may_shrink: bool) -> Result<VolumeFacts> {
        let name_bytes = name.as_bytes();
        let op = "volume-resize";
        let request = json!({ "op": op, "name": name_bytes, "bytes": bytes, "shrink": may_shrink });
        let answer = self.ask_when_closed(&request, name)?;
        let One { volume } = understand(&self.dir, answer)?;
        Ok(volume.into())
    }

    fn delete(&mut self, name: &OsStr) -> Result<()> {
        let request = json!({ "op": "volume-delete", "name": name.as_bytes() });
        self.ask_when_closed(&request, name).map(drop)
    }
}
