//! Converts an HTTP response into a document, a text row or a failure.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap};
use serde_json::Value;
use wardgate_domain::Reason;
use wardgate_json::parse_strict;
use wardgate_redact::Row;

use crate::executor::Output;
use crate::executor_error::ExecutorError;
use wardgate_egress::{EgressResponse, retry_after};

/// Name of the column of a text response.
const TEXT: &str = "text";

/// Passes the body to `out`: JSON as a document, and text as a row with the column `text`. An empty body gives no rows.
pub(super) async fn read_body(
    response: EgressResponse,
    out: &mut Output<'_>,
) -> Result<(), ExecutorError> {
    let EgressResponse {
        status,
        headers,
        body,
    } = response;
    if !status.is_success() {
        let text = format!("the service answered with status {}", status.as_u16());
        let refused = status_error(status, &headers, text);
        // Only JSON is read for an error message, because services that describe errors do so in JSON.
        return match body.bytes().await.map(|body| json(&body)) {
            Ok(Ok(document)) => Err(out.reported_error(&document).unwrap_or(refused)),
            _ => Err(refused),
        };
    }
    let body = body.bytes().await?;
    if body.is_empty() {
        return Ok(());
    }
    if is_text(&headers) {
        let text = String::from_utf8(body.into())
            .map_err(|_| ExecutorError::BadResult("the text is not UTF-8".to_owned()))?;
        let _ = out.row(Row::new(vec![(Arc::from(TEXT), Value::String(text))]));
    } else {
        out.document(json(&body)?).map(drop)?;
    }
    Ok(())
}

/// Returns the error for an unsuccessful status; the text is for the caller. A status that only says that the service,
/// or a server behind it, cannot process requests now makes the source unavailable.
pub(in crate::executor) fn status_error(
    status: StatusCode,
    headers: &HeaderMap,
    text: String,
) -> ExecutorError {
    let pause = retry_after(headers);
    match status {
        StatusCode::TOO_MANY_REQUESTS => ExecutorError::Unavailable {
            text,
            pause: pause.or(Some(Duration::ZERO)),
        },
        StatusCode::SERVICE_UNAVAILABLE => ExecutorError::Unavailable { text, pause },
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => {
            ExecutorError::Unavailable { text, pause: None }
        }
        _ => ExecutorError::Refused {
            kind: Reason::HTTP_STATUS,
            cause: text.clone(),
            text,
        },
    }
}

/// Parses JSON of at most 127 levels. NUL characters and duplicate members are errors.
pub(in crate::executor) fn json(body: &Bytes) -> Result<Value, ExecutorError> {
    parse_strict(body)
        .map_err(|error| ExecutorError::BadResult(format!("the response cannot be read: {error}")))
}

fn is_text(headers: &HeaderMap) -> bool {
    let content_type = headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], |value| value.as_bytes());
    let is = |prefix: &[u8]| {
        content_type
            .get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    is(b"text/") && !is(b"text/json")
}
