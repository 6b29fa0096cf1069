//! Exchanges with upstream servers, as a tool-runner carries them: each comes to what the test says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use futures::channel::mpsc;
use futures::stream::{self, BoxStream};
use serde_json::Value;
use tonic::Status;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::relay_response::Part;

use super::{Log, failure};

/// What comes of an exchange.
#[derive(Debug)]
pub(crate) enum RelayBehavior {
    /// These parts.
    Give(Vec<Part>),
    /// What the test sends, until it lets go.
    Live(mpsc::UnboundedReceiver<Part>),
    /// These parts, and then the tool-runner is gone.
    Cut(Vec<Part>),
    Fail(ErrorReason),
}

/// The exchanges.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    pub(crate) asked: Log<pb::RelayRequest>,
    /// Those that were hung up on, or came to their end.
    pub(crate) over: Arc<Log<String>>,
    next: Mutex<VecDeque<RelayBehavior>>,
}

/// Notes that nobody wants any more of an exchange.
struct ExchangeDropGuard {
    call_id: String,
    over: Arc<Log<String>>,
}

impl Drop for ExchangeDropGuard {
    fn drop(&mut self) {
        self.over.push(std::mem::take(&mut self.call_id));
    }
}

impl Relays {
    /// What comes of the next ones; later ones are answered with an empty result.
    pub(crate) fn next(&self, carries: impl IntoIterator<Item = RelayBehavior>) {
        self.next.lock().unwrap().extend(carries);
    }

    /// What comes of the next one, as the test sends it.
    pub(crate) fn live(&self) -> mpsc::UnboundedSender<Part> {
        let (sender, parts) = mpsc::unbounded();
        self.next([RelayBehavior::Live(parts)]);
        sender
    }

    pub(super) fn carry(
        &self,
        request: &pb::RelayRequest,
    ) -> Result<BoxStream<'static, Result<pb::RelayResponse, Status>>, Status> {
        let next = self.next.lock().unwrap().pop_front();
        let watched = ExchangeDropGuard {
            call_id: request.call_id.clone(),
            over: Arc::clone(&self.over),
        };
        let passed = |part| Ok(pb::RelayResponse { part: Some(part) });
        let watch = |parts: BoxStream<'static, _>| {
            let parts = stream::unfold((parts, watched), async |(mut parts, watched)| {
                Some((parts.next().await?, (parts, watched)))
            });
            parts.boxed()
        };
        Ok(
            match next.unwrap_or_else(|| RelayBehavior::Give(ordinary(request))) {
                RelayBehavior::Give(parts) => watch(stream::iter(parts).map(passed).boxed()),
                RelayBehavior::Live(parts) => watch(parts.map(passed).boxed()),
                RelayBehavior::Cut(parts) => {
                    let cut = stream::iter([Err(failure(ErrorReason::Internal))]);
                    watch(stream::iter(parts).map(passed).chain(cut).boxed())
                }
                RelayBehavior::Fail(reason) => return Err(failure(reason)),
            },
        )
    }
}

/// Requests are answered; other messages are taken.
fn ordinary(request: &pb::RelayRequest) -> Vec<Part> {
    let message: Value = serde_json::from_slice(&request.message).unwrap_or_default();
    let (Value::Object(message), true) = (&message, message["method"].is_string()) else {
        return nothing(if request.message.is_empty() { 200 } else { 202 });
    };
    let Some(id) = message.get("id") else {
        return nothing(202);
    };
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
    governed(200, &answer)
}

/// The beginning of an answer.
pub(crate) fn head(status: u32, content: pb::RelayContent) -> Part {
    Part::Head(pb::RelayHead {
        status,
        session: String::new(),
        content: content.into(),
        retry_after: String::new(),
    })
}

/// The same, with the upstream's own id of a session.
pub(crate) fn head_of(session: &str, content: pb::RelayContent) -> Part {
    Part::Head(pb::RelayHead {
        status: 200,
        session: session.to_owned(),
        content: content.into(),
        retry_after: String::new(),
    })
}

/// A status and no more.
pub(crate) fn nothing(status: u32) -> Vec<Part> {
    vec![head(status, pb::RelayContent::None)]
}

/// A message that answers no request, as far as anyone can tell.
pub(crate) fn ungoverned(status: u32, message: &str) -> Vec<Part> {
    vec![
        head(status, pb::RelayContent::Json),
        Part::Body(pb::RelayBody {
            message: message.to_owned().into(),
            result: None,
            more: 0,
        }),
    ]
}

/// The answer that the permit governs.
pub(crate) fn governed(status: u32, message: &str) -> Vec<Part> {
    vec![
        head(status, pb::RelayContent::Json),
        Part::Body(pb::RelayBody {
            message: message.to_owned().into(),
            result: Some(facts()),
            more: 0,
        }),
    ]
}

/// An event with the upstream's own id.
pub(crate) fn event(id: &str, message: &str) -> Part {
    Part::Event(pb::RelayEvent {
        id: Some(id.to_owned()),
        message: message.to_owned().into(),
        ..pb::RelayEvent::default()
    })
}

/// The same, with the answer that the permit governs.
pub(crate) fn last_event(id: &str, message: &str) -> Part {
    Part::Event(pb::RelayEvent {
        id: Some(id.to_owned()),
        message: message.to_owned().into(),
        result: Some(facts()),
        ..pb::RelayEvent::default()
    })
}

/// What the record says of an answer.
fn facts() -> pb::ResultFacts {
    pb::ResultFacts {
        status: pb::OutcomeStatus::Ok.into(),
        rows: 2,
        rows_withheld: 1,
        fields_redacted: 3,
        phi: true,
        ..pb::ResultFacts::default()
    }
}
