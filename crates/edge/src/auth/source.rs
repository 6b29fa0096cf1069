//! Reading of a key set from its file or URL, with limits on size and time.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::{Client, Response, StatusCode, Url, redirect};
use tokio::io::AsyncReadExt;

use serde::Deserialize;

use super::config::protected_url;
use super::{Error, IssuerConfig, JwksSource};
use crate::error::KeySetError;

/// Maximum size of a key set, in bytes.
const MAX_BYTES: usize = 1024 * 1024;
/// Maximum time that reading a key set may take, including all its requests.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// The source of an issuer's key set.
pub(super) enum KeySource {
    File(PathBuf),
    Url {
        client: Client,
        url: Url,
    },
    /// The URL that the issuer's own metadata states.
    Metadata {
        client: Client,
        issuer: String,
        candidates: [Url; 3],
    },
}

impl KeySource {
    /// Creates a source without reading from it. `index` is the index of the issuer in the configuration.
    pub(super) fn new(config: &IssuerConfig, index: usize) -> Result<Self, Error> {
        let checked = |text: &str, field| {
            protected_url(text).map_err(|problem| Error::Issuer {
                index,
                field,
                problem,
            })
        };
        Ok(match &config.jwks {
            Some(JwksSource::File(path)) => Self::File(path.clone()),
            Some(JwksSource::Url(text)) => Self::Url {
                url: checked(text, "jwks.url")?,
                client: http_client()?,
            },
            None => Self::Metadata {
                candidates: metadata_urls(&checked(&config.issuer, "issuer")?),
                client: http_client()?,
                issuer: config.issuer.clone(),
            },
        })
    }

    /// Reads the bytes of the key set.
    pub(super) async fn read_key_set(&self) -> Result<Vec<u8>, KeySetError> {
        let reading = async {
            match self {
                Self::File(path) => Ok(read_file(path).await?),
                Self::Url { client, url } => read_url(client, url).await,
                Self::Metadata {
                    client,
                    issuer,
                    candidates,
                } => {
                    let url = discover(client, issuer, candidates).await?;
                    read_url(client, &url).await
                }
            }
        };
        tokio::time::timeout(TIME_LIMIT, reading)
            .await
            .unwrap_or(Err(KeySetError::Slow))
    }
}

/// Creates an HTTP client that follows no redirects.
pub(super) fn http_client() -> Result<Client, Error> {
    Client::builder()
        .redirect(redirect::Policy::none())
        .user_agent("wardgate")
        .build()
        .map_err(Error::HttpClient)
}

/// Returns the possible URLs of an issuer's metadata: those of RFC 8414 §3.1, with the OAuth and the `OpenID` name, and
/// that of `OpenID` Connect Discovery §4.
fn metadata_urls(issuer: &Url) -> [Url; 3] {
    let own_path = issuer.path().trim_end_matches('/');
    let at = |path: String| {
        let mut url = issuer.clone();
        url.set_path(&path);
        url.set_query(None);
        url.set_fragment(None);
        url
    };
    [
        at(format!("/.well-known/oauth-authorization-server{own_path}")),
        at(format!("/.well-known/openid-configuration{own_path}")),
        at(format!("{own_path}/.well-known/openid-configuration")),
    ]
}

/// The members of an issuer's metadata that are read.
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: String,
}

/// Returns the URL of the keys, from the first of the metadata documents that states it.
async fn discover(
    client: &Client,
    issuer: &str,
    candidates: &[Url; 3],
) -> Result<Url, KeySetError> {
    let mut failure = None;
    for candidate in candidates {
        match keys_by(client, issuer, candidate).await {
            Ok(url) => return Ok(url),
            // An HTTP status such as 404 is the least informative error, so it does not replace another one.
            Err(KeySetError::Status(_)) if failure.is_some() => {}
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or(KeySetError::Slow))
}

async fn keys_by(client: &Client, issuer: &str, document: &Url) -> Result<Url, KeySetError> {
    let bytes = read_url(client, document).await?;
    let metadata: Metadata = serde_json::from_slice(&bytes).map_err(KeySetError::NotMetadata)?;
    // Metadata that names another issuer must not be used (RFC 8414 §3.3).
    if metadata.issuer != issuer {
        return Err(KeySetError::OtherIssuer);
    }
    let url = protected_url(&metadata.jwks_uri).map_err(KeySetError::KeysElsewhere)?;
    // Plain HTTP is allowed only from metadata that is itself on a loopback host.
    if document.scheme() == "https" && url.scheme() != "https" {
        return Err(KeySetError::KeysElsewhere("is plain http".to_owned()));
    }
    Ok(url)
}

/// Reads a file of at most 1 MiB.
pub(super) async fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = tokio::fs::File::open(path).await?;
    file.take(MAX_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .await?;
    if bytes.len() > MAX_BYTES {
        let kind = io::ErrorKind::FileTooLarge;
        return Err(io::Error::new(kind, "it is larger than 1 MiB"));
    }
    Ok(bytes)
}

async fn read_url(client: &Client, url: &Url) -> Result<Vec<u8>, KeySetError> {
    read_response(client.get(url.clone()).send().await?).await
}

/// Reads the body of a response, which must have the status 200 and at most 1 MiB.
pub(super) async fn read_response(mut response: Response) -> Result<Vec<u8>, KeySetError> {
    if response.status() != StatusCode::OK {
        return Err(KeySetError::Status(response.status().as_u16()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if bytes.len() + chunk.len() > MAX_BYTES {
            return Err(KeySetError::TooLarge);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
