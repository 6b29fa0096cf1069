//! Runs a configured program without a shell, within limits, and never longer than its call.
//!
//! ```text
//!   Wardgate ──spawns──▶ supervisor ──spawns──▶ limits itself, then becomes the program
//!      │ leash              │                      │
//!      └── its stdin ──────▶│ adopts and kills     ├─ standard output ─▶ the result
//!          cut: kill        │ whatever is left     └─ standard error ──▶ progress, log
//! ```
//!
//! Both steps of the launcher run the same binary again: `/proc/self/exe launch …`. The launcher needs no environment
//! variables, so the environment is entirely that of the program. The leash, which is the standard input of the
//! supervisor, is closed when the call is dropped, at its deadline, or when Wardgate itself dies.

mod confine;
mod landlock_rules;
mod launch;
mod launch_error;
mod launch_order;
mod program;
mod stderr;
mod supervisor;

pub use landlock_rules::{KernelSupport, Sandbox};
pub use launch::launch;
pub use launch_order::{LAUNCH, ResourceLimits, THIS_BINARY};
pub use program::{OutputListener, Program, RunError, RunInput};

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
