//! The real binary, started for a test.
//!
//! ```text
//!  TestApp ──spawns──▶ wardgate up --data-dir <temporary> --listen 127.0.0.1:0
//!  Separate ─spawns──▶ wardgate policy · tool-runner · audit · gateway, linked by mTLS
//!     └─ both are a System: token, client, records, through the command line and HTTP, as a user would
//! ```
//!
//! One job: let a journey read as what a person does. Nothing here reaches into a service; a process that
//! outlives its test is killed. For tests only, so a failure panics with what the process said.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test helper fails by panicking, with the reason"
)]

mod app;
mod chance;
mod client;
mod clock;
mod process;
mod separate;
mod stdio;
mod system;
mod until;

pub use app::TestApp;
pub use chance::{highest_chance, lowest_chance};
pub use client::{Client, Reply};
pub use clock::TestClock;
pub use process::{ProcessExit, PythonServer, WardgateProcess, run};
pub use separate::Separate;
pub use stdio::StdioClient;
pub use system::System;
pub use until::until;
