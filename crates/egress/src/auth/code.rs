//! The authorization code grant with PKCE (OAuth 2.1 §4.1).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use url::Url;
use wardgate_domain::Digest;

use super::discovery::ServerMetadata;
use super::{AuthError, ConnectError};

/// A request for a code, as far as it has to be known again when the browser comes back.
#[derive(Debug, Clone, Copy)]
pub struct CodeRequest<'a> {
    /// Where the browser comes back to.
    pub redirect_uri: &'a str,
    /// What its challenge is made of (RFC 7636); a secret.
    pub verifier: &'a str,
}

impl<'a> CodeRequest<'a> {
    /// Where the browser goes; `state` comes back with the code, and `further` are parameters of this grant alone.
    pub(super) fn url<'p>(
        self,
        endpoint: &Url,
        client_id: &str,
        state: &str,
        further: impl IntoIterator<Item = (&'p str, &'p str)>,
    ) -> Url {
        let challenge = Digest::of(self.verifier.as_bytes());
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

    /// What a token is asked for with.
    pub(super) fn form(self, code: &'a str) -> Vec<(&'static str, &'a str)> {
        vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", self.redirect_uri),
            ("code_verifier", self.verifier),
        ]
    }
}

/// Checks who sent the browser back: to the letter, and always said where `names_itself` announces it (RFC 9207 §2.4).
pub(super) fn check_issuer(
    said: Option<&str>,
    expected: Option<&str>,
    names_itself: bool,
) -> Result<(), ConnectError> {
    let is_expected = said.map_or(!names_itself, |said| expected.is_none_or(|it| it == said));
    is_expected.then_some(()).ok_or(ConnectError::OtherIssuer)
}

/// Where an authorization server is, and what it can do.
pub(super) struct AuthorizationServer {
    pub(super) issuer: Option<String>,
    pub(super) authorization_url: Url,
    pub(super) token_url: Url,
    pub(super) registration_url: Option<Url>,
    pub(super) revocation_url: Option<Url>,
    pub(super) end_session_url: Option<Url>,
    pub(super) methods: Option<Vec<String>>,
    pub(super) takes_metadata_documents: bool,
    /// It says who it is when it sends the person back (RFC 9207).
    pub(super) names_itself: bool,
    pub(super) scope: Option<String>,
    pub(super) resource: Option<String>,
}

impl AuthorizationServer {
    /// The one that is configured, of which nothing else is known.
    pub(super) fn configured(
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

    /// The one of this metadata.
    pub(super) fn found(metadata: ServerMetadata) -> Result<Self, AuthError> {
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
            ..Self::configured(
                Some(metadata.issuer),
                authorization_url.0,
                metadata.token_endpoint.0,
            )
        })
    }
}
