//! The facade as clients, browsers and attackers meet it, in front of providers with the particulars of real ones.

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
