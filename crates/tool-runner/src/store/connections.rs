//! The tokens that people granted to sources, sealed. Each row is for one person and one service.
//!
//! ```text
//!   connect ─▶ version n ─ claim_refresh ─▶ one replica refreshes ──┬─ replace ─▶ version n + 1
//!                 ▲                                                 ├─ release: still version n
//!                 └──────────── the others wait ◀───────────────────┴─ disconnect: deleted
//! ```

use std::time::Duration;

use wardgate_domain::{About, Digest, Timestamp};
use wardgate_egress::{
    ConnectionKey, GrantStore, Person, StoreFuture, StoreUnavailable, StoredTokens,
};

use super::{StoreError, ToolRunnerStore, within};
use wardgate_store::Value;

/// A new grant replaces the previous one.
const CONNECT: &str = "
    INSERT INTO tool_runner.connection AS held
        (id, source, tenant, issuer, subject, sealed, version, refreshing_until, connected_at, changed_at)
    VALUES ($1, $2, $3, $4, $5, $6, 1, 0, $7, $7)
    ON CONFLICT (id) DO UPDATE SET
        sealed = excluded.sealed, version = held.version + 1, refreshing_until = 0,
        connected_at = excluded.connected_at, changed_at = excluded.changed_at";

const LOOK: &str = "SELECT sealed, version FROM tool_runner.connection WHERE id = $1";

const CLAIM: &str = "
    UPDATE tool_runner.connection SET refreshing_until = $3
    WHERE id = $1 AND version = $2 AND refreshing_until <= $4";

const REPLACE: &str = "
    UPDATE tool_runner.connection
    SET sealed = $3, version = version + 1, refreshing_until = 0, changed_at = $4
    WHERE id = $1 AND version = $2";

const RELEASE: &str = "
    UPDATE tool_runner.connection SET refreshing_until = 0 WHERE id = $1 AND version = $2";

const END: &str = "DELETE FROM tool_runner.connection WHERE id = $1 AND version = $2";

const LIST: &str = "
    SELECT source, tenant, issuer, subject, connected_at, changed_at FROM tool_runner.connection
    ORDER BY source, tenant, issuer, subject LIMIT $1";

const LIST_OF: &str = "
    SELECT source, tenant, issuer, subject, connected_at, changed_at FROM tool_runner.connection
    WHERE subject = $1 AND ($2 = '' OR issuer = $2) AND ($3 = '' OR source = $3) LIMIT $4";

/// An empty source or issuer matches all values.
const DISCONNECT: &str = "
    DELETE FROM tool_runner.connection
    WHERE subject = $1 AND ($2 = '' OR issuer = $2) AND ($3 = '' OR source = $3)";

/// An existing client is kept, so two replicas that register at the same time use the same client.
const REGISTER: &str = "
    INSERT INTO tool_runner.registered_client AS held (id, sealed, expires_at) VALUES ($1, $2, $3)
    ON CONFLICT (id) DO UPDATE SET sealed = excluded.sealed, expires_at = excluded.expires_at
    WHERE held.expires_at <= $4";

const REGISTERED: &str =
    "SELECT sealed FROM tool_runner.registered_client WHERE id = $1 AND expires_at > $2";

const UNREGISTER: &str = "DELETE FROM tool_runner.registered_client WHERE id = $1";

/// Maximum number of connections in one list.
const MOST_LISTED: i64 = 10_000;

/// A connection without its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredConnection {
    pub(crate) source: String,
    pub(crate) person: Person,
    pub(crate) connected_at: Timestamp,
    pub(crate) changed_at: Timestamp,
}

/// A row of [`LIST`] or [`LIST_OF`].
type ConnectionRow = (String, String, String, String, i64, i64);

impl From<ConnectionRow> for StoredConnection {
    fn from((source, tenant, issuer, subject, connected_at, changed_at): ConnectionRow) -> Self {
        Self {
            source,
            person: Person {
                tenant,
                issuer,
                subject,
            },
            connected_at: Timestamp::from_micros(connected_at),
            changed_at: Timestamp::from_micros(changed_at),
        }
    }
}

const TOKENS: &str = "connection tokens";

/// Time for which the proof of a caller is valid. The link of the gateway, the sign-in and the consent take at most 15
/// minutes each, and the authorization server of the source at most 10 minutes.
const PROOF_VALIDITY: Duration = Duration::from_hours(1);

/// Returns the context under which the proof of a caller is sealed.
fn caller_proof(person: Digest, source: &str) -> About {
    About::new("connection caller")
        .and(person.as_bytes())
        .and(source.as_bytes())
}

impl ToolRunnerStore {
    /// Creates the proof that a permitted call of `person` required a connection to `source`.
    pub(crate) fn seal_caller_proof(
        &self,
        person: Digest,
        source: &str,
    ) -> Result<Vec<u8>, StoreError> {
        let until = self.ambient.now().plus(PROOF_VALIDITY).as_micros();
        let about = caller_proof(person, source);
        self.key.seal(&about, &until.to_be_bytes(), &self.ambient)
    }

    /// Returns whether `proof` was created by [`Self::seal_caller_proof`] for the same person and source, and has not
    /// expired.
    pub(crate) fn accepts_caller_proof(&self, person: Digest, source: &str, proof: &[u8]) -> bool {
        let about = caller_proof(person, source);
        let until = self.key.open(&about, proof.to_vec());
        let until = until.ok().and_then(|until| <[u8; 8]>::try_from(until).ok());
        until.is_some_and(|until| {
            self.ambient.now() < Timestamp::from_micros(i64::from_be_bytes(until))
        })
    }

