//! Memory of a pool, lent to programs: served alone, and by mounts.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::program::{Program, socket};
use crate::common::server::Server;
use crate::common::{LODE, Scratch, fsck, lode, text};
use lode_loan::{CHUNK_BYTES, Head, Kind, Method, Refusal};
use lode_testkit::until;
use rustix::net::{RecvFlags, recv};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(30);

const SERVE: [&str; 3] = ["heap", "serve", "--foreground"];

/// `lode heap serve` in the foreground. Killed on drop.
pub struct Serving(Child);

impl Serving {
    pub fn start(pool: &Path, options: &str) -> Self {
        Self::by(Command::new(LODE).args(SERVE).args([text(pool), "-o", options]))
    }

    /// By this command, once it lends.
    fn by(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("Programs can have"), "{line}");
        Self(child)
    }

    pub fn signal(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
        until(|| self.0.try_wait().unwrap().is_some());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn stats(target: &Path) -> Value {
    lode(&["heap", "stats", text(target), "--json"]).expect(0).json()["pools"][0].clone()
}

fn free_pages(pool: &Path) -> u64 {
    lode(&["info", text(pool), "--json"]).expect(0).json()["space"]["pages_free"].as_u64().unwrap()
}

#[test]
fn memory_is_served_shown_limited_and_the_pool_closed_by_a_signal() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "64M");
    let free = free_pages(&pool);
    let mut serving = Serving::start(&pool, "heap_limit=16M,heap_program_limit=8M");
    for method in Method::ALL {
        let mut program = Program::connect(&pool, method);
        assert!(program.line.contains("\"region_bytes\":67108864"), "{}", program.line);
        let chunks = program.take(4).unwrap();
        assert_eq!(program.take(1), Err(Refusal::ProgramLimit), "{method:?}");
        let mut bytes = vec![1; CHUNK_BYTES as usize];
        program.pool.read_exact_at(&mut bytes, chunks[0] * CHUNK_BYTES).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0), "{method:?}: not zeroed");
        bytes.fill(0xaa);
        for chunk in &chunks {
            program.pool.write_all_at(&bytes, chunk * CHUNK_BYTES).unwrap();
        }
        let shown = stats(&pool);
        assert_eq!((&shown["lent_bytes"], &shown["dir"]), (&(8 << 20).into(), &Value::Null));
        assert_eq!(shown["socket"].as_str(), Some(text(&socket(&pool))));
        let sums = lode(&["stats", text(&pool)]).expect(0).out;
        let lines = ["lent to programs     8 MiB of 16 MiB, 1 sessions", " ready\n"];
        assert!(lines.iter().all(|line| sums.contains(line)), "{sums}");
        let one = &shown["programs"][0];
        assert_eq!((&one["pid"], &one["chunks"]), (&std::process::id().into(), &4.into()));
        assert_eq!(one["method"], method.name());
        chunks.iter().for_each(|chunk| program.unlock(*chunk));
        program.say(Kind::Return, 4, &chunks);
        assert_eq!(program.hear().0.kind, Kind::Returned);
        drop(program);
        until(|| stats(&pool)["lent_bytes"] == 0);
    }
    let counted = lode(&["stats", text(&pool), "--json"]).expect(0).json();
    assert_eq!(counted["heap"]["granted_bytes"], 12 * CHUNK_BYTES);
    assert!(lode(&["stats", text(&pool), "--prometheus"]).expect(0).out.contains("lode_heap_lent"));
    assert_eq!(lode(&["info", text(&pool), "--json"]).expect(0).json()["mount"], Value::Null);
    let all = lode(&["heap", "stats"]).expect(0);
    assert!(all.out.contains(text(&pool)) && all.out.contains("served by process"), "{}", all.out);
    let busy = lode(&["heap", "serve", text(&pool)]).expect(6);
    assert!(busy.err.contains("lent to programs by process"), "{}", busy.err);
    assert_eq!(serving.signal(Signal::TERM), Some(0));
    fsck(&pool).expect(0);
    assert_eq!(free_pages(&pool), free);
    let gone = lode(&["heap", "stats", text(&pool), "--json"]).expect(11).error_json();
    assert_eq!(gone["error"]["kind"], "not_mounted");
    lode(&["heap", "serve", text(&pool), "-o", "ro"]).expect(2);
    lode(&["heap", "serve", text(&scratch.path("none"))]).expect(8);
    lode(&["heap", "serve", text(&pool), "-o", "heap_limit=many"]).expect(2);
}

