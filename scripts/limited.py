#!/usr/bin/env python3
"""Runs a command that may hang: `limited.py SECONDS NAME COMMAND...`

It has places of its own for temporary files: TMPDIR and, in memory, LODE_TEST_SCRATCH. After SECONDS its process group gets
SIGTERM, ten seconds later it and all that it has started get SIGKILL, "NAME took longer than SECONDS s" is said and the
exit status is 124. However it ended, what it has left is taken away: processes, mounts and loop devices in its places, files.

LODE_BEGIN_BY and LODE_END_BY, in seconds since 1970: after the one nothing begins any more (exit status 125), and what runs
at the other has taken longer than it may. LODE_TIMES names a file that gets a line of what it took:
seconds, seconds of processors, NAME.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TERM_SECONDS = 10
KILL_SECONDS = 10
LATE, TOO_LATE, ENDED = 124, 125, 143


class Ended(Exception):
    """Who runs this wants it to end."""


def say(*words):
    print(*words, flush=True)


def moment(variable):
    return float(os.environ.get(variable) or "inf")


def places():
    """Directories for what is temporary, on the disk and in memory, as open as /tmp is."""
    made = []
    shm = os.environ.get("LODE_TEST_SCRATCH") or "/dev/shm"
    bases = [tempfile.gettempdir()] + ([shm] if os.access(shm, os.W_OK) else [])
    for base in bases:
        made.append(tempfile.mkdtemp(prefix="lode-run.", dir=base))
        os.chmod(made[-1], 0o1777)
    return made


def marked(mark):
    """Processes that run and have the mark in their environment: what was started, wherever it has gone."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if not name.isdigit() or int(name) == os.getpid():
                continue
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read()
            # (One that has ended has none.)
            if mark.encode() in environment.split(b"\0"):
                found.append(int(name))
        except OSError:
            pass
    return found


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()[:200]
    except OSError:
        return "(gone)"


def signal_all(send, pids, number):
    for pid in pids:
        try:
            send(pid, number)
        except OSError:
            pass


def ended(process, seconds):
    """Whether a process ends within so many seconds. It is asked for by its descriptor: there is no wait without an end."""
    return process.poll() is not None or bool(select.select([process.descriptor], [], [], max(seconds, 0))[0])


def quietly(*command):
    """Runs a command that may fail, or hang for ever in the kernel."""
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        child.wait(10)
    except (OSError, subprocess.TimeoutExpired):
        pass


def mounts_in(dirs):
    """Mounts below directories, the innermost first, each with its device's minor number."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.split(" ")
            point = fields[4].replace("\\040", " ")
            if point.startswith(tuple(one + "/" for one in dirs)):
                found.insert(0, (point, fields[2].split(":")[1]))
    return found


def unmount_all(dirs):
    for point, minor in mounts_in(dirs):
        say(f"still mounted, and unmounted now: {point}")
        # Who waits for a server that does not answer goes on.
        try:
            with open(f"/sys/fs/fuse/connections/{minor}/abort", "w", encoding="ascii") as file:
                file.write("1")
        except OSError:
            pass
        quietly("umount", "-l", point)
        quietly("fusermount3", "-uz", point)
    for name in os.listdir("/sys/block"):
        try:
            with open(f"/sys/block/{name}/loop/backing_file", encoding="utf-8") as file:
                if file.read().startswith(tuple(one + "/" for one in dirs)):
                    quietly("losetup", "-d", f"/dev/{name}")
        except OSError:
            pass


def kill_all(process, mark):
    """Kills the group and all that is marked, until nothing of it is left or time is over."""
    end = time.monotonic() + KILL_SECONDS
    while True:
        left = marked(mark)
        signal_all(os.killpg, [process.pid] if process.poll() is None else [], signal.SIGKILL)
        signal_all(os.kill, left, signal.SIGKILL)
        if (process.poll() is not None and not left) or time.monotonic() > end:
            return left
        time.sleep(0.05)


def clean(process, mark, dirs):
    """Takes away what was left."""
    left = marked(mark)
    if left and process.poll() is not None:
        # (What is ending by itself may.)
        end = time.monotonic() + 2
        while left and time.monotonic() < end:
            time.sleep(0.05)
            left = marked(mark)
    for pid in left:
        say(f"still running, and killed now: {command_line(pid)}")
    left = kill_all(process, mark)
    unmount_all(dirs)
    # (A server that is gone, or a mount that is, lets go of who waited for it.)
    for pid in kill_all(process, mark) if left else []:
        say(f"can't be killed: {command_line(pid)}")
    for place in dirs:
        # Nothing of what is mounted there still.
        if not mounts_in([place]):
            shutil.rmtree(place, ignore_errors=True)


def run(seconds, name, command):
    if time.time() > moment("LODE_BEGIN_BY"):
        say(f"not run, as there is no time left: {name}")
        return TOO_LATE
    seconds = min(seconds, max(moment("LODE_END_BY") - time.time(), 1))
    dirs = places()
    mark = f"LODE_RUN_{os.getpid()}_{time.time_ns()}=1"
    environment = dict(os.environ, TMPDIR=dirs[0], LODE_TEST_SCRATCH=dirs[-1])
    environment[mark[:-2]] = "1"
    began, before = time.monotonic(), os.times()
    status = ENDED
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, process_group=0)
    process.descriptor = os.pidfd_open(process.pid)
    try:
        if ended(process, seconds):
            status = process.wait()
            status = status if status >= 0 else 128 - status
        else:
            status = LATE
            say(f"{name} took longer than {seconds:.0f} s. Of it there ran:")
            for pid in marked(mark):
                say(f"  {pid} {command_line(pid)}")
    except Ended:
        pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if process.poll() is None:
        signal_all(os.killpg, [process.pid], signal.SIGTERM)
        ended(process, TERM_SECONDS)
    clean(process, mark, dirs)
    times = os.environ.get("LODE_TIMES")
    if times:
        after = os.times()
        processors = after.children_user + after.children_system - before.children_user - before.children_system
        with open(times, "a", encoding="utf-8") as file:
            file.write(f"{time.monotonic() - began:.1f}\t{processors:.1f}\t{name}\n")
    return status


def end(_number, _frame):
    raise Ended


def main():
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    sys.exit(run(float(sys.argv[1]), sys.argv[2], sys.argv[3:]))


main()
