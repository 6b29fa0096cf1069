//! Exchanges with a server whose credentials stand for the caller: a real token exchange, and a server that notes all it
//! gets.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use wardgate_domain::{Caller, OfferKind, PermitTerms};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::relay_response::Part;

use super::{META, body, connect, failure, head, relay, request, terms};
use crate::tests::harness::{Database, Harness, caller, eventually};

/// What everybody's own token begins with, and the server must never see.
const CANARY: &str = "canary-of-";

/// A server with its authorization server.
#[derive(Default)]
struct Server {
    /// The era it speaks is the older one.
    is_legacy: bool,
    /// Whatever the server was sent: every header, and the body.
    seen: Mutex<Vec<String>>,
    /// By which token each message of a client's came, with its method.
    calls: Mutex<Vec<(String, String)>>,
    exchanged: Mutex<usize>,
    /// Tokens that it takes no longer.
    revoked: Mutex<BTreeSet<String>>,
}

impl Server {
    fn token(&self, subject: &str) -> Response {
        let mut exchanged = self.exchanged.lock().unwrap();
        *exchanged += 1;
        let whose = subject.strip_prefix(CANARY).unwrap();
        json_answer(&json!({
            "access_token": format!("{whose}-{exchanged}"), "token_type": "Bearer", "expires_in": 60,
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        }))
    }

    fn answer(&self, token: &str, message: &Value) -> Response {
        let method = message["method"].as_str().unwrap_or_default();
        let client = message
            .pointer("/params/_meta/io.modelcontextprotocol~1clientInfo/name")
            .or_else(|| message.pointer("/params/clientInfo/name"));
        let is_own =
            client.is_some_and(|name| name == "wardgate") || method == "notifications/initialized";
        if !is_own {
            let call = (token.to_owned(), method.to_owned());
            self.calls.lock().unwrap().push(call);
        }
        let is_unknown = token.is_empty() || self.revoked.lock().unwrap().contains(token);
        if is_unknown {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        let modern = message.pointer("/params/_meta").is_some();
        let result = match method {
            _ if modern && self.is_legacy => return StatusCode::BAD_REQUEST.into_response(),
            "server/discover" => {
                json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } })
            }
            "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": {} }),
            "tools/list" => {
                json!({ "tools": [{ "name": "read", "inputSchema": { "type": "object" } }] })
            }
            "notifications/initialized" => return StatusCode::ACCEPTED.into_response(),
            _ => json!({ "content": [{ "type": "text", "text": format!("for {token}") }] }),
        };
        json_answer(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
    }

    fn calls(&self) -> Vec<(String, String)> {
        self.calls.lock().unwrap().clone()
    }
}

fn json_answer(value: &Value) -> Response {
    ([("content-type", "application/json")], value.to_string()).into_response()
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    if head.uri.path() == "/token" {
        let form = url::form_urlencoded::parse(&body).into_owned();
        let (_, subject) = form.into_iter().find(|it| it.0 == "subject_token").unwrap();
        return server.token(&subject);
    }
    let seen = format!("{:?} {}", head.headers, String::from_utf8_lossy(&body));
    server.seen.lock().unwrap().push(seen);
    let token = head.headers.get("authorization");
    let token = token.and_then(|value| value.to_str().unwrap().strip_prefix("Bearer "));
    let message = serde_json::from_slice(&body).unwrap_or_default();
    server.answer(token.unwrap_or_default(), &message)
}

/// `auth` is what the source says of itself.
async fn start(is_legacy: bool, auth: &str) -> (Arc<Server>, Harness) {
    let server = Arc::new(Server {
        is_legacy,
        ..Server::default()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new()
        .fallback(answer)
        .with_state(Arc::clone(&server));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let auth = auth.replace("URL", &url);
    let yaml = format!(
        "sources:\n  up: {{ type: mcp, url: '{url}/mcp', private: [127.0.0.0/8], pins: first_use, {auth} }}\n"
    );
    let harness = Harness::with(&Database::sqlite().await, &yaml, |_| ()).await;
    (server, harness)
}

const EXCHANGE: &str =
    "auth: { type: token_exchange, token_url: 'URL/token', client_id: runner, client_secret: s }";
const LISTED: &str = "auth: { type: token_exchange, token_url: 'URL/token', client_id: runner, client_secret: s }, listing_auth: { type: bearer, token: listing }";
const PER_USER: &str = "auth: { type: authorization_code, authorization_url: 'URL/authorize', token_url: 'URL/token', client_id: me, client_secret: s }";

/// What `who` asks, by their token.
fn by(
    harness: &Harness,
    who: &Caller,
    terms: &PermitTerms,
    ask: pb::RelayRequest,
) -> pb::RelayRequest {
    let terms = PermitTerms {
        caller_digest: who.digest(),
        ..terms.clone()
    };
    pb::RelayRequest {
        caller: Some(who.into()),
        permit: Some((&harness.signer.sign(&terms)).into()),
        caller_token: format!("{CANARY}{}", who.subject()),
        ..ask
    }
}

fn text(parts: &[Part]) -> String {
    String::from_utf8(body(&parts[1]).message.to_vec()).unwrap()
}

#[tokio::test]
async fn each_callers_messages_carry_a_token_of_theirs_and_their_own_never_leaves() {
    let (server, harness) = start(false, LISTED).await;
    eventually("its tools are known", async || {
        !harness.tools().await.tools.is_empty()
    })
    .await;
    assert!(harness.tools().await.sources[0].needs_caller_token);
    assert!(harness.tools().await.sources[0].acts_for_caller);
    let tool = terms(&harness, OfferKind::Tool, "up__read", "{}").await;
    let read = terms(&harness, OfferKind::Resources, "", r#"{"uri":"memo:a"}"#).await;
    let route = terms(&harness, OfferKind::Connect, "", "{}").await;
    let message = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{{params}{META}}}}}"#)
    };
    let wanted = [
        (
            OfferKind::Tool,
            &tool,
            "{}",
            "tools/call",
            r#""name":"read","arguments":{},"#,
        ),
        (
            OfferKind::Resources,
            &read,
            r#"{"uri":"memo:a"}"#,
            "resources/read",
            r#""uri":"memo:a","#,
        ),
        (
            OfferKind::Connect,
            &route,
            "{}",
            "subscriptions/listen",
            r#""notifications":{},"#,
        ),
        (
            OfferKind::Connect,
            &route,
            "{}",
            "tasks/get",
            r#""taskId":"t-1","#,
        ),
        (OfferKind::Connect, &route, "{}", "vendor/thing", ""),
    ];
    for (kind, terms, arguments, method, params) in wanted {
        for who in ["ann", "ben"].map(caller) {
            let ask = request(&harness, kind, terms, arguments, &message(method, params));
            let parts = relay(&harness, by(&harness, &who, terms, ask))
                .await
                .unwrap();
            let parts = parts.rest().await;
            assert_eq!(head(&parts[0]).status, 200, "{method}: {parts:?}");
            let (token, seen) = server.calls().pop().unwrap();
            assert_eq!(seen, method);
            assert!(token.starts_with(who.subject()), "{method}: {token}");
        }
    }
    assert_eq!(*server.exchanged.lock().unwrap(), 2, "one token each");
    let seen = server.seen.lock().unwrap().clone();
    assert!(seen.iter().all(|seen| !seen.contains(CANARY)), "{seen:?}");
    assert!(server.calls().iter().all(|(token, _)| token != "listing"));
}