#[test]
fn a_server_in_the_background_is_told_of_and_ended() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "64M");
    let report = lode(&["heap", "serve", text(&pool), "--json"]).expect(0).json();
    let pid = report["pid"].as_u64().unwrap();
    assert_eq!(stats(&pool)["pid"], pid);
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::TERM).unwrap();
    until(|| lode(&["heap", "stats", text(&pool)]).code == 11);
    until(|| lode(&["info", text(&pool)]).code == 0);
    assert_eq!(lode(&["info", text(&pool), "--json"]).expect(0).json()["pool"]["clean"], true);
}

#[test]
fn what_a_living_program_has_stays_its_own_when_its_owner_dies() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "64M");
    let free = free_pages(&pool);
    for (method, signal) in [
        (Method::Direct, Signal::KILL),
        (Method::Indirect, Signal::KILL),
        (Method::Mmap, Signal::KILL),
        (Method::Direct, Signal::TERM),
        (Method::Indirect, Signal::TERM),
        (Method::Mmap, Signal::TERM),
    ] {
        let mut serving = Serving::start(&pool, "heap_reserve=0");
        let mut program = Program::connect(&pool, method);
        let mine = program.take(5).unwrap();
        let bytes = vec![0xbb; CHUNK_BYTES as usize];
        mine.iter().for_each(|at| program.pool.write_all_at(&bytes, at * CHUNK_BYTES).unwrap());
        serving.signal(signal);
        let mut serving = Serving::start(&pool, "heap_reserve=0");
        assert_eq!(stats(&pool)["apart_bytes"], 5 * CHUNK_BYTES, "{method:?} {signal:?}");
        // Another takes all that can be had.
        let mut other = Program::connect(&pool, Method::Direct);
        while let Ok(chunk) = other.take(1) {
            assert!(!mine.contains(&chunk[0]));
            other
                .pool
                .write_all_at(&vec![1; CHUNK_BYTES as usize], chunk[0] * CHUNK_BYTES)
                .unwrap();
        }
        for at in &mine {
            let mut now = vec![0; CHUNK_BYTES as usize];
            program.pool.read_exact_at(&mut now, at * CHUNK_BYTES).unwrap();
            assert!(now == bytes, "{method:?} {signal:?}: chunk {at} was written to");
        }
        // Its new session says what it holds.
        let Program { pool: held, .. } = program;
        let mut program = Program::connect(&pool, method);
        program.say(Kind::Hold, 5, &mine);
        assert_eq!(program.hear().1, mine);
        assert_eq!(stats(&pool)["apart_bytes"], 0);
        drop((held, program, other));
        until(|| stats(&pool)["lent_bytes"] == 0);
        assert_eq!(serving.signal(Signal::TERM), Some(0));
        fsck(&pool).expect(0);
        assert_eq!(free_pages(&pool), free);
    }
}

