//! Detection of unusual behaviour of callers: the settings, and the detector that applies them to a sequence of records.

mod detector;
mod kind;
mod settings;

pub(crate) use detector::{Anomaly, AnomalyDetector};
pub(crate) use kind::AnomalyKind;
pub use settings::{AnomalySettings, AnomalyThreshold, TimeOfDay, UsualHours};
