//! Tasks that a client follows. Each is polled at the interval that its server asks for, and each change of its state is sent.
//!
//! ```text
//!   taskIds ─▶ TaskHandle, …  ─▶ the next one due ─▶ governed_call (authorized, recorded) ─▶ changed? ─▶ TaskUpdate
//!                    ▲                                        │
//!                    └──── its pollIntervalMs later ──────────┘ until it is over
//! ```
//!
//! The gateway polls all servers, whether or not they send notifications of tasks. It sends only what a `tasks/get` of the same
//! caller would return at that moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use wardgate_domain::Caller;
use wardgate_gateway_store::StoreUnavailable;
use wardgate_mcp::Version;
use wardgate_mcp_server::{JsonRpcRequest, RequestMeta, RpcError, inner, object};
use wardgate_rpc::client::TaskStep;

use super::task_request::{TaskRequest, UNKNOWN};
use super::{NEEDED, TaskMethod, are_declared};
use crate::catalogue::View;
use crate::client_interaction::ClientChannel;
use crate::governed_call::CallPipeline;
use crate::post::Post;
use crate::request_context::RequestContext;
use crate::scopes::TokenAccess;

/// Poll interval of a task whose server specifies none.
const PACE: Duration = Duration::from_secs(5);

/// Bounds of the poll interval, whatever the server specifies.
const FASTEST: Duration = Duration::from_secs(1);
const SLOWEST: Duration = Duration::from_mins(1);

/// Number of updates that are buffered for the stream.
const WAITING: usize = 4;

/// The tasks that one open stream follows.
#[derive(Debug)]
pub(crate) struct FollowedTasks {
    ids: Vec<String>,
    update: mpsc::Receiver<TaskUpdate>,
    _task: AbortOnDropHandle<()>,
}

/// The new state of one task.
#[derive(Debug)]
pub(crate) struct TaskUpdate {
    members: String,
    meta: String,
}

impl FollowedTasks {
    /// Returns the ids of the tasks that are followed.
    pub(crate) fn ids(&self) -> &[String] {
        &self.ids
    }

    /// Returns the next update. Never completes once all tasks are over.
    pub(crate) async fn next(&mut self) -> TaskUpdate {
        match self.update.recv().await {
            Some(update) => update,
            None => std::future::pending().await,
        }
    }
}

impl TaskUpdate {
    /// Returns the members of the MCP `DetailedTask` object.
    pub(crate) fn members(&self) -> &str {
        &self.members
    }

    /// Returns the members of the update's `_meta`: the id of the call that polled the task, and the receipt.
    pub(crate) fn meta(&self) -> &str {
        &self.meta
    }
}

/// Follows those of the tasks `ids` that belong to the caller. Returns `None` if `ids` is empty.
pub(crate) async fn follow(
    pipeline: &Arc<CallPipeline>,
    post: &Post,
    request: &JsonRpcRequest<'_>,
    ids: &[String],
) -> Result<Option<FollowedTasks>, RpcError> {
    if ids.is_empty() {
        return Ok(None);
    }
    let meta = RequestMeta::from_request(request)?;
    if !are_declared(meta.capabilities()) {
        return Err(RpcError::missing_capability(NEEDED));
    }
    let who = TaskFollower::new(pipeline, post, request, &meta)?;
    let task_handles = &pipeline.services().task_handles;
    let mut looks = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(handle) = task_handles.open(post, id) else {
            continue;
        };
        match task_handles.arguments(&handle, &post.caller).await {
            Ok(Some(arguments)) => looks.push(TaskRequest {
                method: TaskMethod(TaskStep::Get),
                handle,
                arguments,
                responses: bytes::Bytes::new(),
                protocol: post.protocol(who.version),
            }),
            Ok(None) => {}
            Err(StoreUnavailable) => return Err(RpcError::store_unavailable()),
        }
    }
    let ids = looks
        .iter()
        .map(|task_request| task_request.handle.sealed.clone())
        .collect();
    let (sender, update) = mpsc::channel(WAITING);
    let task = tokio::spawn(who.look_after(looks, sender));
    Ok(Some(FollowedTasks {
        ids,
        update,
        _task: AbortOnDropHandle::new(task),
    }))
}

/// The client that follows the tasks.
struct TaskFollower {
    pipeline: Arc<CallPipeline>,
    caller: Arc<Caller>,
    access: TokenAccess,
    client_ip: String,
    view: View,
    version: Version,
    capabilities: Option<Arc<str>>,
    /// The JSON-RPC id of the subscription.
    id: Box<RawValue>,
}

/// A task, and the time of its next poll.
struct ScheduledPoll {
    at: Instant,
    task_request: TaskRequest,
    /// The state that was sent last, or `None` if none was sent.
    update: Option<String>,
}

