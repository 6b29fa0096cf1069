//! Discovery of the authorization server of a service, and of the server's endpoints.
//!
//! ```text
//!   service ─ 401 `resource_metadata` ∣ /.well-known/oauth-protected-resource/PATH ∣ the same without PATH   RFC 9728
//!        │  (a service without any, as of 2025-03-26: its own origin)
//!        └──▶ issuer ─ /.well-known/oauth-authorization-server/PATH ∣ the two forms of OpenID Connect       RFC 8414
//!                  └──▶ endpoints
//! ```
//!
//! All URLs in metadata are untrusted, so each is fetched within the limits of the source: the same networks, no
//! redirect to another host, and https unless the URL that led there is plain HTTP itself.

use bytes::Bytes;
use http::header::{ACCEPT, HeaderValue};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::AuthError;
use super::challenge::BearerChallenge;
use crate::{Egress, EgressError, EgressRequest, EgressSettings};

const PROTECTED_RESOURCE: &str = "oauth-protected-resource";
const AUTHORIZATION_SERVER: &str = "oauth-authorization-server";
const OPENID_CONFIGURATION: &str = "openid-configuration";

const MAX_DOCUMENT_BYTES: usize = 64 * 1024;

/// A request without effect. Its response shows whether the server requires a token.
const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// A client that reads the metadata of services and of authorization servers.
#[derive(Debug, Clone)]
pub(super) struct MetadataDiscovery {
    limits: EgressSettings,
}

/// The metadata of a service (RFC 9728).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProtectedResource {
    /// The identifier of the service in tokens.
    pub(super) resource: String,
    /// The first of the authorization servers, exactly as the service spells it.
    pub(super) issuer: String,
    /// The scopes that a token should have, if the service names them.
    pub(super) scope: Option<String>,
}

/// The metadata of an authorization server (RFC 8414).
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ServerMetadata {
    pub(super) issuer: String,
    pub(super) token_endpoint: Endpoint,
    pub(super) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    pub(super) authorization_endpoint: Option<Endpoint>,
    pub(super) registration_endpoint: Option<Endpoint>,
    pub(super) revocation_endpoint: Option<Endpoint>,
    pub(super) end_session_endpoint: Option<Endpoint>,
    pub(super) device_authorization_endpoint: Option<Endpoint>,
    #[serde(default)]
    pub(super) scopes_supported: Vec<String>,
    #[serde(default)]
    pub(super) code_challenge_methods_supported: Vec<String>,
    #[serde(default)]
    pub(super) client_id_metadata_document_supported: bool,
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

/// A URL in a metadata document.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Endpoint(pub(super) Url);

impl TryFrom<String> for Endpoint {
    type Error = url::ParseError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Url::parse(&text).map(Self)
    }
}

#[derive(Deserialize)]
struct ResourceMetadata {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

impl MetadataDiscovery {
    pub(super) fn new(limits: &EgressSettings) -> Self {
        Self {
            limits: limits.clone(),
        }
    }

    /// Discovers the authorization server of an MCP server.
    pub(super) async fn of_service(&self, service: &Url) -> Result<ProtectedResource, AuthError> {
        let challenge = self.challenge(service).await?.unwrap_or_default();
        let named = challenge.resource_metadata();
        let named = named.and_then(|url| Url::parse(url).ok());
        let places = named.into_iter().chain([
            insert_well_known(service, PROTECTED_RESOURCE),
            insert_well_known(&root_of(service), PROTECTED_RESOURCE),
        ]);
        for place in places {
            let Some(metadata) = self.document::<ResourceMetadata>(&place, service).await? else {
                continue;
            };
            // The metadata of another resource could send tokens to an attacker's server.
            if !is_part_of(service, &metadata.resource) {
                return Err(AuthError::NotFound(
                    "the metadata of the source describes another resource",
                ));
            }
            let mut issuers = metadata.authorization_servers.into_iter();
            let issuer = issuers.next();
            let issuer = issuer.ok_or(AuthError::NotFound(
                "the metadata of the source contains none",
            ))?;
            check_scheme(&url_of(&issuer)?, service)?;
            let all = Some(metadata.scopes_supported.join(" "));
            return Ok(ProtectedResource {
                resource: metadata.resource,
                issuer,
                scope: challenge
                    .scope()
                    .map(str::to_owned)
                    .or(all)
                    .filter(|scope| !scope.is_empty()),
            });
        }
        self.of_origin(service, &challenge).await
    }

