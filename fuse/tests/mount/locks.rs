//! Locks of files: `fcntl`, open file descriptions, `flock`. Between processes, as databases use them.

use super::support::{Mount, shell};

/// What the scripts below begin with: `again` runs Python in another process.
const HELPERS: &str = r#"
import fcntl, os, struct, subprocess, sys
F_OFD_SETLK = 37
def again(script):
    return subprocess.run([sys.executable, "-c", helpers + script], text=True,
                          capture_output=True, check=True).stdout.strip()
def range_lock(kind, start, length):
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)
def tries(file, kind, start, length, how=fcntl.F_SETLK):
    try:
        fcntl.fcntl(file, how, range_lock(kind, start, length))
        return "got"
    except BlockingIOError:
        return "refused"
"#;

fn python(mount: &Mount, script: &str) -> String {
    let text = format!("helpers = {HELPERS:?}\nexec(helpers)\n{script}");
    std::fs::write(mount.place.pool().with_file_name("script.py"), text).unwrap();
    shell(&mount.root, 0, "python3 ../script.py")
}

#[test]
fn record_locks_keep_other_processes_from_a_range_and_end_with_a_close() {
    let Some(mount) = Mount::new() else { return };
    let said = python(
        &mount,
        r#"
file = open("db", "w+b")
print(tries(file, fcntl.F_WRLCK, 0, 100), tries(file, fcntl.F_RDLCK, 200, 100))
other = 'file = open("db", "r+b"); print(tries(file, fcntl.F_WRLCK, 50, 10), \
tries(file, fcntl.F_RDLCK, 250, 10), tries(file, fcntl.F_WRLCK, 250, 10), tries(file, fcntl.F_WRLCK, 100, 50))'
print(again(other))
# Any close of the file ends them all, as POSIX has it.
open("db").close()
print(again(other))
"#,
    );
    assert_eq!(said, "got got\nrefused got refused got\ngot got got got\n");
}

#[test]
fn locks_of_open_files_and_flock_belong_to_the_open_file() {
    let Some(mount) = Mount::new() else { return };
    let said = python(
        &mount,
        r#"
one, two = open("f", "w+b"), open("f", "r+b")
print(tries(one, fcntl.F_WRLCK, 0, 10, F_OFD_SETLK), tries(two, fcntl.F_WRLCK, 0, 10, F_OFD_SETLK))
open("f").close()
print(tries(two, fcntl.F_WRLCK, 0, 10, F_OFD_SETLK))
one.close()
print(tries(two, fcntl.F_WRLCK, 0, 10, F_OFD_SETLK))
whole = open("g", "w")
fcntl.flock(whole, fcntl.LOCK_EX)
other = '''
try: fcntl.flock(open("g"), fcntl.LOCK_SH | fcntl.LOCK_NB); print("got")
except BlockingIOError: print("refused")'''
print(again(other))
fcntl.flock(whole, fcntl.LOCK_UN)
print(again(other))
"#,
    );
    assert_eq!(said, "got refused\nrefused\ngot\nrefused\ngot\n");
}

#[test]
fn who_waits_for_a_lock_gets_it_when_its_owner_ends() {
    let Some(mount) = Mount::new() else { return };
    let said = python(
        &mount,
        r#"
file = open("f", "w+b")
owner = subprocess.Popen([sys.executable, "-c", helpers + 'file = open("f", "r+b"); \
print(tries(file, fcntl.F_WRLCK, 0, 0), flush=True); sys.stdin.read()'],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(owner.stdout.readline().strip(), tries(file, fcntl.F_WRLCK, 0, 0))
owner.kill()
fcntl.fcntl(file, fcntl.F_SETLKW, range_lock(fcntl.F_WRLCK, 0, 0))
print("waited")
"#,
    );
    assert_eq!(said, "got refused\nwaited\n");
}
