//! Bundles in a registry of the Open Container Initiative (distribution-spec 1.1): a manifest with one layer.

use http::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use http::{StatusCode, header::HeaderName};
use serde::Deserialize;
use url::Url;
use wardgate_domain::Digest;
use wardgate_egress::BearerChallenge;

use crate::blocking::run_blocking;
use crate::remote::{FetchedBundle, RemoteClient};
use crate::{BundleConfig, BundleConfigError, SourceError, envelope};

/// The media type of a manifest.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Maximum length of a manifest, in bytes.
const MAX_MANIFEST_BYTES: usize = 64 * 1024;

/// The problem of contents that the registry sent for another digest.
const OTHER_CONTENTS: &str = "the contents do not match the requested digest";

/// A tag, or a digest, of a repository in a registry.
#[derive(Debug)]
pub(crate) struct OciRegistry {
    client: RemoteClient,
    base: Url,
    repository: String,
    reference: String,
    /// The digest of the layer that was returned last.
    layer: Option<String>,
    /// The token that the registry issued for this repository.
    token: Option<HeaderValue>,
}

#[derive(Debug, Deserialize)]
struct OciManifest {
    layers: Vec<OciLayer>,
}

#[derive(Debug, Deserialize)]
struct OciLayer {
    #[serde(rename = "mediaType")]
    media_type: String,
    digest: String,
    size: u64,
}

#[derive(Debug, Deserialize)]
struct IssuedToken {
    token: Option<String>,
    access_token: Option<String>,
}

impl OciRegistry {
    pub(crate) fn open(
        config: &BundleConfig,
        base: Url,
        repository: &str,
        reference: &str,
    ) -> Result<Self, BundleConfigError> {
        Ok(Self {
            client: RemoteClient::open(config, &base)?,
            base,
            repository: repository.to_owned(),
            reference: reference.to_owned(),
            layer: None,
            token: None,
        })
    }

    pub(crate) async fn fetch(&mut self) -> Result<Option<FetchedBundle>, SourceError> {
        let manifest = self.get(&format!("manifests/{}", self.reference)).await?;
        if manifest.len() > MAX_MANIFEST_BYTES {
            return Err(self.problem("the manifest is too long"));
        }
        if self.reference.contains(':')
            && parse_digest(&self.reference) != Some(Digest::compute(&manifest))
        {
            return Err(self.problem(OTHER_CONTENTS));
        }
        let manifest: OciManifest = serde_json::from_slice(&manifest)
            .map_err(|error| self.problem(&format!("the manifest cannot be read: {error}")))?;
        let of_bundle = |layer: &&OciLayer| layer.media_type == envelope::PAYLOAD_TYPE;
        let layer = match manifest.layers.as_slice() {
            [only] => only,
            layers => layers
                .iter()
                .find(of_bundle)
                .ok_or_else(|| self.problem("the manifest has no layer with a bundle"))?,
        };
        if layer.size > envelope::MAX_BYTES as u64 {
            return Err(SourceError::TooLarge {
                origin: self.client.origin.clone(),
                most: envelope::MAX_BYTES,
            });
        }
        if self.layer.as_ref() == Some(&layer.digest) {
            return Ok(None);
        }
        // The digest becomes a part of a path, so its form is checked first.
        let expected = parse_digest(&layer.digest)
            .ok_or_else(|| self.problem("the digest of the layer is not SHA-256"))?;
        let bytes = self.get(&format!("blobs/{}", layer.digest)).await?;
        let (bytes, digest) = run_blocking(move || {
            let digest = Digest::compute(&bytes);
            (bytes, digest)
        })
        .await?;
        if digest != expected {
            return Err(self.problem(OTHER_CONTENTS));
        }
        self.layer = Some(layer.digest.clone());
        Ok(Some(FetchedBundle {
            origin: self.client.origin.clone(),
            bytes,
        }))
    }

    pub(crate) fn forget(&mut self) {
        self.layer = None;
    }

    /// Returns a part of the repository. If the registry demands a token, one is requested, once.
    async fn get(&mut self, path: &str) -> Result<Vec<u8>, SourceError> {
        let url = self.base.join(&format!("/v2/{}/{path}", self.repository));
        let url = url.map_err(|error| self.problem(&error.to_string()))?;
        let response = self.client.get(&url, self.headers()).await?;
        if response.status != StatusCode::UNAUTHORIZED {
            return self.client.body(response).await;
        }
        self.token = Some(self.request_token(&response.headers).await?);
        let response = self.client.get(&url, self.headers()).await?;
        self.client.body(response).await
    }

    fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers = vec![(ACCEPT, HeaderValue::from_static(MANIFEST))];
        headers.extend(self.token.clone().map(|token| (AUTHORIZATION, token)));
        headers
    }

    /// Requests a token from the server that the challenge of the registry names. The request carries the token of the
    /// settings, if there is one, and only if that server is the registry itself or listed as a further host.
    async fn request_token(&self, headers: &HeaderMap) -> Result<HeaderValue, SourceError> {
        let challenge = BearerChallenge::from_headers(headers).unwrap_or_default();
        let realm = challenge.get("realm").and_then(|it| Url::parse(it).ok());
        // A token is never sent unencrypted, except to a registry on this machine.
        let realm = realm.filter(|it| it.scheme() == "https" || it.origin() == self.base.origin());
        let mut realm = realm.ok_or_else(|| self.problem("it requires unknown credentials"))?;
        for name in ["service", "scope"] {
            if let Some(value) = challenge.get(name) {
                realm.query_pairs_mut().append_pair(name, value);
            }
        }
        let response = self.client.get(&realm, []).await?;
        let issued = self.client.body(response).await?;
        let issued: IssuedToken = serde_json::from_slice(&issued)
            .map_err(|_| self.problem("the token response cannot be read"))?;
        let token = issued.token.or(issued.access_token);
        let header = token.and_then(|it| HeaderValue::try_from(format!("Bearer {it}")).ok());
        let mut header =
            header.ok_or_else(|| self.problem("the token response contains no token"))?;
        header.set_sensitive(true);
        Ok(header)
    }

    fn problem(&self, problem: &str) -> SourceError {
        SourceError::Registry {
            origin: self.client.origin.clone(),
            problem: problem.to_owned(),
        }
    }
}

fn parse_digest(text: &str) -> Option<Digest> {
    text.strip_prefix("sha256:")?.parse().ok()
}
