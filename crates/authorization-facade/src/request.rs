//! Authorization requests, and the state that is derived from them until the client has its tokens.

use serde::{Deserialize, Serialize};
use url::Url;

/// A validated request of a client (RFC 6749 §4.1.1, RFC 7636 §4.3).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AuthorizationRequest {
    /// The digest of the client id.
    #[serde(rename = "c")]
    pub(crate) client: String,
    /// The client's name for itself, for the consent page.
    #[serde(rename = "n")]
    pub(crate) client_name: String,
    #[serde(rename = "r")]
    pub(crate) redirect_uri: String,
    /// The client's `state`, which is returned unchanged.
    #[serde(rename = "s")]
    pub(crate) state: Option<String>,
    /// The PKCE challenge by S256.
    #[serde(rename = "p")]
    pub(crate) challenge: String,
    /// The granted scopes, as clients write them.
    #[serde(rename = "o")]
    pub(crate) scope: String,
}

/// The form of the consent page, which is valid only in the browser in which it was shown.
#[derive(Serialize, Deserialize)]
pub(crate) struct ConsentForm {
    /// The digest of the browser's cookie.
    pub(crate) browser: String,
    pub(crate) request: AuthorizationRequest,
}

/// A request whose person is signing in at the identity provider.
#[derive(Serialize, Deserialize)]
pub(crate) struct PendingSignIn {
    pub(crate) request: AuthorizationRequest,
    /// The `state` that the provider returns.
    pub(crate) state: String,
    /// The PKCE verifier of the request to the provider.
    pub(crate) verifier: String,
}

/// The content of an authorization code of the facade.
#[derive(Serialize, Deserialize)]
pub(crate) struct CodeGrant {
    /// The id of the code, which can be used once.
    pub(crate) id: [u8; 16],
    pub(crate) client: String,
    pub(crate) redirect_uri: String,
    pub(crate) challenge: String,
    pub(crate) scope: String,
    /// The provider's code, which was issued for the request with `verifier`.
    pub(crate) code: String,
    pub(crate) verifier: String,
}

/// The content of a refresh token of the facade.
#[derive(Serialize, Deserialize)]
pub(crate) struct RefreshGrant {
    /// The id of the token, which can be used once.
    pub(crate) id: [u8; 16],
    pub(crate) client: String,
    pub(crate) scope: String,
    /// The provider's refresh token.
    pub(crate) token: String,
}

impl AuthorizationRequest {
    /// Returns the URL that leads the browser back to the client, with these parameters, the `state`, and the issuer
    /// (RFC 9207).
    pub(crate) fn response_url(&self, issuer: &str, parameters: &[(&str, &str)]) -> String {
        let Ok(mut url) = Url::parse(&self.redirect_uri) else {
            return self.redirect_uri.clone();
        };
        let mut query = url.query_pairs_mut();
        query.extend_pairs(parameters);
        if let Some(state) = &self.state {
            query.append_pair("state", state);
        }
        query.append_pair("iss", issuer);
        drop(query);
        url.into()
    }
}
