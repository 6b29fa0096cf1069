//! The request that a client makes of an upstream, with the sealed ids in it opened.

use std::borrow::Cow;

use axum::http::HeaderMap;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wardgate_domain::AgentRefusal;
use wardgate_json::scan;
use wardgate_mcp::Version;
use wardgate_mcp::header::{LAST_EVENT_ID, PARAM_PREFIX, SESSION_ID};
use wardgate_rpc::client::Exchange;

use super::handles::{self, UpstreamTask, UsedState};
use super::{HttpVerb, RouteRequest};
use crate::Gateway;
use crate::mcp::{Message, Meta, Request, named_version, object, text_of};
use crate::rpc_error::RpcError;
use crate::session::Purpose;
use crate::stored_arguments::StoredArguments;

/// One request to an upstream.
pub(super) struct UpstreamRequest {
    pub(super) exchange: Exchange,
    /// The JSON-RPC id, as the client wrote it. None for notifications, responses, GET and DELETE.
    pub(super) id: Option<Box<RawValue>>,
    /// The JSON-RPC method.
    pub(super) method: String,
    /// The protocol version that it names. None for `initialize`, and for the oldest clients.
    pub(super) version: Option<Version>,
    pub(super) session: Option<UpstreamSession>,
    /// The position from which a broken stream is resumed.
    pub(super) resumes: Option<StreamPosition>,
    pub(super) subject: RequestSubject,
    /// The tasks it is about.
    pub(super) tasks: Vec<UpstreamTask>,
    /// The `requestState` in it, which may be used once.
    pub(super) used: Option<UsedState>,
    /// Whether it is part of a batch, whose stream cannot be resumed.
    pub(super) is_of_batch: bool,
    /// The headers that mirror arguments, which the upstream compares.
    pub(super) mirrored_headers: Vec<(String, String)>,
}

/// A session of a legacy client.
pub(super) struct UpstreamSession {
    /// What the client holds.
    pub(super) sealed: String,
    /// The upstream's own id.
    pub(super) own: String,
}

/// A position in a stream of the upstream.
#[derive(Serialize, Deserialize)]
pub(super) struct StreamPosition {
    /// The upstream's own id of the event.
    #[serde(rename = "e")]
    pub(super) event: String,
    /// The request whose answer is outstanding on this stream.
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    pub(super) awaited: Option<AwaitedResponse>,
}

/// A request whose answer is outstanding. Only a caller who may make it gets the answer.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct AwaitedResponse {
    #[serde(rename = "i")]
    pub(super) id: String,
    #[serde(rename = "m", default)]
    pub(super) method: String,
    #[serde(rename = "s")]
    pub(super) subject: RequestSubject,
    /// The arguments of a tool call, which the resumed answer is decided on.
    #[serde(rename = "g", default, skip_serializing_if = "Option::is_none")]
    pub(super) asked: Option<StoredArguments>,
}

/// The subject of a request, which determines the right that it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RequestSubject {
    /// A call of a tool, by the upstream's own name.
    Tool {
        name: String,
        /// The arguments; they are stored apart, as [`StoredArguments`].
        #[serde(skip, default = "no_arguments")]
        arguments: Bytes,
    },
    /// One resource, or a template of some.
    Resource { uri: String },
    Prompt {
        name: String,
        #[serde(skip)]
        arguments: Bytes,
    },
    /// A task that a call of a tool began.
    Task { tool: String },
    /// Each entry of the result is shown to whom it concerns.
    List(ListKind),
    /// A stream of changes, among them of these resources.
    Listen { uris: Vec<String> },
    /// The session, or whatever else needs no right of its own.
    Route,
    /// A method that MCP does not know.
    Foreign,
}

/// A list method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ListKind {
    Tools,
    Resources,
    Templates,
    Prompts,
}

pub(super) fn no_arguments() -> Bytes {
    Bytes::from_static(b"{}")
}

/// The error, and the id for the answer if there is one.
type UnreadableRequest = (Option<Box<RawValue>>, RpcError);

impl UpstreamRequest {
    pub(super) fn from_route_request(
        gateway: &Gateway,
        route_request: &RouteRequest,
    ) -> Result<Self, UnreadableRequest> {
        match &route_request.verb {
            HttpVerb::Post(body) => post(gateway, route_request, body),
            HttpVerb::Get => without_message(gateway, route_request, Exchange::Get).map_err(no_id),
            HttpVerb::Delete => {
                without_message(gateway, route_request, Exchange::Delete).map_err(no_id)
            }
        }
    }

