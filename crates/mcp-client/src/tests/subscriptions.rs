//! Tests of resource subscriptions with real servers of both eras, over HTTP and stdio.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::timeout;

use wardgate_egress::{AuthSettings, ClientProof, OAuthClient, ServerSettings};
use wardgate_testkit::{event_stream, mcp_result, until_true};

use super::scripted::ScriptedServer;
use super::{soon, tool_call, upstream};
use crate::testing::fixture::QUIET;
use crate::testing::http::serve;
use crate::testing::http::{fixture, settings};
use crate::{
    ClientCapabilities, Participation, PassthroughMembers, ResourceListener, Round, RoundStart,
    Transport, Upstream,
};

const ONE: &str = "memo://one";
const TWO: &str = "memo://two";

fn uris(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|&uri| uri.to_owned()).collect()
}

/// Listens to resources, and returns the listener with the resources that the server accepted.
async fn listen(upstream: &Upstream, of: &[&str]) -> (ResourceListener, BTreeSet<String>) {
    let mut listener = upstream.listen(uris(of));
    let settled = timeout(Duration::from_mins(1), listener.wait_until_settled()).await;
    settled.expect("the server says what it takes");
    let accepted = listener.keep_accepted();
    (listener, accepted)
}

async fn next_changes(listener: &mut ResourceListener) -> BTreeSet<String> {
    let change = timeout(Duration::from_mins(1), listener.changed()).await;
    change.expect("a change is heard");
    listener.take_changes()
}

#[tokio::test]
async fn servers_of_both_eras_tell_of_the_resources_that_are_wanted_and_of_no_others() {
    for era in ["modern", "legacy"] {
        let (fixture, url) = fixture(era, false).await;
        let state = &fixture.state;
        let upstream = upstream(&settings(&url));
        upstream.list_tools(soon()).await.unwrap();
        let (mut first, accepted) = listen(&upstream, &[ONE, QUIET]).await;
        assert_eq!(accepted, uris(&[ONE]), "{era}");
        // Further listeners cause no request to the server, unless they need more resources.
        let (mut second, accepted) = listen(&upstream, &[ONE, TWO]).await;
        assert_eq!(accepted, uris(&[ONE, TWO]), "{era}");
        until_true("the union", async || state.subscribed_uris() == [ONE, TWO]).await;

        state.touch(TWO);
        assert_eq!(next_changes(&mut second).await, uris(&[TWO]), "{era}");
        state.touch(ONE);
        assert_eq!(next_changes(&mut second).await, uris(&[ONE]), "{era}");
        assert_eq!(next_changes(&mut first).await, uris(&[ONE]), "{era}");
        drop(second);
        until_true("one is let go", async || state.subscribed_uris() == [ONE]).await;
        state.touch(ONE);
        assert_eq!(next_changes(&mut first).await, uris(&[ONE]), "{era}");
        drop(first);
        until_true("the other too", async || state.subscribed_uris().is_empty()).await;
    }
}

