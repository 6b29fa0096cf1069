//! How a person lets a source act in their name: the pages of a browser, from the link that their client was given.
//!
//! ```text
//!   a call without a grant ─▶ link, sealed for that caller and source
//!   GET  /connect/{link}    ─▶ the issuer signs the browser's user in (OpenID Connect, PKCE)
//!   GET  /connect/signed-in ─▶ the same person as the caller? else 403
//!   GET  /connect/consent   ─▶ page: which service, what it is asked ─ POST ─▶ once ─▶ the source's own server
//!   GET  /connect/callback  ─▶ code ─▶ tool-runner: tokens, stored and on record
//! ```
//!
//! What has to be known between two requests is sealed in one `__Host-` cookie, so any replica serves any of them; what
//! is good once is so over all replicas. Nothing here is decided by the link alone: whoever else opens it learns the
//! name of a source and nothing more.

mod consent_flow;
mod flow;
mod pages;
mod prompt;
mod sign_in;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request};
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use serde::Deserialize;
use wardgate_gateway_store::{Sealer, Store};

use wardgate_domain::Ambient;
use wardgate_edge::routes::{self, GET, GET_AND_POST, Route, RouteInfo};
use wardgate_edge::{AuthConfig, BodyLimits, Origins};
use wardgate_rpc::client::ToolRunnerClient;

use sign_in::SignIn;

pub use prompt::{ConnectPrompt, declined, prompt_to_connect};

/// A setting of `gateway.sign_in` that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What to change.
    #[error("{0}")]
    Config(String),
    /// The issuer's keys.
    #[error(transparent)]
    Edge(#[from] wardgate_edge::Error),
}

/// What the pages share with the gateway that serves them.
pub struct GatewayParts {
    /// It stores the grants.
    pub runner: ToolRunnerClient,
    /// It knows which links were used.
    pub store: Arc<Store>,
    /// Seals links and cookies.
    pub sealer: Arc<Sealer>,
    /// The hosts that are the gateway's.
    pub origins: Origins,
    /// How clients reach the gateway, without a slash at its end.
    pub public_url: String,
    /// The limits of a form.
    pub body_limits: BodyLimits,
    /// Clock and randomness.
    pub ambient: Ambient,
}

/// The pages, and what they work with.
pub struct ConnectPages {
    /// None: callers let no source act in their name here.
    sign_in: Option<SignIn>,
    parts: GatewayParts,
}

impl ConnectPages {
    /// Reads the secret of `sign_in`; without it callers let no source act in their name here. `auth` has the issuers whose
    /// tokens the gateway accepts.
    pub async fn open(
        sign_in: Option<&SignInConfig>,
        auth: &AuthConfig,
        parts: GatewayParts,
    ) -> Result<Arc<Self>, Error> {
        let sign_in = match sign_in {
            Some(sign_in) => Some(SignIn::open(sign_in, auth, &parts.ambient).await?),
            None => None,
        };
        Ok(Arc::new(Self { sign_in, parts }))
    }
}

/// Whom browsers are signed in by, for grants of callers to sources.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignInConfig {
    /// One of the issuers of `auth`; its tokens name callers as it names whom it signs in.
    pub issuer: String,
    /// The gateway's name at the issuer.
    pub client_id: String,
    /// A file with the secret of a confidential client. None: a public client.
    #[serde(default)]
    pub client_secret_file: Option<std::path::PathBuf>,
    /// Where the issuer's metadata is not at `/.well-known/openid-configuration` below it: where people sign in.
    #[serde(default)]
    pub authorization_url: Option<String>,
    /// The same: where codes become tokens.
    #[serde(default)]
    pub token_url: Option<String>,
}

/// Below the public URL.
const CALLBACK: &str = "/connect/callback";
const SIGNED_IN: &str = "/connect/signed-in";
const CONSENT: &str = "/connect/consent";
const CLIENT: &str = "/connect/client.json";

/// Who has the cookie of the request before.
const BROWSER: &str = "the browser that opened the link";

/// Every path, all for browsers.
const ROUTES: &[Route<Arc<ConnectPages>>] = &[
    Route {
        info: RouteInfo::new(
            "/connect/{link}",
            GET,
            "who has the link",
            "303 to the issuer's sign-in",
        ),
        handler: |pages, _| {
            let pages = Arc::clone(pages);
            get(move |Path(text): Path<String>, parts: Parts| flow::enter(pages, text, parts))
        },
    },
    Route {
        info: RouteInfo::new(SIGNED_IN, GET, BROWSER, "303 to the consent page"),
        handler: |pages, _| page_handler(pages, flow::signed_in),
    },
    Route {
        info: RouteInfo::new(
            CONSENT,
            GET_AND_POST,
            BROWSER,
            "200 HTML: who is asked for what. `POST` of its form: 200 HTML, which leads to the source's own server",
        ),
        handler: |pages, _| {
            let form = Arc::clone(pages);
            page_handler(pages, flow::consent)
                .post(move |request: Request| flow::decide(form, request))
        },
    },
    Route {
        info: RouteInfo::new(CALLBACK, GET, BROWSER, "200 HTML: connected"),
        handler: |pages, _| page_handler(pages, flow::callback),
    },
    Route {
        info: RouteInfo::new(
            CLIENT,
            GET,
            "everybody",
            "200 JSON: the gateway's OAuth client metadata",
        ),
        handler: |pages, _| {
            let pages = Arc::clone(pages);
            get(move || async move { flow::client(&pages) })
        },
    },
];

/// The handler of a page that is shown by `show`.
fn page_handler<F>(
    pages: &Arc<ConnectPages>,
    show: fn(Arc<ConnectPages>, Parts) -> F,
) -> MethodRouter
where
    F: Future<Output = Response> + Send + 'static,
{
    let pages = Arc::clone(pages);
    get(move |parts: Parts| show(pages, parts))
}

/// Every path, for the reference.
pub fn listed_routes() -> Vec<&'static RouteInfo> {
    routes::describe(ROUTES)
}

/// The paths that browsers open.
pub fn router(connect_pages: &Arc<ConnectPages>) -> Router {
    routes::build_router(ROUTES, connect_pages)
}
