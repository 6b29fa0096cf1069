//! An authorization request, and what becomes of it on the way from the client to its tokens.

use serde::{Deserialize, Serialize};
use url::Url;

/// A checked request of a client (RFC 6749 §4.1.1, RFC 7636 §4.3).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AuthorizationRequest {
    /// The digest of its client id.
    #[serde(rename = "c")]
    pub(crate) client: String,
    /// What the client calls itself, for the page.
    #[serde(rename = "n")]
    pub(crate) client_name: String,
    #[serde(rename = "r")]
    pub(crate) redirect_uri: String,
    /// Comes back as it is.
    #[serde(rename = "s")]
    pub(crate) state: Option<String>,
    /// By S256.
    #[serde(rename = "p")]
    pub(crate) challenge: String,
    /// What is granted of what the client asked for, as clients write it.
    #[serde(rename = "o")]
    pub(crate) scope: String,
}

/// The form of the consent page: good in the one browser that it was shown in.
#[derive(Serialize, Deserialize)]
pub(crate) struct ConsentForm {
    /// The digest of what the browser's cookie has.
    pub(crate) browser: String,
    pub(crate) request: AuthorizationRequest,
}

/// A request whose person is with the identity provider.
#[derive(Serialize, Deserialize)]
pub(crate) struct PendingSignIn {
    pub(crate) request: AuthorizationRequest,
    /// What the provider sends back.
    pub(crate) state: String,
    /// Of our own request to the provider.
    pub(crate) verifier: String,
}

/// What an authorization code of ours holds.
#[derive(Serialize, Deserialize)]
pub(crate) struct CodeGrant {
    /// What is good once.
    pub(crate) id: [u8; 16],
    pub(crate) client: String,
    pub(crate) redirect_uri: String,
    pub(crate) challenge: String,
    pub(crate) scope: String,
    /// The provider's code, which became of the request with `verifier`.
    pub(crate) code: String,
    pub(crate) verifier: String,
}

/// What a refresh token of ours holds.
#[derive(Serialize, Deserialize)]
pub(crate) struct RefreshGrant {
    /// What is good once.
    pub(crate) id: [u8; 16],
    pub(crate) client: String,
    pub(crate) scope: String,
    /// The provider's refresh token.
    pub(crate) token: String,
}

impl AuthorizationRequest {
    /// Where the browser goes back to the client, with these parameters and what every response has: `state`, and who we
    /// are (RFC 9207).
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
