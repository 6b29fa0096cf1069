//! The behavior of the gateway over real HTTP, with fake neighbouring services.
//!
//! ```text
//!  test ──HTTP──▶ gateway ──local links──▶ wardgate_testkit::{FakePolicy, FakeToolRunner, FakeAudit, FakeMemory}
//!                                          note what they are asked; refuse, fail, hang, hold on command
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod world;

mod access;
mod approvals;
mod bodies;
mod catalogue;
mod conditional_tools;
mod content;
mod decisions;
mod downgrades;
mod failures;
mod hang_up;
mod http;
mod input_required;
mod instructions;
mod legacy_input;
mod listen;
mod memory;
mod memory_fields;
mod messages;
mod origins;
mod overload;
mod permits;
mod record;
mod refusals;
mod resources;
mod resumed;
mod revocations;
mod sessions;
mod shapes;
mod skills;
mod sse;
mod stream_messages;
mod subscriptions;
mod tasks;
mod updates;
mod upstream;
