//! Servers for tests, which other crates use too: real servers (rmcp), and scripted servers that misbehave.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    missing_docs,
    unreachable_pub,
    reason = "a test helper fails by panicking"
)]

pub mod fixture;
pub mod http;
pub mod program;
pub mod script;
