//! Sends a request to a provider and returns the body of the response, with timeouts.

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use tokio::time::{Instant, timeout_at};
use tracing::info;
use url::Url;
use wardgate_egress::NetworkSettings;

use super::failure;
use super::frames::ByteStream;
use crate::model::ModelError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes that are read of an error response.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// Timeouts of a response.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseTimeouts {
    pub(super) first_byte: Duration,
    pub(super) idle: Duration,
}

#[derive(Debug)]
pub(super) struct Http {
    client: reqwest::Client,
    url: Url,
    limits: ResponseTimeouts,
}

impl Http {
    /// Creates a client without connecting. Connections use the TLS settings and the proxy of `network`. Redirects and the proxy
    /// environment variables are ignored, because either could send the key to another server.
    pub(super) fn open(
        url: Url,
        mut headers: HeaderMap,
        network: &NetworkSettings,
        limits: ResponseTimeouts,
    ) -> Result<Self, reqwest::Error> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let client = reqwest::Client::builder()
            .user_agent(concat!("wardgate/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .redirect(Policy::none())
            .referer(false)
            .tcp_nodelay(true)
            .connect_timeout(CONNECT_TIMEOUT);
        Ok(Self {
            client: network.apply(client)?.build()?,
            url,
            limits,
        })
    }

    /// Posts `json` and returns the body of a successful response. Dropping the body cancels the request.
    pub(super) async fn post(
        &self,
        json: Bytes,
        deadline: Instant,
    ) -> Result<ByteStream, ModelError> {
        let first_byte_by = deadline.min(Instant::now() + self.limits.first_byte);
        let request = self.client.post(self.url.clone()).body(json).send();
        let response = timeout_at(first_byte_by, request)
            .await
            .map_err(|_| ModelError::Late)?
            .map_err(|error| not_answered(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(body(response, first_byte_by, self.limits.idle, deadline));
        }
        let headers = response.headers().clone();
        let mut text = Vec::new();
        let mut pieces = body(response, first_byte_by, self.limits.idle, deadline);
        while let Some(Ok(bytes)) = pieces.next().await
            && text.len() + bytes.len() <= MAX_ERROR_BYTES
        {
            text.extend_from_slice(&bytes);
        }
        Err(failure::of_status(status, &headers, &text))
    }
}

/// Logs the root cause and returns the error. The URL is not logged, because it may contain account names.
fn not_answered(error: &reqwest::Error) -> ModelError {
    let mut cause = error.source();
    while let Some(deeper) = cause.and_then(std::error::Error::source) {
        cause = Some(deeper);
    }
    info!(
        cause = cause.map(tracing::field::display),
        "the connection to a model provider failed"
    );
    if error.is_connect() {
        ModelError::Unreachable
    } else {
        ModelError::Cut
    }
}

fn body(
    response: reqwest::Response,
    first_byte_by: Instant,
    idle: Duration,
    deadline: Instant,
) -> ByteStream {
    let reading = (response, Some(first_byte_by));
    stream::try_unfold(reading, move |(mut response, first_byte_by)| async move {
        let by = first_byte_by.unwrap_or_else(|| deadline.min(Instant::now() + idle));
        let bytes = timeout_at(by, response.chunk())
            .await
            .map_err(|_| ModelError::Late)?
            .map_err(|_| ModelError::Cut)?;
        Ok(bytes.map(|bytes| (bytes, (response, None))))
    })
    .boxed()
}
