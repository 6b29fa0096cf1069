//! Request bodies: reading them with limits on size and time, and draining the bodies of refused requests.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use wardgate_domain::Reason;
use wardgate_mcp::header::{JSON, has_media_type};

/// The limits of a request body.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Maximum size of the body, in bytes.
    pub bytes: usize,
    /// Maximum time to send the body, in seconds.
    pub seconds: u64,
}

/// The reason why a body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyRefusal {
    /// The body is larger than this number of bytes.
    TooLarge(usize),
    /// The body did not arrive within this number of seconds.
    Late(u64),
    /// The body ended early.
    Incomplete,
}

impl BodyRefusal {
    /// Returns the HTTP status of the response.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Late(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Incomplete => StatusCode::BAD_REQUEST,
        }
    }

    /// Returns the reason for records and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::TooLarge(_) => Reason::TOO_LARGE,
            Self::Late(_) => Reason::BODY_TIMEOUT,
            Self::Incomplete => Reason::INCOMPLETE_BODY,
        }
    }

    /// Returns the description for the client.
    pub fn description(&self) -> String {
        match self {
            Self::TooLarge(bytes) => format!("The body is larger than {bytes} bytes."),
            Self::Late(seconds) => format!("The body did not arrive within {seconds} seconds."),
            Self::Incomplete => "The body is incomplete.".to_owned(),
        }
    }
}

/// Returns whether a request declares its body as JSON. Other bodies are never parsed as JSON.
pub fn is_json(headers: &HeaderMap) -> bool {
    has_media_type(headers, JSON)
}

/// Reads the whole body.
pub async fn read_body(body: &mut Body, limits: BodyLimits) -> Result<Bytes, BodyRefusal> {
    let reading = Limited::new(body, limits.bytes).collect();
    match tokio::time::timeout(Duration::from_secs(limits.seconds), reading).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(BodyRefusal::TooLarge(limits.bytes))
        }
        Ok(Err(_)) => Err(BodyRefusal::Incomplete),
        Err(_) => Err(BodyRefusal::Late(limits.seconds)),
    }
}

/// Maximum time for which the rest of a refused request is read.
const REST_TIME: Duration = Duration::from_secs(1);
/// Maximum number of bytes that are read of a refused request. It is enough for a body that is too large by mistake,
/// while a malicious client gets a connection reset.
const REST_BYTES: usize = 64 << 20;

/// Reads and discards the rest of a refused request. Closing a socket with unread bytes would reset the connection, and
/// the client would lose the response.
pub async fn drain(headers: &HeaderMap, mut body: Body) {
    // A client that waits for `100 Continue` has not sent its body.
    if headers.contains_key(header::EXPECT) {
        return;
    }
    let rest = async {
        let mut taken = 0;
        while let Some(Ok(frame)) = body.frame().await {
            taken += frame.data_ref().map_or(0, Bytes::len);
            if taken > REST_BYTES {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(REST_TIME, rest).await;
}