    /// The request whose answer is to come: this one, or the one on whose stream it goes on.
    pub(super) fn awaited(&self) -> Option<AwaitedResponse> {
        if let Some(place) = &self.resumes {
            return place.awaited.clone();
        }
        Some(AwaitedResponse {
            id: self.id.as_ref()?.get().to_owned(),
            method: self.method.clone(),
            subject: self.subject.clone(),
            asked: match &self.subject {
                RequestSubject::Tool { arguments, .. } => StoredArguments::inline(arguments),
                _ => None,
            },
        })
    }

    /// The version that answers are written in.
    pub(super) fn spoken(&self) -> Version {
        spoken(self.version)
    }

    pub(super) fn is_modern(&self) -> bool {
        self.version.is_some_and(Version::is_modern)
    }

    /// Nobody waits long for it: an answer to what the server asks, a notification, the end of a session, a ping.
    pub(super) fn is_prompt(&self) -> bool {
        match self.exchange {
            Exchange::Post(_) => self.id.is_none() || self.method == "ping",
            Exchange::Delete => true,
            Exchange::Get => false,
        }
    }

    /// It stays open until somebody ends it.
    pub(super) fn is_open_ended(&self) -> bool {
        matches!(self.exchange, Exchange::Get)
            || matches!(self.subject, RequestSubject::Listen { .. })
    }
}

/// A client that names none is of those that agree on one with the upstream.
fn spoken(version: Option<Version>) -> Version {
    version.unwrap_or(Version::NEWEST_LEGACY)
}

fn no_id(error: RpcError) -> UnreadableRequest {
    (None, error)
}

fn post(
    gateway: &Gateway,
    route_request: &RouteRequest,
    body: &Bytes,
) -> Result<UpstreamRequest, UnreadableRequest> {
    let text = scan(body, gateway.limits().depth)
        .map_err(|error| no_id(RpcError::parse(error.reason(), error.to_string())))?;
    let message = Message::parse(text).map_err(|(id, error)| (id.map(ToOwned::to_owned), error))?;
    let mut upstream_request = UpstreamRequest {
        exchange: Exchange::Post(body.clone()),
        id: None,
        method: String::new(),
        version: None,
        session: None,
        resumes: None,
        subject: RequestSubject::Route,
        tasks: Vec::new(),
        used: None,
        is_of_batch: false,
        mirrored_headers: mirrored_headers(&route_request.headers),
    };
    match message {
        Message::Request(request) => {
            let id = request.id.to_owned();
            let read = of_request(gateway, route_request, &request, body);
            let refused = |error| (Some(id.clone()), error);
            let (version, session, subject) = read.map_err(refused)?;
            let held = handles::open_handles(gateway, route_request, &request, &subject, text);
            let handles::OpenedHandles {
                message,
                tasks,
                used,
            } = held.map_err(refused)?;
            if let Some(message) = message {
                upstream_request.exchange = Exchange::Post(message.into());
            }
            upstream_request.subject = match (subject, tasks.first()) {
                (RequestSubject::Route, Some(task)) => RequestSubject::Task {
                    tool: task.tool.clone(),
                },
                (subject, _) => subject,
            };
            upstream_request.used = used;
            upstream_request.id = Some(id);
            upstream_request.method = request.method.into_owned();
            upstream_request.version = version;
            upstream_request.session = session;
            upstream_request.tasks = tasks;
        }
        Message::Notification if !is_notice(text) => {
            let why = "`id` is missing: of messages without one only `notifications/` are taken";
            return Err(no_id(RpcError::invalid_request(why)));
        }
        Message::Notification | Message::Response(_) => {
            if let Some(message) = handles::open_related_task(gateway, route_request, text) {
                upstream_request.exchange = Exchange::Post(message.into());
            }
            upstream_request.version = named_version(&route_request.headers).map_err(no_id)?;
            upstream_request.session =
                session(gateway, route_request, upstream_request.version).map_err(no_id)?;
        }
    }
    Ok(upstream_request)
}

/// Whether a message without id is one that MCP has without. Some servers run any other as if it had one, and nobody
/// would have decided on it.
fn is_notice(text: &str) -> bool {
    #[derive(Deserialize)]
    struct NotificationMethod<'a> {
        #[serde(borrow)]
        method: Cow<'a, str>,
    }
    object::<NotificationMethod<'_>>(text)
        .is_some_and(|notice| notice.method.starts_with("notifications/"))
}

type ParsedRequest = (Option<Version>, Option<UpstreamSession>, RequestSubject);

