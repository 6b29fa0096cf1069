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
use axum::routing::get;
use serde::Deserialize;

use crate::Gateway;

pub(crate) use prompt::{ConnectPrompt, declined, prompt_to_connect};
pub(crate) use sign_in::SignIn;

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

/// The paths that browsers open.
pub(crate) fn router(gateway: &Arc<Gateway>) -> Router {
    let link = Arc::clone(gateway);
    let page = |handler: fn(Arc<Gateway>, Parts) -> flow::ResponseFuture| {
        let gateway = Arc::clone(gateway);
        get(move |parts: Parts| handler(gateway, parts))
    };
    let consent = Arc::clone(gateway);
    Router::new()
        .route(
            "/connect/{link}",
            get(move |Path(text): Path<String>, parts: Parts| flow::enter(link, text, parts)),
        )
        .route(
            SIGNED_IN,
            page(|gateway, parts| Box::pin(flow::signed_in(gateway, parts))),
        )
        .route(
            CONSENT,
            page(|gateway, parts| Box::pin(flow::consent(gateway, parts)))
                .post(move |request: Request| flow::decide(consent, request)),
        )
        .route(
            CALLBACK,
            page(|gateway, parts| Box::pin(flow::callback(gateway, parts))),
        )
        .route(
            CLIENT,
            page(|gateway, _| Box::pin(async move { flow::client(&gateway) })),
        )
}
