//! Tests of watching resources of a server with credentials per caller: each caller watches with their own credentials.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::{StreamExt, stream};
use http::StatusCode;
use serde_json::{Value, json};
use wardgate_domain::{Caller, ColumnTier, OfferKind, PermitTerms};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_testkit::{event_stream, json_response, mcp_discovery, mcp_result, serve, until_true};

use super::harness::{Harness, caller};
use super::watching::{Ear, watch_as};
use crate::tests::database;

/// Prefix of the callers' own tokens, which the server must never receive.
const CANARY: &str = "canary-of-";

/// Token with which the source requests its lists.
const LISTING: &str = "listing";

/// A server, together with the authorization server that it trusts.
#[derive(Default)]
struct Server {
    /// The open streams, by the token of their requests, and the resources that each watches.
    streams: Mutex<BTreeMap<String, (Value, UnboundedSender<String>)>>,
    tokens: Mutex<Vec<String>>,
}

impl Server {
    fn answer(&self, token: &str, message: &Value) -> Response {
        self.tokens.lock().unwrap().push(token.to_owned());
        if token.is_empty() {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        let result = match message["method"].as_str().unwrap_or_default() {
            "server/discover" => mcp_discovery(&json!({ "resources": { "subscribe": true } })),
            "resources/list" => json!({ "resources": [{ "uri": "memo:a", "name": "a" }] }),
            "resources/templates/list" => json!({ "resourceTemplates": [] }),
            "subscriptions/listen" => return self.stream(token, message),
            _ => return StatusCode::ACCEPTED.into_response(),
        };
        mcp_result(message, &result)
    }

    fn stream(&self, token: &str, message: &Value) -> Response {
        let wanted = &message["params"]["notifications"]["resourceSubscriptions"];
        let meta = json!({ "io.modelcontextprotocol/subscriptionId": message["id"] });
        let begun = json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": { "_meta": meta, "notifications": { "resourceSubscriptions": wanted } },
        });
        let (sender, told) = unbounded();
        let open = (wanted.clone(), sender);
        self.streams.lock().unwrap().insert(token.to_owned(), open);
        let said = stream::iter([begun.to_string()]).chain(told);
        let said = said.map(|message| Ok::<_, Infallible>(format!("data: {message}\n\n")));
        event_stream(Body::from_stream(said))
    }

    /// Returns what a stream with a token of `whose` watches, if there is one.
    fn watched_resources(&self, whose: &str) -> Option<Value> {
        let streams = self.streams.lock().unwrap();
        let own = streams.iter().find(|(token, _)| token.starts_with(whose));
        own.map(|(_, (wanted, _))| wanted.clone())
    }

    /// Announces on the streams of `whose` that the resource changed.
    fn announce_update(&self, whose: &str) {
        let message = json!({
            "jsonrpc": "2.0",
            "method": "notifications/resources/updated",
            "params": { "uri": "memo:a" },
        });
        let streams = self.streams.lock().unwrap();
        let own = streams.iter().find(|(token, _)| token.starts_with(whose));
        let (_, sender) = own.unwrap().1;
        sender.unbounded_send(message.to_string()).unwrap();
    }
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    if head.uri.path() == "/token" {
        let form = url::form_urlencoded::parse(&body).into_owned();
        let (_, subject) = form.into_iter().find(|it| it.0 == "subject_token").unwrap();
        let whose = subject.strip_prefix(CANARY).unwrap();
        let token = json!({
            "access_token": format!("{whose}'s"), "token_type": "Bearer", "expires_in": 60,
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        });
        return json_response(token.to_string());
    }
    let token = head.headers.get("authorization");
    let token = token.and_then(|value| value.to_str().unwrap().strip_prefix("Bearer "));
    let message = serde_json::from_slice(&body).unwrap_or_default();
    server.answer(token.unwrap_or_default(), &message)
}

async fn start() -> (Arc<Server>, Harness) {
    let server = Arc::new(Server::default());
    let router = Router::new()
        .fallback(answer)
        .with_state(Arc::clone(&server));
    let url = format!("http://{}", serve(router).await);
    let yaml = format!(
        "sources:\n  up: {{ type: mcp, url: '{url}/mcp', private: [127.0.0.0/8], pins: first_use, resources: all, \
         auth: {{ type: token_exchange, token_url: '{url}/token', client_id: runner, client_secret: s }}, \
         listing_auth: {{ type: bearer, token: {LISTING} }} }}\n"
    );
    let harness = Harness::with(&database::sqlite().await, &yaml, |_| ()).await;
    until_true("its resources are known", async || {
        let mut client = harness.client.clone();
        let listed = client.list_content(pb::ListContentRequest {}).await;
        !listed.unwrap().into_inner().resources.is_empty()
    })
    .await;
    (server, harness)
}

async fn watch(harness: &Harness, who: &Caller, token: &str, terms: &PermitTerms) -> Ear {
    let terms = PermitTerms {
        caller_digest: who.digest(),
        ..terms.clone()
    };
    let watched = watch_as(harness, who, token, "up", &["memo:a"], Some(&terms)).await;
    watched.unwrap()
}

#[tokio::test]
async fn of_a_server_in_the_callers_name_each_caller_hears_what_it_tells_them() {
    let (server, harness) = start().await;
    let terms = harness
        .terms_for(OfferKind::Resources, ColumnTier::Clear)
        .await;
    let watching = async |name: &str| {
        let token = format!("{CANARY}{name}");
        let mut ear = watch(&harness, &caller(name), &token, &terms).await;
        assert_eq!(ear.hears().await.unwrap(), ["memo:a"]);
        ear
    };
    let (mut kim, mut lee) = (watching("dr.kim").await, watching("dr.lee").await);
    for whose in ["dr.kim", "dr.lee"] {
        assert_eq!(server.watched_resources(whose), Some(json!(["memo:a"])));
    }
    assert_eq!(
        server.watched_resources(LISTING),
        None,
        "nobody listens for all"
    );
    server.announce_update("dr.kim");
    assert_eq!(kim.hears().await.unwrap(), ["memo:a"]);
    lee.hears_nothing().await;

    // Without a token there are no credentials.
    let mut nobody = watch(&harness, &caller("dr.kim"), "", &terms).await;
    assert_eq!(nobody.hears().await.unwrap(), [""; 0]);
    let tokens = server.tokens.lock().unwrap().clone();
    assert!(!tokens.iter().any(|token| token.contains(CANARY)));
}
