//! Test support: a token issuer, endpoints that trust it, and scripted turns.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use wardgate_domain::Timestamp;
use wardgate_edge::{Admission, AuthConfig, Authenticator, IssuerConfig, JwksSource, Origins};
use wardgate_testkit::{TestClock, TestIssuer};

use super::{Endpoints, HttpLimits};
use crate::{
    Agent, AgentEvent, ApprovalKey, Config, EventBody, EventStream, FinishReason, GatewayEndpoint,
};

/// 2025-11-11T13:50:00Z.
pub(super) const NOW: i64 = 1_762_869_000;

/// The endpoints of an agent without assistants, and a token that they accept.
pub(super) struct TestEndpoints {
    router: Router,
    pub(super) token: String,
    _issuer: TestIssuer,
}

impl TestEndpoints {
    pub(super) async fn start() -> Self {
        let issuer = TestIssuer::new("https://id.example");
        let token = issuer.token(&json!({ "sub": "dr.yenji", "exp": NOW + 600 }));
        let ambient = TestClock::at(NOW).ambient();
        let jwks = JwksSource::File(issuer.key_set().to_owned());
        let auth = AuthConfig::of_issuers(vec![IssuerConfig::new(
            "https://id.example",
            "wardgate",
            jwks,
        )]);
        let gateway = GatewayEndpoint::in_process(Router::new());
        let key = ApprovalKey::from_bytes(&[7; 32]);
        let agent = Agent::open(&Config::default(), gateway, key, ambient.clone()).await;
        let endpoints = Endpoints {
            agent: agent.unwrap(),
            admission: Admission {
                origins: Origins::new("agent", None, Vec::new(), Vec::new()).unwrap(),
                auth: Arc::new(
                    Authenticator::new(auth, None, ambient.clone())
                        .await
                        .unwrap(),
                ),
                body: HttpLimits::default().body(),
            },
            ambient,
        };
        Self {
            router: endpoints.alone(Router::new()),
            token,
            _issuer: issuer,
        }
    }

    /// Sends a request with a valid token; `change` can modify the request.
    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        body: &str,
        change: impl FnOnce(&mut Request<Body>),
    ) -> Response<Body> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", self.token))
            .body(Body::from(body.to_owned()))
            .unwrap();
        change(&mut request);
        self.router.clone().oneshot(request).await.unwrap()
    }
}

pub(super) async fn text(body: Body) -> String {
    let bytes = body.collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns an event with a fixed timestamp, so that it is always the same.
pub(super) fn event(id: u64, body: EventBody) -> AgentEvent {
    AgentEvent {
        id,
        body,
        timestamp: Timestamp::from_seconds(NOW),
    }
}

pub(super) fn script(bodies: Vec<EventBody>) -> EventStream {
    stream::iter(bodies)
        .enumerate()
        .map(|(id, body)| event(id as u64, body))
        .boxed()
}

pub(super) fn token(text: &str) -> EventBody {
    EventBody::Token {
        text: text.to_owned(),
    }
}

pub(super) fn done_event(finish_reason: FinishReason) -> EventBody {
    EventBody::Done {
        finish_reason,
        conversation_id: Some("chat_123456".to_owned()),
        turn_id: "m1".to_owned(),
        message_id: Some("m2".to_owned()),
        cap: None,
    }
}

/// Returns the events of a turn that calls one tool.
pub(super) fn an_answer() -> Vec<EventBody> {
    vec![
        token("Let me look. "),
        EventBody::ToolCall {
            call_id: "c1".to_owned(),
            tool_name: "look_up".to_owned(),
            arguments: json!({ "patient_id": "NUGWI" }),
        },
        EventBody::ToolResult {
            call_id: "c1".to_owned(),
            tool_name: "look_up".to_owned(),
            success: true,
            data: json!([{ "content": "Hypertension" }]),
            error: None,
        },
        token("Hypertension."),
        EventBody::Usage {
            input_tokens: 40,
            output_tokens: 9,
        },
        done_event(FinishReason::Stop),
    ]
}

/// Returns the data of server-sent events as JSON, or as a string if it is not valid JSON.
pub(super) fn data(events: &str) -> Vec<Value> {
    let data = events
        .split("\n\n")
        .filter_map(|event| event.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| data.into()))
        .collect()
}
