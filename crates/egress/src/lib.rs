//! Guarded outgoing HTTP requests and their credentials.
//!
//! ```text
//!   EgressClient::send ── standing headers, credentials ──▶ Egress::send ─┬─ AddressGuard: listed hosts, addresses
//!     (one configured service)         └ 401: once again                 ├─ redirects, within those only
//!                                         with a new token                └─ EgressResponse { status, headers, body }
//!                                                                        Body: bytes() whole, or chunk by chunk
//! ```
//!
//! An [`EgressClient`] is opened once from its [`ClientSettings`] and reused: it pools connections (HTTP/1.1, or HTTP/2
//! if TLS negotiates it). The time limit of the service applies to a whole [`EgressRequest`], to the end of its
//! response. [`EgressRequest::open_ended`] is for event streams: the limit then applies to the headers only, and the
//! reader has to bound the chunks. Dropping the future or the [`ResponseBody`] cancels the request.
//!
//! Proxies of the environment are ignored, and there are no cookies, no decompression and no retries of requests that a
//! server may have acted on. Errors name hosts, never paths, queries, headers or bodies.

mod address;
mod auth;
mod client;
mod error;
mod guard;
mod network;
mod redirect;
mod request;
mod response;
mod retry_after;
mod secret;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use url::Url;

pub use address::PrivateAddresses;
pub use auth::{
    Auth, AuthSettings, BearerChallenge, BoundCredentials, ClientKey, ClientProof, CodeRequest,
    CodeSettings, ConnectError, ConnectionKey, DeviceCode, EnterpriseSettings, Grant,
    GrantCallback, GrantDescription, GrantRequest, GrantStore, LoginClient, LoginServer,
    LoginTokens, OAuthClient, OnBehalf, OpenAuth, Person, ProviderClient, ProviderSettings,
    ProviderSettingsError, ProviderTokens, RegisteredClient, ServerSettings, StartedGrant,
    StoreFuture, StoreUnavailable, StoredTokens, SubjectToken, UserGrants,
};
pub use client::{ClientSettings, EgressClient, HttpSettings};
pub use error::{AuthError, EgressError};
pub use guard::{AddressGuard, AllowedHost, NotAHost};
pub use network::{ClientIdentity, InvalidProxy, InvalidTls, NetworkSettings, TlsSettings};
pub use request::EgressRequest;
pub use response::{EgressResponse, ResponseBody};
pub use retry_after::retry_after;
pub use secret::Secret;

use guard::GuardedDns;

/// The hosts that may be reached, and the limits of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressSettings {
    /// The allowed hosts. The first one is the service's own.
    pub hosts: Vec<AllowedHost>,
    /// The addresses outside the public internet that may be reached.
    pub private: PrivateAddresses,
    /// The TLS settings and the proxy.
    pub network: NetworkSettings,
    /// Maximum time from the first byte sent to the last byte received.
    pub timeout: Duration,
    /// Maximum size of a response body, in bytes.
    pub max_response_bytes: usize,
}

impl EgressSettings {
    /// Creates the settings for the service at `url`, whose redirects may lead to `further_hosts`.
    pub fn for_url(
        url: &Url,
        further_hosts: impl IntoIterator<Item = AllowedHost>,
        private: PrivateAddresses,
        timeout: Duration,
        max_response_bytes: usize,
    ) -> Self {
        Self {
            hosts: AllowedHost::from_url(url)
                .into_iter()
                .chain(further_hosts)
                .collect(),
            private,
            network: NetworkSettings::default(),
            timeout,
            max_response_bytes,
        }
    }

    /// Returns settings for `url` alone, with the same networks and proxy. The TLS settings are kept only if `url` is
    /// at the service's own host.
    pub(crate) fn toward(&self, url: &Url, timeout: Duration, max_response_bytes: usize) -> Self {
        let host = AllowedHost::from_url(url);
        let network = if host.is_some() && host.as_ref() == self.hosts.first() {
            self.network.clone()
        } else {
            self.network.of_another()
        };
        let private = self.private.clone();
        Self {
            network,
            ..Self::for_url(url, [], private, timeout, max_response_bytes)
        }
    }
}

