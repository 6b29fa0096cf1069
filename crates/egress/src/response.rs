//! A response, whose body is read no further than its limits allow.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};

use super::{Deadline, EgressError, within};

/// What a service answered, of whatever status. Not shown: it can hold anything.
pub struct EgressResponse {
    /// Of the last response, behind all redirects.
    pub status: StatusCode,
    /// Of the same.
    pub headers: HeaderMap,
    /// Not yet read.
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

/// A body as it comes in. Dropping it before its end closes the connection.
pub struct ResponseBody {
    response: reqwest::Response,
    deadline: Option<Deadline>,
    limit: usize,
    /// Chunks are given without end.
    open_ended: bool,
    read: usize,
}

impl ResponseBody {
    /// The next piece; none at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, EgressError> {
        let chunk = within(self.deadline, self.response.chunk()).await?;
        self.read += chunk.as_ref().map_or(0, Bytes::len);
        if self.read > self.limit && !self.open_ended {
            return Err(EgressError::TooLarge(self.limit));
        }
        Ok(chunk)
    }

    /// All of it, which is never without end. A body that announces too much is not begun.
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