#[test]
fn what_a_program_has_not_heard_of_yet_is_its_own_when_its_owner_is_killed() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "64M");
    let free = free_pages(&pool);
    for method in Method::ALL {
        let mut serving = Serving::start(&pool, "heap_reserve=0");
        let mut late = Program::connect(&pool, method);
        late.say(Kind::Take, 5, &[]);
        // The answer is there, and nobody has taken it. (Before, they are the owner's.)
        recv(&late.stream, &mut [0; 1], RecvFlags::PEEK).unwrap();
        serving.signal(Signal::KILL);
        let mut serving = Serving::start(&pool, "heap_reserve=0");
        assert_eq!(stats(&pool)["apart_bytes"], 5 * CHUNK_BYTES, "{method:?}");
        let mut other = Program::connect(&pool, Method::Direct);
        let mut others = Vec::new();
        while let Ok(chunk) = other.take(1) {
            others.extend(chunk);
        }
        let (head, mine) = late.hear();
        assert_eq!((head.kind, mine.len()), (Kind::Granted, 5), "{method:?}");
        assert!(mine.iter().all(|chunk| !others.contains(chunk)), "{method:?}: had by two");
        drop((late, other));
        until(|| stats(&pool)["lent_bytes"] == 0);
        assert_eq!(serving.signal(Signal::TERM), Some(0));
        fsck(&pool).expect(0);
        assert_eq!(free_pages(&pool), free);
    }
}

#[test]
fn hostile_clients_lose_nothing_of_others_and_all_comes_back() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "128M");
    let dir = scratch.dir("mnt");
    let log = scratch.path("log");
    let server = Server::mount_with(&pool, &dir, &log, "heap_limit=64M");
    let mut good = Program::connect(&dir, Method::Direct);
    let mine = good.take(4).unwrap();
    for line in [
        "{\"op\":\"heap\",\"version\":2,\"method\":\"direct\"}\n",
        "{\"op\":\"heap\",\"version\":1,\"method\":\"stolen\"}\n",
        "{\"op\":\"heap\"}\n",
        "{\"op\":\"heap\",\"version\":1,\"method\":\"direct\"}\n\x01\0\0\0",
    ] {
        let mut stream = UnixStream::connect(socket(&dir)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).unwrap();
        assert!(answer.contains("\"ok\":false"), "{line}: {answer}");
    }
    for bytes in
        [vec![0xff; 4096], Head { kind: Kind::Return, count: 9999, tag: 0 }.bytes().to_vec()]
    {
        let mut bad = Program::connect(&dir, Method::Indirect);
        bad.take(2).unwrap();
        bad.stream.write_all(&bytes).unwrap();
        let mut rest = Vec::new();
        // (The rest may be unread when it is closed.)
        let _ = bad.stream.read_to_end(&mut rest);
    }
    let mut bad = Program::connect(&dir, Method::Direct);
    bad.say(Kind::Return, 4, &mine);
    assert_eq!(bad.hear().0.kind, Kind::Refused);
    bad.say(Kind::Hold, 4, &mine);
    assert_eq!(bad.hear().1, [0; 0]);
    // Half a frame, for as long as it likes; files are served meanwhile.
    bad.stream.write_all(&[1, 0, 0]).unwrap();
    fs::write(dir.join("file"), vec![7; 1 << 20]).unwrap();
    let more = good.take(2).unwrap();
    until(|| stats(&dir)["lent_bytes"] == 6 * CHUNK_BYTES);
    assert!(stats(&dir)["hostile"].as_u64() >= Some(4));
    let counted = lode(&["stats", text(&dir), "--json"]).expect(0).json();
    assert_eq!(counted["heap"]["lent_bytes"], 6 * CHUNK_BYTES);
    let metrics = lode(&["stats", text(&dir), "--prometheus"]).expect(0).out;
    assert!(metrics.contains("lode_heap_lent_bytes{"), "{metrics}");
    drop((good, bad, more));
    until(|| stats(&dir)["lent_bytes"] == 0);
    lode(&["umount", text(&dir)]).expect(0);
    server.wait();
    fsck(&pool).expect(0);
}

