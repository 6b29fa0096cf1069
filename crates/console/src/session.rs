//! The session of a token that a person entered: the token itself, sealed in a cookie.
//!
//! The console stores nothing for such a session, so any replica serves any request. The token is verified at every
//! request, and the session ends with it. A sign-in by the provider creates a stored session instead.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use wardgate_domain::{About, Ambient, Caller, SealKey, derive_key};
use wardgate_edge::{Authenticator, TokenRefusal};

use crate::cookies::{only_cookie, secret_header};

/// The name of the cookie.
const NAME: &str = "wardgate_console";

/// The path of the cookie.
const PATH: &str = "/console";

/// Maximum length of a token, in bytes. Browsers keep 4,096 bytes of a cookie, and sealing and Base64 add to the
/// length.
pub(crate) const MAX_TOKEN: usize = 3_000;

/// The context under which sessions are sealed, so that no other text sealed under this key can be used as a session.
const SEALED: &str = "wardgate console session 1";

/// The key under which sessions and results are sealed. All replicas must have the same key.
#[derive(Clone)]
pub struct CookieKey {
    pub(crate) sessions: Arc<SealKey>,
    pub(crate) results: Arc<SealKey>,
}

impl CookieKey {
    /// Creates the key from 32 random bytes.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        let results = derive_key(bytes, b"wardgate console results");
        Self {
            sessions: Arc::new(SealKey::from_bytes(bytes)),
            results: Arc::new(SealKey::from_bytes(&results)),
        }
    }
}

impl fmt::Debug for CookieKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieKey")
    }
}

/// A person's token, which is sent to the gateway and the agent and is never shown, and the address of the person's
/// client.
#[derive(Clone)]
pub(crate) struct SessionToken {
    text: Arc<str>,
    peer: Option<SocketAddr>,
}

impl SessionToken {
    pub(crate) fn new(text: &str, peer: Option<SocketAddr>) -> Self {
        Self {
            text: Arc::from(text),
            peer,
        }
    }

    /// Returns the client's address, as the listener of a gateway in this process would report it.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns the `Authorization` header with the token, or `None` if the token contains invalid characters.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", self.text)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Verifies the token and returns its caller. The token must be valid for `/mcp`, because it is sent there.
    pub(crate) async fn verify(&self, auth: &Authenticator) -> Result<Arc<Caller>, TokenRefusal> {
        let value = self.header().ok_or(TokenRefusal::TokenMalformed)?;
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        let verified = auth.verify_request(&headers, &["/mcp"]).await?;
        Ok(verified.caller)
    }
}

impl fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionToken")
    }
}

/// Returns a `Set-Cookie` header that begins a session of `caller`, or `None` if the token is too long for a cookie.
pub(crate) fn begin(
    key: &CookieKey,
    token: &SessionToken,
    caller: &Caller,
    is_secure: bool,
    ambient: &Ambient,
) -> Option<HeaderValue> {
    if token.text.len() > MAX_TOKEN {
        return None;
    }
    let sealed = key
        .sessions
        .seal(&About::new(SEALED), token.text.as_bytes(), ambient)
        .ok()?;
    let left = caller.expires_at().since(ambient.now());
    cookie(&URL_SAFE_NO_PAD.encode(sealed), left, is_secure)
}

/// Returns a `Set-Cookie` header that ends a session.
pub(crate) fn end(is_secure: bool) -> Option<HeaderValue> {
    cookie("", Duration::ZERO, is_secure)
}

fn cookie(value: &str, left: Duration, is_secure: bool) -> Option<HeaderValue> {
    let secure = if is_secure { "; Secure" } else { "" };
    let left = left.as_secs();
    secret_header(format!(
        "{NAME}={value}; Path={PATH}; Max-Age={left}; HttpOnly; SameSite=Strict{secure}"
    ))
}

/// Returns the token of the request's session.
pub(crate) fn resume(
    key: &CookieKey,
    headers: &HeaderMap,
    peer: Option<SocketAddr>,
) -> Option<SessionToken> {
    let sealed = URL_SAFE_NO_PAD.decode(only_cookie(headers, NAME)?).ok()?;
    let text = key.sessions.open(&About::new(SEALED), sealed).ok()?;
    Some(SessionToken::new(std::str::from_utf8(&text).ok()?, peer))
}
