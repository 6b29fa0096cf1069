//! Handles of an upstream that a client holds between two requests: task ids, and states of unfinished requests.
//!
//! To the upstream all callers are the gateway, so a handle alone would get it what was made for another. The client
//! holds each one sealed: a task for its caller, a state for its caller and the very request it belongs to, once.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_domain::{Digest, Status};
use wardgate_json::replace_parts;
use wardgate_mcp::meta::RELATED_TASK;

use super::RouteRequest;
use super::upstream_request::RequestSubject;
use crate::Gateway;
use crate::edit::ResponseResult;
use crate::mcp::{Request, object, text_of};
use crate::rpc_error::RpcError;
use crate::session::Purpose;
use crate::stored_arguments::StoredArguments;

/// Tasks that one stream can be about.
const MAX_LISTENED: usize = 100;

/// Stands for an id of a task that opens for nobody, or not for this caller.
const NOBODYS: &str = "unknown to this caller";

/// The content of a sealed task id.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct UpstreamTask {
    /// The upstream's own id.
    #[serde(rename = "i")]
    pub(super) own: String,
    /// The upstream's own name of the tool that was called.
    #[serde(rename = "n")]
    pub(super) tool: String,
    /// The arguments of the call, if they are short: requests about the task are decided on them.
    #[serde(rename = "g", default, skip_serializing_if = "Option::is_none")]
    pub(super) asked: Option<StoredArguments>,
    /// The sealed id, which stays the same for the client.
    #[serde(skip)]
    pub(super) sealed: String,
}

/// A request with the upstream's own handles in place of the sealed ones.
#[derive(Default)]
pub(super) struct OpenedHandles {
    /// The rewritten message. None if it held no handles.
    pub(super) message: Option<String>,
    pub(super) tasks: Vec<UpstreamTask>,
    pub(super) used: Option<UsedState>,
}

/// The id of a `requestState` in a request. It is used once, since a second use could repeat what was done.
pub(super) struct UsedState([u8; 16]);

impl UsedState {
    fn new(sealed: &str) -> Self {
        let mut id = [0; 16];
        let digest = Digest::of(sealed.as_bytes());
        id.copy_from_slice(&digest.as_bytes()[..16]);
        Self(id)
    }

    /// Uses the state up, or fails if it was used before.
    pub(super) async fn use_up(
        &self,
        gateway: &Gateway,
    ) -> Result<(), (Status, &'static str, RpcError)> {
        let until = gateway.ambient().now().plus(Purpose::RequestState.lasts());
        match gateway.store().use_id_once(self.0, until).await {
            Ok(true) => Ok(()),
            Ok(false) => Err((
                Status::InvalidArguments,
                "used_state",
                RpcError::unknown_state(),
            )),
            Err(_) => {
                let why =
                    "It cannot be made sure now that this goes on only once. Try again later.";
                let kind = "store_unavailable";
                Err((Status::Error, kind, RpcError::internal(kind, why)))
            }
        }
    }
}

/// The reason for which a message of the upstream is not passed on.
pub(super) enum HandleError {
    /// The client does not need the message.
    Withheld,
    /// A handle in the message cannot be sealed.
    Misfit,
}

/// The members of a message of the upstream's, or of an answer to one, that are handles.
#[derive(Deserialize)]
struct HandleMembers<'a> {
    #[serde(borrow, default, rename = "requestState")]
    state: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "taskId")]
    id: Option<&'a RawValue>,
    /// A task that begins, before 2026-07-28.
    #[serde(borrow, default)]
    task: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl<'a> HandleMembers<'a> {
    /// The task that it belongs to, before 2026-07-28.
    fn related(&self) -> Option<&'a RawValue> {
        let meta: BTreeMap<String, &RawValue> = object(self.meta?.get())?;
        task_of(meta.get(RELATED_TASK)?)
    }
}

fn task_of(task: &RawValue) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct TaskMember<'a> {
        #[serde(borrow, rename = "taskId")]
        id: &'a RawValue,
    }
    object::<TaskMember<'_>>(task.get()).map(|task| task.id)
}

#[derive(Deserialize)]
struct FollowedTaskIds<'a> {
    #[serde(borrow, default, rename = "taskIds")]
    tasks: Vec<&'a RawValue>,
}

