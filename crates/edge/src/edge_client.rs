//! A client of another edge, either of a router in this process or over HTTP.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response, Uri};
use reqwest::{Certificate, ClientBuilder, Url, redirect};
use tower::ServiceExt;

/// Maximum time to establish a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The base URL of a router in this process. Every edge accepts a loopback host.
const IN_PROCESS: &str = "http://localhost";

/// Suffixes of URLs that are paths of an edge rather than its base URL, with the advice for the error.
const PATHS: [(&str, &str); 3] = [
    ("/mcp", "remove /mcp: the paths are appended to the URL"),
    ("/api", "remove /api: the paths are appended to the URL"),
    ("/v1", "remove /v1: the paths are appended to the URL"),
];

/// A client of another edge. Cheap to clone.
#[derive(Clone)]
pub struct EdgeClient(EdgeTransport);

/// The transport to the edge.
#[derive(Clone)]
enum EdgeTransport {
    Router(Router),
    Http {
        client: reqwest::Client,
        /// The base URL, without a trailing slash.
        base: String,
    },
}

/// An error for a URL that cannot be the base URL of an edge. It states what to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnusableUrl(&'static str);

/// The reason why there is no response, or none that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EdgeClientError {
    /// The path is not a valid path of a URL.
    #[error("the path is not valid")]
    Path,
    /// The edge does not respond, or its response is incomplete.
    #[error("it cannot be reached")]
    Unreachable,
    /// The response exceeds the size limit.
    #[error("its response is too large")]
    TooLarge,
    /// The response is not a valid response to the request.
    #[error("its response cannot be read")]
    Unreadable,
}

const NO_TLS: UnusableUrl =
    UnusableUrl("TLS is not available: the system's certificates cannot be read");

/// Creates the builder of a client for one edge. The client sends tokens only to that edge: it follows no redirects and
/// uses no proxy from the environment.
fn closed_client(authority: Option<&Path>) -> Result<ClientBuilder, UnusableUrl> {
    let builder = reqwest::Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy();
    let Some(path) = authority else {
        return Ok(builder);
    };
    let text = std::fs::read(path).ok();
    let authorities = text.and_then(|text| Certificate::from_pem_bundle(&text).ok());
    let authorities = authorities.filter(|it| !it.is_empty());
    let authorities = authorities.ok_or(UnusableUrl(
        "the file of its certificate authorities is not a PEM file of certificates",
    ))?;
    Ok(builder.tls_certs_only(authorities))
}

/// Creates a client for the other replicas of an edge, which are reached by IP address. A certificate of `authority` is
/// sufficient proof that a server is a replica, whatever name the certificate contains. `limits` are the timeouts of
/// connecting and of a whole exchange.
pub fn replica_client(
    authority: Option<&Path>,
    limits: [Duration; 2],
) -> Result<reqwest::Client, UnusableUrl> {
    let [connect, whole] = limits;
    closed_client(authority)?
        .tls_danger_accept_invalid_hostnames(authority.is_some())
        .tcp_nodelay(true)
        .connect_timeout(connect)
        .timeout(whole)
        .build()
        .map_err(|_| NO_TLS)
}

impl EdgeClient {
    /// Creates a client of an edge in this process, whose router is called without a socket.
    pub fn router(router: Router) -> Self {
        Self(EdgeTransport::Router(router))
    }

    /// Creates a client of a remote edge. `url` is its base URL, for example `https://mcp.example.org`, and `client`
    /// the user agent. The certificate of the edge is verified with the authorities in the PEM file `authority`, or
    /// with those of the system.
    pub fn http(
        url: &Url,
        client: &'static str,
        authority: Option<&Path>,
    ) -> Result<Self, UnusableUrl> {
        let path = url.path().trim_end_matches('/');
        let problem = if !matches!(url.scheme(), "http" | "https") {
            Some("write an http or https URL")
        } else if !url.username().is_empty() || url.password().is_some() {
            Some("remove the credentials: each caller sends a token")
        } else if url.query().is_some() || url.fragment().is_some() {
            Some("remove the query or fragment")
        } else {
            let ends = PATHS.into_iter().find(|(end, _)| path.ends_with(end));
            ends.map(|(_, problem)| problem)
        };
        if let Some(problem) = problem {
            return Err(UnusableUrl(problem));
        }
        let builder = closed_client(authority)?
            .connect_timeout(CONNECT_LIMIT)
            .user_agent(client);
        let client = builder.build().map_err(|_| NO_TLS)?;
        Ok(Self(EdgeTransport::Http {
            client,
            base: url.as_str().trim_end_matches('/').to_owned(),
        }))
    }

    /// Returns whether the edge is reached over a network, so that it receives only the request itself.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.0, EdgeTransport::Http { .. })
    }

    /// Returns the URI of `path`.
    pub fn uri(&self, path: &str) -> Result<Uri, EdgeClientError> {
        let base = match &self.0 {
            EdgeTransport::Router(_) => IN_PROCESS,
            EdgeTransport::Http { base, .. } => base,
        };
        format!("{base}{path}")
            .parse()
            .map_err(|_| EdgeClientError::Path)
    }

    /// Sends a request and returns the head of the response, with the body as a stream. Only connecting has a timeout.
    pub async fn send(&self, request: Request<String>) -> Result<Response<Body>, EdgeClientError> {
        match &self.0 {
            EdgeTransport::Router(router) => {
                let response = router.clone().oneshot(request.map(Body::from)).await;
                response.map_err(|never| match never {})
            }
            EdgeTransport::Http { client, .. } => {
                let request = request
                    .try_into()
                    .map_err(|_| EdgeClientError::Unreachable)?;
                let response = client.execute(request).await;
                let response = response.map_err(|_| EdgeClientError::Unreachable)?;
                Ok(Response::from(response).map(Body::new))
            }
        }
    }
}

impl fmt::Debug for EdgeClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            EdgeTransport::Router(_) => f.write_str("in process"),
            EdgeTransport::Http { base, .. } => f.write_str(base),
        }
    }
}
