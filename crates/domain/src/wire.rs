//! Conversions between wire messages and the validated types of this crate.

mod approval;
mod call_details;
mod caller;
mod conversation;
mod conversation_change;
mod decision;
mod memory_access;
mod record;
mod shadow;
mod switch;
mod tool;

use std::str::FromStr;
use std::time::Duration;

use crate::{Digest, InvalidMessage};

pub(crate) use approval::encode_approval;
pub(crate) use decision::encode_permit;

/// Returns the value of a required message field, or an error if it is missing.
fn require_field<T>(field: Option<T>, name: &'static str) -> Result<T, InvalidMessage> {
    field.ok_or_else(|| InvalidMessage::field(name, "is missing"))
}

/// Parses a text field.
fn parse<T>(text: &str, name: &'static str) -> Result<T, InvalidMessage>
where
    T: FromStr<Err: ToString>,
{
    text.parse()
        .map_err(|error: T::Err| InvalidMessage::field(name, error.to_string()))
}

/// Parses a text field that may be empty.
fn parse_optional<T>(text: &str, name: &'static str) -> Result<Option<T>, InvalidMessage>
where
    T: FromStr<Err: ToString>,
{
    (!text.is_empty()).then(|| parse(text, name)).transpose()
}

/// Reads a digest field that may be empty.
fn optional_digest(bytes: &[u8], name: &'static str) -> Result<Option<Digest>, InvalidMessage> {
    (!bytes.is_empty())
        .then(|| Digest::from_wire(bytes, name))
        .transpose()
}

fn wire_duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}
