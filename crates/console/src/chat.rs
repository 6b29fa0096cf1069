//! The chat: its page, and the forwarding of messages to the agent and of its responses to the browser.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use wardgate_domain::{Caller, mark_invisible};
use wardgate_edge::EdgeClient;
use wardgate_telemetry::trace_context;

use crate::Console;
use crate::fields::segment;
use crate::http::PageResult;
use crate::layout::{self, Section};
use crate::output::cut;
use crate::page_request::SignedInRequest;
use crate::response_headers::CONTENT_WITH_SCRIPT;
use crate::session::SessionToken;

/// Maximum time that the agent may take to begin a response. After that, the agent keeps the stream alive itself.
const LIMIT: Duration = Duration::from_secs(60);

/// The header that names the person for whom the page was rendered: [`Caller::person`], as embedded in the page.
const PERSON: &str = "wardgate-person";

/// Maximum size of the list of assistants, in bytes.
const MAX_LIST: usize = 1 << 20;

/// The fields of the agent's list of assistants that the console uses.
#[derive(Deserialize)]
struct Models {
    #[serde(default)]
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
    #[serde(default)]
    wardgate: Value,
}

impl Model {
    /// Returns the description of the assistant. It is shown in an attribute, so invisible characters are marked here.
    fn description(&self) -> Option<Cow<'_, str>> {
        self.wardgate["description"].as_str().map(mark_invisible)
    }

    /// Returns the settings that are missing before the assistant can answer.
    fn missing_settings(&self) -> Vec<&str> {
        let missing = self.wardgate["missing"].as_array();
        missing
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }
}

/// Renders the page of the chat.
pub(crate) async fn page(console: Arc<Console>, signed_in: SignedInRequest) -> PageResult {
    let content = match &console.agent {
        None => unavailable_notice("This deployment has no agent, so the chat is not available."),
        Some(agent) => match assistants(agent, &signed_in.token).await {
            Err(()) => {
                unavailable_notice("The agent does not answer. Try again, or contact the operator.")
            }
            Ok(assistants) if assistants.is_empty() => {
                unavailable_notice("The agent has no assistants.")
            }
            Ok(assistants) => conversation(&signed_in.viewer.caller, &assistants),
        },
    };
    let mut response = layout::page_with_script(&signed_in.viewer, Section::Chat, "Chat", &content);
    let policy = HeaderValue::from_static(CONTENT_WITH_SCRIPT);
    response
        .headers_mut()
        .insert(header::CONTENT_SECURITY_POLICY, policy);
    Ok(response)
}

fn unavailable_notice(why: &str) -> Markup {
    html! { h1 { "Chat" } p role="status" { (why) } }
}

fn conversation(caller: &Caller, assistants: &[Model]) -> Markup {
    let unready: Vec<_> = assistants
        .iter()
        .filter(|it| !it.missing_settings().is_empty())
        .collect();
    html! {
        h1 { "Chat" }
        p.quiet { "An assistant has the same permissions as you." }
        // The script removes this notice.
        p.notice.warn #unscripted { "The chat requires JavaScript. All other pages work without it." }
        @for assistant in &unready {
            p.notice.warn role="status" {
                b { (assistant.id) } " has no model. The operator has to set "
                (cut(&assistant.missing_settings().join(", "), 400)) "."
            }
        }
        form #ask data-person=(caller.person()) {
            div.bar {
                label for="assistant" { "Assistant" }
                select #assistant {
                    @for assistant in assistants {
                        option value=(assistant.id) title=[assistant.description()] { (assistant.id) }
                    }
                }
                span.quiet { "Conversation " output #conversation { "new" } }
                button.plain #anew type="button" { "New conversation" }
            }
            div #talk role="log" aria-label="Conversation" {}
            label for="message" { "Your message" }
            textarea #message rows="3" required {}
            div.bar {
                button #send { "Send" }
                button.plain #stop type="button" disabled { "Stop" }
                span #state role="status" {}
            }
        }
    }
}

