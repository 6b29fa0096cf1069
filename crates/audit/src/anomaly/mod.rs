//! Unusual behaviour of callers: what counts as such, and what of it a sequence of records shows.

mod detector;
mod kind;
mod settings;

pub(crate) use detector::{Anomaly, AnomalyDetector};
pub(crate) use kind::AnomalyKind;
pub use settings::{AnomalySettings, AnomalyThreshold, TimeOfDay, UsualHours};