#[tokio::test]
async fn an_older_server_is_subscribed_to_in_the_session_of_calls_too() {
    let (fixture, url) = fixture("legacy", false).await;
    let state = &fixture.state;
    let upstream = upstream(&settings(&url));
    upstream.list_tools(soon()).await.unwrap();
    let (listener, accepted) = listen(&upstream, &[ONE]).await;
    assert_eq!(accepted, uris(&[ONE]));
    let client = Arc::new(Participation {
        capabilities: ClientCapabilities::parse(br#"{"roots":{}}"#).unwrap(),
        log_level: None,
        others: PassthroughMembers::default(),
        is_legacy: true,
    });
    let (operation, mut deaf) = (tool_call("cancelled", "{}"), |_| false);
    let round = upstream.round(
        &operation,
        &client,
        RoundStart::Beginning,
        soon(),
        &mut deaf,
    );
    assert!(matches!(round.await, Ok(Round::Done(_))));
    until_true("both sessions", async || {
        state.subscribed_uris() == [ONE, ONE]
    })
    .await;
    let (other, _) = listen(&upstream, &[TWO]).await;
    until_true("the other", async || {
        state.subscribed_uris() == [ONE, ONE, TWO, TWO]
    })
    .await;
    drop(other);
    until_true("it is let go", async || {
        state.subscribed_uris() == [ONE, ONE]
    })
    .await;
    drop(listener);
    until_true("nothing", async || state.subscribed_uris().is_empty()).await;
}

#[tokio::test]
async fn what_callers_read_as_themselves_is_not_listened_to_for_them() {
    let (fixture, url) = fixture("modern", false).await;
    let Transport::Http(mut of_callers) = settings(&url) else {
        panic!("it is behind a URL");
    };
    of_callers.client.auth = AuthSettings::TokenExchange(OAuthClient {
        server: ServerSettings {
            token_url: Some("https://login.example.com/token".parse().unwrap()),
            ..ServerSettings::default()
        },
        resource: None,
        client_id: "me".to_owned(),
        proof: ClientProof::Secret("secret".to_owned().into()),
        scope: None,
        audience: None,
    });
    let upstream = upstream(&Transport::Http(of_callers));
    upstream.list_tools(soon()).await.unwrap();
    let (_ear, accepted) = listen(&upstream, &[ONE]).await;
    assert_eq!(accepted, uris(&[]));
    assert!(fixture.state.subscribed_uris().is_empty());
}

/// Starts a server of 2026-07-28 that registers a subscription before it acknowledges it. Every URI that is sent to it is
/// announced to all listeners.
async fn exact() -> (broadcast::Sender<String>, String) {
    let touched = broadcast::Sender::new(64);
    let router = Router::new().fallback(answer).with_state(touched.clone());
    (touched, serve(router).await)
}

async fn answer(State(touched): State<broadcast::Sender<String>>, body: String) -> Response {
    let message: Value = serde_json::from_str(&body).unwrap();
    if message["method"] != "subscriptions/listen" {
        let result = json!({
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "resources": { "subscribe": true } },
            "tools": [],
        });
        return mcp_result(&message, &result);
    }
    let notifications = message["params"]["notifications"].clone();
    let updates = touched.subscribe();
    let first = notification(
        "subscriptions/acknowledged",
        &json!({ "notifications": notifications }),
    );
    let updates = stream::unfold(updates, async |mut updates| {
        let uri = updates.recv().await.ok()?;
        let event = notification("resources/updated", &json!({ "uri": uri }));
        Some((event, updates))
    });
    let events = stream::iter([first])
        .chain(updates)
        .map(Ok::<_, Infallible>);
    event_stream(Body::from_stream(events))
}

fn notification(method: &str, params: &Value) -> String {
    let method = format!("notifications/{method}");
    let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    format!("data: {message}\n\n")
}

#[tokio::test]
async fn no_change_is_lost_while_the_set_of_resources_changes() {
    let (touched, url) = exact().await;
    let upstream = upstream(&settings(&url));
    upstream.list_tools(soon()).await.unwrap();
    let (mut listener, _) = listen(&upstream, &[ONE]).await;
    for number in 0..10 {
        let mut others = upstream.listen(uris(&[&format!("memo://other/{number}")]));
        for pause in 0..10 {
            touched.send(ONE.to_owned()).unwrap();
            assert_eq!(next_changes(&mut listener).await, uris(&[ONE]));
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        others.wait_until_settled().await;
        assert_eq!(others.keep_accepted().len(), 1);
        until_true("the other request ended", async || {
            touched.receiver_count() == 1
        })
        .await;
        listener.take_changes();
    }
}

#[tokio::test]
async fn a_server_that_tells_of_no_resources_refuses_all() {
    let (_, url) = ScriptedServer::new("any").start().await;
    let upstream = upstream(&settings(&url));
    let _ = upstream.list_tools(soon()).await;
    let (_ear, accepted) = listen(&upstream, &[ONE]).await;
    assert_eq!(accepted, uris(&[]));
}
