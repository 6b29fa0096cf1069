//! Lookup of people in a YAML file.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use wardgate_domain::{Ambient, Digest, Timestamp};
use wardgate_edge::is_name;
use wardgate_yaml::{Position, Spanned};

use crate::rights::ListedRights;
use crate::{Error, LookupSubject};

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Interval at which the file is checked for changes.
const REREAD_EVERY: Duration = Duration::from_millis(500);

/// The content of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableFile {
    people: Vec<Spanned<PersonEntry>>,
}

/// The entry of one person.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PersonEntry {
    /// The subject of the caller, as in policies and records.
    subject: String,
    /// The issuer of the person's tokens, or `None` for any issuer.
    #[serde(default)]
    issuer: Option<String>,
    #[serde(default)]
    roles: Vec<String>,
    #[serde(default)]
    attributes: BTreeMap<String, Value>,
}

/// The people in one version of the file.
#[derive(Debug)]
struct People {
    version: Digest,
    /// The entries by subject, each with its issuer, or `None` for any issuer.
    by_subject: HashMap<String, Vec<(Option<String>, ListedRights)>>,
}

/// An error in the file.
#[derive(Debug)]
struct TableFault {
    at: Option<Position>,
    problem: String,
}

impl TableFault {
    fn into_error(self, path: &Path) -> Error {
        Error::Table {
            path: path.to_owned(),
            at: self.at,
            problem: self.problem,
        }
    }
}

/// The people of a file, which is read again when it changes.
#[derive(Debug)]
pub(crate) struct Table {
    path: PathBuf,
    people: ArcSwap<People>,
    /// The time of the last successful reading, in microseconds.
    read_at: AtomicI64,
    /// Time for which the people remain in use after the file became invalid.
    ttl: Duration,
    /// Whether the last reading failed.
    is_failing: AtomicBool,
    ambient: Ambient,
}

impl People {
    fn parse(bytes: &[u8]) -> Result<Self, TableFault> {
        let unplaced = |problem: String| TableFault { at: None, problem };
        if bytes.len() as u64 > MAX_BYTES {
            return Err(unplaced("it is larger than 16 MiB".to_owned()));
        }
        let text = std::str::from_utf8(bytes);
        let text = text.map_err(|_| unplaced("it is not UTF-8".to_owned()))?;
        let file: TableFile = wardgate_yaml::parse(text).map_err(|fault| TableFault {
            at: Some(fault.at),
            problem: fault.problem,
        })?;
        let mut by_subject: HashMap<String, Vec<(Option<String>, ListedRights)>> = HashMap::new();
        for entry in file.people {
            let at = Some(Position::from(entry.referenced));
            let wrong = |problem: String| TableFault { at, problem };
            let PersonEntry {
                subject,
                issuer,
                roles,
                attributes,
            } = entry.value;
            if !is_name(&subject) {
                return Err(wrong(
                    "the subject is not 1 to 256 visible characters".to_owned(),
                ));
            }
            let listed = ListedRights::check(roles, attributes).map_err(wrong)?;
            let entries = by_subject.entry(subject).or_default();
            let overlaps = |other: &Option<String>| other.is_none() || *other == issuer;
            if issuer.is_none() && !entries.is_empty() || entries.iter().any(|(it, _)| overlaps(it))
            {
                return Err(wrong(
                    "the caller is listed before; list each caller of an issuer once".to_owned(),
                ));
            }
            entries.push((issuer, listed));
        }
        Ok(Self {
            version: Digest::compute(bytes),
            by_subject,
        })
    }
}

impl Table {
    /// Reads the file, which must be valid, and follows its changes until the table is dropped.
    pub(crate) async fn open(
        path: &Path,
        ttl: Duration,
        ambient: Ambient,
    ) -> Result<Arc<Self>, Error> {
        let read_at = ambient.now();
        let people = match read_table(path).await {
            Ok(bytes) => parse(bytes).await,
            Err(fault) => Err(fault),
        };
        let people = people.map_err(|fault| fault.into_error(path))?;
        let table = Arc::new(Self {
            path: path.to_owned(),
            people: ArcSwap::from_pointee(people),
            read_at: AtomicI64::new(read_at.as_micros()),
            ttl,
            is_failing: AtomicBool::new(false),
            ambient,
        });
        tokio::spawn(follow(Arc::downgrade(&table)));
        Ok(table)
    }

