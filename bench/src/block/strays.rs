//! Strays: what a wrong pointer of another thread does while the device is being written (the point of PMBD). Each is done in a
//! process of its own, which dies of it where it is kept out.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use lode_pmem::{ProtectIo, RawOptions, RawRegion, Stray};

use super::subject::region_file;
use crate::report::Figure;

const BYTES: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// How the process ends whose stray went through, and whose region could not be had.
const THROUGH: i32 = 0;
const NOT_HERE: i32 = 77;
const SIGSEGV: i32 = 11;

/// The name of a stray, in rows and on the command line.
fn name(stray: Stray) -> &'static str {
    match stray {
        Stray::Store => "store",
        Stray::Load => "load",
    }
}

/// Does one, as `PROTECTION:store` says; returns the exit status of who lives on.
pub fn commit(what: &str) -> i32 {
    done(what).unwrap_or(NOT_HERE)
}

fn done(what: &str) -> io::Result<i32> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidInput);
    let (protect, stray) = what.split_once(':').ok_or_else(wrong)?;
    let protect: ProtectIo = protect.parse().map_err(io::Error::other)?;
    let stray = [Stray::Store, Stray::Load].into_iter().find(|one| name(*one) == stray);
    let stray = stray.ok_or_else(wrong)?;
    // (Only a file that is not there yet: the directory may be anybody's.)
    let path = std::env::temp_dir().join(format!("lode-stray-{}", std::process::id()));
    region_file(&path, BYTES)?;
    let options = RawOptions { protect: Some(protect), ..RawOptions::default() };
    let region = RawRegion::open(&path, &options);
    // (Nobody takes it away after a death.)
    std::fs::remove_file(&path)?;
    let region = region.map_err(io::Error::other)?;
    std::thread::scope(|scope| {
        // (A thread is born with the rights of its maker: so it is there before the write.)
        let (say, said) = channel::<()>();
        let region = &region;
        let other = scope.spawn(move || said.recv().is_ok().then(|| region.stray(stray)));
        let parts = std::iter::once_with(|| {
            // In the middle of a write of another page.
            let sent = say.send(());
            let done = other.join();
            if sent.is_ok() && done.is_ok() { &[1; 64][..] } else { &[0; 64][..] }
        });
        region.write_run(PAGE, 64, parts).map_err(io::Error::other)
    })?;
    Ok(THROUGH)
}

/// All of them, by `lode`, this program.
///
/// # Errors
/// It can't be started.
pub fn measure(lode: &Path) -> io::Result<Vec<Figure>> {
    let mut all = Vec::new();
    for stray in [Stray::Store, Stray::Load] {
        for protect in ProtectIo::ALL {
            // (Where nothing is mapped between accesses, there is no address to be hit: nothing to be shown.)
            let may_be_hit = protect != ProtectIo::PrivateMap;
            let outcome = if may_be_hit { is_kept_out(lode, protect, stray)? } else { None };
            let Some(is_kept_out) = outcome else { continue };
            all.push(Figure {
                workload: format!("stray {} beside a write", name(stray)),
                subject: protect.to_string(),
                what: "kept out".to_owned(),
                value: f64::from(u8::from(is_kept_out)),
                unit: "part".to_owned(),
            });
        }
    }
    Ok(all)
}

/// `None` where that protection can't be had.
fn is_kept_out(lode: &Path, protect: ProtectIo, stray: Stray) -> io::Result<Option<bool>> {
    let status = Command::new(lode)
        .args(["bench", "block", "--stray"])
        .arg(format!("{protect}:{}", name(stray)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(match (status.code(), status.signal()) {
        (_, Some(SIGSEGV)) => Some(true),
        (Some(THROUGH), _) => Some(false),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_protects_a_stray_goes_through_and_what_is_no_stray_is_none() {
        assert_eq!(commit("none:store"), THROUGH);
        assert_eq!(commit("none:load"), THROUGH);
        for wrong in ["", "none", "none:jump", "nothing:store"] {
            assert_eq!(commit(wrong), NOT_HERE, "{wrong}");
        }
    }
}
