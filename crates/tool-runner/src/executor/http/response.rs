//! What a response is worth: a document, a text, or a failure.

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

/// The column of a response that is text.
const TEXT: &str = "text";

/// Hands the body to `out`: JSON as a document, text as a row with the column `text`, nothing as nothing.
pub(super) async fn read(
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
        let refused = refused(status, &headers, text);
        // Services that put an error into words do so in JSON.
        return match body.bytes().await.map(|body| json(&body)) {
            Ok(Ok(document)) => Err(out.reported(&document).unwrap_or(refused)),
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

/// A status that is no success; the text is for the caller. What only says that the service, or what
/// stands behind it, cannot do its work now is no answer to the call.
pub(in crate::executor) fn refused(
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

/// Reads JSON without NUL characters and members given twice, at most 127 levels deep.
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
