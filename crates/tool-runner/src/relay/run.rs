//! The course of one exchange, read from top to bottom.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http::StatusCode;
use serde::Deserialize;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::Status;
use tracing::{info, warn};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::relay_response::Part;
use wardgate_telemetry::names;

use super::parts::{self, Parts, Slow};
use super::rule::Verdict;
use super::{AdmittedRelay, Course};
use crate::executor_error::ExecutorError;
use crate::failure::{FailedCall, Failure};
use wardgate_mcp_client::{
    Answer, Content, Event, Events, ForwardedResponse, Outbound, UpstreamError,
};
use wardgate_resilience::{GuardError, Health, Turn};

/// How long an exchange without a time limit may wait for its turn.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a person may take to answer what the server asks in the middle of an exchange.
const ANSWER_LIMIT: Duration = Duration::from_mins(10);

/// How long the server may take to hear that it gets no answer.
const DECLINE_LIMIT: Duration = Duration::from_secs(5);

/// The longest event id that goes on, in bytes. A stream cannot be taken up again at an event without one.
const MAX_EVENT_ID: usize = 1024;

/// The longest announcement of a change that is read, in bytes.
const MAX_ANNOUNCEMENT: usize = 4_096;

const OTHER_ERA: &str = "it does not speak the version of this message";

const NO_ANSWER: &str = "it does not answer the request";

/// Why an exchange ended before its time.
enum ExchangeEnd {
    /// The server is at fault, or the limits are reached.
    Failed(GuardError<ExecutorError>),
    /// The governed answer cannot be passed on, and its record is made.
    Refused(Failure, Box<pb::ResultFacts>),
    /// The client does not take what there is.
    Slow,
    /// The server would not understand the message.
    OtherEra,
}

impl From<Slow> for ExchangeEnd {
    fn from(_: Slow) -> Self {
        Self::Slow
    }
}

impl From<UpstreamError> for ExchangeEnd {
    fn from(error: UpstreamError) -> Self {
        Self::Failed(GuardError::Failed(error.into()))
    }
}

/// What goes on of one event.
struct JudgedEvent {
    message: Bytes,
    /// Of the governed answer.
    result: Option<pb::ResultFacts>,
    /// The server waits for the client's answer to it.
    asks: bool,
}

impl JudgedEvent {
    fn message(message: Bytes) -> Self {
        Self {
            message,
            result: None,
            asks: false,
        }
    }
}

impl AdmittedRelay {
    /// Carries it. Dropping the stream ends the exchange with the server.
    pub(crate) fn run(self) -> impl Stream<Item = Result<pb::RelayResponse, Status>> {
        parts::stream(|parts| self.run_to_end(parts))
    }

    async fn run_to_end(self, mut parts: Parts) {
        let Self {
            id,
            caller,
            source,
            guard,
            tool,
            outbound,
            mut course,
            execution: _,
            place: _place,
        } = self;
        info!({ names::CALL_ID } = %id, source, "Relaying to an MCP server");
        parts.limit_to(course.limit);
        let patience = parts
            .deadline()
            .unwrap_or_else(|| Instant::now() + PATIENCE);
        let turn = match &tool {
            Some(tool) => tool.guard().enter(&caller, patience).await,
            None => guard.enter(Some(caller.digest())),
        };
        let outcome = match turn {
            Ok(turn) => course.take(outbound, turn, &mut parts).await,
            Err(error) => Err(ExchangeEnd::Failed(error)),
        };
        let limit = parts.limit();
        let mut uncarried = false;
        let (failure, facts) = match outcome {
            Ok(()) => return,
            Err(ExchangeEnd::OtherEra) => {
                uncarried = true;
                let failure = Failure::new("other_era", OTHER_ERA.to_owned()).unrun();
                let facts = course.rule.failed(&failure);
                (failure, facts)
            }
            Err(ExchangeEnd::Failed(error)) => {
                uncarried = matches!(
                    error,
                    GuardError::Failed(ExecutorError::NotConnected { .. })
                );
                if let GuardError::Failed(error) = &error {
                    // It holds nothing of what was said.
                    warn!({ names::CALL_ID } = %id, source, %error, "an exchange with an MCP server failed");
                }
                let call = FailedCall {
                    limit,
                    source: Some(&source),
                    attempts: 1,
                };
                let failure = Failure::guarded(&error, &call);
                let facts = course.rule.failed(&failure);
                (failure, facts)
            }
            Err(ExchangeEnd::Refused(failure, facts)) => (failure, *facts),
            Err(ExchangeEnd::Slow) => {
                let failure = Failure::timeout(limit);
                let facts = course.rule.failed(&failure);
                (failure, facts)
            }
        };
        let failure = pb::RelayFailure {
            text: failure.text,
            facts: Some(facts),
            uncarried,
        };
        parts.fail(failure).await;
    }
}

