//! Converts error responses of providers to [`ModelError`].

use std::time::Duration;

use http::StatusCode;
use http::header::HeaderMap;
use serde_json::Value;
use wardgate_egress::retry_after;

use crate::model::ModelError;

/// Returns the error for a response with an unsuccessful status. The body is used to classify the error and is never shown.
pub(super) fn of_status(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ModelError {
    let body = serde_json::from_slice(body).unwrap_or(Value::Null);
    classify(status.as_u16(), &error_text(&body), || retry_after(headers))
}

/// Returns the error for an error object that is sent instead of an answer or in the middle of one.
pub(super) fn of_object(error: &Value) -> ModelError {
    let code = match error.get("code") {
        Some(Value::String(code)) => code.parse().ok(),
        Some(code) => code.as_u64().and_then(|code| u16::try_from(code).ok()),
        None => None,
    };
    let status = code.filter(|code| (400..=599).contains(code));
    classify(status.unwrap_or(200), &error_text(error), || None)
}

fn classify(
    status: u16,
    error_text: &str,
    retry_after: impl FnOnce() -> Option<Duration>,
) -> ModelError {
    let mentions = |parts: &[&str]| parts.iter().any(|part| error_text.contains(part));
    let is_too_long = mentions(&[
        "context_length",
        "context length",
        "context size",
        "context window",
        "context_size",
        "prompt is too long",
        "too many tokens",
    ]);
    let is_unknown_model =
        mentions(&["model"]) && mentions(&["not found", "not_found", "does not exist"]);
    match status {
        401 | 403 => ModelError::Credentials { status },
        // Waiting does not help an account without credit.
        429 if mentions(&["insufficient_quota"]) => ModelError::Refused { status },
        429 | 503 | 529 => ModelError::Busy {
            retry_after: retry_after(),
        },
        413 => ModelError::TooLong,
        _ if is_too_long => ModelError::TooLong,
        200 | 400 | 404 if is_unknown_model => ModelError::UnknownModel,
        200 if mentions(&["overloaded", "rate_limit", "rate limit"]) => {
            ModelError::Busy { retry_after: None }
        }
        408 | 500..=599 | 200 => ModelError::Failed { status },
        _ => ModelError::Refused { status },
    }
}

/// Returns all texts of an error object in lower case, because servers nest them in different ways.
fn error_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_lowercase(),
        Value::Array(values) => values.iter().map(error_text).collect::<Vec<_>>().join(" "),
        Value::Object(members) => members
            .values()
            .map(error_text)
            .collect::<Vec<_>>()
            .join(" "),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn model_error(status: u16, body: &Value) -> ModelError {
        of_status(
            StatusCode::from_u16(status).unwrap(),
            &HeaderMap::new(),
            body.to_string().as_bytes(),
        )
    }

    #[test]
    fn statuses_and_the_words_of_real_servers_are_understood() {
        use ModelError::*;
        let busy = Busy { retry_after: None };
        let cases = [
            (
                401,
                json!({"error": {"message": "Incorrect API key provided: sk-x", "code": "invalid_api_key"}}),
                Credentials { status: 401 },
            ),
            (403, Value::Null, Credentials { status: 403 }),
            (
                404,
                json!({"error": {"message": "The model `x` does not exist", "code": "model_not_found"}}),
                UnknownModel,
            ),
            (
                404,
                json!({"error": "model 'x' not found, try pulling it first"}),
                UnknownModel,
            ),
            (
                404,
                json!({"type": "error", "error": {"type": "not_found_error", "message": "model: x"}}),
                UnknownModel,
            ),
            (
                404,
                json!({"object": "error", "message": "The model `x` does not exist.", "type": "NotFoundError", "code": 404}),
                UnknownModel,
            ),
            (404, json!({"detail": "Not Found"}), Refused { status: 404 }),
            (
                400,
                json!({"error": {"code": "context_length_exceeded", "message": "…"}}),
                TooLong,
            ),
            (
                400,
                json!({"error": {"code": 400, "type": "exceed_context_size_error", "message": "…"}}),
                TooLong,
            ),
            (
                400,
                json!({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 200001 tokens > 200000 maximum"}}),
                TooLong,
            ),
            (413, Value::Null, TooLong),
            (
                400,
                json!({"error": {"message": "Invalid schema for function"}}),
                Refused { status: 400 },
            ),
            (
                429,
                json!({"error": {"code": "insufficient_quota"}}),
                Refused { status: 429 },
            ),
            (
                429,
                json!({"error": {"code": "rate_limit_exceeded"}}),
                busy.clone(),
            ),
            (
                503,
                json!({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}),
                busy.clone(),
            ),
            (
                529,
                json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
                busy,
            ),
            (408, Value::Null, Failed { status: 408 }),
            (500, Value::Null, Failed { status: 500 }),
            (302, Value::Null, Refused { status: 302 }),
        ];
        for (status, body, error) in cases {
            assert_eq!(model_error(status, &body), error, "{status} {body}");
        }
    }

    #[test]
    fn an_error_object_in_an_answer_is_understood_without_a_status() {
        let busy = ModelError::Busy { retry_after: None };
        let cases = [
            (
                json!({"type": "overloaded_error", "message": "Overloaded"}),
                busy.clone(),
            ),
            (
                json!({"code": 503, "message": "Loading model"}),
                busy.clone(),
            ),
            (json!({"code": "429", "message": "slow down"}), busy),
            (json!("model 'x' not found"), ModelError::UnknownModel),
            (
                json!({"code": 500, "message": "the request exceeds the available context size"}),
                ModelError::TooLong,
            ),
            (
                json!({"message": "boom"}),
                ModelError::Failed { status: 200 },
            ),
            (json!({"code": 7}), ModelError::Failed { status: 200 }),
        ];
        for (error, expected) in cases {
            assert_eq!(of_object(&error), expected, "{error}");
        }
    }
}
