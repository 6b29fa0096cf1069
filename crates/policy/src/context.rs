//! The context of a decision besides caller, tool and arguments: its time, the client's address, and counts of earlier
//! calls.

use std::net::IpAddr;

use cedar_policy::{Context, EntityUid, RestrictedExpression};
use jiff::civil::DateTime;
use wardgate_domain::{InvalidMessage, OfferKind, TimeZone, Timestamp};

use crate::entities::text;
use crate::fault::DecisionFault;
use crate::history::{CallCounters, CallCounts, HISTORY, history};
use crate::vocabulary::Vocabulary;

/// The context of a call: the time of the decision, the address of the client and the counts of earlier calls.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// The time of the decision.
    pub time: Timestamp,
    /// The time zone of the local time that policies see.
    pub time_zone: TimeZone,
    /// The address of the client, or `None` if unknown.
    pub client_ip: Option<IpAddr>,
    /// The counts of earlier calls.
    pub counts: CallCounts,
}

/// The parts of the context that only a call has, not a decision about rows or columns.
#[derive(Debug, Clone)]
pub(crate) struct CallParts<'a> {
    /// The entity of the call's arguments.
    pub(crate) arguments: EntityUid,
    /// The counters that policies can read.
    pub(crate) counters: &'a CallCounters,
}

impl CallContext {
    /// Converts the context for a Cedar request. `call` is `None` for a decision about rows or columns.
    pub(crate) fn to_cedar(&self, call: Option<CallParts<'_>>) -> Result<Context, DecisionFault> {
        let refused = || DecisionFault::Refused("the time or the address of a call");
        let local = self.time_zone.local(self.time).ok_or_else(refused)?;
        let time = local.timestamp();
        let weekday = i64::from(local.weekday().to_monday_one_offset());
        let minute = i64::from(local.hour()) * 60 + i64::from(local.minute());
        let local = RestrictedExpression::new_record([
            (
                "weekday".to_owned(),
                RestrictedExpression::new_long(weekday),
            ),
            ("minute".to_owned(), RestrictedExpression::new_long(minute)),
            ("date".to_owned(), text(&local.date().to_string())),
        ])
        .map_err(|_| refused())?;
        let mut pairs = vec![
            (
                "time".to_owned(),
                RestrictedExpression::new_datetime(format!("{time:.3}")),
            ),
            ("local".to_owned(), local),
        ];
        pairs.extend(self.client_ip.map(|address| {
            let address = address.to_canonical().to_string();
            (
                "client_ip".to_owned(),
                RestrictedExpression::new_ip(address),
            )
        }));
        if let Some(call) = call {
            let arguments = RestrictedExpression::new_entity_uid(call.arguments);
            pairs.push(("arguments".to_owned(), arguments));
            if !call.counters.is_empty() {
                pairs.push((HISTORY.to_owned(), history(call.counters, &self.counts)?));
            }
        }
        Context::from_pairs(pairs).map_err(|_| refused())
    }
}

impl Vocabulary {
    /// Returns the parts of the context that only a call of this kind has, not a decision about rows or columns.
    pub(crate) fn call_parts(&self, kind: OfferKind) -> CallParts<'_> {
        CallParts {
            arguments: self.call_arguments(),
            counters: self.counters(kind),
        }
    }
}

/// Parses the address of a client. An empty text means that the address is unknown.
pub fn parse_client_ip(address: &str) -> Result<Option<IpAddr>, InvalidMessage> {
    if address.is_empty() {
        return Ok(None);
    }
    let parsed = address.parse().map(Some);
    parsed.map_err(|_| InvalidMessage::field("client_ip", "is not an IP address"))
}

/// Parses a time in RFC 3339 format, or a local time of `time_zone` to the minute. A local time that occurs twice or
/// never because clocks change is an error.
pub fn parse_time(written: &str, time_zone: &TimeZone) -> Result<Timestamp, String> {
    if let Ok(instant) = written.parse() {
        return Ok(instant);
    }
    let local = DateTime::strptime("%Y-%m-%dT%H:%M", written).map_err(|_| {
        format!(
            "`{written}` is not a time; write 2026-01-07T12:00 in the time zone, or RFC 3339 such as 2026-01-07T12:00:00+01:00"
        )
    })?;
    let instant = time_zone.rules().to_ambiguous_zoned(local).unambiguous();
    let instant = instant.map_err(|_| {
        format!("the local time `{written}` occurs twice or never because the clocks change; write RFC 3339 with an offset")
    })?;
    Ok(Timestamp::from_micros(instant.timestamp().as_microsecond()))
}