impl Course {
    /// Sends what the client sent, and passes on what comes back.
    async fn take(
        &mut self,
        outbound: Outbound,
        mut turn: Turn<'_>,
        parts: &mut Parts,
    ) -> Result<(), ExchangeEnd> {
        let carrying = async {
            if !self.upstream.takes(outbound.version.as_ref()).await? {
                return Ok(None);
            }
            if let Some((name, pin)) = &self.pinned
                && let Some(refusal) = self.upstream.check_carried(name, pin, &outbound).await?
            {
                return Ok(Some(refusal));
            }
            self.upstream.carry(outbound).await.map(Some)
        };
        let carried = match within(parts.deadline(), carrying).await {
            Ok(Some(carried)) => carried,
            Ok(None) => return Err(ExchangeEnd::OtherEra),
            Err(error) => return Err(told(&mut turn, error)),
        };
        let ForwardedResponse {
            status,
            session,
            retry_after,
            answer,
        } = carried;
        let head = |content: pb::RelayContent| {
            Part::Head(pb::RelayHead {
                status: status.as_u16().into(),
                session: session.clone().unwrap_or_default(),
                content: content.into(),
                retry_after: retry_after.clone().unwrap_or_default(),
            })
        };
        match answer {
            Answer::Events(events) => {
                if !self.rule.waits() {
                    // A stream that breaks after hours says little about the server.
                    turn.shows(Health::Up);
                }
                parts.send(head(pb::RelayContent::Events)).await?;
                self.follow(events, turn, parts).await
            }
            Answer::Json(body) => {
                turn.shows(health(status));
                check(status, true)?;
                let Some(body) = self.whole(body, status)? else {
                    parts.send(head(pb::RelayContent::None)).await?;
                    return Ok(());
                };
                parts.send(head(pb::RelayContent::Json)).await?;
                Ok(parts.send(Part::Body(body)).await?)
            }
            Answer::Nothing => {
                turn.shows(health(status));
                check(status, false)?;
                if self.asks && status.is_success() {
                    return Err(UpstreamError::BadResult(NO_ANSWER).into());
                }
                Ok(parts.send(head(pb::RelayContent::None)).await?)
            }
        }
    }

    /// A whole answer; none where it is no message, and its status says enough.
    fn whole(
        &mut self,
        body: Bytes,
        status: StatusCode,
    ) -> Result<Option<pb::RelayBody>, ExchangeEnd> {
        let (message, result) = match self.rule.judge(body) {
            Some(Verdict::Answer(message, facts)) => (message, Some(facts)),
            Some(Verdict::Fail(failure, facts)) => {
                return Err(ExchangeEnd::Refused(failure, Box::new(facts)));
            }
            Some(Verdict::Pass(message)) if !self.rule.wants_its_own() => (message, None),
            _ if self.asks && status.is_success() => {
                return Err(UpstreamError::BadResult(NO_ANSWER).into());
            }
            _ => return Ok(None),
        };
        Ok(Some(pb::RelayBody {
            message,
            result,
            more: 0,
        }))
    }

