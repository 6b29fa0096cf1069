//! Durations as whole seconds in configuration files, for `#[serde(with = "whole_seconds")]`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Writes the seconds of `value`, without its fraction.
pub fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(value.as_secs())
}

/// Reads a number of seconds.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    u64::deserialize(from).map(Duration::from_secs)
}
