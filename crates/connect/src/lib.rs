//! The browser pages on which a user permits a source to act in their name, beginning with the link that their client received.
//!
//! ```text
//!   a call without a grant ─▶ link, sealed for this caller and source, with the tool-runner's proof of the caller
//!   GET  /connect/{link}    ─▶ the issuer signs the browser's user in (OpenID Connect, PKCE)
//!   GET  /connect/signed-in ─▶ the same person as the caller? else 403
//!   GET  /connect/consent   ─▶ page: the source and its scopes ─ POST ─▶ once ─▶ the authorization server of the source
//!   GET  /connect/callback  ─▶ code ─▶ tool-runner: tokens, stored and on record
//! ```
//!
//! The state between two requests is sealed in one `__Host-` cookie, so any replica can serve any request. A link can
//! be used once across all replicas. The link alone permits nothing: another person who opens it learns only the name
//! of a source.

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

pub use prompt::{ConnectPrompt, declined_message, prompt_to_connect};

/// The error for a setting of `gateway.sign_in` that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is invalid, for this reason.
    #[error("{0}")]
    Config(String),
    /// The keys of the issuer cannot be loaded.
    #[error(transparent)]
    Edge(#[from] wardgate_edge::Error),
}

/// The parts of the gateway that the pages use.
pub struct GatewayParts {
    /// The client of the tool-runner, which stores the grants.
    pub runner: ToolRunnerClient,
    /// The store that records which links were used.
    pub store: Arc<Store>,
    /// The sealer of links and cookies.
    pub sealer: Arc<Sealer>,
    /// The hosts of the gateway.
    pub origins: Origins,
    /// The URL at which clients reach the gateway, without a trailing slash.
    pub public_url: String,
    /// The limits of a form.
    pub body_limits: BodyLimits,
    /// The clock and the source of randomness.
    pub ambient: Ambient,
}

/// The pages and their state.
pub struct ConnectPages {
    /// The client of the issuer, or `None` if users cannot connect sources.
    sign_in: Option<SignIn>,
    parts: GatewayParts,
}

impl ConnectPages {
    /// Reads the secret of `sign_in`. Without `sign_in`, users cannot connect sources. `auth` contains the issuers
    /// whose tokens the gateway accepts.
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

/// The section `gateway.sign_in`: the issuer that signs in the users who connect sources, and the client at it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignInConfig {
    /// One of the issuers of `auth`. Its access tokens must identify callers by the same subject as its identity tokens.
    pub issuer: String,
    /// The client ID of the gateway at the issuer.
    pub client_id: String,
    /// A file with the secret of a confidential client, or `None` for a public client.
    #[serde(default)]
    pub client_secret_file: Option<std::path::PathBuf>,
    /// The authorization endpoint, if the issuer's metadata is not at `/.well-known/openid-configuration` below the issuer.
    #[serde(default)]
    pub authorization_url: Option<String>,
    /// The token endpoint, under the same condition.
    #[serde(default)]
    pub token_url: Option<String>,
}

impl SignInConfig {
    /// Checks the settings and reads the secret as a start does. Sends no request. `auth` contains the issuers whose tokens
    /// the gateway accepts.
    pub async fn check_files(&self, auth: &AuthConfig) -> Result<(), Error> {
        let opened = sign_in::open_provider(self, auth, &Ambient::system()).await;
        opened.map(drop)
    }
}

/// The paths of the pages, below the public URL.
const CALLBACK: &str = "/connect/callback";
const SIGNED_IN: &str = "/connect/signed-in";
const CONSENT: &str = "/connect/consent";
const CLIENT: &str = "/connect/client.json";

/// The required caller of the later pages: the browser with the cookie of the previous request.
const BROWSER: &str = "the browser that opened the link";

/// All routes, which are for browsers.
const ROUTES: &[Route<Arc<ConnectPages>>] = &[
    Route {
        info: RouteInfo::new(
            "/connect/{link}",
            GET,
            "anyone with the link",
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
            "200 HTML: the requested access. `POST` of its form: 200 HTML, which leads to the source's authorization server",
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
            "anyone",
            "200 JSON: the gateway's OAuth client metadata",
        ),
        handler: |pages, _| {
            let pages = Arc::clone(pages);
            get(move || async move { flow::client(&pages) })
        },
    },
];

/// Returns the handler of a page that `show` renders.
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

/// Returns the description of every route, for the reference documentation.
pub fn listed_routes() -> Vec<&'static RouteInfo> {
    routes::describe(ROUTES)
}

/// Returns the router of the pages.
pub fn router(connect_pages: &Arc<ConnectPages>) -> Router {
    routes::build_router(ROUTES, connect_pages)
}
