//! Sealing of values: state that the gateway needs in a later request is encrypted and handed to the client.
//!
//! ```text
//!   value ──seal──▶ text: a session id, an event id ──▶ client ──▶ any replica ──open──▶ value
//! ```
//!
//! Only a gateway with the key can read, change or create a sealed text. The text is valid only for the caller that it
//! was sealed for; for any other caller it is the same as an invalid text.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use wardgate_domain::{About, Ambient, Caller, SealKey, Timestamp, derive_key};

/// Maximum length of a sealed text in a header, in bytes.
const MAX_IN_HEADER: usize = 4_096;

/// Maximum length of a sealed text in a body, in bytes.
const MAX_IN_BODY: usize = 64 * 1_024;

/// Maximum length of a sealed text in the store, in bytes.
const MAX_IN_STORE: usize = 4 * 1_024 * 1_024;

/// The key under which values are sealed. All replicas have the same key.
#[derive(Clone)]
pub struct SessionKey([u8; 32]);

impl SessionKey {
    /// Creates a key from 32 random bytes.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(*bytes)
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey")
    }
}

/// The purpose of a sealed text, which separates the kinds of sealed texts under the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The arguments of a call that became a task, in the store.
    UpstreamArguments,
    /// A call that waits for input of its client.
    PendingCall,
    /// A task of an MCP server.
    Task,
    /// A stream of HTTP+SSE, and its location.
    SseStream,
    /// A session of Streamable HTTP.
    Session,
    /// The position in a stream of such a session.
    Event,
    /// The id of a request to a client of an older version.
    Question,
    /// The mark of a message that one replica relays to another.
    SseRelay,
    /// A link to the page on which a caller allows a source to act in their name.
    ConnectLink,
    /// The progress of a browser that followed such a link.
    ConnectVisit,
    /// The subscriptions of a session.
    Subscriptions,
    /// The cursor of a list of a directory of resources.
    Directory,
    /// The id of an OAuth client that registered itself.
    OAuthClient,
    /// The form that asks a person to consent to an authorization request.
    OAuthConsent,
    /// An authorization request whose user is at the identity provider.
    OAuthRequest,
    /// An authorization code.
    OAuthCode,
    /// A refresh token.
    OAuthRefresh,
}

impl Purpose {
    fn as_str(self) -> &'static str {
        match self {
            Self::UpstreamArguments => "wardgate upstream arguments 1",
            Self::PendingCall => "wardgate pending call 1",
            Self::Task => "wardgate task 1",
            Self::SseStream => "wardgate sse stream 1",
            Self::Session => "wardgate session 1",
            Self::Event => "wardgate event 1",
            Self::Question => "wardgate question 1",
            Self::SseRelay => "wardgate sse relay 1",
            Self::ConnectLink => "wardgate connect link 1",
            Self::ConnectVisit => "wardgate connect visit 1",
            Self::Subscriptions => "wardgate subscriptions 1",
            Self::Directory => "wardgate directory 1",
            Self::OAuthClient => "wardgate oauth client 1",
            Self::OAuthConsent => "wardgate oauth consent 1",
            Self::OAuthRequest => "wardgate oauth request 1",
            Self::OAuthCode => "wardgate oauth code 1",
            Self::OAuthRefresh => "wardgate oauth refresh 1",
        }
    }

    /// Returns the time for which a text of this purpose is valid.
    pub fn lasts(self) -> Duration {
        match self {
            Self::Session | Self::SseStream | Self::Task | Self::Subscriptions => {
                Duration::from_hours(24)
            }
            Self::UpstreamArguments | Self::Event | Self::Question | Self::Directory => {
                Duration::from_hours(1)
            }
            Self::PendingCall => Duration::from_mins(10),
            Self::ConnectLink | Self::ConnectVisit | Self::OAuthConsent | Self::OAuthRequest => {
                Duration::from_mins(15)
            }
            Self::SseRelay => Duration::from_mins(1),
            // The code contains the identity provider's code, which may expire sooner.
            Self::OAuthCode => Duration::from_mins(5),
            Self::OAuthClient => Duration::from_hours(365 * 24),
            Self::OAuthRefresh => Duration::from_hours(90 * 24),
        }
    }

    /// Returns the maximum length of a text of this purpose, in bytes. Longer texts are neither sealed nor opened.
    fn longest(self) -> usize {
        match self {
            Self::PendingCall | Self::Task | Self::Subscriptions | Self::OAuthRefresh => {
                MAX_IN_BODY
            }
            Self::UpstreamArguments => MAX_IN_STORE,
            _ => MAX_IN_HEADER,
        }
    }
}

/// Seals and opens values.
pub struct Sealer {
    key: SealKey,
    /// The key of values in the store. It is a separate key, so that the nonces of each key are counted separately.
    at_rest: SealKey,
    ambient: Ambient,
}

