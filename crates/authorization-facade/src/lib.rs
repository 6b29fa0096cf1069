//! An OAuth authorization server for MCP clients, in front of an identity provider that does not support dynamic client
//! registration or refuses `resource`.
//!
//! ```text
//!   client                     facade                                     provider
//!   GET  metadata ───────────▶ RFC 8414
//!   POST /oauth/register ────▶ client id, sealed (RFC 7591)        (or the URL of a metadata document, fetched)
//!   browser ─────────────────▶ GET /oauth/authorize: consent page
//!                              POST: state in a cookie ──────────────────▶ sign-in, as the one client it knows
//!                              GET /oauth/callback ◀───────────────────── the provider's code
//!   its redirect URI ◀──────── a code of the facade, which contains the provider's, sealed
//!   POST /oauth/token ───────▶ PKCE, single use ─────────────────────────▶ the provider's tokens
//!                     ◀─────── the provider's own access token; its refresh token, sealed for this client
//! ```
//!
//! The facade provides registration, consent and redirects. It neither signs nor stores tokens: state between two
//! requests is sealed and kept by the client or the browser, so any replica serves any request. Codes and refresh
//! tokens are valid for a single use over all replicas, which the gateway's store guarantees. A token that the gateway
//! would not accept is not issued.

mod authorize;
mod callback;
mod client;
mod client_document;
mod config;
mod elsewhere;
mod error;
mod metadata;
mod pages;
mod parameters;
mod preset;
mod redirect_uri;
mod register;
mod request;
mod revoke;
mod scopes;
mod token;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use metrics::counter;
use wardgate_domain::{Ambient, mark_invisible};
use wardgate_edge::routes::{self, GET, GET_AND_POST, POST, Route, RouteInfo};
use wardgate_edge::{AuthConfig, Authenticator, BodyLimits, Origins};
use wardgate_egress::ProviderClient;
use wardgate_gateway_store::{Sealer, Store};
use wardgate_telemetry::names;

use client_document::ClientDocuments;
use elsewhere::ELSEWHERE;
use error::OAuthError;
use scopes::ScopeRules;

pub use config::AuthorizationConfig;
pub use preset::Preset;

/// The paths of the endpoints, relative to the public URL.
const REGISTER: &str = "/oauth/register";
const AUTHORIZE: &str = "/oauth/authorize";
const CALLBACK: &str = "/oauth/callback";
const TOKEN: &str = "/oauth/token";
const REVOKE: &str = "/oauth/revoke";

/// Maximum size of a form or a registration, in bytes. The longest part is a refresh token.
const MAX_BODY: usize = 96 * 1_024;

/// An invalid setting of `gateway.authorization`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// The parts of the gateway that the facade uses.
pub struct FacadeParts {
    /// The store, which records the used codes.
    pub store: Arc<Store>,
    /// The sealer of texts that are given to clients and browsers.
    pub sealer: Arc<Sealer>,
    /// The authenticator, which verifies the tokens that the gateway accepts.
    pub auth: Arc<Authenticator>,
    /// The hosts of the gateway.
    pub origins: Origins,
    /// The URL at which clients reach the gateway, without a trailing slash. It is the issuer of the facade.
    pub public_url: String,
    /// The limits of a request body.
    pub body_limits: BodyLimits,
    /// The clock and the source of randomness.
    pub ambient: Ambient,
}

/// The authorization server that clients find at the gateway.
pub enum AuthorizationServer {
    /// The gateway itself, in front of an identity provider.
    Facade(Arc<AuthorizationFacade>),
    /// Another server. Its metadata is at this URL, if it is configured.
    Elsewhere(Option<String>),
}

impl AuthorizationServer {
    /// Opens the facade if it is configured, or else uses the server whose metadata is at `elsewhere`.
    pub async fn open(
        config: Option<&AuthorizationConfig>,
        elsewhere: Option<&str>,
        trusted: &AuthConfig,
        parts: FacadeParts,
    ) -> Result<Self, Error> {
        Ok(match config {
            Some(config) => Self::Facade(AuthorizationFacade::open(config, trusted, parts).await?),
            None => Self::Elsewhere(elsewhere.map(ToOwned::to_owned)),
        })
    }