async fn assistants(agent: &EdgeClient, token: &SessionToken) -> Result<Vec<Model>, ()> {
    let request = to_agent(agent, token, http::Method::GET, "/v1/models", String::new());
    let page_request = async {
        let response = agent.send(request?).await.map_err(drop)?;
        if !response.status().is_success() {
            return Err(());
        }
        let body = Limited::new(response.into_body(), MAX_LIST).collect().await;
        let models: Models =
            serde_json::from_slice(&body.map_err(drop)?.to_bytes()).map_err(drop)?;
        Ok(models.data)
    };
    tokio::time::timeout(LIMIT, page_request)
        .await
        .unwrap_or(Err(()))
}

/// Forwards a message to an assistant and streams the events of its answer back.
pub(crate) async fn message(console: Arc<Console>, signed_in: SignedInRequest) -> PageResult {
    Ok(forward_request(&console, &signed_in, "/api/chat/message/").await)
}

/// Forwards a decision about a call that waits for approval.
pub(crate) async fn approval(console: Arc<Console>, mut signed_in: SignedInRequest) -> PageResult {
    let id = signed_in.page_request.name().await?;
    Ok(forward_request(
        &console,
        &signed_in,
        &format!("/api/chat/approvals/{}", segment(&id)),
    )
    .await)
}

/// Returns an error in the format of the agent, which the script can read.
fn error_response(status: StatusCode, message: &str) -> Response {
    let body = serde_json::json!({ "error": { "message": message } }).to_string();
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

async fn forward_request(console: &Console, signed_in: &SignedInRequest, path: &str) -> Response {
    let Some(agent) = &console.agent else {
        return error_response(StatusCode::NOT_FOUND, "This deployment has no agent.");
    };
    let headers = &signed_in.page_request.parts.headers;
    let person = headers.get(PERSON).and_then(|value| value.to_str().ok());
    if !signed_in.is_of_own_page(person) {
        metrics::counter!(wardgate_telemetry::names::REFUSED_REQUESTS, "reason" => "form_of_another_person")
            .increment(1);
        return error_response(
            StatusCode::CONFLICT,
            "Another user is now signed in with this browser. Nothing was sent. Reload this page to continue as that user.",
        );
    }
    if !wardgate_edge::is_json(headers) {
        return error_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Send application/json.");
    }
    let Ok(body) = String::from_utf8(signed_in.page_request.body.to_vec()) else {
        return error_response(StatusCode::BAD_REQUEST, "Send UTF-8.");
    };
    let Ok(request) = to_agent(agent, &signed_in.token, http::Method::POST, path, body) else {
        return error_response(
            StatusCode::BAD_REQUEST,
            "The request cannot be sent to the agent.",
        );
    };
    let sent = tokio::time::timeout(LIMIT, agent.send(request)).await;
    let Ok(Ok(response)) = sent else {
        return error_response(StatusCode::BAD_GATEWAY, "The agent does not answer.");
    };
    let (head, body) = response.into_parts();
    // Only the content type is forwarded; the other headers are meant for the agent's own clients.
    let media = head.headers.get(CONTENT_TYPE).cloned();
    let media = media.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let mut passed = Response::new(body);
    *passed.status_mut() = head.status;
    passed.headers_mut().insert(CONTENT_TYPE, media);
    passed
        .headers_mut()
        .insert("x-accel-buffering", HeaderValue::from_static("no"));
    passed
}

fn to_agent(
    agent: &EdgeClient,
    token: &SessionToken,
    method: http::Method,
    path: &str,
    body: String,
) -> Result<http::Request<String>, ()> {
    let request = http::Request::builder().method(method);
    let request = request.uri(agent.uri(path).map_err(drop)?).body(body);
    let mut request = request.map_err(drop)?;
    if let Some(peer) = token.peer() {
        request.extensions_mut().insert(peer);
    }
    trace_context::inject(request.headers_mut());
    let headers = request.headers_mut();
    headers.insert(AUTHORIZATION, token.header().ok_or(())?);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(request)
}