#[test]
fn files_get_back_what_programs_spare_before_there_is_no_space() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "64M");
    let dir = scratch.dir("mnt");
    let options = "heap_reserve=0,heap_ready=0";
    let server = Server::mount_with(&pool, &dir, &scratch.path("log"), options);
    let mut program = Program::connect(&dir, Method::Direct);
    let mut mine = Vec::new();
    while let Ok(chunk) = program.take(1) {
        mine.extend(chunk);
    }
    let file = dir.join("file");
    let writer = std::thread::spawn(move || fs::write(file, vec![7; 4 << 20]));
    let (wish, _) = program.hear();
    assert_eq!(wish.kind, Kind::Wish);
    let back = mine.split_off(mine.len() - 5);
    back.iter().for_each(|chunk| program.unlock(*chunk));
    program.say(Kind::Return, 5, &back);
    writer.join().unwrap().unwrap();
    // A program that says nothing: no space, soon.
    let began = Instant::now();
    assert!(fs::write(dir.join("large"), vec![7; 32 << 20]).is_err());
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    // A snapshot, and back to it, with memory lent.
    drop(program);
    until(|| stats(&dir)["lent_bytes"] == 0);
    lode(&["snapshot", "create", text(&dir), "s"]).expect(0);
    for method in Method::ALL {
        let mut program = Program::connect(&dir, method);
        let mine = program.take(3).unwrap();
        let bytes = vec![0xcc; CHUNK_BYTES as usize];
        mine.iter().for_each(|at| program.pool.write_all_at(&bytes, at * CHUNK_BYTES).unwrap());
        lode(&["snapshot", "rollback", text(&dir), "s"]).expect(0);
        fs::write(dir.join("after"), vec![1; 6 << 20]).unwrap();
        for at in &mine {
            let mut now = vec![0; CHUNK_BYTES as usize];
            program.pool.read_exact_at(&mut now, at * CHUNK_BYTES).unwrap();
            assert!(now == bytes, "{method:?}: chunk {at} was written to");
        }
        program.take(1).unwrap();
        assert_eq!(stats(&dir)["lent_bytes"], 4 * CHUNK_BYTES);
        drop(program);
        until(|| stats(&dir)["lent_bytes"] == 0);
    }
    lode(&["umount", text(&dir)]).expect(0);
    server.wait();
    fsck(&pool).expect(0);
}

/// `lode heap stats --watch`, its lines as they come. Killed on drop.
struct Watch(Child, std::sync::mpsc::Receiver<String>);

impl Watch {
    fn start(pool: &Path, more: &[&str]) -> Self {
        let mut command = Command::new(LODE);
        command.args(["heap", "stats", text(pool), "--watch=0.1"]).args(more);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).try_for_each(|line| said.send(line))
        });
        Self(child, lines)
    }

    /// Reads on until a line is as it is said; an end comes too early.
    #[track_caller]
    fn until(&self, is_it: impl Fn(&str) -> bool) {
        let end = Instant::now() + DEADLINE;
        loop {
            let line = self.1.recv_timeout(DEADLINE).expect("one more line");
            if is_it(&line) {
                return;
            }
            assert!(Instant::now() < end, "it never says so: {line}");
        }
    }

    fn ends(mut self) -> Option<i32> {
        until(|| self.0.try_wait().unwrap().is_some());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn who_has_how_much_can_be_watched_until_a_signal_or_the_end() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "64M");
    let mut serving = Serving::start(&pool, "heap_ready=0");
    let json = Watch::start(&pool, &["--json"]);
    let people = Watch::start(&pool, &[]);
    let lent = |chunks: u64| {
        move |line: &str| {
            let said: Value = serde_json::from_str(line).unwrap();
            said["pools"][0]["lent_bytes"] == chunks * CHUNK_BYTES
        }
    };
    json.until(lent(0));
    let mut program = Program::connect(&pool, Method::Indirect);
    program.take(3).unwrap();
    json.until(lent(3));
    people.until(|line| line.contains("indirect") && line.contains("6 MiB"));
    drop(program);
    json.until(lent(0));
    kill_process(Pid::from_child(&json.0), Signal::INT).unwrap();
    assert_eq!(json.ends(), Some(0));
    assert_eq!(serving.signal(Signal::TERM), Some(0));
    assert_eq!(people.ends(), Some(11), "nobody serves the pool any more");
}

