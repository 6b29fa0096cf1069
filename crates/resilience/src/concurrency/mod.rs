//! How many calls a service works on at once, who waits, and who is turned away.
//!
//! ```text
//!   enter ──▶ is there room? ──yes──────────────────────────────▶ Slot ──done──▶ Limit learns how long it took
//!               │no                                                ▲
//!               ▼                                                  │ who has the least gets the next
//!             Queue: tenants ─▶ callers ─▶ calls ──────────────────┘
//!               │ full, or waited too long
//!               ▼
//!             Refused: come back later
//! ```
//!
//! One job: to keep a service that is asked for more than it can do as fast as it was. What it turns away it turns away
//! before anything was done for it.

mod config;
mod limit;
mod limiter;
mod processors;
mod queue;
mod quota;

pub use config::{Config, Invalid};
pub use limiter::{Limiter, OverloadRefusal, RecordingSlot, Slot};