    /// Returns every connection, in a fixed order.
    pub(crate) async fn connections(&self) -> Result<Vec<StoredConnection>, StoreError> {
        let rows: Vec<ConnectionRow> =
            within(self.database.rows(LIST, [MOST_LISTED.into()])).await?;
        Ok(rows.into_iter().map(StoredConnection::from).collect())
    }

    /// Returns the connections that [`Self::disconnect`] would delete.
    pub(crate) async fn connections_of(
        &self,
        subject: &str,
        issuer: &str,
        source: &str,
    ) -> Result<Vec<StoredConnection>, StoreError> {
        let of = [
            subject.into(),
            issuer.into(),
            source.into(),
            MOST_LISTED.into(),
        ];
        let rows: Vec<ConnectionRow> = within(self.database.rows(LIST_OF, of)).await?;
        Ok(rows.into_iter().map(StoredConnection::from).collect())
    }

    /// Deletes the tokens of every person whom an issuer calls `subject`. An empty `issuer` or `source` matches all
    /// values.
    pub(crate) async fn disconnect(
        &self,
        subject: &str,
        issuer: &str,
        source: &str,
    ) -> Result<u64, StoreError> {
        let row = [subject.into(), issuer.into(), source.into()];
        within(self.database.execute(DISCONNECT, row)).await
    }
}

impl GrantStore for ToolRunnerStore {
    fn connect<'a>(&'a self, key: &'a ConnectionKey<'_>, plain: &'a [u8]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let sealed = self.key.seal(&key.about(TOKENS), plain, &self.ambient)?;
            let person = key.person;
            let row = [
                key.id().as_bytes()[..].into(),
                key.source.into(),
                person.tenant.as_str().into(),
                person.issuer.as_str().into(),
                person.subject.as_str().into(),
                sealed[..].into(),
                self.ambient.now().as_micros().into(),
            ];
            within(self.database.execute(CONNECT, row)).await?;
            Ok(())
        })
    }

    fn connection<'a>(
        &'a self,
        key: &'a ConnectionKey<'_>,
    ) -> StoreFuture<'a, Option<StoredTokens>> {
        Box::pin(async move {
            let id = [key.id().as_bytes()[..].into()];
            let rows: Vec<(Vec<u8>, i64)> = within(self.database.rows(LOOK, id)).await?;
            let Some((sealed, version)) = rows.into_iter().next() else {
                return Ok(None);
            };
            let plain = self.key.open(&key.about(TOKENS), sealed).ok();
            Ok(plain.map(|plain| StoredTokens { plain, version }))
        })
    }

    fn claim_refresh<'a>(
        &'a self,
        key: &'a ConnectionKey<'_>,
        version: i64,
        until: Timestamp,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let row = [
                key.id().as_bytes()[..].into(),
                version.into(),
                until.as_micros().into(),
                self.ambient.now().as_micros().into(),
            ];
            Ok(within(self.database.execute(CLAIM, row)).await? == 1)
        })
    }

    fn replace<'a>(
        &'a self,
        key: &'a ConnectionKey<'_>,
        version: i64,
        plain: &'a [u8],
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let sealed = self.key.seal(&key.about(TOKENS), plain, &self.ambient)?;
            let row = [
                key.id().as_bytes()[..].into(),
                version.into(),
                sealed[..].into(),
                self.ambient.now().as_micros().into(),
            ];
            Ok(within(self.database.execute(REPLACE, row)).await? == 1)
        })
    }

    fn release<'a>(&'a self, key: &'a ConnectionKey<'_>, version: i64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let row: [Value; 2] = [key.id().as_bytes()[..].into(), version.into()];
            within(self.database.execute(RELEASE, row)).await?;
            Ok(())
        })
    }

    fn end<'a>(&'a self, key: &'a ConnectionKey<'_>, version: i64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let row: [Value; 2] = [key.id().as_bytes()[..].into(), version.into()];
            within(self.database.execute(END, row)).await?;
            Ok(())
        })
    }

    fn registered_client<'a>(&'a self, about: &'a About) -> StoreFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let row: [Value; 2] = [
                about.digest().as_bytes()[..].into(),
                self.ambient.now().as_micros().into(),
            ];
            let rows: Vec<(Vec<u8>,)> = within(self.database.rows(REGISTERED, row)).await?;
            let sealed = rows.into_iter().next();
            Ok(sealed.and_then(|(sealed,)| self.key.open(about, sealed).ok()))
        })
    }

    fn register_client<'a>(
        &'a self,
        about: &'a About,
        plain: &'a [u8],
        until: Timestamp,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let sealed = self.key.seal(about, plain, &self.ambient)?;
            let row = [
                about.digest().as_bytes()[..].into(),
                sealed[..].into(),
                until.as_micros().into(),
                self.ambient.now().as_micros().into(),
            ];
            within(self.database.execute(REGISTER, row)).await?;
            Ok(())
        })
    }

    fn unregister_client<'a>(&'a self, about: &'a About) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let row: [Value; 1] = [about.digest().as_bytes()[..].into()];
            within(self.database.execute(UNREGISTER, row)).await?;
            Ok(())
        })
    }

    fn seal(&self, about: &About, plain: &[u8]) -> Result<Vec<u8>, StoreUnavailable> {
        Ok(self.key.seal(about, plain, &self.ambient)?)
    }

    fn unseal(&self, about: &About, sealed: Vec<u8>) -> Result<Vec<u8>, StoreUnavailable> {
        Ok(self.key.open(about, sealed)?)
    }
}

#[cfg(test)]
mod tests;
