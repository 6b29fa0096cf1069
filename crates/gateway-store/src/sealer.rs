//! What the gateway would have to remember between two requests of a client, handed to the client instead.
//!
//! ```text
//!   value ──seal──▶ text: a session id, an event id ──▶ client ──▶ any replica ──open──▶ value
//! ```
//!
//! A sealed text can be read, changed and made by nobody but a gateway, and opens only for the caller it was sealed
//! for: another caller's is like one that never was.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use wardgate_domain::{About, Ambient, Caller, SealKey, Timestamp, derive_key};

/// The longest text that a header has to hold, in bytes.
const MAX_IN_HEADER: usize = 4_096;

/// The longest text that a body has to hold, in bytes.
const MAX_IN_BODY: usize = 64 * 1_024;

/// The longest text that is kept in the store, in bytes.
const MAX_IN_STORE: usize = 4 * 1_024 * 1_024;

/// The key that sessions are sealed under; every replica has the same one.
#[derive(Clone)]
pub struct SessionKey([u8; 32]);

impl SessionKey {
    /// A key of 32 random bytes.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(*bytes)
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey")
    }
}

/// Tells one kind of sealed text from another under the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The arguments of a call that became a task, in the store.
    UpstreamArguments,
    /// A call that waits for its client.
    PendingCall,
    /// A task of a server.
    Task,
    /// A stream of HTTP+SSE, and where it is.
    SseStream,
    /// A session of Streamable HTTP.
    Session,
    /// The place in a stream of such a session.
    Event,
    /// The id of a request to a client of an older version.
    Question,
    /// A message that one replica hands to another.
    SseRelay,
    /// A link to the page on which a caller lets a source act in their name.
    ConnectLink,
    /// Where a browser stands that came by such a link.
    ConnectVisit,
    /// What a session is subscribed to.
    Subscriptions,
    /// Where the list of a directory of resources goes on.
    Directory,
    /// The id of an OAuth client that registered itself.
    OAuthClient,
    /// The form in which a person is asked about an authorization request.
    OAuthConsent,
    /// An authorization request whose person is with the identity provider.
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

    /// After this time it is like one that never was.
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
            // The provider's own code, which is in it, may end sooner.
            Self::OAuthCode => Duration::from_mins(5),
            Self::OAuthClient => Duration::from_hours(365 * 24),
            Self::OAuthRefresh => Duration::from_hours(90 * 24),
        }
    }

    /// The longest text that is handed out and looked at, in bytes.
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

/// Seals and opens.
pub struct Sealer {
    key: SealKey,
    /// Of what the store keeps: its nonces are counted by themselves.
    at_rest: SealKey,
    ambient: Ambient,
}

/// Tells the key of what is kept from that of what is handed out.
const AT_REST: &[u8] = b"wardgate gateway store: what clients hear and say v1";

#[derive(Serialize, Deserialize)]
struct SealedWithExpiry<T> {
    #[serde(rename = "t")]
    since_micros: i64,
    #[serde(rename = "v")]
    value: T,
}

impl Sealer {
    /// A sealer under `key`; times come from `ambient`.
    pub fn new(key: &SessionKey, ambient: Ambient) -> Self {
        Self {
            key: SealKey::from_bytes(&key.0),
            at_rest: SealKey::from_bytes(&derive_key(&key.0, AT_REST)),
            ambient,
        }
    }

    /// `value` for `caller` alone; `within` is what it belongs to. None for what is too long to be handed out.
    pub fn seal<T: Serialize>(
        &self,
        purpose: Purpose,
        caller: &Caller,
        within: &str,
        value: &T,
    ) -> Option<String> {
        self.seal_about(&about(purpose, caller, within), purpose, value)
    }

    /// What was sealed for the same purpose, caller and whole, unless that is too long ago.
    pub fn open<T: DeserializeOwned>(
        &self,
        purpose: Purpose,
        caller: &Caller,
        within: &str,
        text: &str,
    ) -> Option<T> {
        self.open_about(&about(purpose, caller, within), purpose, text)
    }

    /// `value` for a browser, of which nobody knows yet whose it is: `value` itself says that.
    pub fn seal_for_browser<T: Serialize>(&self, purpose: Purpose, value: &T) -> Option<String> {
        self.seal_about(&About::new(purpose.as_str()), purpose, value)
    }

    /// What was sealed for a browser, for the same purpose, unless that is too long ago.
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

    /// `plain` for the store, of `caller`'s; `within` says what and where it is. None does not happen: AES takes it.
    pub fn seal_for_store(&self, caller: &Caller, within: &str, plain: &[u8]) -> Option<Vec<u8>> {
        let about = owned("wardgate kept 1", caller, within);
        self.at_rest.seal(&about, plain, &self.ambient).ok()
    }

    /// `plain` for the store, which more than one caller reads; `within` says what and where it is.
    pub fn seal_shared(&self, within: &str, plain: &[u8]) -> Option<Vec<u8>> {
        let about = About::new("wardgate shared 1").and(within.as_bytes());
        self.at_rest.seal(&about, plain, &self.ambient).ok()
    }

    /// What [`Self::seal_shared`] sealed as the same.
    pub fn open_shared(&self, within: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let about = About::new("wardgate shared 1").and(within.as_bytes());
        self.at_rest.open(&about, sealed.to_vec()).ok()
    }

    /// What was kept as the same.
    pub fn open_from_store(&self, caller: &Caller, within: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let about = owned("wardgate kept 1", caller, within);
        self.at_rest.open(&about, sealed.to_vec()).ok()
    }
}

/// Not the token: a client that renews it keeps its session.
fn about(purpose: Purpose, caller: &Caller, within: &str) -> About {
    owned(purpose.as_str(), caller, within)
}

fn owned(kind: &'static str, caller: &Caller, within: &str) -> About {
    About::new(kind)
        .and(caller.tenant().as_bytes())
        .and(caller.issuer().as_bytes())
        .and(caller.subject().as_bytes())
        .and(within.as_bytes())
}

#[cfg(test)]
mod tests;
