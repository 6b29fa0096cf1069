//! Responses, whose bodies are read within limits.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};

use super::{Deadline, EgressError, within};

/// A response of any status. The type does not implement `Debug`, because a response can contain anything.
pub struct EgressResponse {
    /// The status of the last response after all redirects.
    pub status: StatusCode,
    /// The headers of the last response.
    pub headers: HeaderMap,
    /// The body, which has not been read yet.
    pub body: ResponseBody,
}

impl EgressResponse {
    pub(super) fn new(
        mut response: reqwest::Response,
        deadline: Option<Deadline>,
        limit: usize,
        open_ended: bool,
    ) -> Self {
        Self {
            status: response.status(),
            headers: std::mem::take(response.headers_mut()),
            body: ResponseBody {
                response,
                deadline,
                limit,
                open_ended,
                read: 0,
            },
        }
    }
}

/// A response body that is being received. Dropping it before its end closes the connection.
pub struct ResponseBody {
    response: reqwest::Response,
    deadline: Option<Deadline>,
    limit: usize,
    /// Whether the total size of the chunks is unlimited.
    open_ended: bool,
    read: usize,
}

impl ResponseBody {
    /// Returns the next chunk, or `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, EgressError> {
        let chunk = within(self.deadline, self.response.chunk()).await?;
        self.read += chunk.as_ref().map_or(0, Bytes::len);
        if self.read > self.limit && !self.open_ended {
            return Err(EgressError::TooLarge(self.limit));
        }
        Ok(chunk)
    }

    /// Returns the whole body, which must be within the limit even if the request is open-ended. Fails at once if the
    /// announced length exceeds the limit.
    pub async fn bytes(mut self) -> Result<Bytes, EgressError> {
        self.open_ended = false;
        let announced = self.response.content_length().unwrap_or(0);
        if usize::try_from(announced).map_or(true, |announced| announced > self.limit) {
            return Err(EgressError::TooLarge(self.limit));
        }
        let mut bytes = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.freeze())
    }
}