    /// Passes events on as they come, to the end of the stream.
    async fn follow(
        &mut self,
        mut events: Box<Events>,
        mut turn: Turn<'_>,
        parts: &mut Parts,
    ) -> Result<(), ExchangeEnd> {
        let mut has_id = false;
        loop {
            let event = match within(parts.deadline(), events.next()).await {
                Ok(Some(event)) => event,
                Ok(None) if self.rule.waits() && !(self.is_legacy && has_id) => {
                    let cause = "it ended the stream before the answer".to_owned();
                    return Err(told(&mut turn, UpstreamError::Broken(cause)));
                }
                Ok(None) => {
                    turn.shows(Health::Up);
                    return Ok(());
                }
                Err(error) => return Err(told(&mut turn, error)),
            };
            let Event { id, retry, data } = event;
            let id = id.filter(|id| id.len() <= MAX_EVENT_ID);
            has_id |= id.is_some();
            let JudgedEvent {
                message,
                result,
                asks,
            } = self.judge(data).await?;
            if result.is_some() || asks {
                turn.shows(Health::Up);
            }
            if asks {
                // What a person takes to answer is no time of the server's: it is neither limited by the tool's time
                // limit nor does the wait hold a place among the tool's running calls.
                turn.leave();
                parts.wait_for_answer(ANSWER_LIMIT);
            }
            if id.is_none() && retry.is_none() && message.is_empty() {
                continue;
            }
            let event = pb::RelayEvent {
                id,
                retry_ms: retry,
                message,
                result,
                more: 0,
            };
            parts.send(Part::Event(event)).await?;
        }
    }

    /// What goes on of the data of one event.
    async fn judge(&mut self, data: Vec<u8>) -> Result<JudgedEvent, ExchangeEnd> {
        if announces_changed_tools(&data) {
            self.upstream.tools_changed_for_client();
        }
        Ok(match self.rule.judge(data.into()) {
            Some(Verdict::Pass(message)) => JudgedEvent::message(message),
            Some(Verdict::Ask(message)) => JudgedEvent {
                asks: true,
                ..JudgedEvent::message(message)
            },
            Some(Verdict::Answer(message, facts)) => JudgedEvent {
                result: Some(facts),
                ..JudgedEvent::message(message)
            },
            Some(Verdict::Fail(failure, facts)) => {
                return Err(ExchangeEnd::Refused(failure, Box::new(facts)));
            }
            Some(Verdict::Decline(answer)) => {
                self.decline(answer).await;
                JudgedEvent::message(Bytes::new())
            }
            Some(Verdict::Withhold) | None => JudgedEvent::message(Bytes::new()),
        })
    }

    /// Tells the server that the client was not asked: it would wait for an answer otherwise.
    async fn decline(&self, message: Bytes) {
        let outbound = Outbound {
            content: Content::Post {
                message,
                repeats: None,
            },
            version: self.version.clone(),
            session: self.session.clone(),
            last_event: None,
            params: Vec::new(),
            is_one_way: true,
        };
        // Whether the server takes it is the server's affair.
        let _ = timeout(DECLINE_LIMIT, self.upstream.carry(outbound)).await;
    }
}

/// Whether a message is one that says that the server's tools changed.
fn announces_changed_tools(message: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Notification<'a> {
        #[serde(borrow)]
        method: Cow<'a, str>,
    }
    if message.len() > MAX_ANNOUNCEMENT {
        return false;
    }
    serde_json::from_slice::<Notification<'_>>(message)
        .is_ok_and(|said| said.method == "notifications/tools/list_changed")
}

/// A status that is not for the client: it would take what the server has against this platform, or where it
/// sends it, for its own affair.
fn check(status: StatusCode, has_message: bool) -> Result<(), UpstreamError> {
    let is_own = status.is_redirection()
        || status.is_informational()
        || matches!(status.as_u16(), 401 | 407)
        || status == StatusCode::FORBIDDEN && !has_message;
    if is_own {
        return Err(UpstreamError::Status(status.as_u16()));
    }
    Ok(())
}

/// What a status says of the server.
fn health(status: StatusCode) -> Health {
    if status.is_success() {
        return Health::Up;
    }
    ExecutorError::from(UpstreamError::Status(status.as_u16())).health()
}

/// Notes what an error says of the server.
fn told(turn: &mut Turn<'_>, error: UpstreamError) -> ExchangeEnd {
    let error = ExecutorError::from(error);
    turn.shows(error.health());
    ExchangeEnd::Failed(GuardError::Failed(error))
}

/// Waits for the server, until `deadline` where there is one.
async fn within<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, UpstreamError>>,
) -> Result<T, UpstreamError> {
    match deadline {
        Some(deadline) => timeout_at(deadline, work)
            .await
            .unwrap_or(Err(UpstreamError::Timeout)),
        None => work.await,
    }
}