    /// Uses the origin of the service as its issuer. Before revision 2025-06-18 of MCP, a service had no metadata of
    /// its own and its authorization server was at the same origin.
    async fn of_origin(
        &self,
        service: &Url,
        challenge: &BearerChallenge,
    ) -> Result<ProtectedResource, AuthError> {
        let origin = service.origin().ascii_serialization();
        match self.of_issuer(&origin).await {
            Ok(_) => Ok(ProtectedResource {
                resource: canonical(service),
                issuer: origin,
                scope: challenge.scope().map(str::to_owned),
            }),
            Err(AuthError::NotFound(_)) => {
                Err(AuthError::NotFound("the source has no metadata (RFC 9728)"))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the metadata of an authorization server.
    pub(super) async fn of_issuer(&self, issuer: &str) -> Result<ServerMetadata, AuthError> {
        let url = url_of(issuer)?;
        let mut places = vec![
            insert_well_known(&url, AUTHORIZATION_SERVER),
            insert_well_known(&url, OPENID_CONFIGURATION),
            append_well_known(&url, OPENID_CONFIGURATION),
        ];
        // Two of the URLs are equal if the issuer has no path.
        places.dedup();
        for place in places {
            let Some(metadata) = self.document::<ServerMetadata>(&place, &url).await? else {
                continue;
            };
            // The issuers must be identical: RFC 8414 §3.3.
            if metadata.issuer != issuer {
                return Err(AuthError::NotFound(
                    "the metadata of its issuer names another issuer",
                ));
            }
            let further = [
                &metadata.authorization_endpoint,
                &metadata.registration_endpoint,
                &metadata.revocation_endpoint,
                &metadata.end_session_endpoint,
            ];
            for endpoint in further
                .into_iter()
                .flatten()
                .chain([&metadata.token_endpoint])
            {
                check_scheme(&endpoint.0, &url)?;
            }
            return Ok(metadata);
        }
        Err(AuthError::NotFound("its issuer has no metadata (RFC 8414)"))
    }

    /// Returns the challenge with which the service rejects a request without a token.
    async fn challenge(&self, service: &Url) -> Result<Option<BearerChallenge>, AuthError> {
        let request = EgressRequest::new(Method::POST, service.clone())
            .header(
                ACCEPT,
                HeaderValue::from_static("application/json, text/event-stream"),
            )
            .body("application/json", PING)
            .open_ended();
        let response = self
            .egress(service)
            .map_err(AuthError::endpoint)?
            .send(request)
            .await;
        let response = response.map_err(AuthError::endpoint)?;
        let is_challenge = response.status == StatusCode::UNAUTHORIZED;
        Ok(BearerChallenge::from_headers(&response.headers).filter(|_| is_challenge))
    }

    /// Returns the document at `url`, or `None` if it does not exist.
    async fn document<T: DeserializeOwned>(
        &self,
        url: &Url,
        by: &Url,
    ) -> Result<Option<T>, AuthError> {
        check_scheme(url, by)?;
        let request = EgressRequest::new(Method::GET, url.clone())
            .header(ACCEPT, HeaderValue::from_static("application/json"));
        let response = self
            .egress(url)
            .map_err(AuthError::endpoint)?
            .send(request)
            .await;
        let response = response.map_err(AuthError::endpoint)?;
        if response.status.is_client_error() {
            return Ok(None);
        }
        if !response.status.is_success() {
            return Err(AuthError::NotFound("its metadata is not available now"));
        }
        let body: Bytes = response.body.bytes().await.map_err(AuthError::endpoint)?;
        serde_json::from_slice(&body)
            .map(Some)
            .map_err(|_| AuthError::NotFound("its metadata cannot be read"))
    }

    /// Opens a client for the host of `url`, with the network limits of the source.
    fn egress(&self, url: &Url) -> Result<Egress, EgressError> {
        let limits = &self.limits;
        Egress::open(limits.toward(url, limits.timeout, MAX_DOCUMENT_BYTES))
    }
}

fn url_of(issuer: &str) -> Result<Url, AuthError> {
    let url = Url::parse(issuer).ok();
    url.filter(|url| url.query().is_none() && url.fragment().is_none())
        .ok_or(AuthError::NotFound("its issuer is not a plain URL"))
}

/// Checks that `url` is https, or has the same scheme as the URL `by` whose document named it.
pub(super) fn check_scheme(url: &Url, by: &Url) -> Result<(), AuthError> {
    if url.scheme() == "https" || url.scheme() == by.scheme() {
        Ok(())
    } else {
        Err(AuthError::NotFound("a URL of its metadata is not https"))
    }
}

/// Returns `https://host/.well-known/NAME/path`.
fn insert_well_known(url: &Url, name: &str) -> Url {
    let path = url.path().trim_end_matches('/');
    let mut place = url.clone();
    place.set_path(&format!("/.well-known/{name}{path}"));
    place.set_query(None);
    place.set_fragment(None);
    place
}

/// Returns `https://host/path/.well-known/NAME`.
fn append_well_known(url: &Url, name: &str) -> Url {
    let mut place = url.clone();
    let path = url.path().trim_end_matches('/');
    place.set_path(&format!("{path}/.well-known/{name}"));
    place
}

fn root_of(url: &Url) -> Url {
    let mut root = url.clone();
    root.set_path("");
    root
}

/// Returns the canonical identifier of a service in tokens: without a fragment, and without the slash of an empty path.
pub(super) fn canonical(service: &Url) -> String {
    let mut service = service.clone();
    service.set_fragment(None);
    let text = service.to_string();
    let bare = text.strip_suffix('/').filter(|_| service.path() == "/");
    bare.map_or_else(|| text.clone(), str::to_owned)
}

/// Returns whether the service is the resource or is located below it.
fn is_part_of(service: &Url, resource: &str) -> bool {
    let Ok(resource) = Url::parse(resource) else {
        return false;
    };
    let below = resource.path().trim_end_matches('/');
    let rest = service.path().strip_prefix(below);
    resource.origin() == service.origin()
        && resource.fragment().is_none()
        && resource.query().is_none()
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
