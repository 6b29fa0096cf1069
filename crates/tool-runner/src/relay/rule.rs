//! What of the server's messages goes on to the client.
//!
//! ```text
//!   all that can come is clear:   every message as it is; of the governed answer a record
//!   something is not:             the governed answer, redacted; before it progress in numbers, and pings
//! ```

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_proto::toolrunner::v1 as pb;

use super::governed::{Governed, Released, facts_of};
use super::members::{Ambiguous, Members};
use crate::failure::Failure;
use crate::mcp::own_answer;

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
    /// The id of the governed request, as its client wrote it.
    id: Option<Box<RawValue>>,
    /// What its progress is reported under.
    progress_token: Option<Box<RawValue>>,
    /// Answers may come at all. A client that listens gets none, but for those of a stream it takes up again.
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
    Result(Option<&'a RawValue>, &'a RawValue),
    Error(Option<&'a RawValue>, &'a RawValue),
}

impl Rule {
    pub(super) fn new(
        governed: Governed,
        id: Option<Box<RawValue>>,
        progress_token: Option<Box<RawValue>>,
        takes_answers: bool,
    ) -> Self {
        Self {
            is_restricted: governed.is_restricted(),
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
        if said.is_answer() && !self.takes_answers {
            return Some(Verdict::Withhold);
        }
        let is_governed = said.answers(self.id.as_deref());
        if let Some(governed) = self.governed.take_if(|_| is_governed) {
            return Some(if self.is_restricted {
                self.release(governed, &said)
            } else {
                let facts = match said {
                    Said::Error(..) => governed.passed_error(),
                    Said::Result(_, result) => governed.passed(result),
                    Said::Request { .. } | Said::Notification { .. } => return None,
                };
                Verdict::Answer(message, facts)
            });
        }
        if !self.is_restricted {
            return Some(Verdict::Pass(message));
        }
        Some(match said {
            Said::Request { method, .. } if method == "ping" => Verdict::Pass(message),
            Said::Request { id, method } => {
                let answer = own_answer(id, &method).ok()?;
                Verdict::Decline(answer.into())
            }
            Said::Notification { method, params } if method == "notifications/progress" => self
                .numbers(params)
                .map_or(Verdict::Withhold, Verdict::Pass),
            Said::Notification { .. } | Said::Result(..) | Said::Error(..) => Verdict::Withhold,
        })
    }

    /// The record of an exchange that ended in `failure`.
    pub(super) fn failed(&mut self, failure: &Failure) -> pb::ResultFacts {
        match self.governed.take() {
            Some(governed) => governed.failed(failure),
            None => facts_of(failure),
        }
    }

    fn release(&self, governed: Governed, said: &Said<'_>) -> Verdict {
        let (member, Released { json, facts }) = match said {
            Said::Result(_, result) => ("result", governed.release(result)),
            Said::Error(_, error) => ("error", governed.release_error(error)),
            Said::Request { .. } | Said::Notification { .. } => return Verdict::Withhold,
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
        let method = "notifications/progress";
        let message = format!(
            r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"progressToken":{token}{progress}{total}}}}}"#
        );
        is_own.then(|| message.into())
    }
}

impl<'a> Said<'a> {
    fn read(members: &Members<'a>) -> Result<Option<Self>, Ambiguous> {
        let id = members.get("id")?;
        let id = id.filter(|id| id.get() != "null");
        if members.get("method")?.is_some() {
            let Some(method) = members.text("method")? else {
                return Ok(None);
            };
            let params = members.get("params")?;
            return Ok(Some(match id {
                Some(id) => Self::Request { id, method },
                None => Self::Notification { method, params },
            }));
        }
        Ok(match (members.get("result")?, members.get("error")?) {
            (Some(result), None) => Some(Self::Result(id, result)),
            (None, Some(error)) => Some(Self::Error(id, error)),
            _ => None,
        })
    }

    fn is_answer(&self) -> bool {
        matches!(self, Self::Result(..) | Self::Error(..))
    }

    /// Whether it answers the request `id`. An error without an id can only be about the request whose response it
    /// is in.
    fn answers(&self, id: Option<&RawValue>) -> bool {
        match (self, id) {
            (Self::Result(Some(answered), _) | Self::Error(Some(answered), _), Some(id)) => {
                same(answered, id)
            }
            (Self::Error(None, _), Some(_)) => true,
            _ => false,
        }
    }
}

/// Whether two ids or tokens are the same, however they are written.
fn same(one: &RawValue, other: &RawValue) -> bool {
    let value = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
    one.get() == other.get() || value(one) == value(other)
}
