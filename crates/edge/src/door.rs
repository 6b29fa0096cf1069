//! The way to the gateway: a router in this process, or HTTP.

use std::fmt;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response, Uri};
use reqwest::redirect;
use tower::ServiceExt;
use url::Url;

use super::MCP_PATH;
use super::fault::GatewayError;
use crate::Error;

/// How long a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// What a router in this process is asked as: every gateway serves loopback.
const IN_PROCESS: &str = "http://localhost";

#[derive(Clone)]
pub(super) enum Door {
    Router(Router),
    Http {
        client: reqwest::Client,
        /// Without a slash at its end.
        base: String,
    },
}

impl Door {
    pub(super) fn router(router: Router) -> Self {
        Self::Router(router)
    }

    pub(super) fn http(url: &Url) -> Result<Self, Error> {
        let problem = if !matches!(url.scheme(), "http" | "https") {
            Some("write a URL of http or https")
        } else if !url.username().is_empty() || url.password().is_some() {
            Some("leave credentials out: each caller brings a token")
        } else if url.query().is_some() || url.fragment().is_some() {
            Some("leave out what begins with ? or #")
        } else if url.path().trim_end_matches('/').ends_with(MCP_PATH) {
            Some("leave out /mcp: it is where the paths begin")
        } else if url.path().trim_end_matches('/').ends_with("/api") {
            Some("leave out /api: the gateway has no such path")
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(Error::GatewayUrl(problem));
        }
        // A token goes to the gateway and nowhere else: not to where it redirects, nor to a proxy of the environment.
        let client = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_LIMIT)
            .user_agent("wardgate-agent")
            .build()
            .map_err(|_| Error::GatewayUrl("no TLS: the system's certificates cannot be read"))?;
        Ok(Self::Http {
            client,
            base: url.as_str().trim_end_matches('/').to_owned(),
        })
    }

    /// Where `path` is.
    pub(super) fn uri(&self, path: &str) -> Result<Uri, GatewayError> {
        let base = match self {
            Self::Router(_) => IN_PROCESS,
            Self::Http { base, .. } => base,
        };
        format!("{base}{path}")
            .parse()
            .map_err(|_| GatewayError::UnknownToolset)
    }

    pub(super) async fn send(
        &self,
        request: Request<String>,
    ) -> Result<Response<Body>, GatewayError> {
        match self {
            Self::Router(router) => {
                let response = router.clone().oneshot(request.map(Body::from)).await;
                response.map_err(|never| match never {})
            }
            Self::Http { client, .. } => {
                let request = request.try_into().map_err(|_| GatewayError::Unreachable)?;
                let response = client.execute(request).await;
                let response = response.map_err(|_| GatewayError::Unreachable)?;
                Ok(http::Response::from(response).map(Body::new))
            }
        }
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Router(_) => f.write_str("in process"),
            Self::Http { base, .. } => f.write_str(base),
        }
    }
}
