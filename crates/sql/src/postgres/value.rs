//! Converts values of PostgreSQL to JSON from their binary form.

use std::fmt::Write;

use serde_json::Value;
use sqlx::TypeInfo;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgTypeInfo, PgTypeKind};
use time::macros::format_description;
use time::{Date, OffsetDateTime, Time};
use uuid::Uuid;

use super::super::backend::{base64, date, float, single, timestamp};

/// 2000-01-01T00:00:00Z, the epoch of PostgreSQL, in microseconds since 1970.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// Julian day of 2000-01-01.
const EPOCH_JULIAN_DAY: i32 = 2_451_545;

/// A function that converts the bytes of one value that is not NULL to JSON.
type ColumnReader = fn(&[u8]) -> Result<Value, BoxDynError>;

/// The conversion to JSON for the values of a type.
#[derive(Debug, Clone, Copy)]
pub(super) enum ValueReader {
    Scalar(ColumnReader),
    /// A list of such values, or nested lists if the array has several dimensions.
    List(ColumnReader),
}

impl ValueReader {
    /// Returns the reader of a type, or `None` for a type that has no JSON form except its text.
    pub(super) fn for_type(kind: &PgTypeInfo) -> Option<Self> {
        if let Some(read) = scalar(kind) {
            return Some(Self::Scalar(read));
        }
        // A type that the driver does not know has no kind to inspect.
        kind.oid()?;
        match kind.kind() {
            PgTypeKind::Array(items) => scalar(items).map(Self::List),
            PgTypeKind::Domain(base) => Self::for_type(base),
            _ => None,
        }
    }

    pub(super) fn read_value(self, bytes: &[u8]) -> Result<Value, BoxDynError> {
        match self {
            Self::Scalar(read) => read(bytes),
            Self::List(read) => list(bytes, read),
        }
    }
}

fn scalar(kind: &PgTypeInfo) -> Option<ColumnReader> {
    Some(match kind.name() {
        "BOOL" => |bytes| Ok(Value::Bool(bytes.first() == Some(&1))),
        "INT2" => |bytes| Ok(Value::from(i16::from_be_bytes(bytes.try_into()?))),
        "INT4" => |bytes| Ok(Value::from(i32::from_be_bytes(bytes.try_into()?))),
        "INT8" => |bytes| Ok(Value::from(i64::from_be_bytes(bytes.try_into()?))),
        "OID" => |bytes| Ok(Value::from(u32::from_be_bytes(bytes.try_into()?))),
        "FLOAT4" => |bytes| Ok(single(f32::from_be_bytes(bytes.try_into()?))),
        "FLOAT8" => |bytes| Ok(float(f64::from_be_bytes(bytes.try_into()?))),
        "NUMERIC" => |bytes| numeric(bytes).map(Value::from).ok_or_else(unreadable),
        "TEXT" | "VARCHAR" | "CHAR" | "NAME" | "UNKNOWN" | "citext" => text,
        "BYTEA" => |bytes| Ok(base64(bytes)),
        "JSON" => |bytes| Ok(serde_json::from_slice(bytes)?),
        "JSONB" => |bytes| match bytes {
            [1, text @ ..] => Ok(serde_json::from_slice(text)?),
            _ => Err(unreadable()),
        },
        "UUID" => |bytes| Ok(Value::from(Uuid::from_slice(bytes)?.to_string())),
        "DATE" => |bytes| day(i32::from_be_bytes(bytes.try_into()?)),
        "TIME" => |bytes| time_of_day(i64::from_be_bytes(bytes.try_into()?)),
        "TIMESTAMP" => |bytes| instant(i64::from_be_bytes(bytes.try_into()?), false),
        "TIMESTAMPTZ" => |bytes| instant(i64::from_be_bytes(bytes.try_into()?), true),
        _ if kind.oid().is_some() && matches!(kind.kind(), PgTypeKind::Enum(_)) => text,
        _ => return None,
    })
}

fn text(bytes: &[u8]) -> Result<Value, BoxDynError> {
    Ok(Value::from(std::str::from_utf8(bytes)?))
}

fn unreadable() -> BoxDynError {
    "the value does not have the format of its type".into()
}

