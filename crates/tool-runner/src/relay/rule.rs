//! What of the server's messages goes on to the client.
//!
//! ```text
//!   all that can come is clear:   every message as it is
//!   something is not:             answers: the governed one, redacted; with the right to the server alone, as they are
//!                                 the rest: what has no words of its own, such as progress in numbers
//! ```
//!
//! The rest matters even to those who only listen: a legacy server may tell there what it logs about a call.

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_domain::OfferKind;
use wardgate_proto::toolrunner::v1 as pb;

use super::governed::{Governed, Released, facts_of};
use super::members::{Ambiguous, Members};
use crate::failure::Failure;
use crate::mcp::own_answer;

const PROGRESS: &str = "notifications/progress";

/// What becomes of a message.
pub(super) enum Verdict {
    /// It goes on as it is.
    Pass(Bytes),
    /// It is the governed answer, or stands in its place.
    Answer(Bytes, pb::ResultFacts),
    /// The client gets nothing of it.
    Withhold,
    /// The client does not get the request, and the server is told so.
    Decline(Bytes),
    /// The governed answer cannot be passed on.
    Fail(Failure, pb::ResultFacts),
}

/// The rule of one exchange.
pub(super) struct Rule {
    /// Until it was answered.
    governed: Option<Governed>,
    is_restricted: bool,
    is_connect: bool,
    /// The id of the governed request, as its client wrote it.
    id: Option<Box<RawValue>>,
    /// What its progress is reported under.
    progress_token: Option<Box<RawValue>>,
    /// Answers may come at all. A client that listens gets none, and where a stream is taken up again they are to one
    /// request.
    takes_answers: bool,
}

/// What a server says.
enum Said<'a> {
    Request {
        id: &'a RawValue,
        method: String,
    },
    Notification {
        method: String,
        params: Option<&'a RawValue>,
    },
    Answer {
        id: Option<&'a RawValue>,
        outcome: Outcome<'a>,
    },
}

/// A result, or an error.
type Outcome<'a> = Result<&'a RawValue, &'a RawValue>;

impl Rule {
    pub(super) fn new(
        governed: Governed,
        id: Option<Box<RawValue>>,
        progress_token: Option<Box<RawValue>>,
        takes_answers: bool,
    ) -> Self {
        Self {
            is_restricted: governed.is_restricted(),
            is_connect: governed.kind == OfferKind::Connect,
            governed: Some(governed),
            id,
            progress_token,
            takes_answers,
        }
    }

    /// Whether the governed answer is still to come.
    pub(super) fn waits(&self) -> bool {
        self.id.is_some() && self.governed.is_some()
    }

    /// What becomes of `message`; none if it is no message.
    pub(super) fn judge(&mut self, message: Bytes) -> Option<Verdict> {
        let members = Members::read(std::str::from_utf8(&message).ok()?)?;
        let said = Said::read(&members).ok().flatten()?;
        Some(match said {
            Said::Answer { .. } if !self.takes_answers => Verdict::Withhold,
            Said::Answer { id, outcome } => self.answer(message.clone(), id, outcome),
            _ if !self.is_restricted => Verdict::Pass(message),
            Said::Request { method, .. } if is_wordless(&method) => Verdict::Pass(message),
            Said::Request { id, method } => Verdict::Decline(own_answer(id, &method).ok()?.into()),
            Said::Notification { method, .. } if is_wordless(&method) => Verdict::Pass(message),
            Said::Notification { method, params } if method == PROGRESS => self
                .numbers(params)
                .map_or(Verdict::Withhold, Verdict::Pass),
            Said::Notification { .. } => Verdict::Withhold,
        })
    }

    /// Whether answers do not go on as they are. Those to someone with the right to the server alone hold lists and
    /// the like, which no column's class is about.
    fn is_governed(&self) -> bool {
        self.is_restricted && !self.is_connect
    }

    /// The record of an exchange that ended in `failure`.
    pub(super) fn failed(&mut self, failure: &Failure) -> pb::ResultFacts {
        match self.governed.take() {
            Some(governed) => governed.failed(failure),
            None => facts_of(failure),
        }
    }

    fn answer(&mut self, message: Bytes, id: Option<&RawValue>, outcome: Outcome<'_>) -> Verdict {
        let is_own = answers(id, outcome, self.id.as_deref());
        match self.governed.take_if(|_| is_own) {
            Some(governed) if self.is_governed() => self.release(governed, outcome),
            Some(governed) => Verdict::Answer(message, governed.passed(outcome)),
            // The record knows of one answer.
            None if !self.is_connect => Verdict::Withhold,
            None => Verdict::Pass(message),
        }
    }

    fn release(&self, governed: Governed, outcome: Outcome<'_>) -> Verdict {
        let (member, Released { json, facts }) = match outcome {
            Ok(result) => ("result", governed.release(result)),
            Err(error) => ("error", governed.release_error(error)),
        };
        let json = match json {
            Ok(json) => json,
            Err(failure) => return Verdict::Fail(failure, facts),
        };
        let id = self.id.as_deref().map_or("null", RawValue::get);
        let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{json}}}"#);
        Verdict::Answer(message.into(), facts)
    }

    /// Progress without its text.
    fn numbers(&self, params: Option<&RawValue>) -> Option<Bytes> {
        let params = Members::read(params?.get())?;
        let token = self.progress_token.as_deref()?;
        let is_own = same(params.get("progressToken").ok()??, token);
        let number = |name| {
            let number = params.get(name).ok().flatten()?.get();
            serde_json::from_str::<serde_json::Number>(number).ok()?;
            Some(format!(r#","{name}":{number}"#))
        };
        let (progress, total) = (number("progress")?, number("total").unwrap_or_default());
        let message = format!(
            r#"{{"jsonrpc":"2.0","method":"{PROGRESS}","params":{{"progressToken":{token}{progress}{total}}}}}"#
        );
        is_own.then(|| message.into())
    }
}

impl<'a> Said<'a> {
    fn read(members: &Members<'a>) -> Result<Option<Self>, Ambiguous> {
        let id = members.get("id")?;
        let id = id.filter(|id| id.get() != "null");
        let (result, error) = (members.get("result")?, members.get("error")?);
        if members.get("method")?.is_some() {
            // What is an answer too would be taken for one by some.
            let method = members.text("method")?;
            let Some(method) = method.filter(|_| result.or(error).is_none()) else {
                return Ok(None);
            };
            let params = members.get("params")?;
            return Ok(Some(match id {
                Some(id) => Self::Request { id, method },
                None => Self::Notification { method, params },
            }));
        }
        let outcome = match (result, error) {
            (Some(result), None) => Ok(result),
            (None, Some(error)) => Err(error),
            _ => return Ok(None),
        };
        Ok(Some(Self::Answer { id, outcome }))
    }
}

/// Whether an answer to `id` is one to the request `asked`. An error without an id can only be about the request
/// whose response it is in.
fn answers(id: Option<&RawValue>, outcome: Outcome<'_>, asked: Option<&RawValue>) -> bool {
    match (id, asked) {
        (Some(id), Some(asked)) => same(id, asked),
        (None, Some(_)) => outcome.is_err(),
        (_, None) => false,
    }
}

/// Whether such a message says no more than that something is wanted, or has changed.
fn is_wordless(method: &str) -> bool {
    matches!(
        method,
        "ping"
            | "roots/list"
            | "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/resources/updated"
            | "notifications/subscriptions/acknowledged"
    )
}

/// Whether two ids or tokens are the same, however they are written.
fn same(one: &RawValue, other: &RawValue) -> bool {
    let value = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
    one.get() == other.get() || value(one) == value(other)
}