    /// Returns the rights of `person`. Fails if the file has been invalid for longer than `ttl`.
    pub(crate) fn find(
        &self,
        person: LookupSubject<'_>,
        now: Timestamp,
    ) -> Result<Option<ListedRights>, String> {
        let read_at = Timestamp::from_micros(self.read_at.load(Ordering::Relaxed));
        if self.is_failing.load(Ordering::Relaxed) && now.since(read_at) >= self.ttl {
            return Err("the table of callers cannot be used".to_owned());
        }
        let people = self.people.load();
        let entries = people.by_subject.get(person.subject).into_iter();
        let is_theirs = |issuer: &Option<String>| match issuer {
            Some(issuer) => issuer == person.issuer,
            None => true,
        };
        let mut listed = entries.flatten().filter(|(issuer, _)| is_theirs(issuer));
        Ok(listed.next().map(|(_, listed)| listed.clone()))
    }

    /// Applies a change of the file. If the file is invalid, the previous people remain in use for a while, and the
    /// error is logged once.
    pub(crate) async fn refresh(&self) {
        let now = self.ambient.now();
        let changed = self.read_change().await;
        let was_failing = self.is_failing.swap(changed.is_err(), Ordering::Relaxed);
        match changed {
            Ok(people) => {
                self.read_at.store(now.as_micros(), Ordering::Relaxed);
                if let Some(people) = people {
                    tracing::info!(
                        subjects = people.by_subject.len(),
                        "the changed table of callers is in force"
                    );
                    self.people.store(Arc::new(people));
                }
            }
            Err(fault) if !was_failing => tracing::error!(
                cause = fault.problem,
                path = %self.path.display(),
                "the table of callers cannot be used; its previous contents stay in force for {} s, then its callers are refused",
                self.ttl.as_secs()
            ),
            Err(_) => {}
        }
    }

    /// Returns the people of the file, or `None` if it is unchanged.
    async fn read_change(&self) -> Result<Option<People>, TableFault> {
        let bytes = read_table(&self.path).await?;
        if Digest::compute(&bytes) == self.people.load().version {
            return Ok(None);
        }
        parse(bytes).await.map(Some)
    }
}

async fn follow(table: Weak<Table>) {
    loop {
        tokio::time::sleep(REREAD_EVERY).await;
        let Some(table) = table.upgrade() else {
            return;
        };
        table.refresh().await;
    }
}

/// Checks the current file.
pub(crate) fn check(path: &Path) -> Result<(), Error> {
    let read = std::fs::File::open(path).map_err(|error| unreadable(&error));
    let people = read.and_then(|file| {
        let mut bytes = Vec::new();
        let mut file = io::Read::take(file, MAX_BYTES + 1);
        io::Read::read_to_end(&mut file, &mut bytes).map_err(|error| unreadable(&error))?;
        People::parse(&bytes)
    });
    people.map(drop).map_err(|fault| fault.into_error(path))
}

async fn read_table(path: &Path) -> Result<Vec<u8>, TableFault> {
    let mut bytes = Vec::new();
    let file = tokio::fs::File::open(path)
        .await
        .map_err(|error| unreadable(&error))?;
    let mut file = file.take(MAX_BYTES + 1);
    file.read_to_end(&mut bytes)
        .await
        .map_err(|error| unreadable(&error))?;
    Ok(bytes)
}

/// Parses the file in a blocking task, because a large table takes a while.
async fn parse(bytes: Vec<u8>) -> Result<People, TableFault> {
    let parsed = tokio::task::spawn_blocking(move || People::parse(&bytes)).await;
    parsed.unwrap_or_else(|_| {
        let problem = "it could not be read completely".to_owned();
        Err(TableFault { at: None, problem })
    })
}

fn unreadable(error: &io::Error) -> TableFault {
    TableFault {
        at: None,
        problem: error.to_string(),
    }
}