/// Opens what `request`, which was read from `text`, holds.
pub(super) fn open_handles(
    gateway: &Gateway,
    route_request: &RouteRequest,
    request: &Request<'_>,
    subject: &RequestSubject,
    text: &str,
) -> Result<OpenedHandles, RpcError> {
    let params = &request.params;
    let followed: Option<FollowedTaskIds<'_>> = match params.notifications {
        None => None,
        Some(wanted) => Some(object(wanted.get()).ok_or_else(|| {
            let why = "`params.notifications` must be an object, its `taskIds` a list";
            RpcError::invalid_params(why)
        })?),
    };
    let (sealer, caller) = (gateway.sealer(), &route_request.caller);
    let mut new = Vec::new();
    let mut used = None;
    if let Some(state) = params.request_state {
        let within = seal_context(route_request, &request.method, subject);
        let sealed = text_of(state).unwrap_or_default();
        let own = sealer.open::<String>(Purpose::RequestState, caller, &within, &sealed);
        let own = own.ok_or_else(RpcError::unknown_state)?;
        used = Some(UsedState::new(&sealed));
        new.push((state.get(), Value::from(own).to_string()));
    }
    let followed = followed.map(|wanted| wanted.tasks).unwrap_or_default();
    if followed.len() > MAX_LISTENED {
        let most = format!("`taskIds` has at most {MAX_LISTENED} entries");
        return Err(RpcError::invalid_params(most));
    }
    let mut tasks = Vec::new();
    for raw in params.task_id.into_iter().chain(followed) {
        let sealed = text_of(raw).map(Cow::into_owned).unwrap_or_default();
        match sealer.open::<UpstreamTask>(Purpose::Task, caller, &route_request.source, &sealed) {
            Some(task) => {
                new.push((raw.get(), Value::from(task.own.as_str()).to_string()));
                tasks.push(UpstreamTask { sealed, ..task });
            }
            // What to say of it depends on more than the id, and the upstream knows.
            None => new.push((raw.get(), Value::from(NOBODYS).to_string())),
        }
    }
    Ok(OpenedHandles {
        message: (!new.is_empty()).then(|| replace_parts(text, new)),
        tasks,
        used,
    })
}

/// `text`, an answer or a notice of the client's, with the upstream's own id of the task it belongs to; none where it
/// belongs to none of the upstream's. Of tasks of its own the client says what it likes.
pub(super) fn open_related_task(
    gateway: &Gateway,
    route_request: &RouteRequest,
    text: &str,
) -> Option<String> {
    #[derive(Deserialize)]
    struct MessageMembers<'a> {
        #[serde(borrow)]
        result: Option<&'a RawValue>,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    let said: MessageMembers<'_> = object(text)?;
    let given: HandleMembers<'_> = object(said.result.or(said.params)?.get())?;
    let related = given.related()?;
    let sealed = text_of(related)?;
    let caller = &route_request.caller;
    let task: UpstreamTask =
        gateway
            .sealer()
            .open(Purpose::Task, caller, &route_request.source, &sealed)?;
    let own = Value::from(task.own).to_string();
    Some(replace_parts(text, vec![(related.get(), own)]))
}

/// What an upstream says of itself, without the list of tasks: to it all callers are the gateway, and the list would
/// hold everybody's.
pub(super) fn without_list(message: String) -> String {
    #[derive(Deserialize)]
    struct InitializeResult<'a> {
        #[serde(borrow)]
        capabilities: TaskCapabilities<'a>,
    }
    #[derive(Deserialize)]
    struct TaskCapabilities<'a> {
        #[serde(borrow)]
        tasks: &'a RawValue,
    }
    let result = ResponseResult::parse(&message).and_then(|reply| reply.result);
    let server = result.and_then(|result| object::<InitializeResult<'_>>(result.get()));
    let Some(tasks) = server.map(|server| server.capabilities.tasks) else {
        return message;
    };
    let members: Option<BTreeMap<String, &RawValue>> = object(tasks.get());
    let Some(mut members) = members.filter(|members| members.contains_key("list")) else {
        return message;
    };
    members.remove("list");
    match serde_json::to_string(&members) {
        Ok(kept) => replace_parts(&message, vec![(tasks.get(), kept)]),
        Err(_) => message,
    }
}

