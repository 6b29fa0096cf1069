//! The reason why an authorization code could not be requested or exchanged.

use super::AuthError;

/// The reason why a grant could not be started or finished.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    /// The authorization server was not found, or it refused the request.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The store is unavailable. Nothing was stored.
    #[error("the authorizations cannot be read or stored now; try again later")]
    Store,
    /// The server does not support PKCE, which OAuth 2.1 §7.5.2 requires.
    #[error("the authorization server does not support PKCE with S256, which is required")]
    NoPkce,
    /// No client is configured and the server does not register clients.
    #[error(
        "the authorization server does not register clients; add `client_id` to `auth` of the source"
    )]
    NoClient,
    /// The pending grant has expired or was not started here.
    #[error("the authorization is no longer pending; start again")]
    Lapsed,
    /// The response came from another issuer (RFC 9207 §2.4).
    #[error("the answer came from an authorization server other than the requested one")]
    OtherIssuer,
}
