//! Reading a key set from its file or URL, bounded in size and time.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::{Client, StatusCode, Url, redirect};
use tokio::io::AsyncReadExt;

use super::config::key_set_url;
use super::keys::KeySetError;
use super::{Error, JwksSource};

/// The largest key set that is read.
const MAX_BYTES: usize = 1024 * 1024;
/// The longest that reading may take.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Where an issuer's key set is.
pub(super) enum KeySource {
    File(PathBuf),
    Url { client: Client, url: Url },
}

impl KeySource {
    /// A source that nothing was read from yet; `index` is that of the issuer in the configuration.
    pub(super) fn new(source: &JwksSource, index: usize) -> Result<Self, Error> {
        match source {
            JwksSource::File(path) => Ok(Self::File(path.clone())),
            JwksSource::Url(text) => {
                let url = key_set_url(text).map_err(|problem| Error::Issuer {
                    index,
                    field: "jwks.url",
                    problem,
                })?;
                let client = Client::builder()
                    .redirect(redirect::Policy::none())
                    .user_agent("wardgate")
                    .build()
                    .map_err(Error::HttpClient)?;
                Ok(Self::Url { client, url })
            }
        }
    }

    /// The bytes of the key set.
    pub(super) async fn read(&self) -> Result<Vec<u8>, KeySetError> {
        let reading = async {
            match self {
                Self::File(path) => read_file(path).await,
                Self::Url { client, url } => read_url(client, url).await,
            }
        };
        tokio::time::timeout(TIME_LIMIT, reading)
            .await
            .unwrap_or(Err(KeySetError::Slow))
    }
}

async fn read_file(path: &PathBuf) -> Result<Vec<u8>, KeySetError> {
    let mut bytes = Vec::new();
    let file = tokio::fs::File::open(path).await?;
    file.take(MAX_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .await?;
    if bytes.len() > MAX_BYTES {
        return Err(KeySetError::TooLarge);
    }
    Ok(bytes)
}

async fn read_url(client: &Client, url: &Url) -> Result<Vec<u8>, KeySetError> {
    let mut response = client.get(url.clone()).send().await?;
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
