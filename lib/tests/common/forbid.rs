//! What this thread may not do from here on.

use rustix::thread::set_no_new_privs;

/// Has the system refuse (`ENOMEM`) to map `len` bytes at `address` for this thread.
pub fn mappings(address: u64, len: u64) {
    const ARGS: u32 = 16;
    let halves = |value: u64| (value as u32, (value >> 32) as u32);
    let ((low, high), (len, _)) = (halves(address), halves(len));
    // Each word that is another one ends in the last line.
    let wanted = [(0, libc::SYS_mmap as u32), (ARGS, low), (ARGS + 4, high), (ARGS + 8, len)];
    let line = |code: u32, k, jf| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut lines = Vec::new();
    for (at, (word, value)) in (0..).zip(wanted) {
        lines.push(line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, word, 0));
        lines.push(line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, 7 - 2 * at));
    }
    let refuse = libc::SECCOMP_RET_ERRNO | libc::ENOMEM as u32;
    lines.push(line(libc::BPF_RET | libc::BPF_K, refuse, 0));
    lines.push(line(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0));
    install(&mut lines);
}

/// Has the system refuse one of its calls for this thread.
pub fn system_call(number: libc::c_long, errno: i32) {
    let line = |code: u32, k, jf| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    install(&mut [
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number as u32, 1),
        line(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32, 0),
        line(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ]);
}

/// Sets a filter of system calls for this thread.
pub fn install(lines: &mut [libc::sock_filter]) {
    set_no_new_privs(true).unwrap();
    let program = libc::sock_fprog { len: lines.len() as u16, filter: lines.as_mut_ptr() };
    let (option, mode) = (libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER);
    // SAFETY: the program and its lines live as long as the call, which copies them.
    let done = unsafe { libc::prctl(option, mode as libc::c_ulong, &program) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