fn of_request(
    gateway: &Gateway,
    route_request: &RouteRequest,
    request: &Request<'_>,
    body: &Bytes,
) -> Result<ParsedRequest, RpcError> {
    let meta = Meta::from_request(request)?;
    if meta.agent_refusal()?.is_some() {
        let why = format!("`_meta` {} is taken on /mcp alone", AgentRefusal::META);
        return Err(RpcError::invalid_params(why));
    }
    let version = match meta.if_modern() {
        Some(meta) => Some(meta.version(request, Some(&route_request.headers))?),
        None if request.method == "initialize" => None,
        None => match named_version(&route_request.headers)? {
            Some(version) if version.is_modern() => {
                return Err(RpcError::without_meta(version));
            }
            version => version,
        },
    };
    let spoken = spoken(version);
    if is_missing(&request.method, spoken) {
        return Err(RpcError::unknown_method(&request.method, spoken));
    }
    if request.params.task.is_some() && spoken < Version::NEWEST_LEGACY {
        let why = format!("{spoken} has no tasks; call without `task`");
        return Err(RpcError::invalid_params(why));
    }
    let subject = subject(request, body)?;
    // It begins one.
    let session = match &*request.method {
        "initialize" => None,
        _ => session(gateway, route_request, version)?,
    };
    Ok((version, session, subject))
}

/// Which methods there are not on this route. Of others that a version has not the upstream says so itself.
fn is_missing(method: &str, version: Version) -> bool {
    match method {
        "resources/subscribe" | "resources/unsubscribe" => version.is_modern(),
        // To the upstream all callers are the gateway: these would be everybody's.
        "tasks/list" => true,
        "tasks/get" | "tasks/result" | "tasks/cancel" => version < Version::NEWEST_LEGACY,
        _ => false,
    }
}

fn subject(request: &Request<'_>, body: &Bytes) -> Result<RequestSubject, RpcError> {
    let text = |member: Option<&RawValue>, name| {
        member
            .and_then(text_of)
            .map(Cow::into_owned)
            .ok_or_else(|| RpcError::invalid_params(format!("`params.{name}` must be a string")))
    };
    let params = &request.params;
    Ok(match &*request.method {
        "tools/call" => RequestSubject::Tool {
            name: text(params.name, "name")?,
            arguments: match params.arguments {
                None => no_arguments(),
                Some(raw) if raw.get().starts_with('{') => body.slice_ref(raw.get().as_bytes()),
                Some(_) => {
                    let why = "`params.arguments` must be an object";
                    return Err(RpcError::invalid_params(why));
                }
            },
        },
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
            RequestSubject::Resource {
                uri: text(params.uri, "uri")?,
            }
        }
        "prompts/get" => RequestSubject::Prompt {
            name: text(params.name, "name")?,
            arguments: params
                .arguments
                .map_or_else(Bytes::new, |raw| body.slice_ref(raw.get().as_bytes())),
        },
        "completion/complete" => completed(request)?,
        "tools/list" => RequestSubject::List(ListKind::Tools),
        "resources/list" => RequestSubject::List(ListKind::Resources),
        "resources/templates/list" => RequestSubject::List(ListKind::Templates),
        "prompts/list" => RequestSubject::List(ListKind::Prompts),
        "subscriptions/listen" => RequestSubject::Listen {
            uris: listened(request)?,
        },
        "initialize" | "ping" | "server/discover" | "logging/setLevel" | "tasks/get"
        | "tasks/result" | "tasks/update" | "tasks/cancel" => RequestSubject::Route,
        _ => RequestSubject::Foreign,
    })
}

/// What a completion is of: whoever may not use it learns nothing of its arguments either.
fn completed(request: &Request<'_>) -> Result<RequestSubject, RpcError> {
    #[derive(Deserialize)]
    #[serde(tag = "type")]
    enum CompletionReference {
        #[serde(rename = "ref/prompt")]
        Prompt { name: String },
        #[serde(rename = "ref/resource")]
        Resource { uri: String },
    }
    let reference = request.params.reference;
    match reference.and_then(|raw| object::<CompletionReference>(raw.get())) {
        Some(CompletionReference::Prompt { name }) => Ok(RequestSubject::Prompt {
            name,
            arguments: Bytes::new(),
        }),
        Some(CompletionReference::Resource { uri }) => Ok(RequestSubject::Resource { uri }),
        None => Err(RpcError::invalid_params(
            "`params.ref` must be a ref/prompt with a name or a ref/resource with a URI",
        )),
    }
}

