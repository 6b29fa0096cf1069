//! The session of a token that a person brought: the token itself, sealed into a cookie.
//!
//! Nothing is kept here, so any replica serves any request, and a session ends with its token: the token is verified
//! again at every request. Whom a provider signed in has a stored session instead.

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

/// The cookie.
const NAME: &str = "wardgate_console";

/// Where browsers send it.
const PATH: &str = "/console";

/// The longest token that fits: browsers keep 4,096 bytes of a cookie, and sealing and Base64 take theirs.
pub(crate) const MAX_TOKEN: usize = 3_000;

/// What is sealed, so that nothing else of this key could pass for it.
const SEALED: &str = "wardgate console session 1";

/// The key that sessions and results are sealed under; every replica has the same one.
#[derive(Clone)]
pub struct CookieKey {
    pub(crate) sessions: Arc<SealKey>,
    pub(crate) results: Arc<SealKey>,
}

impl CookieKey {
    /// A key of 32 random bytes.
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

/// A person's token, passed on to the gateway and the agent and shown nowhere; and where they called from.
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

    /// As the listener of a gateway in this process would say it.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// The one header it belongs in. None for what no token is written with.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", self.text)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Whose it is, now. It goes on to the gateway's `/mcp`, so it must be good there.
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

/// `Set-Cookie` that begins a session of `caller`. None for a token that no cookie holds.
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

/// `Set-Cookie` that ends one.
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

/// The token of the one session that a request has.
pub(crate) fn resume(
    key: &CookieKey,
    headers: &HeaderMap,
    peer: Option<SocketAddr>,
) -> Option<SessionToken> {
    let sealed = URL_SAFE_NO_PAD.decode(only_cookie(headers, NAME)?).ok()?;
    let text = key.sessions.open(&About::new(SEALED), sealed).ok()?;
    Some(SessionToken::new(std::str::from_utf8(&text).ok()?, peer))
}
