//! A client of another edge: of a router in this process, or over HTTP.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response, Uri};
use reqwest::{Certificate, ClientBuilder, Url, redirect};
use tower::ServiceExt;

/// How long a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// What a router in this process is asked as: every edge serves loopback.
const IN_PROCESS: &str = "http://localhost";

/// Ends of URLs that are paths of an edge, and not where its paths begin.
const PATHS: [(&str, &str); 3] = [
    ("/mcp", "leave out /mcp: it is where the paths begin"),
    ("/api", "leave out /api: it is where the paths begin"),
    ("/v1", "leave out /v1: it is where the paths begin"),
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
        /// Without a slash at its end.
        base: String,
    },
}

/// The error of a URL that no edge can be reached by. It says what to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnusableUrl(&'static str);

/// An error for which there is no response, or none that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EdgeClientError {
    /// No such path can be.
    #[error("the path cannot be written")]
    Path,
    /// Nobody answers, or not to the end.
    #[error("it cannot be reached")]
    Unreachable,
    /// The response is larger than is taken.
    #[error("its response is too large")]
    TooLarge,
    /// The response is none to the request.
    #[error("its response cannot be read")]
    Unreadable,
}

const NO_TLS: UnusableUrl = UnusableUrl("no TLS: the system's certificates cannot be read");

/// A client of one edge. A token goes to that edge and nowhere else: not to where it redirects, nor to a proxy of the
/// environment.
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
        "its authorities are no file of certificates in PEM",
    ))?;
    Ok(builder.tls_certs_only(authorities))
}

/// A client of the other replicas of an edge, which are reached by address: a certificate of `authority` is the proof that
/// it is one of them, whatever name it has. `limits` are those of a connection and of a whole exchange.
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
    /// An edge in this process: its router is called without a socket.
    pub fn router(router: Router) -> Self {
        Self(EdgeTransport::Router(router))
    }

    /// An edge elsewhere; `url` is where its paths begin, for example `https://mcp.example.org`. `client` is what it
    /// is told who asks. Its certificate is verified by the authorities of `authority`, a file of PEM, or by the system's.
    pub fn http(
        url: &Url,
        client: &'static str,
        authority: Option<&Path>,
    ) -> Result<Self, UnusableUrl> {
        let path = url.path().trim_end_matches('/');
        let problem = if !matches!(url.scheme(), "http" | "https") {
            Some("write a URL of http or https")
        } else if !url.username().is_empty() || url.password().is_some() {
            Some("leave credentials out: each caller brings a token")
        } else if url.query().is_some() || url.fragment().is_some() {
            Some("leave out what begins with ? or #")
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

    /// Whether it is reached over a network, where nothing but the request arrives.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.0, EdgeTransport::Http { .. })
    }

    /// Where `path` is.
    pub fn uri(&self, path: &str) -> Result<Uri, EdgeClientError> {
        let base = match &self.0 {
            EdgeTransport::Router(_) => IN_PROCESS,
            EdgeTransport::Http { base, .. } => base,
        };
        format!("{base}{path}")
            .parse()
            .map_err(|_| EdgeClientError::Path)
    }

    /// The head of the response, its body as it comes. There is no time limit but that of a connection.
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
