//! Roles and attributes of callers, from a table or a query of the organisation's own.
//!
//! ```text
//!   LookupConfig ──open──▶ CallerLookup (of wardgate-edge: one lookup at a time, remembered until it ends)
//!                              │ issuer, subject, tenant
//!                              ├─▶ Table: a YAML file, read again when it changes
//!                              └─▶ Query: a statement on a database, its values bound
//! ```
//!
//! One job: say what an organisation knows of a caller now, or fail. A source that cannot be asked is never somebody
//! without roles.

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

/// Why callers cannot be looked up at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting cannot be used.
    #[error("caller_lookup.{setting} {problem}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// What is wrong with it, and what to write.
        problem: String,
    },
    /// The table cannot be used.
    #[error("caller_lookup.table_file: {}{}: {problem}", path.display(), at.map(|at| format!(":{at}")).unwrap_or_default())]
    Table {
        /// The file.
        path: PathBuf,
        /// Where in it.
        at: Option<wardgate_yaml::Position>,
        /// What is wrong.
        problem: String,
    },
}

/// Opens the lookup that `config` describes. A table is read, and has to be usable; a database is connected to when the
/// first caller is looked up. Needs a Tokio runtime.
pub async fn open(config: &LookupConfig, ambient: Ambient) -> Result<CallerLookup, Error> {
    let (source, entries) = (Lookup::open(config, &ambient).await?, config.entries);
    Ok(CallerLookup::new(source, entries, ambient))
}

/// Whether the table or the database of `config` can be asked, by a lookup of somebody whom nobody lists. The error is the
/// cause.
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

/// Who is looked up.
#[derive(Debug, Clone, Copy)]
struct LookupSubject<'a> {
    issuer: &'a str,
    subject: &'a str,
    tenant: &'a str,
}

/// A lookup, and what it means.
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
    /// What it has of `person`; the error names its cause without any value.
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
        // Before the source is asked: what it says is as old as the question at most.
        let expires_at = self.ambient.now().plus(self.config.ttl);
        let person = LookupSubject {
            issuer: caller.issuer(),
            subject: caller.subject(),
            tenant: caller.tenant(),
        };
        let found = self.source.find(person, &self.ambient).await;
        let found = found.map_err(|cause| {
            count("failed");
            tracing::error!(
                cause,
                "a caller is refused, whose roles cannot be looked up"
            );
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
