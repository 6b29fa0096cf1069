//! What tests of programs need.

#![allow(
    clippy::expect_used,
    reason = "a test helper fails by panicking, with the reason"
)]

use std::path::{Path, PathBuf};

/// The launcher for a test: its own binary has none, so `examples/launcher.rs` stands in.
///
/// # Panics
///
/// Panics where that has not been built.
pub fn launcher() -> PathBuf {
    let test = std::env::current_exe().expect("a test");
    let output = test.parent().and_then(Path::parent);
    let launcher = output.expect("a directory").join("examples/launcher");
    assert!(
        launcher.is_file(),
        "build it: cargo build --workspace --example launcher"
    );
    launcher
}
