//! What of the server's messages goes on to the client.
//!
//! ```text
//!   all that can come is clear:   every message as it is
//!   something is not:             answers: the governed one, redacted; with the right to the server alone, as they are
//!                                 the rest: what is said without words, such as progress in numbers, written anew
//! ```
//!
//! The rest matters even to those who only listen: a legacy server may tell there what it logs about a call.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_domain::OfferKind;
use wardgate_json::{Ambiguous, MessageMembers};
use wardgate_mcp::meta;
use wardgate_proto::toolrunner::v1 as pb;

use super::governed::{AnswerKind, GovernedRequest, ReleasedAnswer, facts_of};
use super::message::parse_members;
use crate::failure::Failure;
use wardgate_mcp_client::own_answer;

const UNREADABLE: &str = "the server's answer cannot be read";

/// Asks whether the other side is there. Clients answer it without a person.
const PING: &str = "ping";

const PROGRESS: &str = "notifications/progress";

/// Where a message on a stream of changes says which stream that is.
const SUBSCRIPTION: &str = meta::SUBSCRIPTION_ID;

/// Says that the user has done what they were sent elsewhere for.
const COMPLETED: &str = "notifications/elicitation/complete";

/// The longest id of an elicitation that goes on where words do not, in bytes.
const MAX_ELICITATION_ID: usize = 64;

/// What becomes of a message.
pub(super) enum Verdict {
    /// It goes on as it is.
    Pass(Bytes),
    /// It goes on, and the server waits for what the client or the person answers.
    Ask(Bytes),
    /// It is the answer to the request, or stands in its place.
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
    governed: Option<GovernedRequest>,
    is_restricted: bool,
    is_connect: bool,
    /// The id of the request that is to be answered, as its client wrote it.
    id: Option<Box<RawValue>>,
    /// What its progress is reported under.
    progress_token: Option<Box<RawValue>>,
    /// Answers may come at all. A client that listens gets none, and where a stream is taken up again they are to one
    /// request.
    takes_answers: bool,
}

/// What a server says.
enum ServerMessageKind<'a> {
    Request {
        id: &'a RawValue,
        method: String,
    },
    Notification {
        method: String,
    },
    Answer {
        id: Option<&'a RawValue>,
        answered: AnswerKind,
    },
}

