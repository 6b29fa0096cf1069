//! A configured program, run without a shell, within limits, and never longer than its call.
//!
//! ```text
//!   Wardgate ──spawns──▶ keeper ──spawns──▶ limits itself, then becomes the program
//!      │ leash            │                      │
//!      └── its stdin ────▶│ adopts and kills     ├─ standard output ─▶ the result
//!          cut: kill      │ whatever is left     └─ standard error ──▶ progress, log
//! ```
//!
//! Both steps of the launcher are this same binary, started again: `/proc/self/exe launch …`. It needs no
//! environment, so that the environment is the program's alone. The leash is cut when the call is dropped, at
//! its deadline, or when Wardgate itself dies.

mod confine;
mod keep;
mod launch;
mod program;
mod remarks;
mod sandbox;

pub(crate) use confine::Limits;
pub use launch::{LAUNCH, launch};
pub(crate) use program::{Given, Listener, Program, RunError};
pub(crate) use sandbox::{Kernel, Sandbox};

#[cfg(test)]
mod tests;
