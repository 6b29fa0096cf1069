//! The body of a request: bounded in size and time, and taken in where it is refused.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use wardgate_domain::Reason;
use wardgate_mcp::header::{JSON, has_media_type};

/// What a body may cost.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Largest body, bytes.
    pub bytes: usize,
    /// Seconds to send it.
    pub seconds: u64,
}

/// Why a body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyRefusal {
    /// It is larger than so many bytes.
    TooLarge(usize),
    /// It took longer than so many seconds.
    Late(u64),
    /// It ended early.
    Incomplete,
}

impl BodyRefusal {
    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Late(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Incomplete => StatusCode::BAD_REQUEST,
        }
    }

    /// The word for records and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::TooLarge(_) => Reason::TOO_LARGE,
            Self::Late(_) => Reason::BODY_TIMEOUT,
            Self::Incomplete => Reason::INCOMPLETE_BODY,
        }
    }

    /// What the client should mend.
    pub fn description(&self) -> String {
        match self {
            Self::TooLarge(bytes) => format!("The body is larger than {bytes} bytes."),
            Self::Late(seconds) => format!("The body did not arrive within {seconds} seconds."),
            Self::Incomplete => "The body ended early.".to_owned(),
        }
    }
}

/// Whether a request says that its body is JSON; what is not is never read as JSON.
pub fn is_json(headers: &HeaderMap) -> bool {
    has_media_type(headers, JSON)
}

/// The whole body.
pub async fn read(body: &mut Body, limits: BodyLimits) -> Result<Bytes, BodyRefusal> {
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

/// The rest of a refused request is read no longer than this.
const REST_TIME: Duration = Duration::from_secs(1);
/// Nor further: what is sent by mistake fits, what is sent to do harm gets its reset.
const REST_BYTES: usize = 64 << 20;

/// Takes in what is left of a refused request, and keeps none of it. To close on unread bytes resets the
/// connection, and the client loses the answer.
pub async fn drain(headers: &HeaderMap, mut body: Body) {
    // Who waits for `100 Continue` has sent no body, and need not.
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
