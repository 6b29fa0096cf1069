//! The user's token, which is read again for each request.

use std::fmt;
use std::path::PathBuf;

use reqwest::header::HeaderValue;

use crate::Error;

/// Maximum size of a token file, in bytes. It is larger than any token.
const MAX_BYTES: u64 = 64 << 10;

/// The source of the token.
#[derive(Clone)]
pub enum TokenSource {
    /// A file, which is read for every request, so that a renewed token only has to be written to the file.
    File(PathBuf),
    /// The token itself, from an environment variable.
    Variable(String),
    /// No token.
    None,
}

// Leaves out the token.
impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Variable(_) => f.write_str("Variable"),
            Self::None => f.write_str("None"),
        }
    }
}

impl TokenSource {
    /// Returns the value of the header `Authorization`.
    pub(crate) async fn read_authorization(&self) -> Result<Option<HeaderValue>, Error> {
        match self {
            Self::File(path) => {
                let wrong = |problem: String| Error::TokenFile {
                    path: path.display().to_string(),
                    problem,
                };
                let text = read_file(path)
                    .await
                    .map_err(|error| wrong(error.to_string()))?;
                let token =
                    bearer(&text).ok_or_else(|| wrong("it contains no token".to_owned()))?;
                Ok(Some(token))
            }
            Self::Variable(token) => bearer(token).ok_or(Error::TokenVariable).map(Some),
            Self::None => Ok(None),
        }
    }

    /// Returns advice for a user whose token was refused.
    pub(crate) fn advice(&self) -> String {
        match self {
            Self::File(path) => format!("Write a valid token to {}.", path.display()),
            Self::Variable(_) => {
                "Start again with a valid token in WARDGATE_TOKEN, or specify a file with --token-file."
                    .to_owned()
            }
            Self::None => {
                "Start again with --token-file, or a token in WARDGATE_TOKEN.".to_owned()
            }
        }
    }
}

async fn read_file(path: &PathBuf) -> std::io::Result<String> {
    use tokio::io::AsyncReadExt;

    let mut text = String::new();
    let file = tokio::fs::File::open(path).await?;
    file.take(MAX_BYTES).read_to_string(&mut text).await?;
    Ok(text)
}

/// Returns `text` as a bearer token, if it is one word of visible ASCII characters.
fn bearer(text: &str) -> Option<HeaderValue> {
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_read_as_it_is_now_and_a_bad_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let source = TokenSource::File(path.clone());
        assert!(
            source
                .read_authorization()
                .await
                .unwrap_err()
                .to_string()
                .contains("token")
        );
        for (text, token) in [("one\n", "Bearer one"), ("two", "Bearer two")] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(source.read_authorization().await.unwrap().unwrap(), token);
        }
        for bad in ["", " \n", "two words", "caf\u{e9}"] {
            std::fs::write(&path, bad).unwrap();
            let told = source.read_authorization().await.unwrap_err().to_string();
            assert!(told.contains("contains no token"), "{told}");
        }
    }

    #[tokio::test]
    async fn nothing_shows_the_token() {
        let source = TokenSource::Variable("s3cr3t".to_owned());
        let value = source.read_authorization().await.unwrap().unwrap();
        assert!(!format!("{source:?} {value:?}").contains("s3cr3t"));
    }
}