/// The failure of `lode heap run` of a command that must not be started.
#[track_caller]
fn not_run(pool: &Path, more: &[&str]) -> String {
    let mut command = Command::new(LODE);
    command.args(["heap", "run", "--pool", text(pool)]).args(more).args(["--", "echo", "started"]);
    let done = command.env("LODE_HEAP_LIBRARY", "/dev/null").output().unwrap();
    assert_eq!((done.status.code(), done.stdout.len()), (Some(125), 0));
    String::from_utf8(done.stderr).unwrap()
}

#[test]
fn no_command_is_started_where_no_memory_is_lent() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "64M"), scratch.dir("mnt"));
    for (options, says) in [("ro", "can't be changed"), ("heap_limit=0", "heap_limit=0 says so")] {
        let server = Server::mount_with(&pool, &dir, &scratch.path("log"), options);
        for named in [&pool, &dir] {
            let said = not_run(named, &[]);
            assert!(said.contains("lends no memory") && said.contains(says), "{said}");
        }
        server.umount();
    }
    let said = not_run(&pool, &["--ledger", "/nonexistent"]);
    assert!(said.contains("ledger's directory") && !said.contains("mkfs"), "{said}");
    let said = not_run(&pool, &["--ledger", text(&pool)]);
    assert!(said.contains("ledger's directory"), "{said}");
    // None of these has left a server.
    lode(&["heap", "stats", text(&pool)]).expect(11);
}

#[test]
fn limits_by_which_nothing_could_be_lent_are_refused() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "64M"), scratch.dir("mnt"));
    for (options, says) in [
        ("heap_limit=1M", "chunks of 2 MiB"),
        ("heap_program_limit=0", "chunks of 2 MiB"),
        ("heap_reserve=1T", "leaves nothing to be lent"),
        ("heap_reserve=64M", "leaves nothing to be lent"),
    ] {
        let refused = lode(&["heap", "serve", text(&pool), "-o", options]).expect(2);
        assert!(refused.err.contains(says), "{options}: {}", refused.err);
        let refused = lode(&["mount", text(&pool), text(&dir), "-o", options]).expect(2);
        assert!(refused.err.contains(says), "{options}: {}", refused.err);
    }
    let refused = lode(&["heap", "serve", text(&pool), "-o", "heap_limit=0"]).expect(2);
    assert!(refused.err.contains("nothing is lent"), "{}", refused.err);
    let mut serving = Serving::start(&pool, "heap_limit=2M,heap_program_limit=2M,heap_reserve=32M");
    assert!(Program::connect(&pool, Method::Direct).take(1).is_ok());
    assert_eq!(serving.signal(Signal::TERM), Some(0));
}

#[test]
fn who_is_not_the_servers_user_is_told_so() {
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be another user");
        return;
    }
    let scratch = Scratch::new();
    let (pool, control) = (scratch.pool("pool", "64M"), scratch.dir("control"));
    let dir = pool.parent().unwrap();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    let nobody = 65_534;
    for path in [&pool, &control] {
        chown(path, Some(nobody), Some(nobody)).unwrap();
    }
    let mut command = Command::new(LODE);
    command.args(SERVE).arg(&pool).uid(nobody).gid(nobody);
    let mut serving = Serving::by(command.env("XDG_RUNTIME_DIR", &control).current_dir("/"));
    let said = not_run(&pool, &[]);
    assert!(said.contains("of user 65534") && said.contains("its own user alone"), "{said}");
    assert_eq!(serving.signal(Signal::TERM), Some(0));
}