    /// Returns the routes.
    pub fn router(&self) -> Router {
        match self {
            Self::Facade(facade) => routes::build_router(ROUTES, facade),
            Self::Elsewhere(url) => routes::build_router(ELSEWHERE, url),
        }
    }
}

/// The facade of one identity provider.
pub struct AuthorizationFacade {
    config: AuthorizationConfig,
    scopes: ScopeRules,
    provider: ProviderClient,
    /// The host where people sign in, for the consent page.
    provider_host: String,
    documents: ClientDocuments,
    parts: FacadeParts,
}

impl AuthorizationFacade {
    /// Checks the settings and reads the client secret, but sends no request to the provider yet. `trusted` are the
    /// issuers whose tokens the gateway accepts.
    async fn open(
        config: &AuthorizationConfig,
        trusted: &AuthConfig,
        parts: FacadeParts,
    ) -> Result<Arc<Self>, Error> {
        config.validate(trusted)?;
        Ok(Arc::new(Self {
            scopes: ScopeRules::new(config),
            provider: config.open_provider(&parts.ambient).await?,
            provider_host: config.provider().host(),
            documents: ClientDocuments::new(config, &parts.public_url)?,
            config: config.clone(),
            parts,
        }))
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.parts.public_url)
    }

    /// Refuses a request for another host. The origin is not checked, because no request is authorized by cookies
    /// alone.
    fn check_host(&self, parts: &Parts) -> Result<(), OAuthError> {
        let mut headers = HeaderMap::new();
        for host in parts.headers.get_all(header::HOST) {
            headers.append(header::HOST, host.clone());
        }
        let checked = self.parts.origins.check(&parts.uri, &headers);
        checked.map_err(|_| OAuthError::invalid_request("this host is not served"))
    }

    /// Reads the body of a request, which must have this media type.
    async fn read_body(&self, request: Request, media_type: &str) -> Result<Vec<u8>, OAuthError> {
        let (parts, mut body) = request.into_parts();
        self.check_host(&parts)?;
        let stated = parts.headers.get(header::CONTENT_TYPE);
        let stated = stated.and_then(|it| it.to_str().ok()).unwrap_or_default();
        let stated = stated.split(';').next().unwrap_or_default().trim();
        if !stated.eq_ignore_ascii_case(media_type) {
            return Err(OAuthError::invalid_request(
                "this endpoint does not support the Content-Type",
            ));
        }
        let limits = BodyLimits {
            bytes: self.parts.body_limits.bytes.min(MAX_BODY),
            ..self.parts.body_limits
        };
        let body = wardgate_edge::read_body(&mut body, limits).await;
        let body = body.map_err(|refused| OAuthError {
            status: refused.status(),
            ..OAuthError::invalid_request("the body is too large, late or incomplete")
        })?;
        Ok(body.to_vec())
    }
}

/// Counts a request of an endpoint by its outcome.
fn count(endpoint: &'static str, outcome: &'static str) {
    counter!(names::OAUTH_REQUESTS, "endpoint" => endpoint, "outcome" => outcome).increment(1);
}

/// Returns a client's name for itself, shortened and with its invisible characters marked.
fn display_name(name: &str) -> String {
    const LONGEST: usize = 80;
    let marked = mark_invisible(name);
    marked.chars().take(LONGEST).collect()
}

/// Allows pages of all origins to read the response, which does not depend on cookies (CORS).
fn open_to_pages(mut response: Response) -> Response {
    let everyone = header::HeaderValue::from_static("*");
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, everyone);
    response
}

