//! Tests of the facade with clients, browsers and attackers, and with fake providers that behave like real ones.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, with the reason"
)]

mod attacks;
mod clients;
mod providers;
mod world;
