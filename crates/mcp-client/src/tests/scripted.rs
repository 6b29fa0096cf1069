//! Scripted servers over HTTP, as legacy servers with a session.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Method};
use serde_json::Value;

use crate::testing::http::serve;
use crate::testing::script::{Script, ScriptedAction};

/// A scripted server that records the requests it received.
pub(super) struct ScriptedServer {
    script: Mutex<Script>,
    pub(super) seen: Mutex<Vec<(Method, HeaderMap, Value)>>,
    /// Number of sessions so far. Only the last one is valid.
    sessions: Mutex<usize>,
    /// Whether the next response to a call is interrupted after an event with an id, and kept for a GET.
    pub(super) breaks_off: AtomicBool,
    held_back: Mutex<Option<String>>,
    /// Whether the session becomes invalid at the same time.
    pub(super) forgets_midway: AtomicBool,
    /// Whether responses are sent byte by byte.
    pub(super) drips: bool,
    /// The status of every response, or `None` for normal responses.
    pub(super) status: Option<u16>,
    /// The status of responses to an invalid session.
    pub(super) forgets_with: u16,
}

impl ScriptedServer {
    pub(super) fn new(kind: &str) -> Self {
        Self {
            script: Mutex::new(Script::new(kind)),
            seen: Mutex::default(),
            sessions: Mutex::default(),
            breaks_off: AtomicBool::new(false),
            held_back: Mutex::default(),
            forgets_midway: AtomicBool::new(false),
            drips: false,
            status: None,
            forgets_with: 404,
        }
    }

    pub(super) async fn start(self) -> (Arc<Self>, String) {
        let server = Arc::new(self);
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&server));
        (server, serve(router).await)
    }

    pub(super) fn forget_session(&self) {
        *self.sessions.lock().unwrap() += 1;
    }

    pub(super) fn methods(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let methods = seen.iter().map(|(method, _, body)| {
            let name = body["method"].as_str().unwrap_or("answer");
            if method == Method::POST {
                name.to_owned()
            } else {
                method.to_string()
            }
        });
        methods.collect()
    }

    pub(super) fn headers_of(&self, method: &str) -> HeaderMap {
        let seen = self.seen.lock().unwrap();
        let found = seen.iter().find(|(_, _, body)| body["method"] == method);
        found.unwrap().1.clone()
    }
}

fn status(code: u16) -> Response {
    Response::builder()
        .status(code)
        .body(Body::empty())
        .unwrap()
}

async fn answer(State(server): State<Arc<ScriptedServer>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    server.seen.lock().unwrap().push((
        parts.method.clone(),
        parts.headers.clone(),
        message.clone(),
    ));
    if let Some(code) = server.status {
        return status(code);
    }
    let session = format!("session-{}", server.sessions.lock().unwrap());
    let named = parts.headers.get("mcp-session-id");
    let is_known = named.is_some_and(|id| id == &session);
    if parts.method == Method::GET {
        if !is_known {
            return status(server.forgets_with);
        }
        let rest = server.held_back.lock().unwrap().take();
        return match rest.filter(|_| parts.headers["last-event-id"] == "7") {
            Some(rest) => events(rest),
            None => status(405),
        };
    }
    if parts.method == Method::DELETE {
        return status(200);
    }
    let is_first = message["method"] == "initialize";
    if message["method"] == "server/discover" {
        return status(400);
    }
    if !is_first && !is_known {
        return status(server.forgets_with);
    }
    let line = std::str::from_utf8(&body).unwrap();
    let acts = server.script.lock().unwrap().acts(line);
    let messages: Vec<_> = acts
        .into_iter()
        .filter_map(|act| match act {
            ScriptedAction::Say(line) => Some(line),
            ScriptedAction::Exit | ScriptedAction::Flood => None,
        })
        .collect();
    let is_call = message["method"] == "tools/call";
    let mut response = match messages.as_slice() {
        [] if message.get("id").is_none() => status(202),
        [] => events_without_end(),
        [line] if server.drips && is_call => drip(line.clone()),
        [line] if is_call && server.breaks_off.swap(false, Ordering::SeqCst) => {
            *server.held_back.lock().unwrap() = Some(format!("data: {line}\n\n"));
            if server.forgets_midway.load(Ordering::SeqCst) {
                server.forget_session();
            }
            events("id: 7\nretry: 1\ndata:\n\n".to_owned())
        }
        [line] => Response::builder()
            .header("content-type", "application/json; charset=utf-8")
            .body(Body::from(line.clone()))
            .unwrap(),
        lines => {
            let lines: Vec<_> = lines
                .iter()
                .map(|line| format!("data: {line}\n\n"))
                .collect();
            events(lines.concat())
        }
    };
    if is_first {
        let headers = response.headers_mut();
        headers.insert("mcp-session-id", session.parse().unwrap());
    }
    response
}

fn event_stream(body: Body) -> Response {
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(body)
        .unwrap()
}

fn events(text: String) -> Response {
    event_stream(Body::from(text))
}

fn events_without_end() -> Response {
    event_stream(Body::from_stream(stream::pending::<
        Result<Bytes, std::io::Error>,
    >()))
}

fn drip(line: String) -> Response {
    let bytes = stream::unfold(line.into_bytes().into_iter(), |mut bytes| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let byte = bytes.next()?;
        Some((Ok::<_, std::io::Error>(Bytes::from(vec![byte])), bytes))
    });
    Response::builder()
        .header("content-type", "application/json")
        .body(Body::from_stream(bytes))
        .unwrap()
}
