//! Support for tests that run programs.

#![allow(
    clippy::expect_used,
    reason = "a test helper fails by panicking, with the reason"
)]

use std::path::{Path, PathBuf};

/// Returns the path of the launcher for a test. The test's own binary has no launcher, so `examples/launcher.rs` is
/// used instead.
///
/// # Panics
///
/// Panics if the example has not been built.
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
