//! Lookup of callers' roles and attributes in a table or a database of the organisation.
//!
//! ```text
//!   LookupConfig ──open──▶ CallerLookup (of wardgate-edge: one lookup at a time, remembered until it ends)
//!                              │ issuer, subject, tenant
//!                              ├─▶ Table: a YAML file, read again when it changes
//!                              └─▶ Query: a statement on a database, its values bound
//! ```
//!
//! A lookup returns what the organisation knows of a caller now, or fails. If the source is unavailable, the lookup
//! fails instead of returning a caller without roles.

mod check;
mod config;
mod query;
mod rights;
mod table;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use wardgate_domain::{Ambient, Caller, CallerRights};
use wardgate_edge::{CallerLookup, RightsSource, TokenRefusal};
use wardgate_telemetry::names;

pub use config::{LookupConfig, QueryConfig, UnlistedCaller};
use query::Query;
use rights::ListedRights;
use table::Table;

/// The reason for which a lookup cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is invalid.
    #[error("caller_lookup.{setting} {problem}")]
    Setting {
        /// The name of the setting.
        setting: &'static str,
        /// The problem, and how to correct it.
        problem: String,
    },
    /// The table is invalid.
    #[error("caller_lookup.table_file: {}{}: {problem}", path.display(), at.map(|at| format!(":{at}")).unwrap_or_default())]
    Table {
        /// The path of the file.
        path: PathBuf,
        /// The position in the file, if it is known.
        at: Option<wardgate_yaml::Position>,
        /// The problem.
        problem: String,
    },
}

/// Opens the lookup that `config` describes. A table is read at once, and must be valid; the connection to a database
/// is opened for the first lookup. Must be called in a Tokio runtime.
pub async fn open(config: &LookupConfig, ambient: Ambient) -> Result<CallerLookup, Error> {
    let (source, entries) = (Lookup::open(config, &ambient).await?, config.entries);
    Ok(CallerLookup::new(source, entries, ambient))
}

/// Checks that the table or the database of `config` is available, by the lookup of a subject that is not listed. The
/// error is the cause of the failure.
pub async fn probe(config: &LookupConfig, ambient: Ambient) -> Result<(), String> {
    let lookup = Lookup::open(config, &ambient).await;
    let lookup = lookup.map_err(|error| error.to_string())?;
    let nobody = LookupSubject {
        issuer: "urn:wardgate:doctor",
        subject: "nobody",
        tenant: "",
    };
    lookup.source.find(nobody, &ambient).await.map(drop)
}

/// The subject of a lookup.
#[derive(Debug, Clone, Copy)]
struct LookupSubject<'a> {
    issuer: &'a str,
    subject: &'a str,
    tenant: &'a str,
}

/// A source of rights, and how its results are applied.
struct Lookup {
    source: Source,
    config: LookupConfig,
    ambient: Ambient,
}

enum Source {
    Table(Arc<Table>),
    Query(Box<Query>),
}

impl Lookup {
    async fn open(config: &LookupConfig, ambient: &Ambient) -> Result<Self, Error> {
        config.validate()?;
        let source = match (&config.table_file, &config.query) {
            (Some(path), None) => {
                Source::Table(Table::open(path, config.ttl, ambient.clone()).await?)
            }
            (None, Some(query)) => Source::Query(Box::new(Query::open(query)?)),
            _ => return Err(check::not_one_source()),
        };
        Ok(Self {
            source,
            config: config.clone(),
            ambient: ambient.clone(),
        })
    }
}

impl Source {
    /// Returns the rights of `person`. The error contains the cause, but no values.
    async fn find(
        &self,
        person: LookupSubject<'_>,
        ambient: &Ambient,
    ) -> Result<Option<ListedRights>, String> {
        match self {
            Self::Table(table) => table.find(person, ambient.now()),
            Self::Query(query) => query.find(person).await,
        }
    }
}

#[async_trait]
impl RightsSource for Lookup {
    async fn look_up(&self, caller: &Caller) -> Result<CallerRights, TokenRefusal> {
        // The expiry is computed before the request, because the result may be as old as the request.
        let expires_at = self.ambient.now().plus(self.config.ttl);
        let person = LookupSubject {
            issuer: caller.issuer(),
            subject: caller.subject(),
            tenant: caller.tenant(),
        };
        let found = self.source.find(person, &self.ambient).await;
        let found = found.map_err(|cause| {
            count("failed");
            tracing::error!(cause, "a caller whose roles cannot be looked up is refused");
            TokenRefusal::RightsUnavailable
        })?;
        count(if found.is_some() { "found" } else { "unlisted" });
        if found.is_none() && self.config.unlisted == UnlistedCaller::Refuse {
            return Err(TokenRefusal::CallerUnlisted);
        }
        let ListedRights { roles, attributes } = found.unwrap_or_default();
        Ok(CallerRights {
            roles,
            attributes,
            replaces_claims: self.config.only_source,
            expires_at,
        })
    }
}

fn count(outcome: &'static str) {
    metrics::counter!(names::CALLER_LOOKUPS, "outcome" => outcome).increment(1);
}

#[cfg(test)]
mod tests;
