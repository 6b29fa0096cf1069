//! The interface of the store of grants, which makes grants available to every replica and after a restart.
//!
//! ```text
//!   connect ─▶ version n ─ claim_refresh ─▶ one replica refreshes ──┬─ replace ─▶ version n + 1
//!                 ▲                                                 ├─ release: still version n
//!                 └──────────── all others wait ◀───────────────────┴─ disconnected: removed
//! ```

use futures::future::BoxFuture;
use wardgate_domain::{About, Digest, Timestamp};

/// A person, independent of the person's current rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The tenant of the caller.
    pub tenant: String,
    /// The issuer of the caller's token.
    pub issuer: String,
    /// The subject at that issuer.
    pub subject: String,
}

impl Person {
    /// Returns a digest that identifies the person.
    pub fn digest(&self) -> Digest {
        wardgate_domain::person(&self.tenant, &self.issuer, &self.subject)
    }
}

/// The person and the service to which tokens belong. Another service with the same source name never gets them.
pub struct ConnectionKey<'a> {
    /// The person who granted the tokens.
    pub person: &'a Person,
    /// The name of the source.
    pub source: &'a str,
    /// The URL of the service.
    pub service: &'a str,
}

impl ConnectionKey<'_> {
    /// Returns a digest that identifies the connection of a person to a source.
    pub fn id(&self) -> Digest {
        About::new("connection")
            .and(self.person.digest().as_bytes())
            .and(self.source.as_bytes())
            .digest()
    }

    /// Returns the context under which texts of the kind `what` are sealed.
    pub fn about(&self, what: &'static str) -> About {
        About::new(what)
            .and(self.person.digest().as_bytes())
            .and(self.source.as_bytes())
            .and(self.service.as_bytes())
    }
}

/// Tokens from the store, decrypted.
pub struct StoredTokens {
    /// The stored bytes.
    pub plain: Vec<u8>,
    /// The version of the tokens, which increases each time they are replaced.
    pub version: i64,
}

/// The store is unavailable, or its content cannot be decrypted. The operation may be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the store of grants is not available now")]
pub struct StoreUnavailable;

/// The future of an operation of the store.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreUnavailable>>;

/// A store of grants and registered clients, which are sealed. Every operation ends within a bounded time.
pub trait GrantStore: Send + Sync {
    /// Stores new tokens and replaces any older ones.
    fn connect<'a>(&'a self, key: &'a ConnectionKey<'_>, plain: &'a [u8]) -> StoreFuture<'a, ()>;

    /// Returns the tokens, or `None` if there are none for this service.
    fn connection<'a>(
        &'a self,
        key: &'a ConnectionKey<'_>,
    ) -> StoreFuture<'a, Option<StoredTokens>>;

    /// Claims the right to refresh the tokens of that version until `until`. Returns `true` to one replica only.
    fn claim_refresh<'a>(
        &'a self,
        key: &'a ConnectionKey<'_>,
        version: i64,
        until: Timestamp,
    ) -> StoreFuture<'a, bool>;

    /// Replaces the tokens of that version with refreshed ones. Returns `false` if that version does not exist any
    /// more.
    fn replace<'a>(
        &'a self,
        key: &'a ConnectionKey<'_>,
        version: i64,
        plain: &'a [u8],
    ) -> StoreFuture<'a, bool>;

    /// Releases a claim without a refresh.
    fn release<'a>(&'a self, key: &'a ConnectionKey<'_>, version: i64) -> StoreFuture<'a, ()>;

    /// Removes the tokens of that version, because they are not valid any more.
    fn end<'a>(&'a self, key: &'a ConnectionKey<'_>, version: i64) -> StoreFuture<'a, ()>;

    /// Returns the client that is registered under `about`.
    fn registered_client<'a>(&'a self, about: &'a About) -> StoreFuture<'a, Option<Vec<u8>>>;

    /// Stores a newly registered client, unless one has been stored in the meantime.
    fn register_client<'a>(
        &'a self,
        about: &'a About,
        plain: &'a [u8],
        until: Timestamp,
    ) -> StoreFuture<'a, ()>;

    /// Removes a client that its server does not know any more.
    fn unregister_client<'a>(&'a self, about: &'a About) -> StoreFuture<'a, ()>;

    /// Encrypts a text that another party keeps until it is needed again.
    fn seal(&self, about: &About, plain: &[u8]) -> Result<Vec<u8>, StoreUnavailable>;

    /// Decrypts a text that was encrypted by [`Self::seal`].
    fn unseal(&self, about: &About, sealed: Vec<u8>) -> Result<Vec<u8>, StoreUnavailable>;
}
