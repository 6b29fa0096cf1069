//! The authorization code grant with PKCE (OAuth 2.1 §4.1).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use url::Url;
use wardgate_domain::Digest;

use super::discovery::ServerMetadata;
use super::{AuthError, ConnectError};

/// A request for an authorization code, as far as it must be known again when the browser returns.
#[derive(Debug, Clone, Copy)]
pub struct CodeRequest<'a> {
    /// The redirect URI to which the browser returns.
    pub redirect_uri: &'a str,
    /// The PKCE code verifier (RFC 7636), which is a secret.
    pub verifier: &'a str,
}

impl<'a> CodeRequest<'a> {
    /// Returns the URL to which the browser is sent. `state` is returned with the code, and `further` are additional
    /// parameters.
    pub(super) fn url<'p>(
        self,
        endpoint: &Url,
        client_id: &str,
        state: &str,
        further: impl IntoIterator<Item = (&'p str, &'p str)>,
    ) -> Url {
        let challenge = Digest::compute(self.verifier.as_bytes());
        let challenge = URL_SAFE_NO_PAD.encode(challenge.as_bytes());
        let mut url = endpoint.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", client_id)
            .append_pair("redirect_uri", self.redirect_uri)
            .append_pair("state", state)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .extend_pairs(further);
        url
    }

    /// Returns the form of the token request for `code`.
    pub(super) fn form(self, code: &'a str) -> Vec<(&'static str, &'a str)> {
        vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", self.redirect_uri),
            ("code_verifier", self.verifier),
        ]
    }
}

/// Checks the issuer of an authorization response exactly. It may be missing only if `names_itself` is false (RFC 9207
/// §2.4).
pub(super) fn check_issuer(
    said: Option<&str>,
    expected: Option<&str>,
    names_itself: bool,
) -> Result<(), ConnectError> {
    let is_expected = said.map_or(!names_itself, |said| expected.is_none_or(|it| it == said));
    is_expected.then_some(()).ok_or(ConnectError::OtherIssuer)
}

/// The endpoints and capabilities of an authorization server.
pub(super) struct AuthorizationServer {
    pub(super) issuer: Option<String>,
    pub(super) authorization_url: Url,
    pub(super) token_url: Url,
    pub(super) registration_url: Option<Url>,
    pub(super) revocation_url: Option<Url>,
    pub(super) end_session_url: Option<Url>,
    pub(super) methods: Option<Vec<String>>,
    pub(super) takes_metadata_documents: bool,
    /// Whether the server returns its issuer in authorization responses (RFC 9207).
    pub(super) names_itself: bool,
    pub(super) scope: Option<String>,
    pub(super) resource: Option<String>,
}

impl AuthorizationServer {
    /// Creates a server from configured endpoints, without metadata.
    pub(super) fn from_endpoints(
        issuer: Option<String>,
        authorization_url: Url,
        token_url: Url,
    ) -> Self {
        Self {
            issuer,
            authorization_url,
            token_url,
            registration_url: None,
            revocation_url: None,
            end_session_url: None,
            methods: None,
            takes_metadata_documents: false,
            names_itself: false,
            scope: None,
            resource: None,
        }
    }

    /// Creates a server from its metadata.
    pub(super) fn from_metadata(metadata: ServerMetadata) -> Result<Self, AuthError> {
        let authorization_url = metadata.authorization_endpoint.ok_or(AuthError::NotFound(
            "its metadata has no authorization_endpoint",
        ))?;
        Ok(Self {
            registration_url: metadata.registration_endpoint.map(|url| url.0),
            revocation_url: metadata.revocation_endpoint.map(|url| url.0),
            end_session_url: metadata.end_session_endpoint.map(|url| url.0),
            methods: metadata.token_endpoint_auth_methods_supported,
            takes_metadata_documents: metadata.client_id_metadata_document_supported,
            names_itself: metadata.authorization_response_iss_parameter_supported,
            ..Self::from_endpoints(
                Some(metadata.issuer),
                authorization_url.0,
                metadata.token_endpoint.0,
            )
        })
    }
}
