//! The limits of a gateway: admission of requests, and the usage of its limits for operators.
//!
//! ```text
//!  request ─▶ RequestAdmission: slot · rate of the caller · quotas ─▶ admitted, or refused with a time to retry
//!                    │ usage by bucket owner
//!  operator ─▶ LimitsView: policy: may they read everybody's calls? ─▶ record ─▶ what is used, what is left
//! ```
//!
//! Limits ensure that no caller uses more than its share, and operators can see how much each caller uses.

mod admission;
mod view;

pub use admission::{NEIGHBOUR_PAUSE, RequestAdmission, neighbour_overloaded};
pub use view::{LIST_LIMITS, LimitsView};
