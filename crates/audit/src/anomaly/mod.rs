//! Unusual behaviour of callers: what counts as such, and what of it a sequence of records shows.

mod detector;
mod settings;

pub(crate) use detector::{Anomaly, AnomalyDetector, AnomalyKind};
pub use settings::{AnomalySettings, AnomalyThreshold};