#[test]
fn a_control_socket_is_its_users_alone_whatever_new_files_are() {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let scratch = Scratch::new();
    let (pool, other) = (scratch.pool("pool", "64M"), scratch.pool("other", "64M"));
    let (dir, log) = (scratch.dir("mnt"), scratch.path("log"));
    // What such a server makes is everybody's, where it doesn't say otherwise.
    let script = "umask 0; exec \"$0\" \"$@\"";
    let _serving =
        Serving::by(Command::new("sh").args(["-c", script, LODE]).args(SERVE).arg(&pool));
    let _server = Server::mount(&other, &dir, &log);
    for at in [socket(&pool), socket(&dir)] {
        let record = at.with_extension("json");
        for (path, mode) in [(&*at, 0o600), (&record, 0o600), (at.parent().unwrap(), 0o700)] {
            let found = fs::symlink_metadata(path).unwrap();
            assert_eq!(found.mode() & 0o7777, mode, "{path:?}");
            assert_eq!(found.uid(), rustix::process::geteuid().as_raw(), "{path:?}");
        }
        assert!(fs::symlink_metadata(&at).unwrap().file_type().is_socket());
    }
}

#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "64M");
    let _serving = Serving::start(&pool, "heap_ready=0");
    // One that has said something before stays, whoever comes.
    let path = socket(&pool);
    let ping = |stream: &mut UnixStream| {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(b"{\"op\":\"ping\"}\n").unwrap();
        let mut answer = String::new();
        BufReader::new(&*stream).read_line(&mut answer).unwrap();
        assert!(answer.contains("\"ok\":true"), "{answer}");
    };
    let mut first = UnixStream::connect(&path).unwrap();
    ping(&mut first);
    let silent: Vec<UnixStream> = (0..64).map(|_| UnixStream::connect(&path).unwrap()).collect();
    for _ in 0..3 {
        ping(&mut UnixStream::connect(&path).unwrap());
    }
    ping(&mut first);
    assert_eq!(stats(&pool)["sessions"], 0);
    drop(silent);
}

/// Does something as another user, in a thread of its own; none where only root could.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    let (own, nobody) = (rustix::process::getuid(), rustix::process::Uid::from_raw(65_534));
    // (By the system call, for the one thread: libc's function is for all.)
    let other = move || rustix::thread::set_thread_res_uid(own, nobody, own).ok().map(|()| work());
    std::thread::scope(|scope| scope.spawn(other).join().unwrap())
}

#[test]
fn another_users_programs_get_no_memory_whatever_the_sockets_permissions() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "64M");
    let (dir, log) = (scratch.dir("mnt"), scratch.path("log"));
    let server = Server::mount_with(&pool, &dir, &log, "rw");
    let path = socket(&dir);
    let Some(refused) = as_nobody(|| UnixStream::connect(&path).map(drop)) else {
        println!("skipped: only root can be another user");
        return;
    };
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    // The same socket where everybody comes to it.
    let open = tempfile::tempdir_in(path.parent().unwrap().parent().unwrap()).unwrap();
    let everybody = |path: &Path, mode| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let there = open.path().join("socket");
    fs::hard_link(&path, &there).unwrap();
    everybody(open.path(), 0o755);
    everybody(&there, 0o666);
    let answer = as_nobody(|| {
        let mut stream = UnixStream::connect(&there).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(lode_loan::hello(Method::Direct).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let answer = answer.unwrap();
    assert!(answer.contains("\"ok\":false") && answer.contains("pool's user alone"), "{answer}");
    let shown = stats(&dir);
    assert_eq!((&shown["hostile"], &shown["sessions"]), (&1.into(), &0.into()), "{shown}");
    // Nor a file of the pool as a heap.
    let refused = as_nobody(|| lode::KeptHeap::attach(&there, "heap").map(drop)).unwrap();
    assert_eq!(refused.map_err(|error| error.errno()), Err(1));
    assert!(!dir.join("heap").exists());
    assert!(server.log_tail().contains("for the pool's user alone, not for user 65534"));
    let said = server.log_tail();
    assert!(said.contains("not to user 65534") && said.contains("memory is not lent"), "{said}");
    // Its own user's have some still.
    assert!(Program::connect(&dir, Method::Direct).take(1).is_ok());
    server.umount();
}