/// Reads the elements of an array from its binary form (PostgreSQL, `array_send`): the number of dimensions, two words
/// that are not needed, the length and lower bound of each dimension, and then the length and bytes of each element. A
/// length of -1 is NULL.
fn list(bytes: &[u8], read: ColumnReader) -> Result<Value, BoxDynError> {
    let mut rest = bytes;
    let dimensions = take_word(&mut rest)?;
    take_word(&mut rest)?;
    take_word(&mut rest)?;
    let mut lengths = Vec::new();
    for _ in 0..dimensions {
        lengths.push(usize::try_from(take_word(&mut rest)?)?);
        take_word(&mut rest)?;
    }
    if lengths.is_empty() {
        return Ok(Value::Array(Vec::new()));
    }
    elements(&lengths, &mut rest, read)
}

fn elements(lengths: &[usize], rest: &mut &[u8], read: ColumnReader) -> Result<Value, BoxDynError> {
    let Some((length, inner)) = lengths.split_first() else {
        let Ok(length) = usize::try_from(take_word(rest)?) else {
            return Ok(Value::Null);
        };
        let (element, after) = rest.split_at_checked(length).ok_or_else(unreadable)?;
        *rest = after;
        return read(element);
    };
    (0..*length)
        .map(|_| elements(inner, rest, read))
        .collect::<Result<Vec<_>, _>>()
        .map(Value::Array)
}

fn take_word(rest: &mut &[u8]) -> Result<i32, BoxDynError> {
    let (word, after) = rest.split_first_chunk().ok_or_else(unreadable)?;
    *rest = after;
    Ok(i32::from_be_bytes(*word))
}

/// Converts a timestamp in microseconds since 2000.
fn instant(micros: i64, has_zone: bool) -> Result<Value, BoxDynError> {
    let micros = match micros {
        i64::MAX => return Ok(Value::from("infinity")),
        i64::MIN => return Ok(Value::from("-infinity")),
        _ => i128::from(micros) + i128::from(EPOCH_MICROS),
    };
    let instant = OffsetDateTime::from_unix_timestamp_nanos(micros * 1_000)?;
    timestamp(instant, has_zone)
}

/// Converts a date in days since 2000.
fn day(days: i32) -> Result<Value, BoxDynError> {
    match days {
        i32::MAX => return Ok(Value::from("infinity")),
        i32::MIN => return Ok(Value::from("-infinity")),
        _ => {}
    }
    let day = days.checked_add(EPOCH_JULIAN_DAY).ok_or_else(unreadable)?;
    date(Date::from_julian_day(day)?)
}

fn time_of_day(micros: i64) -> Result<Value, BoxDynError> {
    let seconds = micros.div_euclid(1_000_000);
    if seconds == 86_400 {
        return Ok(Value::from("24:00:00"));
    }
    let time = Time::from_hms_micro(
        u8::try_from(seconds / 3_600)?,
        u8::try_from(seconds / 60 % 60)?,
        u8::try_from(seconds % 60)?,
        u32::try_from(micros.rem_euclid(1_000_000))?,
    )?;
    let shape = if time.microsecond() == 0 {
        time.format(format_description!("[hour]:[minute]:[second]"))?
    } else {
        time.format(format_description!("[hour]:[minute]:[second].[subsecond]"))?
    };
    Ok(Value::from(shape))
}

/// Reads the digits of a NUMERIC from its binary form: groups of four decimal digits, the weight of the first group,
/// the sign, and the number of digits after the decimal point (PostgreSQL, `numeric_send`).
fn numeric(bytes: &[u8]) -> Option<String> {
    let word = |at: usize| {
        Some(u16::from_be_bytes(
            bytes.get(at * 2..at * 2 + 2)?.try_into().ok()?,
        ))
    };
    let groups = i32::from(word(0)?);
    let weight = i32::from(word(1)?.cast_signed());
    let sign = match word(2)? {
        0x0000 => "",
        0x4000 => "-",
        0xC000 => return Some("NaN".to_owned()),
        0xD000 => return Some("Infinity".to_owned()),
        0xF000 => return Some("-Infinity".to_owned()),
        _ => return None,
    };
    let scale = usize::from(word(3)?);
    let group = |position: i32| {
        if (0..groups).contains(&position) {
            word(4 + usize::try_from(position).ok()?)
        } else {
            Some(0)
        }
    };
    let mut whole = String::new();
    for position in 0..=weight {
        write!(whole, "{:04}", group(position)?).ok()?;
    }
    let whole = whole.trim_start_matches('0');
    let mut fraction = String::new();
    let mut position = weight + 1;
    while fraction.len() < scale {
        write!(fraction, "{:04}", group(position)?).ok()?;
        position += 1;
    }
    fraction.truncate(scale);
    let point = if scale > 0 { "." } else { "" };
    let whole = if whole.is_empty() { "0" } else { whole };
    Some(format!("{sign}{whole}{point}{fraction}"))
}
