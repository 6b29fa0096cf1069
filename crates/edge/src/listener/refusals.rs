//! Responses of the listener itself, to requests that are not passed to the service.

use axum::body::Body;
use http::{HeaderValue, Method, Response, StatusCode, header};
use wardgate_mcp::error_code::{INTERNAL_ERROR, INVALID_REQUEST};

/// The method of the request that replaces a refused one. A client that sends this method gets the same response.
const STAND_IN: &str = "WARDGATE-REFUSED";

/// The fault in the framing of a message that makes it ambiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FramingFault {
    /// A line ends with LF alone.
    BareLineFeed,
    /// The message has both Content-Length and Transfer-Encoding.
    TwoLengths,
    /// The transfer coding is not just `chunked`.
    TransferEncoding,
    /// The length is not a decimal number, or there are several.
    ContentLength,
    /// The chunked body is not well-formed.
    Chunk,
}

impl FramingFault {
    const ALL: [Self; 5] = [
        Self::BareLineFeed,
        Self::TwoLengths,
        Self::TransferEncoding,
        Self::ContentLength,
        Self::Chunk,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::BareLineFeed => "bare_line_feed",
            Self::TwoLengths => "two_lengths",
            Self::TransferEncoding => "transfer_encoding",
            Self::ContentLength => "content_length",
            Self::Chunk => "chunk",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::BareLineFeed => {
                "A line of the request ends with LF alone; end each line with CR LF."
            }
            Self::TwoLengths => {
                "The request has both Content-Length and Transfer-Encoding; send one of them."
            }
            Self::TransferEncoding => {
                "The request's Transfer-Encoding is not `chunked`; send `chunked`, or Content-Length."
            }
            Self::ContentLength => {
                "The request's Content-Length is not one decimal number; send it once, in digits."
            }
            Self::Chunk => "The request's chunked body is not well-formed.",
        }
    }

    /// Returns the head of a request that hyper reads instead of the refused one, so that the refusal is sent in order
    /// after earlier responses.
    pub(super) fn substitute_head(self) -> String {
        format!(
            "{STAND_IN} /{} HTTP/1.1\r\nConnection: close\r\n\r\n",
            self.as_str()
        )
    }
}

/// Returns the response to a request that replaces a refused one, or `None` for any other request.
pub(super) fn answer_to_substitute(method: &Method, path: &str) -> Option<Response<Body>> {
    if method.as_str() != STAND_IN {
        return None;
    }
    let name = path.trim_start_matches('/');
    let fault = FramingFault::ALL
        .into_iter()
        .find(|fault| fault.as_str() == name);
    let description = fault.map_or(
        "The request's method is not known.",
        FramingFault::description,
    );
    Some(refusal(
        StatusCode::BAD_REQUEST,
        INVALID_REQUEST,
        description,
    ))
}

/// Returns the response for a connection that may only serve probes because no other slot is free.
pub(super) fn too_many_connections() -> Response<Body> {
    let mut response = refusal(
        StatusCode::SERVICE_UNAVAILABLE,
        INTERNAL_ERROR,
        "Too many connections are open; close unused ones, and try again.",
    );
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Creates a JSON-RPC error, because MCP clients display it. Other clients find the message in `error.message` as well.
fn refusal(status: StatusCode, code: i64, message: &str) -> Response<Body> {
    let body = serde_json::json!({
        "jsonrpc": "2.0",
        "id": null,
        "error": { "code": code, "message": message },
    });
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_an_answer_of_its_own() {
        for fault in FramingFault::ALL {
            let head = fault.substitute_head();
            let mut words = head.split(' ');
            let method = Method::from_bytes(words.next().unwrap().as_bytes()).unwrap();
            let answer = answer_to_substitute(&method, words.next().unwrap()).unwrap();
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
        }
        assert!(answer_to_substitute(&Method::POST, "/chunk").is_none());
    }
}
