//! Clients and their descriptions of themselves, which nobody has verified.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use wardgate_domain::Digest;
use wardgate_gateway_store::Purpose;

use crate::AuthorizationFacade;
use crate::error::OAuthError;
use crate::redirect_uri::{self, RedirectRefusal};

/// Maximum number of redirect URIs of one client.
const MAX_REDIRECT_URIS: usize = 10;

/// A client's description of itself (RFC 7591 §2).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ClientDescription {
    #[serde(rename = "n")]
    pub(crate) name: String,
    #[serde(rename = "r")]
    pub(crate) redirect_uris: Vec<String>,
}

/// The fields of client metadata that are used, in a registration or in a document.
#[derive(Deserialize)]
pub(crate) struct ClientMetadata {
    pub(crate) client_id: Option<String>,
    client_name: Option<String>,
    #[serde(default)]
    redirect_uris: Vec<String>,
    token_endpoint_auth_method: Option<String>,
    response_types: Option<Vec<String>>,
    grant_types: Option<Vec<String>>,
}

impl ClientMetadata {
    /// Returns whether the client has no secret.
    pub(crate) fn is_public(&self) -> bool {
        let method = self.token_endpoint_auth_method.as_deref();
        method.is_none_or(|method| method == "none")
    }

    /// Validates the metadata and returns the description, without the redirect URIs to other hosts than `hosts`, if
    /// the operator lists allowed ones.
    pub(crate) fn describe(
        self,
        hosts: Option<&[String]>,
    ) -> Result<ClientDescription, OAuthError> {
        const UNSAFE: OAuthError = OAuthError::new(
            "invalid_redirect_uri",
            "send redirect_uris: https, http to loopback, or a private scheme of the program, without a fragment",
        );
        let wants = |list: &Option<Vec<String>>, what: &str| {
            list.as_ref()
                .is_none_or(|list| list.iter().any(|it| it == what))
        };
        if !wants(&self.response_types, "code") || !wants(&self.grant_types, "authorization_code") {
            return Err(OAuthError::new(
                "invalid_client_metadata",
                "only the grant authorization_code with the response type code is supported",
            ));
        }
        if self.redirect_uris.is_empty() || self.redirect_uris.len() > MAX_REDIRECT_URIS {
            return Err(UNSAFE);
        }
        let mut redirect_uris = Vec::new();
        for uri in self.redirect_uris {
            match redirect_uri::check(&uri, hosts) {
                Ok(()) => redirect_uris.push(uri),
                Err(RedirectRefusal::OtherHost) => {}
                Err(RedirectRefusal::Unsafe) => return Err(UNSAFE),
            }
        }
        if redirect_uris.is_empty() {
            return Err(OAuthError::new(
                "invalid_redirect_uri",
                "the operator of this gateway allows no redirect to these hosts",
            ));
        }
        Ok(ClientDescription {
            name: crate::display_name(self.client_name.as_deref().unwrap_or_default()),
            redirect_uris,
        })
    }
}

impl ClientDescription {
    /// Returns the client id, which is the sealed description.
    pub(crate) fn seal(&self, facade: &AuthorizationFacade) -> Result<String, OAuthError> {
        let sealed = facade
            .parts
            .sealer
            .seal_for_browser(Purpose::OAuthClient, self);
        sealed.ok_or(OAuthError {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            ..OAuthError::new(
                "invalid_client_metadata",
                "the redirect_uris are too long in total",
            )
        })
    }
}

/// Returns the client with this id, which either was issued by a registration or is the URL of a metadata document.
pub(crate) async fn find_client(
    facade: &AuthorizationFacade,
    client_id: &str,
) -> Result<ClientDescription, OAuthError> {
    if client_id.contains("://") {
        let hosts = facade.config.redirect_hosts.as_deref();
        let metadata = facade.documents.fetch(client_id).await?;
        return metadata.describe(hosts);
    }
    let opened = facade
        .parts
        .sealer
        .open_from_browser(Purpose::OAuthClient, client_id);
    opened.ok_or(OAuthError::invalid_client(
        "this client is unknown or has expired; register it again",
    ))
}

/// Returns the digest of a client id, which identifies the client in sealed texts.
pub(crate) fn digest(client_id: &str) -> String {
    Digest::compute(client_id.as_bytes()).to_string()
}