/// Context from which the key of values in the store is derived.
const AT_REST: &[u8] = b"wardgate gateway store: what clients hear and say v1";

#[derive(Serialize, Deserialize)]
struct SealedWithExpiry<T> {
    #[serde(rename = "t")]
    since_micros: i64,
    #[serde(rename = "v")]
    value: T,
}

impl Sealer {
    /// Creates a sealer with `key`, which takes the time from `ambient`.
    pub fn new(key: &SessionKey, ambient: Ambient) -> Self {
        Self {
            key: SealKey::from_bytes(&key.0),
            at_rest: SealKey::from_bytes(&derive_key(&key.0, AT_REST)),
            ambient,
        }
    }

    /// Seals `value` for `caller` and the context `within`. Returns `None` if the text would be too long.
    pub fn seal<T: Serialize>(
        &self,
        purpose: Purpose,
        caller: &Caller,
        within: &str,
        value: &T,
    ) -> Option<String> {
        self.seal_about(&about(purpose, caller, within), purpose, value)
    }

    /// Opens a text that was sealed for the same purpose, caller and context. Returns `None` if it is invalid or has
    /// expired.
    pub fn open<T: DeserializeOwned>(
        &self,
        purpose: Purpose,
        caller: &Caller,
        within: &str,
        text: &str,
    ) -> Option<T> {
        self.open_about(&about(purpose, caller, within), purpose, text)
    }

    /// Seals `value` for a browser whose user is not known yet. `value` itself has to identify the user.
    pub fn seal_for_browser<T: Serialize>(&self, purpose: Purpose, value: &T) -> Option<String> {
        self.seal_about(&About::new(purpose.as_str()), purpose, value)
    }

    /// Opens a text that was sealed for a browser and the same purpose. Returns `None` if it is invalid or has expired.
    pub fn open_from_browser<T: DeserializeOwned>(
        &self,
        purpose: Purpose,
        text: &str,
    ) -> Option<T> {
        self.open_about(&About::new(purpose.as_str()), purpose, text)
    }

    fn seal_about<T: Serialize>(
        &self,
        about: &About,
        purpose: Purpose,
        value: &T,
    ) -> Option<String> {
        let since_micros = self.ambient.now().as_micros();
        let text = serde_json::to_vec(&SealedWithExpiry {
            since_micros,
            value,
        });
        let sealed = self.key.seal(about, &text.ok()?, &self.ambient).ok()?;
        Some(URL_SAFE_NO_PAD.encode(sealed)).filter(|text| text.len() <= purpose.longest())
    }

    fn open_about<T: DeserializeOwned>(
        &self,
        about: &About,
        purpose: Purpose,
        text: &str,
    ) -> Option<T> {
        if text.len() > purpose.longest() {
            return None;
        }
        let sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let text = self.key.open(about, sealed).ok()?;
        let dated: SealedWithExpiry<T> = serde_json::from_slice(&text).ok()?;
        let age = self
            .ambient
            .now()
            .since(Timestamp::from_micros(dated.since_micros));
        (age <= purpose.lasts()).then_some(dated.value)
    }

    /// Seals `plain` for the store, for `caller`. `within` identifies the value and its place. Returns `None` if the
    /// encryption fails, which does not happen in practice.
    pub fn seal_for_store(&self, caller: &Caller, within: &str, plain: &[u8]) -> Option<Vec<u8>> {
        let about = caller_context("wardgate kept 1", caller, within);
        self.at_rest.seal(&about, plain, &self.ambient).ok()
    }

    /// Seals `plain` for the store if more than one caller reads it. `within` identifies the value and its place.
    pub fn seal_shared(&self, within: &str, plain: &[u8]) -> Option<Vec<u8>> {
        let about = About::new("wardgate shared 1").and(within.as_bytes());
        self.at_rest.seal(&about, plain, &self.ambient).ok()
    }

    /// Opens a value that [`Self::seal_shared`] sealed with the same `within`.
    pub fn open_shared(&self, within: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let about = About::new("wardgate shared 1").and(within.as_bytes());
        self.at_rest.open(&about, sealed.to_vec()).ok()
    }

    /// Opens a value that [`Self::seal_for_store`] sealed for the same caller with the same `within`.
    pub fn open_from_store(&self, caller: &Caller, within: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let about = caller_context("wardgate kept 1", caller, within);
        self.at_rest.open(&about, sealed.to_vec()).ok()
    }
}

/// Returns the context of a sealed text. It does not include the token, so that a client that renews its token keeps
/// its session.
fn about(purpose: Purpose, caller: &Caller, within: &str) -> About {
    caller_context(purpose.as_str(), caller, within)
}

fn caller_context(kind: &'static str, caller: &Caller, within: &str) -> About {
    About::new(kind)
        .and(caller.tenant().as_bytes())
        .and(caller.issuer().as_bytes())
        .and(caller.subject().as_bytes())
        .and(within.as_bytes())
}

#[cfg(test)]
mod tests;
