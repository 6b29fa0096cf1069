//! Client ids that are URLs of metadata documents (draft-ietf-oauth-client-id-metadata-document).
//!
//! The URL is untrusted, so the document is fetched over https and from the public internet only, unless the operator
//! lists other networks. Its size, the time and the number of concurrent requests are limited.

use std::time::Duration;

use axum::http::{HeaderValue, Method, StatusCode, header};
use tokio::sync::Semaphore;
use url::Url;
use wardgate_egress::{Egress, EgressError, EgressRequest, EgressSettings, PrivateAddresses};

use crate::Error;
use crate::client::ClientMetadata;
use crate::config::AuthorizationConfig;
use crate::error::OAuthError;

/// Maximum length of the URL, in bytes.
const MAX_URL: usize = 1_024;
/// Maximum size of a document, in bytes. The draft recommends 5 KB.
const MAX_DOCUMENT: usize = 16 * 1_024;
/// Maximum time of a request.
const LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of concurrent requests.
const AT_ONCE: usize = 16;

const NOT_A_CLIENT: OAuthError = OAuthError::invalid_client(
    "the client_id is not an https URL with a path, whose JSON has the same client_id, redirect_uris, and no secret",
);

/// A client that fetches metadata documents.
pub(crate) struct ClientDocuments {
    private: PrivateAddresses,
    /// Whether plain http is allowed, because the gateway itself is reached over plain http, as in trials on a single
    /// machine.
    takes_http: bool,
    places: Semaphore,
}

impl ClientDocuments {
    pub(crate) fn new(config: &AuthorizationConfig, public_url: &str) -> Result<Self, Error> {
        let networks = config.networks()?;
        Ok(Self {
            private: PrivateAddresses::Listed(networks),
            takes_http: public_url.starts_with("http://"),
            places: Semaphore::new(AT_ONCE),
        })
    }

    /// Fetches the document at `client_id`.
    pub(crate) async fn fetch(&self, client_id: &str) -> Result<ClientMetadata, OAuthError> {
        let url = self.check(client_id).ok_or(NOT_A_CLIENT)?;
        let Ok(_place) = self.places.try_acquire() else {
            return Err(OAuthError::unavailable());
        };
        let body = self.fetch_document(url).await.map_err(|error| {
            tracing::info!(%error, "the metadata document of a client cannot be read");
            NOT_A_CLIENT
        })?;
        let metadata: ClientMetadata = serde_json::from_slice(&body).map_err(|_| NOT_A_CLIENT)?;
        if metadata.client_id.as_deref() != Some(client_id) || !metadata.is_public() {
            return Err(NOT_A_CLIENT);
        }
        Ok(metadata)
    }

    fn check(&self, client_id: &str) -> Option<Url> {
        let plain = client_id.len() <= MAX_URL && client_id.bytes().all(|it| it.is_ascii_graphic());
        let url = Url::parse(client_id).ok().filter(|_| plain)?;
        let bare =
            url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        let encrypted = url.scheme() == "https" || (self.takes_http && url.scheme() == "http");
        // The comparison also refuses URLs that the parser normalizes, such as those with dots in the path.
        let fits = bare && encrypted && url.path() != "/" && url.as_str() == client_id;
        fits.then_some(url)
    }

    async fn fetch_document(&self, url: Url) -> Result<Vec<u8>, EgressError> {
        let egress = Egress::open(EgressSettings::for_url(
            &url,
            [],
            self.private.clone(),
            LIMIT,
            MAX_DOCUMENT,
        ))?;
        let accept = HeaderValue::from_static("application/json");
        let request = EgressRequest::new(Method::GET, url).header(header::ACCEPT, accept);
        let response = egress.send(request).await?;
        if response.status != StatusCode::OK {
            return Ok(Vec::new());
        }
        Ok(response.body.bytes().await?.to_vec())
    }
}
