//! Handles of the upstream's that a client holds between two requests: ids of tasks, states of unfinished requests.
//!
//! To the upstream all callers are the gateway, so a handle alone would get it what was made for another. The client
//! holds each one sealed: a task for its caller, a state for its caller and the very request it belongs to.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_domain::Digest;

use super::Visit;
use super::errand::Subject;
use crate::Gateway;
use crate::edit::{Reply, exchanged};
use crate::mcp::{Request, object, text_of};
use crate::reply::RpcError;
use crate::session::Purpose;

/// Tasks that one stream can be about.
const MAX_LISTENED: usize = 100;

/// Stands for an id of a task that opens for nobody, or not for this caller.
const NOBODYS: &str = "unknown to this caller";

/// What an id of a task stands for.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Task {
    /// The upstream's own id.
    #[serde(rename = "i")]
    pub(super) own: String,
    /// The upstream's own name of the tool that was called.
    #[serde(rename = "n")]
    pub(super) tool: String,
    /// What the client holds: it shall always be told the same.
    #[serde(skip)]
    pub(super) sealed: String,
}

/// A request with the upstream's own handles.
#[derive(Default)]
pub(super) struct Opened {
    /// None where it held none.
    pub(super) message: Option<String>,
    pub(super) tasks: Vec<Task>,
}

/// The members of a request that are handles.
#[derive(Deserialize)]
struct Held<'a> {
    #[serde(borrow, default, rename = "requestState")]
    state: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "taskId")]
    task: Option<&'a RawValue>,
    #[serde(borrow, default)]
    notifications: Option<Followed<'a>>,
}

#[derive(Deserialize)]
struct Followed<'a> {
    #[serde(borrow, default, rename = "taskIds")]
    tasks: Vec<&'a RawValue>,
}

/// Opens what `request`, which was read from `text`, holds.
pub(super) fn opened(
    gateway: &Gateway,
    visit: &Visit,
    request: &Request<'_>,
    subject: &Subject,
    text: &str,
) -> Result<Opened, RpcError> {
    // Each is read: a client may write the names of members as it likes.
    let held = match request.raw_params {
        None => return Ok(Opened::default()),
        Some(params) => object::<Held<'_>>(params.get()),
    };
    let held = held.ok_or_else(|| {
        RpcError::invalid_params("`params.notifications` must be an object, its `taskIds` a list")
    })?;
    let (sealer, caller) = (gateway.sealer(), &visit.caller);
    let mut new = Vec::new();
    if let Some(state) = held.state {
        let within = belonging(visit, &request.method, subject);
        let sealed = text_of(state).unwrap_or_default();
        let own = sealer.open::<String>(Purpose::RequestState, caller, &within, &sealed);
        let own = own.ok_or_else(RpcError::unknown_state)?;
        new.push((state.get(), Value::from(own).to_string()));
    }
    let followed = held.notifications.map(|wanted| wanted.tasks);
    let followed = followed.unwrap_or_default();
    if followed.len() > MAX_LISTENED {
        let most = format!("`taskIds` has at most {MAX_LISTENED} entries");
        return Err(RpcError::invalid_params(most));
    }
    let mut tasks = Vec::new();
    for raw in held.task.into_iter().chain(followed) {
        let sealed = text_of(raw).map(Cow::into_owned).unwrap_or_default();
        match sealer.open::<Task>(Purpose::Task, caller, &visit.source, &sealed) {
            Some(task) => {
                new.push((raw.get(), Value::from(task.own.as_str()).to_string()));
                tasks.push(Task { sealed, ..task });
            }
            // What to say of it depends on more than the id, and the upstream knows.
            None => new.push((raw.get(), Value::from(NOBODYS).to_string())),
        }
    }
    Ok(Opened {
        message: (!new.is_empty()).then(|| exchanged(text, new)),
        tasks,
    })
}

/// `message` of the upstream's, as the client may hold what is in it. None where a handle cannot be handed out.
pub(super) fn sealed<'m>(
    gateway: &Gateway,
    visit: &Visit,
    subject: &Subject,
    tasks: &[Task],
    message: &'m str,
) -> Option<Cow<'m, str>> {
    #[derive(Deserialize)]
    struct Notice<'a> {
        #[serde(borrow)]
        params: &'a RawValue,
    }
    if !may_hold(message) {
        return Some(message.into());
    }
    let result = Reply::read(message).and_then(|reply| reply.result);
    let notice = object::<Notice<'_>>(message).map(|notice| notice.params);
    let Some(given) = result
        .or(notice)
        .and_then(|given| object::<Held<'_>>(given.get()))
    else {
        return Some(message.into());
    };
    let (sealer, caller) = (gateway.sealer(), &visit.caller);
    let mut new = Vec::new();
    if let Some(state) = given.state.filter(|_| result.is_some()) {
        let within = belonging(visit, subject.method()?, subject);
        let own = text_of(state)?;
        let sealed = sealer.seal(Purpose::RequestState, caller, &within, &own)?;
        new.push((state.get(), Value::from(sealed).to_string()));
    }
    if let Some(raw) = given.task {
        let own = text_of(raw)?;
        let known = tasks.iter().find(|task| task.own == own);
        let sealed = match (known, subject) {
            (Some(task), _) => task.sealed.clone(),
            (None, Subject::Tool { name, .. }) => {
                let task = Task {
                    own: own.into_owned(),
                    tool: name.clone(),
                    sealed: String::new(),
                };
                sealer.seal(Purpose::Task, caller, &visit.source, &task)?
            }
            // Whose it is nobody can say.
            (None, _) => return None,
        };
        new.push((raw.get(), Value::from(sealed).to_string()));
    }
    Some(exchanged(message, new).into())
}

/// Most messages hold none, and need not be read for it.
fn may_hold(text: &str) -> bool {
    ["\"taskId", "\"requestState\""]
        .iter()
        .any(|member| text.contains(member))
}

/// What a state belongs to: the source, the method and all that the request is about.
fn belonging(visit: &Visit, method: &str, subject: &Subject) -> String {
    let (which, arguments) = match subject {
        Subject::Tool { name, arguments } | Subject::Prompt { name, arguments } => {
            (name.as_str(), arguments.as_ref())
        }
        Subject::Resource { uri } => (uri.as_str(), b"".as_slice()),
        _ => ("", b"".as_slice()),
    };
    let digest = Digest::of(arguments);
    format!("{} {method} {digest} {which}", visit.source)
}

impl Subject {
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