/// A pooled HTTP client that reaches only the hosts for which it was opened.
#[derive(Debug)]
pub struct Egress {
    /// The client of the service's own host.
    http: reqwest::Client,
    /// The client of the other hosts, if they must not share the TLS settings of the service.
    further: Option<reqwest::Client>,
    guard: Arc<AddressGuard>,
    timeout: Duration,
    max_response_bytes: usize,
}

impl Egress {
    /// Opens the client. It connects to nothing yet.
    pub fn open(settings: EgressSettings) -> Result<Self, EgressError> {
        let guard = AddressGuard::new(settings.hosts, settings.private);
        let (timeout, most) = (settings.timeout, settings.max_response_bytes);
        Self::with_guard(guard, &settings.network, timeout, most)
    }

    fn with_guard(
        guard: AddressGuard,
        network: &NetworkSettings,
        timeout: Duration,
        max_response_bytes: usize,
    ) -> Result<Self, EgressError> {
        let guard = Arc::new(guard);
        let open = |network: &NetworkSettings| {
            let dns = GuardedDns {
                guard: Arc::clone(&guard),
                proxy: network.proxy.clone(),
            };
            let builder = reqwest::Client::builder()
                .user_agent(concat!("wardgate/", env!("CARGO_PKG_VERSION")))
                .dns_resolver(dns)
                .redirect(reqwest::redirect::Policy::none())
                .referer(false)
                .tcp_nodelay(true);
            network.apply(builder)?.build()
        };
        let http = open(network)?;
        let has_tls = network.tls != TlsSettings::default();
        let further = has_tls.then(|| open(&network.of_another())).transpose()?;
        Ok(Self {
            http,
            further,
            guard,
            timeout,
            max_response_bytes,
        })
    }

    /// Sends a request and follows its redirects. A response with any status is `Ok`.
    pub async fn send(&self, request: EgressRequest) -> Result<EgressResponse, EgressError> {
        let open_ended = request.open_ended;
        let deadline = Deadline::after(self.timeout);
        let response = within(deadline, self.follow(request)).await?;
        Ok(EgressResponse::new(
            response,
            deadline.filter(|_| !open_ended),
            self.max_response_bytes,
            open_ended,
        ))
    }

    async fn follow(&self, mut request: EgressRequest) -> Result<reqwest::Response, EgressError> {
        self.guard.check(&request.url)?;
        if !redirect::follows(&request.method) {
            let http = self.client_of(&request.url);
            return not_encoded(http.execute(request.into_reqwest()).await?);
        }
        for _ in 0..=redirect::MOST {
            let http = self.client_of(&request.url);
            let response = http.execute(request.clone().into_reqwest()).await?;
            let target = redirect::target(
                &self.guard,
                &request.url,
                response.status(),
                response.headers(),
            )?;
            let Some(target) = target else {
                return not_encoded(response);
            };
            request.headers = redirect::headers(&request.url, &target, request.headers);
            request.url = target;
        }
        Err(EgressError::TooManyRedirects(redirect::MOST))
    }

    fn client_of(&self, url: &Url) -> &reqwest::Client {
        match &self.further {
            Some(further) if !self.guard.is_own(url) => further,
            _ => &self.http,
        }
    }
}

/// The time when the limit of a request ends.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    /// Returns the deadline, or `None` if it is beyond the range of the clock.
    fn after(limit: Duration) -> Option<Self> {
        let at = Instant::now().checked_add(limit)?;
        Some(Self { at, limit })
    }
}

/// Waits for `work`, until `deadline` if there is one.
async fn within<T, E>(
    deadline: Option<Deadline>,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, EgressError>
where
    EgressError: From<E>,
{
    let Some(deadline) = deadline else {
        return Ok(work.await?);
    };
    match timeout_at(deadline.at, work).await {
        Ok(outcome) => Ok(outcome?),
        Err(_elapsed) => Err(EgressError::Timeout(deadline.limit)),
    }
}

/// Refuses a response with a content encoding. It cannot be used, and decoding could make it a thousand times larger.
fn not_encoded(response: reqwest::Response) -> Result<reqwest::Response, EgressError> {
    let mut encodings = response
        .headers()
        .get_all(http::header::CONTENT_ENCODING)
        .iter();
    if encodings.all(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        Ok(response)
    } else {
        Err(EgressError::Encoded)
    }
}

#[cfg(test)]
mod tests;