/// `message` of the upstream's, as the client may hold what is in it.
pub(super) fn seal_handles(
    gateway: &Gateway,
    route_request: &RouteRequest,
    subject: &RequestSubject,
    tasks: &[UpstreamTask],
    message: String,
) -> Result<String, HandleError> {
    #[derive(Deserialize)]
    struct MessageMembers<'a> {
        #[serde(borrow, default)]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        params: &'a RawValue,
    }
    if !may_hold(&message) {
        return Ok(message);
    }
    let result = ResponseResult::parse(&message).and_then(|reply| reply.result);
    let said = object::<MessageMembers<'_>>(&message);
    let given = result.or(said.as_ref().map(|said| said.params));
    let Some(given) = given.and_then(|given| object::<HandleMembers<'_>>(given.get())) else {
        return Ok(message);
    };
    // What it asks of its client is about tasks of the client's own.
    let is_request = result.is_none() && said.is_some_and(|said| said.id.is_some());
    let (sealer, caller) = (gateway.sealer(), &route_request.caller);
    let known = |raw: &RawValue| {
        let own = text_of(raw)?;
        tasks.iter().find(|task| task.own == own)
    };
    let mut new = Vec::new();
    if let Some(state) = given.state.filter(|_| result.is_some()) {
        let sealed = subject
            .method()
            .zip(text_of(state))
            .and_then(|(method, own)| {
                let within = seal_context(route_request, method, subject);
                sealer.seal(Purpose::RequestState, caller, &within, &own)
            });
        let sealed = sealed.ok_or(HandleError::Misfit)?;
        new.push((state.get(), Value::from(sealed).to_string()));
    }
    let begun = given.task.filter(|_| result.is_some()).and_then(task_of);
    for raw in given.id.filter(|_| !is_request).into_iter().chain(begun) {
        let sealed = match (known(raw), subject) {
            (Some(task), _) => Some(task.sealed.clone()),
            (None, RequestSubject::Tool { name, arguments }) if result.is_some() => text_of(raw)
                .and_then(|own| {
                    let task = UpstreamTask {
                        own: own.into_owned(),
                        tool: name.clone(),
                        asked: StoredArguments::inline(arguments),
                        sealed: String::new(),
                    };
                    sealer.seal(Purpose::Task, caller, &route_request.source, &task)
                }),
            (None, _) => None,
        };
        match sealed {
            Some(sealed) => new.push((raw.get(), Value::from(sealed).to_string())),
            None if result.is_some() => return Err(HandleError::Misfit),
            // Its client knows the task by another id, and how it stands from asking.
            None => return Err(HandleError::Withheld),
        }
    }
    if let Some(raw) = given.related()
        && let Some(task) = known(raw)
    {
        new.push((raw.get(), Value::from(&*task.sealed).to_string()));
    }
    Ok(if new.is_empty() {
        message
    } else {
        replace_parts(&message, new)
    })
}

/// Most messages hold none, and need not be read for it.
fn may_hold(text: &str) -> bool {
    ["\"taskId", "\"requestState\""]
        .iter()
        .any(|member| text.contains(member))
}

/// What a state belongs to: the source, the method and all that the request is about.
fn seal_context(route_request: &RouteRequest, method: &str, subject: &RequestSubject) -> String {
    let (which, arguments) = match subject {
        RequestSubject::Tool { name, arguments } | RequestSubject::Prompt { name, arguments } => {
            (name.as_str(), arguments.as_ref())
        }
        RequestSubject::Resource { uri } => (uri.as_str(), b"".as_slice()),
        _ => ("", b"".as_slice()),
    };
    let digest = Digest::of(arguments);
    format!("{} {method} {digest} {which}", route_request.source)
}

impl RequestSubject {
    /// Of the requests that an upstream can leave unfinished.
    fn method(&self) -> Option<&'static str> {
        match self {
            Self::Tool { .. } => Some("tools/call"),
            Self::Resource { .. } => Some("resources/read"),
            Self::Prompt { .. } => Some("prompts/get"),
            _ => None,
        }
    }
}
