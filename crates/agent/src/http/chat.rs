//! `POST /api/chat/message/`: sends a message to an assistant and returns the events of its turn.

use std::sync::Arc;

use axum::response::Response;
use http::HeaderMap;

use super::admission::AdmittedRequest;
use super::fields::JsonFields;
use super::{Endpoints, Problem, ndjson};
use crate::ChatRequest;

pub(super) async fn post(
    here: Arc<Endpoints>,
    request: AdmittedRequest,
) -> Result<Response, Problem> {
    let chat = parse_request(&request.body, &request.parts.headers)?;
    Ok(ndjson::reply(here.agent.chat(
        request.caller,
        request.token,
        chat,
    )))
}

fn parse_request(body: &[u8], headers: &HeaderMap) -> Result<ChatRequest, Problem> {
    let mut fields =
        JsonFields::parse(body)?.only(&["message", "conversation_id", "model", "message_id"])?;
    let message = fields
        .text("message")?
        .ok_or_else(|| Problem::field("message", "Send `message`: the text of the user."))?;
    let message_id = fields.text("message_id")?;
    let after = last_event_id(headers)?;
    if after.is_some() && message_id.is_none() {
        return Err(Problem::field(
            "message_id",
            "Send `message_id` with Last-Event-ID: it names the turn to resume.",
        ));
    }
    Ok(ChatRequest {
        model: fields.text("model")?,
        message,
        conversation_id: fields.text("conversation_id")?,
        message_id,
        after,
        history: Vec::new(),
    })
}

/// Returns the id of the last event that the client received (`Last-Event-ID` of the HTML standard's event streams).
fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let id = value
        .to_str()
        .ok()
        .and_then(|text| text.trim().parse().ok());
    id.map(Some).ok_or_else(|| {
        Problem::field(
            "last-event-id",
            "Last-Event-ID is not the `id` of an event: a whole number.",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_to_text(body: &str, last: Option<&str>) -> String {
        let mut headers = HeaderMap::new();
        if let Some(last) = last {
            headers.insert("last-event-id", last.parse().unwrap());
        }
        match parse_request(body.as_bytes(), &headers) {
            Ok(chat) => format!("{:?} {:?} {:?}", chat.message, chat.message_id, chat.after),
            Err(problem) => problem.body()["error"]["message"].to_string(),
        }
    }

    #[test]
    fn a_turn_goes_on_after_the_last_event_the_client_has() {
        let body = r#"{"message":"hi","message_id":"m1"}"#;
        assert_eq!(
            parse_to_text(body, Some("41")),
            r#""hi" Some("m1") Some(41)"#
        );
        assert_eq!(parse_to_text(body, None), r#""hi" Some("m1") None"#);
    }

    #[test]
    fn what_cannot_be_used_is_named_and_not_repeated() {
        let cases = [
            ("", None, "not JSON"),
            ("[]", None, "not an object"),
            ("{\"message\":\"secret\"", None, "line 1, column 19"),
            ("{}", None, "`message`"),
            (r#"{"message":null}"#, None, "`message`"),
            (
                r#"{"message":["secret"]}"#,
                None,
                "`message` is not a string",
            ),
            (
                r#"{"message":"secret","converzation_id":"secret"}"#,
                None,
                "conversation_id",
            ),
            (
                r#"{"message":"secret","model":7}"#,
                None,
                "`model` is not a string",
            ),
            (r#"{"message":"secret"}"#, Some("1"), "`message_id`"),
            (
                r#"{"message":"secret","message_id":"m"}"#,
                Some("-1"),
                "Last-Event-ID",
            ),
            (
                r#"{"message":"secret","message_id":"m"}"#,
                Some("secret"),
                "Last-Event-ID",
            ),
        ];
        for (body, last, expected) in cases {
            let parsed = parse_to_text(body, last);
            assert!(parsed.contains(expected), "{body}: {parsed}");
            assert!(!parsed.contains("secret"), "{body}: {parsed}");
        }
    }
}