#[tokio::test]
async fn a_token_that_is_refused_is_renewed_once_and_then_the_exchange_fails() {
    let (server, harness) = start(false, EXCHANGE).await;
    let ann = caller("ann");
    let route = terms(&harness, OfferKind::Connect, "", "{}").await;
    let message =
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"vendor/thing","params":{{{META}}}}}"#);
    let ask = || {
        let ask = request(&harness, OfferKind::Connect, &route, "{}", &message);
        relay(&harness, by(&harness, &ann, &route, ask))
    };
    assert!(text(&ask().await.unwrap().rest().await).contains("for ann-1"));
    server.revoked.lock().unwrap().insert("ann-1".to_owned());
    assert!(text(&ask().await.unwrap().rest().await).contains("for ann-2"));
    // Whatever it is given, it refuses.
    for token in 2..9 {
        let token = format!("ann-{token}");
        server.revoked.lock().unwrap().insert(token);
    }
    let before = server.calls().len();
    let parts = ask().await.unwrap().rest().await;
    let (said, facts) = failure(&parts);
    assert!(said.contains("Tool execution failed"), "{said}");
    assert_eq!(facts.error_kind, "upstream_unauthorized", "{parts:?}");
    assert_eq!(
        server.calls().len(),
        before + 2,
        "asked once more, not on and on"
    );
    assert!(!format!("{parts:?}").contains("ann-"), "{parts:?}");
}

#[tokio::test]
async fn without_the_callers_token_nothing_is_sent() {
    let (server, harness) = start(false, EXCHANGE).await;
    let message = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"ping","params":{{{META}}}}}"#);
    let route = terms(&harness, OfferKind::Connect, "", "{}").await;
    let ask = request(&harness, OfferKind::Connect, &route, "{}", &message);
    let parts = relay(&harness, ask).await.unwrap().rest().await;
    let (said, facts) = failure(&parts);
    assert_eq!(facts.error_kind, "no_credentials", "{said}");
    assert_eq!(server.calls(), []);
}

#[tokio::test]
async fn of_a_server_that_nobody_could_ask_the_first_message_shows_whether_it_is_carried() {
    let (server, harness) = start(true, EXCHANGE).await;
    let ann = caller("ann");
    let route = terms(&harness, OfferKind::Connect, "", "{}").await;
    let message =
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{{{META}}}}}"#);
    let ask = request(&harness, OfferKind::Connect, &route, "{}", &message);
    let parts = relay(&harness, by(&harness, &ann, &route, ask))
        .await
        .unwrap();
    let parts = parts.rest().await;
    let [Part::Failure(refused)] = &*parts else {
        panic!("{parts:?}")
    };
    assert!(refused.uncarried, "{refused:?}");
    assert_eq!(server.calls(), [], "nothing of the client's was sent");
    eventually("everybody knows by then", async || {
        harness.tools().await.sources[0].carriage() == pb::Carriage::Legacy
    })
    .await;
    let older = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    let ask = connect(&harness, older).await;
    let parts = relay(&harness, by(&harness, &ann, &route, ask))
        .await
        .unwrap();
    assert!(text(&parts.rest().await).contains(r#""name":"read""#));
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test]
async fn what_a_person_has_not_connected_is_not_carried_and_left_to_others() {
    let (server, harness) = start(false, PER_USER).await;
    let source = &harness.tools().await.sources[0];
    assert!(source.acts_for_caller && !source.needs_caller_token);
    let message =
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{{{META}}}}}"#);
    let route = terms(&harness, OfferKind::Connect, "", "{}").await;
    let ask = request(&harness, OfferKind::Connect, &route, "{}", &message);
    let parts = relay(&harness, ask).await.unwrap().rest().await;
    let [Part::Failure(refused)] = &*parts else {
        panic!("{parts:?}")
    };
    assert!(refused.uncarried, "{refused:?}");
    let facts = refused.facts.as_ref().unwrap();
    assert_eq!(facts.error_kind, "not_connected");
    assert_eq!(server.calls(), []);
}
