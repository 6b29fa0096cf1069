//! What a response is worth: a document, a text, or a failure.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap};
use serde_json::Value;
use wardgate_redact::Row;

use crate::arguments::Strict;
use crate::egress::Response;
use crate::executor::{ExecutorError, Output};

/// The column of a response that is text.
const TEXT: &str = "text";

/// Hands the body to `out`: JSON as a document, text as a row with the column `text`, nothing as nothing.
pub(super) async fn read(response: Response, out: &mut Output<'_>) -> Result<(), ExecutorError> {
    let Response {
        status,
        headers,
        body,
    } = response;
    if !status.is_success() {
        let refused = refused(
            status,
            format!("the service answered with status {}", status.as_u16()),
        );
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
        out.row(Row::new(vec![(Arc::from(TEXT), Value::String(text))]));
    } else {
        out.document(json(&body)?)?;
    }
    Ok(())
}

/// A status that is no success. The text is for the caller. Where the service is overloaded or only
/// something in front of it answered, it counts as an outage.
pub(in crate::executor) fn refused(status: StatusCode, text: String) -> ExecutorError {
    let kind = match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => ExecutorError::UNAVAILABLE,
        _ => "http_status",
    };
    ExecutorError::Refused {
        kind,
        cause: text.clone(),
        text,
    }
}

/// Reads JSON without NUL characters and members given twice, nested no deeper than serde allows.
pub(in crate::executor) fn json(body: &Bytes) -> Result<Value, ExecutorError> {
    match serde_json::from_slice(body) {
        Ok(Strict(document)) => Ok(document),
        // The parser's own words can quote the document.
        Err(error) => Err(ExecutorError::BadResult(format!(
            "line {}, column {} of the response is no JSON that can be read",
            error.line(),
            error.column()
        ))),
    }
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
