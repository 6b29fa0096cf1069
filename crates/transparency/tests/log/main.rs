//! Tests against the vectors of the specifications, against two other implementations, and against forgeries.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod differential;
mod forgery;
mod policy;
mod support;
mod vectors;
