//! What policies see of a decision besides caller, tool and arguments: its time, the client's address, and counts of earlier
//! calls.

use std::net::IpAddr;

use cedar_policy::{Context, EntityUid, RestrictedExpression};
use jiff::civil::DateTime;
use wardgate_domain::{InvalidMessage, OfferKind, TimeZone, Timestamp};

use crate::entities::text;
use crate::fault::DecisionFault;
use crate::history::{CallCounters, CallCounts, HISTORY, history};
use crate::vocabulary::Vocabulary;

/// When a decision is made, from where the client calls, and what went before.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// The time of the decision.
    pub time: Timestamp,
    /// Whose clocks show the local time.
    pub time_zone: TimeZone,
    /// The client's address; none when it is unknown.
    pub client_ip: Option<IpAddr>,
    /// What the counters of earlier calls say.
    pub counts: CallCounts,
}

/// What the context of a call has besides that of rows and columns.
#[derive(Debug, Clone)]
pub(crate) struct CallParts<'a> {
    /// The entity of the call's arguments.
    pub(crate) arguments: EntityUid,
    /// The counters that the policies can read.
    pub(crate) counters: &'a CallCounters,
}

impl CallContext {
    /// The context of a question; rows and columns know nothing of the `call`.
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
    /// What the context of a call of this kind has besides that of rows and columns.
    pub(crate) fn call_parts(&self, kind: OfferKind) -> CallParts<'_> {
        CallParts {
            arguments: self.call_arguments(),
            counters: self.counters(kind),
        }
    }
}

/// The client's address; an empty text is an unknown one.
pub fn parse_client_ip(address: &str) -> Result<Option<IpAddr>, InvalidMessage> {
    if address.is_empty() {
        return Ok(None);
    }
    let parsed = address.parse().map(Some);
    parsed.map_err(|_| InvalidMessage::field("client_ip", "is no IP address"))
}

/// An instant as RFC 3339, or as the clocks of `time_zone` show it, to the minute. A local time that comes twice or never,
/// when clocks are put back or forward, is refused.
pub fn parse_time(written: &str, time_zone: &TimeZone) -> Result<Timestamp, String> {
    if let Ok(instant) = written.parse() {
        return Ok(instant);
    }
    let local = DateTime::strptime("%Y-%m-%dT%H:%M", written).map_err(|_| {
        format!(
            "`{written}` is no time; write 2026-01-07T12:00 in the time zone, or RFC 3339 such as 2026-01-07T12:00:00+01:00"
        )
    })?;
    let instant = time_zone.rules().to_ambiguous_zoned(local).unambiguous();
    let instant = instant.map_err(|_| {
        format!("the clocks show `{written}` twice or never; write RFC 3339 with an offset")
    })?;
    Ok(Timestamp::from_micros(instant.timestamp().as_microsecond()))
}
