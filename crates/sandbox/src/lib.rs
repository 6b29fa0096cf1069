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
//!
//! Programs run only on Linux. On other systems the crate compiles, and refuses every run.

#[cfg(target_os = "linux")]
mod confine;
mod kernel_support;
#[cfg(target_os = "linux")]
mod landlock_rules;
#[cfg(target_os = "linux")]
mod launch;
#[cfg(not(target_os = "linux"))]
mod launch_elsewhere;
#[cfg(target_os = "linux")]
mod launch_error;
mod launch_order;
mod program;
mod stderr;
#[cfg(target_os = "linux")]
mod supervisor;

pub use kernel_support::KernelSupport;
#[cfg(target_os = "linux")]
pub use launch::launch;
#[cfg(not(target_os = "linux"))]
pub use launch_elsewhere::launch;
pub use launch_order::{LAUNCH, ResourceLimits, Sandbox, THIS_BINARY};
pub use program::{OutputListener, Program, RunError, RunInput};

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
