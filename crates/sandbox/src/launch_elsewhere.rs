//! The launcher on systems on which no program can be confined.

use std::ffi::OsString;
use std::process::ExitCode;

/// Refuses to launch a program.
pub fn launch(_words: impl Iterator<Item = OsString>) -> ExitCode {
    eprintln!("wardgate launch: programs of tools run only on Linux");
    ExitCode::from(125)
}
