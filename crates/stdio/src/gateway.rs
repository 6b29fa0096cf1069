//! A client for the gateway's endpoint, which sends requests with the user's token and detects error responses.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Method, Response, StatusCode, Url, redirect};
use wardgate_mcp::header::{
    EVENT_STREAM, JSON, JSON_OR_EVENT_STREAM, LAST_EVENT_ID, SESSION_ID, has_media_type,
};

use crate::fault::RequestFault;
use crate::message::{ClientMessage, MessageLine};
use crate::token::TokenSource;
use crate::{Error, MAX_MESSAGE_BYTES, Settings};

/// Maximum time for connecting.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Maximum time that the gateway may be silent. It is longer than any call may take and than the keep-alive interval of
/// any stream.
pub(crate) const SILENCE: Duration = Duration::from_secs(600);

/// Idle time after which a connection is probed, and number of failed probes after which it is closed, because the peer
/// may be gone.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBES: u32 = 4;

/// A client for one gateway.
#[derive(Debug)]
pub(crate) struct GatewayClient {
    http: Client,
    url: Url,
    token: TokenSource,
}

impl GatewayClient {
    pub(crate) fn new(settings: Settings) -> Result<Self, Error> {
        let Settings { mut url, token } = settings;
        let problem = if !matches!(url.scheme(), "http" | "https") {
            Some("write an http or https URL")
        } else if !url.username().is_empty() || url.password().is_some() {
            Some("remove the credentials: the token is sent with each request")
        } else if url.fragment().is_some() {
            Some("remove the fragment")
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(Error::Url(problem));
        }
        if url.path() == "/" {
            url.set_path("/mcp");
        }
        // The token must go only to the gateway: redirects are not followed, and a proxy of the environment
        // (HTTPS_PROXY, NO_PROXY) is used only for TLS connections.
        let builder = if url.scheme() == "https" {
            Client::builder()
        } else {
            Client::builder().no_proxy()
        };
        let http = builder
            .redirect(redirect::Policy::none())
            .tcp_nodelay(true)
            .tcp_keepalive(PROBE_AFTER)
            .tcp_keepalive_interval(PROBE_AFTER / 3)
            .tcp_keepalive_retries(PROBES)
            .connect_timeout(CONNECT_LIMIT)
            .read_timeout(SILENCE)
            .user_agent(concat!("wardgate-stdio/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|_| Error::Tls)?;
        Ok(Self { http, url, token })
    }

    /// Sends a message, or several.
    pub(crate) async fn post(
        &self,
        body: Bytes,
        headers: HeaderMap,
    ) -> Result<Response, RequestFault> {
        let mut request = reqwest::Request::new(Method::POST, self.url.clone());
        *request.headers_mut() = headers;
        let json = HeaderValue::from_static(JSON);
        request.headers_mut().insert(CONTENT_TYPE, json);
        let both = HeaderValue::from_static(JSON_OR_EVENT_STREAM);
        request.headers_mut().insert(ACCEPT, both);
        *request.body_mut() = Some(body.into());
        self.send(request).await
    }

    /// Opens a stream, after the event `last` if one is given.
    pub(crate) async fn get(
        &self,
        headers: HeaderMap,
        last: Option<&str>,
    ) -> Result<Response, RequestFault> {
        let mut request = reqwest::Request::new(Method::GET, self.url.clone());
        *request.headers_mut() = headers;
        let events = HeaderValue::from_static(EVENT_STREAM);
        request.headers_mut().insert(ACCEPT, events);
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            request.headers_mut().insert(LAST_EVENT_ID, last);
        }
        let response = self.send(request).await?;
        if has_media_type(response.headers(), EVENT_STREAM) {
            Ok(response)
        } else {
            Err(RequestFault::NotMcp)
        }
    }

    /// Ends a session.
    pub(crate) async fn delete(&self, headers: HeaderMap) -> Result<(), RequestFault> {
        let mut request = reqwest::Request::new(Method::DELETE, self.url.clone());
        *request.headers_mut() = headers;
        self.send(request).await.map(drop)
    }

    /// Sends a request, and repeats it if the token was refused and has changed since. If the response is an error, its
    /// body is read for the reason.
    async fn send(&self, request: reqwest::Request) -> Result<Response, RequestFault> {
        let in_session = request.headers().contains_key(SESSION_ID);
        let token = self.token.read_authorization().await?;
        let again = request.try_clone();
        let mut response = self.send_as(request, token.as_ref()).await?;
        if response.status() == StatusCode::UNAUTHORIZED
            && let Some(request) = again
        {
            let fresh = self.token.read_authorization().await?;
            if fresh != token {
                response = self.send_as(request, fresh.as_ref()).await?;
            }
        }
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status == StatusCode::NOT_FOUND && in_session {
            return Err(RequestFault::SessionEnded);
        }
        let reason = match whole(response).await.as_deref().map(MessageLine::parse) {
            Ok(Some(MessageLine::One(ClientMessage::Response { error, .. }))) => error,
            _ => None,
        };
        let advice = (status == StatusCode::UNAUTHORIZED).then(|| self.token.advice());
        Err(RequestFault::Refused {
            status,
            reason,
            advice,
        })
    }

    async fn send_as(
        &self,
        mut request: reqwest::Request,
        token: Option<&HeaderValue>,
    ) -> Result<Response, RequestFault> {
        if let Some(token) = token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        self.http.execute(request).await.map_err(|error| {
            if error.is_connect() {
                // The query is left out because it may contain more than an address.
                let mut url = self.url.clone();
                url.set_query(None);
                RequestFault::Unreachable(url.to_string())
            } else {
                RequestFault::Lost
            }
        })
    }
}

/// Returns the body, or an error if it is larger than a message may be.
pub(crate) async fn whole(mut response: Response) -> Result<Vec<u8>, RequestFault> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| RequestFault::Lost)? {
        if body.len() + chunk.len() > MAX_MESSAGE_BYTES {
            return Err(RequestFault::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
