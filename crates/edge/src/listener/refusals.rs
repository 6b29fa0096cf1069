//! The answers of the listener itself, to requests that no service gets.

use axum::body::Body;
use http::{HeaderValue, Method, Response, StatusCode, header};
use wardgate_mcp::error_code::{INTERNAL_ERROR, INVALID_REQUEST};

/// The method of the request that stands in for one that is refused. Whoever sends it gets the same refusal.
const STAND_IN: &str = "WARDGATE-REFUSED";

/// A fault of a message's framing, for which it cannot be read in one way only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FramingFault {
    /// A line ends with LF alone.
    BareLineFeed,
    /// Content-Length and Transfer-Encoding.
    TwoLengths,
    /// A transfer coding other than `chunked` alone.
    TransferEncoding,
    /// A length that is no decimal number, or several of them.
    ContentLength,
    /// A chunked body that is not well-formed.
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
                "The request's Transfer-Encoding is not `chunked` alone; send `chunked`, or Content-Length."
            }
            Self::ContentLength => {
                "The request's Content-Length is not one decimal number; send it once, in digits."
            }
            Self::Chunk => "The request's chunked body is not well-formed.",
        }
    }

    /// The head of a request that hyper reads instead of the refused one, so that the refusal comes in its turn.
    pub(super) fn substitute_head(self) -> String {
        format!(
            "{STAND_IN} /{} HTTP/1.1\r\nConnection: close\r\n\r\n",
            self.as_str()
        )
    }
}

/// The answer to a request that stands in for a refused one; none for every other.
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

/// The answer where no place is left but those for probes.
pub(super) fn too_many_connections() -> Response<Body> {
    let mut response = refusal(
        StatusCode::SERVICE_UNAVAILABLE,
        INTERNAL_ERROR,
        "Too many connections are open; close those that are not in use, and try again.",
    );
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// A JSON-RPC error, since that is what clients of MCP show; others find `error.message` where they look for it.
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
