//! Bundles on a web server, requested conditionally.

use std::path::PathBuf;

use http::header::{AUTHORIZATION, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH};
use http::{Method, StatusCode};
use url::Url;
use wardgate_egress::{Egress, EgressError, EgressRequest, EgressResponse};

use crate::{BundleConfig, BundleConfigError, SourceError};

/// Bytes that a source offers as a bundle. Nothing about them is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedBundle {
    /// The file or the host, for messages.
    pub origin: String,
    /// The contents.
    pub bytes: Vec<u8>,
}

/// A client of one host, with the bearer token of the settings.
#[derive(Debug)]
pub(crate) struct RemoteClient {
    egress: Egress,
    token_file: Option<PathBuf>,
    /// The host, for messages.
    pub(crate) origin: String,
}

impl RemoteClient {
    pub(crate) fn open(config: &BundleConfig, url: &Url) -> Result<Self, BundleConfigError> {
        let egress = Egress::open(config.egress(url)?);
        Ok(Self {
            egress: egress.map_err(BundleConfigError::Client)?,
            token_file: config.token_file.clone(),
            origin: url.host_str().unwrap_or_default().to_owned(),
        })
    }

    /// Sends a GET request, with the token of the settings unless `headers` have other credentials.
    pub(crate) async fn get(
        &self,
        url: &Url,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    ) -> Result<EgressResponse, SourceError> {
        let mut request = EgressRequest::new(Method::GET, url.clone());
        if let Some(file) = &self.token_file {
            request = request.header(AUTHORIZATION, self.token(file).await?);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let sent = self.egress.send(request).await;
        sent.map_err(|source| self.request_error(source))
    }

    /// Returns the body of a response with status 200.
    pub(crate) async fn body(&self, response: EgressResponse) -> Result<Vec<u8>, SourceError> {
        if response.status != StatusCode::OK {
            return Err(SourceError::Status {
                origin: self.origin.clone(),
                status: response.status,
            });
        }
        let body = response.body.bytes().await;
        Ok(body.map_err(|source| self.request_error(source))?.to_vec())
    }

    fn request_error(&self, source: EgressError) -> SourceError {
        SourceError::Request {
            origin: self.origin.clone(),
            source,
        }
    }

    async fn token(&self, file: &PathBuf) -> Result<HeaderValue, SourceError> {
        let unreadable = |source| SourceError::Io {
            path: file.clone(),
            source,
        };
        let token = tokio::fs::read_to_string(file).await.map_err(unreadable)?;
        let value = HeaderValue::try_from(format!("Bearer {}", token.trim()));
        let mut value = value
            .map_err(|_| unreadable(std::io::Error::other("the token is not valid in a header")))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// A bundle at a URL.
#[derive(Debug)]
pub(crate) struct WebServer {
    client: RemoteClient,
    url: Url,
    /// The entity tag of the bundle that was returned last.
    tag: Option<HeaderValue>,
}

impl WebServer {
    pub(crate) fn open(config: &BundleConfig, url: Url) -> Result<Self, BundleConfigError> {
        Ok(Self {
            client: RemoteClient::open(config, &url)?,
            url,
            tag: None,
        })
    }

    pub(crate) async fn fetch(&mut self) -> Result<Option<FetchedBundle>, SourceError> {
        let condition = self.tag.clone().map(|tag| (IF_NONE_MATCH, tag));
        let response = self.client.get(&self.url, condition).await?;
        if response.status == StatusCode::NOT_MODIFIED && self.tag.is_some() {
            return Ok(None);
        }
        let tag = response.headers.get(ETAG).cloned();
        let bytes = self.client.body(response).await?;
        self.tag = tag;
        Ok(Some(FetchedBundle {
            origin: self.client.origin.clone(),
            bytes,
        }))
    }

    pub(crate) fn forget(&mut self) {
        self.tag = None;
    }
}
