//! Which requests a gateway admits, and what is used of its limits.
//!
//! ```text
//!  request ─▶ RequestAdmission: place · rate of the caller · quotas ─▶ on its way, or told when to come back
//!                    │ whose bucket
//!  operator ─▶ LimitsView: policy: may they read what everybody did? ─▶ record ─▶ what is used, what is left
//! ```
//!
//! One job: that nobody uses more than their part, and that operators see who uses how much.

mod admission;
mod view;

pub use admission::{NEIGHBOUR_PAUSE, RequestAdmission, neighbour_overloaded};
pub use view::{LIST_LIMITS, LimitsView};
