//! The limit on the number of concurrent calls of a service, with a fair queue and load shedding.
//!
//! ```text
//!   enter ──▶ is there room? ──yes──────────────────────────────▶ Slot ──end_call──▶ Limit learns how long it took
//!               │no                                                ▲
//!               ▼                                                  │ the owner with the fewest gets the next
//!             Queue: tenants ─▶ callers ─▶ calls ──────────────────┘
//!               │ full, or waited too long
//!               ▼
//!             refused: retry later
//! ```
//!
//! A service that receives more calls than it can handle stays as fast as before, because excess calls are refused
//! before anything was done for them.

mod config;
mod limit;
mod limiter;
mod processors;
mod queue;
mod quota;

pub use config::{Config, Invalid};
pub use limiter::{Limiter, OverloadRefusal, RecordingSlot, Slot};