impl Rule {
    pub(super) fn new(
        governed: GovernedRequest,
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

    /// Whether the answer to the request is still to come.
    pub(super) fn waits(&self) -> bool {
        self.id.is_some() && self.governed.is_some()
    }

    /// Whether nothing but that answer will do.
    pub(super) fn wants_its_own(&self) -> bool {
        self.waits() && !self.is_connect
    }

    /// What becomes of `message`; none if it is no message.
    pub(super) fn judge(&mut self, message: Bytes) -> Option<Verdict> {
        let members = parse_members(std::str::from_utf8(&message).ok()?)?;
        let said = ServerMessageKind::read(&members).ok().flatten()?;
        Some(match said {
            ServerMessageKind::Answer { .. } if !self.takes_answers => Verdict::Withhold,
            ServerMessageKind::Answer { id, answered } => {
                let is_own = answers(id, answered, self.id.as_deref());
                self.answer(message, is_own, answered)
            }
            ServerMessageKind::Request { method, .. } if !self.is_restricted && method != PING => {
                Verdict::Ask(message)
            }
            _ if !self.is_restricted => Verdict::Pass(message),
            ServerMessageKind::Request { id, method } if method == PING => {
                Verdict::Pass(without_words(Some(id), &method, &members))
            }
            ServerMessageKind::Request { id, method } if is_wordless(&method) => {
                Verdict::Ask(without_words(Some(id), &method, &members))
            }
            ServerMessageKind::Request { id, method } => {
                Verdict::Decline(own_answer(id, &method).ok()?.into())
            }
            ServerMessageKind::Notification { method } if is_wordless(&method) => {
                Verdict::Pass(without_words(None, &method, &members))
            }
            ServerMessageKind::Notification { method } if method == PROGRESS => self
                .numbers(&members)
                .map_or(Verdict::Withhold, Verdict::Pass),
            ServerMessageKind::Notification { .. } => Verdict::Withhold,
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

    fn answer(&mut self, message: Bytes, is_own: bool, answered: AnswerKind) -> Verdict {
        match self.governed.take_if(|_| is_own) {
            Some(governed) if self.is_governed() => self.release(governed, &message),
            Some(governed) => Verdict::Answer(message, governed.passed(answered)),
            // The record knows of one answer.
            None if !self.is_connect => Verdict::Withhold,
            None => Verdict::Pass(message),
        }
    }

    fn release(&self, governed: GovernedRequest, message: &[u8]) -> Verdict {
        #[derive(Deserialize)]
        struct Parts<'a> {
            #[serde(borrow)]
            result: Option<&'a RawValue>,
            #[serde(borrow)]
            error: Option<&'a RawValue>,
        }
        let parts = serde_json::from_slice::<Parts<'_>>(message).ok();
        let (member, ReleasedAnswer { json, facts }) = match parts {
            Some(Parts {
                result: Some(result),
                ..
            }) => ("result", governed.release(result)),
            Some(Parts {
                error: Some(error), ..
            }) => ("error", governed.release_error(error)),
            _ => {
                let failure = Failure::new("bad_result", UNREADABLE.to_owned());
                let facts = governed.failed(&failure);
                return Verdict::Fail(failure, facts);
            }
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
    fn numbers(&self, message: &MessageMembers<'_>) -> Option<Bytes> {
        let params = message.object("params").ok()??;
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

impl<'a> ServerMessageKind<'a> {
    fn read(members: &MessageMembers<'a>) -> Result<Option<Self>, Ambiguous> {
        let id = members.get("id")?;
        let id = id.filter(|id| id.get() != "null");
        let (result, error) = (members.has("result")?, members.has("error")?);
        if members.has("method")? {
            // What is an answer too would be taken for one by some.
            let method = members.text("method")?;
            let Some(method) = method.filter(|_| !result && !error) else {
                return Ok(None);
            };
            return Ok(Some(match id {
                Some(id) => Self::Request { id, method },
                None => Self::Notification { method },
            }));
        }
        let answered = match (result, error) {
            (true, false) => {
                let result = members.object("result")?;
                let is_error = result.and_then(|result| result.get("isError").ok()?);
                let is_error = is_error.is_some_and(|is_error| is_error.get() == "true");
                AnswerKind::Result { is_error }
            }
            (false, true) => AnswerKind::Error,
            _ => return Ok(None),
        };
        Ok(Some(Self::Answer { id, answered }))
    }
}

/// Whether an answer to `id` is one to the request `asked`. An error without an id can only be about the request
/// whose response it is in.
fn answers(id: Option<&RawValue>, answered: AnswerKind, asked: Option<&RawValue>) -> bool {
    match (id, asked) {
        (Some(id), Some(asked)) => same(id, asked),
        (None, Some(_)) => matches!(answered, AnswerKind::Error),
        (_, None) => false,
    }
}

/// Whether such a message says no more than that something is wanted, or has changed.
fn is_wordless(method: &str) -> bool {
    matches!(
        method,
        PING | "roots/list"
            | "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/resources/updated"
            | "notifications/subscriptions/acknowledged"
            | COMPLETED
    )
}

/// Whether a text is an id and no words.
fn is_id(text: &str) -> bool {
    let is_of_id = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= MAX_ELICITATION_ID && text.bytes().all(is_of_id)
}

/// Such a message with nothing but what makes it one.
fn without_words(id: Option<&RawValue>, method: &str, message: &MessageMembers<'_>) -> Bytes {
    let params = message.object("params").ok().flatten();
    let mut kept = Vec::new();
    if let Some(params) = params {
        let uri = params.text("uri").ok().flatten();
        if let Some(uri) = uri.filter(|_| method == "notifications/resources/updated") {
            kept.push(format!(r#""uri":{}"#, Value::from(uri)));
        }
        let elicitation = params.text("elicitationId").ok().flatten();
        if let Some(id) = elicitation.filter(|id| method == COMPLETED && is_id(id)) {
            kept.push(format!(r#""elicitationId":"{id}""#));
        }
        if let Some(wanted) = params.object("notifications").ok().flatten() {
            kept.push(format!(r#""notifications":{{{}}}"#, acknowledged(wanted)));
        }
        let stream = params.object("_meta").ok().flatten();
        let stream = stream.and_then(|meta| meta.get(SUBSCRIPTION).ok()?);
        if let Some(stream) = stream.filter(|id| !id.get().starts_with(['{', '['])) {
            kept.push(format!(r#""_meta":{{"{SUBSCRIPTION}":{stream}}}"#));
        }
    }
    let id = id.map_or_else(String::new, |id| format!(r#""id":{id},"#));
    let params = match &*kept {
        [] => String::new(),
        kept => format!(r#","params":{{{}}}"#, kept.join(",")),
    };
    format!(r#"{{"jsonrpc":"2.0",{id}"method":"{method}"{params}}}"#).into()
}

/// Of which changes a server says that it will tell.
fn acknowledged(wanted: &MessageMembers<'_>) -> String {
    let is_it = |name| {
        wanted
            .get(name)
            .ok()
            .flatten()
            .filter(|it| it.get() == "true")
    };
    let mut kept: Vec<String> = [
        "toolsListChanged",
        "promptsListChanged",
        "resourcesListChanged",
    ]
    .into_iter()
    .filter(|name| is_it(name).is_some())
    .map(|name| format!(r#""{name}":true"#))
    .collect();
    for name in ["resourceSubscriptions", "taskIds"] {
        let texts = wanted.get(name).ok().flatten();
        let texts = texts.and_then(|texts| serde_json::from_str::<Vec<String>>(texts.get()).ok());
        if let Some(texts) = texts {
            kept.push(format!(r#""{name}":{}"#, Value::from(texts)));
        }
    }
    kept.join(",")
}

/// Whether two ids or tokens are the same, however they are written.
fn same(one: &RawValue, other: &RawValue) -> bool {
    let value = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
    one.get() == other.get() || value(one) == value(other)
}
