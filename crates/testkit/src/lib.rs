//! Test helpers: the real binary as child processes, and a fake of each service, of the clock and of the keys.
//!
//! ```text
//!  TestApp ──spawns──▶ wardgate up --data-dir <temporary> --listen 127.0.0.1:0
//!  SeparateProcesses ─spawns─▶ wardgate policy · tool-runner · audit · memory · gateway, linked by mTLS
//!     └─ both implement System: tokens, client, records, through the command line and HTTP, as a user has them
//!
//!  FakePolicy · FakeToolRunner · FakeAudit · FakeMemory ◀──local links── the crate under test
//!     └─ behave as the test configures them, and record their requests (Log)
//!  FakeIdentityProvider ◀── TestBrowser: a person signs in
//!  EventStreamClient ──▶ a stream of server-sent events
//!  TestClock · TestKey, TestIssuer, TestCertificate, permit_signer · caller, tool_facts · serve, until
//! ```
//!
//! The helpers let an end-to-end test read as the actions of a user. They do not access the internals of a service, and
//! they kill a process that outlives its test. They are for tests only, so a failure panics with the output of the process.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test helper fails by panicking, with the reason"
)]

mod app;
mod browser;
mod callers;
mod captured_log;
mod chance;
mod client;
mod clock;
mod corrupt_pages;
mod database;
mod event_stream_client;
mod http_server;
mod identity_provider;
mod keys;
mod log;
mod mcp_server;
mod process;
mod random;
mod separate;
mod services;
mod stdio;
mod system;
mod until;

pub use app::TestApp;
pub use browser::{TestBrowser, TestPage};
pub use callers::{caller, caller_of, claims, tool_facts, unverified_token};
pub use captured_log::CapturedLog;
pub use chance::{highest_chance, lowest_chance};
pub use client::{Client, Reply};
pub use clock::TestClock;
pub use corrupt_pages::{
    copy_with_corrupt_pages, copy_with_empty_index, corrupt_sqlite_index, corrupt_sqlite_pages,
    repair_sqlite_pages, replace_sqlite_bytes,
};
pub use database::{PasswordRole, TestDatabase, test_dependency};
pub use event_stream_client::EventStreamClient;
pub use http_server::serve;
pub use identity_provider::{FakeIdentityProvider, ProviderKind};
pub use keys::{
    TestCertificate, TestIssuer, TestKey, base64url, key_set, permit_signer, permit_verifier,
    token_message,
};
pub use log::Log;
pub use mcp_server::{event_stream, json_response, mcp_discovery, mcp_message, mcp_result};
pub use process::{ProcessExit, PythonServer, WardgateProcess, run};
pub use random::{SeededRandom, number_from_environment};
pub use separate::{SeparateProcesses, free_port};
pub use services::{
    AppendAttempt, AppendBehavior, FakeAudit, FakeMemory, FakePolicy, FakeToolRunner, PolicyAnswer,
    RunBehavior, content_response, listed_tool, tool_result,
};
pub use stdio::StdioClient;
pub use system::System;
pub use until::{PATIENCE, until, until_true};
