//! The command `lode`, and by their own names `mkfs.lode`, `fsck.lode` and `mount.fuse.lode`.

fn main() -> std::process::ExitCode {
    lode_cli::main(std::env::args_os().collect())
}