/// Returns a CORS preflight response that allows all origins these methods and headers.
fn preflight(methods: &'static str, request_headers: &'static str) -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, methods),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, request_headers),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Handles the preflight of metadata requests. A page may send the header with its protocol version.
async fn metadata_preflight() -> Response {
    preflight("GET", "mcp-protocol-version")
}

const CLIENTS: &str = "clients, and pages of any origin";
const BROWSERS: &str = "the browser of a client's user";

/// The routes of a gateway with `gateway.authorization`.
const ROUTES: &[Route<Arc<AuthorizationFacade>>] = &[
    Route {
        info: RouteInfo::new(
            metadata::WELL_KNOWN,
            GET,
            "anyone, and pages of any origin",
            "200 JSON: authorization server metadata (RFC 8414)",
        ),
        handler: |facade, _| metadata_handler(facade),
    },
    Route {
        info: RouteInfo::new(
            "/.well-known/oauth-authorization-server/{*path}",
            GET,
            "anyone, and pages of any origin",
            "200 JSON, for clients that append the path of the resource",
        ),
        handler: |facade, _| metadata_handler(facade),
    },
    Route {
        info: RouteInfo::new(
            REGISTER,
            POST,
            CLIENTS,
            "201 JSON: a client id (RFC 7591); 400 with the error",
        ),
        handler: |facade, _| endpoint_handler(facade, "register", register::register),
    },
    Route {
        info: RouteInfo::new(
            AUTHORIZE,
            GET_AND_POST,
            BROWSERS,
            "200 HTML: the client and the requested access. `POST` of its form: 200 HTML, which leads to the identity provider or back to the client",
        ),
        handler: |facade, _| {
            let form = Arc::clone(facade);
            let facade = Arc::clone(facade);
            get(move |parts: Parts| authorize::show_consent(facade, parts))
                .post(move |request: Request| authorize::decide(form, request))
        },
    },
    Route {
        info: RouteInfo::new(
            CALLBACK,
            GET,
            "the browser that gave consent",
            "303 to the client, with a code or an error",
        ),
        handler: |facade, _| {
            let facade = Arc::clone(facade);
            get(move |parts: Parts| callback::come_back(facade, parts))
        },
    },
    Route {
        info: RouteInfo::new(
            TOKEN,
            POST,
            CLIENTS,
            "200 JSON: the provider's tokens for a code or a refresh token; 400 according to RFC 6749 §5.2",
        ),
        handler: |facade, _| endpoint_handler(facade, "token", token::token),
    },
    Route {
        info: RouteInfo::new(
            REVOKE,
            POST,
            CLIENTS,
            "200: the refresh token is revoked at the provider (RFC 7009)",
        ),
        handler: |facade, _| endpoint_handler(facade, "revoke", revoke::revoke),
    },
];

fn metadata_handler(facade: &Arc<AuthorizationFacade>) -> MethodRouter {
    let facade = Arc::clone(facade);
    get(move || async move { open_to_pages(metadata::document(&facade)) })
        .options(metadata_preflight)
}

/// Creates the handler of an endpoint for POST requests of clients. Its errors are JSON (RFC 6749 §5.2).
fn endpoint_handler<F>(
    facade: &Arc<AuthorizationFacade>,
    endpoint: &'static str,
    answer: fn(Arc<AuthorizationFacade>, Request) -> F,
) -> MethodRouter
where
    F: Future<Output = Result<Response, OAuthError>> + Send + 'static,
{
    let facade = Arc::clone(facade);
    post(move |request: Request| async move {
        let answered = answer(facade, request).await;
        count(
            endpoint,
            answered.as_ref().map_or_else(|it| it.code, |_| "ok"),
        );
        open_to_pages(answered.unwrap_or_else(OAuthError::into_response))
    })
    .options(|| async { preflight("POST", "content-type, mcp-protocol-version") })
}

/// Returns the description of every route, for the reference documentation.
pub fn listed_routes() -> Vec<&'static RouteInfo> {
    let tables = [routes::describe(ELSEWHERE), routes::describe(ROUTES)];
    tables.concat()
}