/// The result of one poll.
enum PollResult {
    Stands {
        update: TaskUpdate,
        pace: Duration,
        is_over: bool,
    },
    /// The task is unknown, or the caller may no longer use it.
    Unknown,
    /// The state could not be read. The task is polled again.
    Unseen,
}

impl TaskFollower {
    fn new(
        pipeline: &Arc<CallPipeline>,
        post: &Post,
        request: &JsonRpcRequest<'_>,
        meta: &RequestMeta<'_>,
    ) -> Result<Self, RpcError> {
        Ok(Self {
            pipeline: Arc::clone(pipeline),
            caller: Arc::clone(&post.caller),
            access: post.access.clone(),
            client_ip: post.client_ip.clone(),
            view: post.view.clone(),
            version: meta.version(request, None)?,
            capabilities: meta.capabilities().map(Into::into),
            id: request.id.to_owned(),
        })
    }

    /// Polls the tasks one at a time as they become due, until all are over or the stream is closed.
    async fn look_after(self, looks: Vec<TaskRequest>, sender: mpsc::Sender<TaskUpdate>) {
        let turn = |task_request| ScheduledPoll {
            at: Instant::now(),
            task_request,
            update: None,
        };
        let mut turns: Vec<ScheduledPoll> = looks.into_iter().map(turn).collect();
        while let Some(next) = turns.iter().enumerate().min_by_key(|(_, turn)| turn.at) {
            let (next, at) = (next.0, next.1.at);
            sleep_until(at).await;
            let turn = &mut turns[next];
            match self.task_request(turn.task_request.clone()).await {
                PollResult::Stands {
                    update,
                    pace,
                    is_over,
                } => {
                    if turn.update.as_ref() != Some(&update.members) {
                        turn.update = Some(update.members.clone());
                        if sender.send(update).await.is_err() {
                            return;
                        }
                    }
                    turn.at = Instant::now() + pace;
                    if is_over {
                        turns.swap_remove(next);
                    }
                }
                PollResult::Unknown => {
                    turns.swap_remove(next);
                }
                PollResult::Unseen => turn.at = Instant::now() + PACE,
            }
        }
    }

    async fn task_request(&self, task_request: TaskRequest) -> PollResult {
        let admission = &self.pipeline.services().admission;
        let Ok(slot) = admission.wait_for_slot(&self.caller).await else {
            return PollResult::Unseen;
        };
        let context = RequestContext {
            slot: Some(slot),
            id: self.id.clone(),
            version: self.version,
            caller: Arc::clone(&self.caller),
            client_ip: self.client_ip.clone(),
            view: self.view.clone(),
            access: self.access.clone(),
            limit_report: None,
        };
        let channel = ClientChannel::response_only_with(self.version, self.capabilities.clone());
        let answer = self
            .pipeline
            .run_unrequested(context, channel, task_request)
            .await;
        answer
            .into_text()
            .and_then(|answer| parse_poll_result(&answer))
            .unwrap_or(PollResult::Unseen)
    }
}

/// Parses `answer`, the answer to the `tasks/get` of a poll.
fn parse_poll_result(answer: &str) -> Option<PollResult> {
    #[derive(Deserialize)]
    struct PollAnswer<'a> {
        #[serde(borrow)]
        result: Option<&'a RawValue>,
        error: Option<PollError>,
    }
    #[derive(Deserialize)]
    struct PollError {
        data: Option<PollErrorData>,
    }
    #[derive(Deserialize)]
    struct PollErrorData {
        reason: Option<String>,
    }
    let answer: PollAnswer<'_> = object(answer)?;
    if let Some(refusal) = answer.error {
        let reason = refusal.data?.reason?;
        return (reason == UNKNOWN.as_str()).then_some(PollResult::Unknown);
    }
    // The names are parsed because a server may have written them with escapes.
    let mut members: BTreeMap<String, &RawValue> = object(answer.result?.get())?;
    members.remove("resultType");
    let meta = members.remove("_meta")?;
    let number = |name| members.get(name)?.get().parse().ok();
    let pace = number("pollIntervalMs").map_or(PACE, Duration::from_millis);
    let is_over = matches!(
        members.get("status")?.get(),
        r#""completed""# | r#""failed""# | r#""cancelled""#
    );
    let members = serde_json::to_string(&members).ok()?;
    Some(PollResult::Stands {
        update: TaskUpdate {
            members: inner(&members).to_owned(),
            meta: inner(meta.get()).to_owned(),
        },
        pace: pace.clamp(FASTEST, SLOWEST),
        is_over,
    })
}