/// The resources whose changes are asked for.
fn listened(request: &Request<'_>) -> Result<Vec<String>, RpcError> {
    #[derive(Deserialize)]
    struct ListenFilter {
        #[serde(default, rename = "resourceSubscriptions")]
        uris: Vec<String>,
    }
    let wanted = request.params.notifications;
    let wanted = wanted.and_then(|raw| object::<ListenFilter>(raw.get()));
    let uris = wanted.map(|wanted| wanted.uris);
    uris.filter(|uris| uris.len() <= MAX_LISTENED).ok_or_else(|| {
        RpcError::invalid_params(format!(
            "`params.notifications` must be an object, with at most {MAX_LISTENED} `resourceSubscriptions`"
        ))
    })
}

/// Resources that one stream can be about.
const MAX_LISTENED: usize = 100;

/// A GET or DELETE: of a session, or of none.
fn without_message(
    gateway: &Gateway,
    route_request: &RouteRequest,
    exchange: Exchange,
) -> Result<UpstreamRequest, RpcError> {
    let version = named_version(&route_request.headers)?;
    let session = session(gateway, route_request, version)?;
    let within = within(route_request, session.as_ref());
    let resumes: Option<StreamPosition> =
        match header(&route_request.headers, LAST_EVENT_ID.as_str()) {
            Some(place) if matches!(exchange, Exchange::Get) => {
                let caller = &route_request.caller;
                let sealer = gateway.sealer();
                let opened = sealer.open(Purpose::UpstreamEvent, caller, &within, place);
                Some(opened.ok_or_else(RpcError::unknown_event)?)
            }
            _ => None,
        };
    let awaited = resumes.as_ref().and_then(|place| place.awaited.as_ref());
    let subject = awaited.map_or(RequestSubject::Route, |awaited| awaited.subject.clone());
    let method = awaited.map_or_else(String::new, |awaited| awaited.method.clone());
    Ok(UpstreamRequest {
        exchange,
        id: None,
        method,
        version,
        session,
        resumes,
        subject,
        tasks: Vec::new(),
        used: None,
        is_of_batch: false,
        mirrored_headers: Vec::new(),
    })
}

/// The session that the header names. One of another caller's, of another upstream's and one that never was are alike.
pub(super) fn session(
    gateway: &Gateway,
    route_request: &RouteRequest,
    version: Option<Version>,
) -> Result<Option<UpstreamSession>, RpcError> {
    if version.is_some_and(Version::is_modern) {
        return Ok(None);
    }
    let Some(sealed) = header(&route_request.headers, SESSION_ID.as_str()) else {
        return Ok(None);
    };
    let purpose = Purpose::UpstreamSession;
    let sealer = gateway.sealer();
    let own = sealer.open(
        purpose,
        &route_request.caller,
        &route_request.source,
        sealed,
    );
    let own: String = own.ok_or_else(RpcError::unknown_session)?;
    Ok(Some(UpstreamSession {
        sealed: sealed.to_owned(),
        own,
    }))
}

/// What an event belongs to: the ids of one session mean nothing in another.
pub(super) fn within(route_request: &RouteRequest, session: Option<&UpstreamSession>) -> String {
    let own = session.map_or("", |session| &session.own);
    format!("{} {own}", route_request.source)
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers
        .get(name)
        .map(|value| value.to_str().unwrap_or_default())
}

fn mirrored_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with(PARAM_PREFIX))
        .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_says_of_what_the_answer_is_and_what_was_asked_as_far_as_there_is_room() {
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(2_000));
        for (arguments, is_inline) in [(r#"{ "n" : 1.10 }"#, true), (&*long, false)] {
            let arguments = Bytes::copy_from_slice(arguments.as_bytes());
            let subject = RequestSubject::Tool {
                name: "read".to_owned(),
                arguments: arguments.clone(),
            };
            let place = StreamPosition {
                event: "e-1".to_owned(),
                awaited: Some(AwaitedResponse {
                    id: "7".to_owned(),
                    method: "tools/call".to_owned(),
                    subject,
                    asked: StoredArguments::inline(&arguments),
                }),
            };
            let text = serde_json::to_vec(&place).unwrap();
            let again: StreamPosition = serde_json::from_slice(&text).unwrap();
            let awaited = again.awaited.unwrap();
            assert_eq!(awaited.method, "tools/call");
            match awaited.asked {
                Some(StoredArguments::Inline(asked)) => {
                    assert!(is_inline && asked.get() == arguments);
                }
                _ => assert!(!is_inline && text.len() < 200),
            }
        }
    }
}
