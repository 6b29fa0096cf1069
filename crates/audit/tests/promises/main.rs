//! Tests of the guarantees of the audit service through its public interface, on SQLite and on PostgreSQL.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod faulty_line;
mod support;

mod anomalies;
mod append;
mod clock;
mod cosigning;
mod details;
mod erasure;
mod export;
mod exports;
mod failure;
mod history;
mod keys;
mod log;
mod operators;
mod privacy;
mod query;
mod recovery;
mod rekey;
mod retention;
mod second_copy;
mod tampering;
