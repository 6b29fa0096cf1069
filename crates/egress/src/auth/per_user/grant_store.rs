//! Where grants are kept, so that every replica has them and a restart loses none.
//!
//! ```text
//!   connect ─▶ version n ─ claim_refresh ─▶ one replica alone asks ─┬─ replace ─▶ version n + 1
//!                 ▲                                                 ├─ release: still version n
//!                 └──────────── everybody else waits ◀──────────────┴─ disconnected: gone
//! ```

use futures::future::BoxFuture;
use wardgate_domain::{About, Digest, Timestamp};

/// A person, whatever their rights are at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// Of the caller.
    pub tenant: String,
    /// Of the caller's token.
    pub issuer: String,
    /// Whom that issuer means.
    pub subject: String,
}

impl Person {
    /// Tells persons apart.
    pub fn digest(&self) -> Digest {
        wardgate_domain::person(&self.tenant, &self.issuer, &self.subject)
    }
}

/// Whose tokens they are, and for which service: another service of the same name never gets them.
pub struct ConnectionKey<'a> {
    /// Who granted them.
    pub person: &'a Person,
    /// Name of the source.
    pub source: &'a str,
    /// Its URL.
    pub service: &'a str,
}

impl ConnectionKey<'_> {
    /// Tells the connections of persons with sources apart.
    pub fn id(&self) -> Digest {
        About::new("connection")
            .and(self.person.digest().as_bytes())
            .and(self.source.as_bytes())
            .digest()
    }

    /// `what` tells kinds of sealed texts from one another.
    pub fn about(&self, what: &'static str) -> About {
        About::new(what)
            .and(self.person.digest().as_bytes())
            .and(self.source.as_bytes())
            .and(self.service.as_bytes())
    }
}

/// Tokens as they are stored, opened.
pub struct StoredTokens {
    /// What was stored.
    pub plain: Vec<u8>,
    /// One more each time they are replaced.
    pub version: i64,
}

/// The store cannot be used now, or what it holds cannot be opened; the operation may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the store of grants cannot be used now")]
pub struct StoreUnavailable;

/// What an operation of the store gives.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreUnavailable>>;

/// Keeps grants and registered clients, sealed. Every operation ends within a bounded time.
pub trait GrantStore: Send + Sync {
    /// Keeps new tokens in the place of any older ones.
    fn connect<'a>(&'a self, key: &'a ConnectionKey<'_>, plain: &'a [u8]) -> StoreFuture<'a, ()>;

    /// The tokens; none also where what is stored was for another service.
    fn connection<'a>(
        &'a self,
        key: &'a ConnectionKey<'_>,
    ) -> StoreFuture<'a, Option<StoredTokens>>;

    /// The right to refresh tokens of that version, until `until`: true for one replica alone.
    fn claim_refresh<'a>(
        &'a self,
        key: &'a ConnectionKey<'_>,
        version: i64,
        until: Timestamp,
    ) -> StoreFuture<'a, bool>;

    /// Puts refreshed tokens in the place of those of that version; false where these are gone.
    fn replace<'a>(
        &'a self,
        key: &'a ConnectionKey<'_>,
        version: i64,
        plain: &'a [u8],
    ) -> StoreFuture<'a, bool>;

    /// Gives the right to refresh back, unused.
    fn release<'a>(&'a self, key: &'a ConnectionKey<'_>, version: i64) -> StoreFuture<'a, ()>;

    /// Forgets tokens of that version, which are no good any more.
    fn end<'a>(&'a self, key: &'a ConnectionKey<'_>, version: i64) -> StoreFuture<'a, ()>;

    /// The client that is registered under `about`.
    fn registered_client<'a>(&'a self, about: &'a About) -> StoreFuture<'a, Option<Vec<u8>>>;

    /// Keeps a client that was just registered, unless there is one by now.
    fn register_client<'a>(
        &'a self,
        about: &'a About,
        plain: &'a [u8],
        until: Timestamp,
    ) -> StoreFuture<'a, ()>;

    /// Forgets a client that its server does not know any more.
    fn unregister_client<'a>(&'a self, about: &'a About) -> StoreFuture<'a, ()>;

    /// Text that only this service can read, to be brought back by somebody else.
    fn seal(&self, about: &About, plain: &[u8]) -> Result<Vec<u8>, StoreUnavailable>;

    /// What [`Self::seal`] made of a text.
    fn unseal(&self, about: &About, sealed: Vec<u8>) -> Result<Vec<u8>, StoreUnavailable>;
}
