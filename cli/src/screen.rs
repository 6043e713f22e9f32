//! Showing something again and again: on a terminal in place, else one below the other.

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Home, and the rest of a line, and of the screen, cleared.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
const CLEAR_ALL: &str = "\x1b[2J";
/// Columns where there is no terminal.
const WIDTH: usize = 80;

/// Standard output.
pub(crate) struct Screen {
    is_terminal: bool,
    is_first: bool,
}

impl Screen {
    /// Standard output, as it is.
    pub(crate) fn new() -> Self {
        Self { is_terminal: io::stdout().is_terminal(), is_first: true }
    }

    /// Columns and rows; no bound of rows where there is no terminal.
    fn size(&self) -> (usize, usize) {
        let size = self.is_terminal.then(|| rustix::termios::tcgetwinsize(io::stdout()).ok());
        match size.flatten() {
            Some(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (usize::from(size.ws_col), usize::from(size.ws_row))
            }
            _ => (WIDTH, usize::MAX),
        }
    }

    /// How many columns there are.
    pub(crate) fn width(&self) -> usize {
        self.size().0
    }

    /// Shows `text`; false if nobody reads any more.
    ///
    /// # Errors
    /// What writing to standard output gives.
    pub(crate) fn show(&mut self, text: &str) -> io::Result<bool> {
        let is_first = std::mem::replace(&mut self.is_first, false);
        if !self.is_terminal {
            let between = if is_first { "" } else { "\n" };
            return write_out(&format!("{between}{text}"));
        }
        let (width, rows) = self.size();
        let mut page = String::from(if is_first { CLEAR_ALL } else { "" });
        page.push_str(HOME);
        // The last row stays empty: the cursor stands there, and a shell's prompt will.
        for line in text.lines().take(rows.saturating_sub(1)) {
            page.extend(line.chars().take(width));
            page.push_str(CLEAR_LINE);
            page.push('\n');
        }
        page.push_str(CLEAR_BELOW);
        write_out(&page)
    }
}

/// Writes to standard output at once; false if nobody reads any more.
///
/// # Errors
/// Any other failure.
pub(crate) fn write_out(text: &str) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// Waits for the next turn, or for the signal that ends it all.
pub(crate) struct Turns {
    signals: UnixStream,
    every: Duration,
    next: Instant,
}

impl Turns {
    /// Turns `every` so often, from now on. The first SIGINT, SIGTERM or SIGHUP ends them, the
    /// second one the process, should it be waiting for something else.
    ///
    /// # Errors
    /// What the system gives.
    pub(crate) fn new(every: Duration) -> io::Result<Self> {
        let (signals, sender) = UnixStream::pair()?;
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&asked))?;
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(Self { signals, every, next: Instant::now() })
    }

    /// Waits until it is time again; false if a signal came.
    ///
    /// # Errors
    /// What the system gives.
    pub(crate) fn wait(&mut self) -> io::Result<bool> {
        // Turns that were missed are not made up for.
        self.next = (self.next + self.every).max(Instant::now());
        loop {
            let left = self.next.saturating_duration_since(Instant::now());
            self.signals.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match self.signals.read(&mut [0]) {
                Ok(_) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) && left.is_zero() => return Ok(true),
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
