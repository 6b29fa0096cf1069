//! `tools.lock`: the approved definitions as a file, for people to review like code.
//!
//! ```yaml
//! version: 1
//! sources:
//!   "files":
//!     "read_file":
//!       sha256: "5f858e08…"
//!       approved_at: "2026-11-22T02:08:54.000000Z"
//!       approved_by: "alice"
//!       definition: |
//!         {
//!           "description": "…",
//! ```
//!
//! Sources and tools stand in the order of their names, and a definition takes one line a value, so that a
//! change shows as what it is. The definition is JSON whose characters all show, its members in the order the
//! upstream sent them: a model reads them in that order.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;
use wardgate_domain::{Ambient, Timestamp};

use super::{Definition, Pin, Pins};
use crate::Fault;

/// Version of the format.
const VERSION: u64 = 1;

/// What to do about an entry that cannot be used.
const AGAIN: &str = "take it from version control, or remove it and approve the tool again";

/// In front of every line of a definition.
const INDENT: &str = "        ";

const HEADER: &str = "\
# The approved definitions of the tools of MCP upstreams. `wardgate tools diff` shows what differs from
# them, `wardgate tools approve` writes them. Review a change of this file like a change of code.
";

/// Only the version: a later format may have other fields.
#[derive(Deserialize)]
struct Versioned {
    version: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lock {
    #[expect(dead_code, reason = "read before, by `Versioned`")]
    version: u64,
    sources: BTreeMap<String, BTreeMap<String, Spanned<Entry>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    sha256: Spanned<String>,
    approved_at: Spanned<String>,
    approved_by: String,
    definition: Spanned<String>,
}

impl Pins {
    /// Reads the lock file; none is as good as an empty one.
    pub(crate) fn load(path: &Path) -> Result<Self, Fault> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(path, &text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Fault {
                file: path.to_owned(),
                line: 1,
                column: 1,
                problem: format!("the file cannot be read: {error}"),
                fix: "check its permissions and that it is UTF-8".to_owned(),
            }),
        }
    }

    /// Reads the text of a lock file; `file` names it in the fault.
    pub(crate) fn parse(file: &Path, text: &str) -> Result<Self, Fault> {
        let fault = |at: serde_saphyr::Location, problem: String, fix: &str| Fault {
            file: file.to_owned(),
            line: at.line().max(1),
            column: at.column().max(1),
            problem,
            fix: fix.to_owned(),
        };
        let not_yaml = |error: serde_saphyr::Error| {
            let at = error.location().unwrap_or(serde_saphyr::Location::UNKNOWN);
            let problem = format!("the file is no tools.lock: {}", error.without_snippet());
            fault(
                at,
                problem,
                "take it from version control, or remove it and approve the tools again",
            )
        };
        let Versioned { version } = serde_saphyr::from_str(text).map_err(not_yaml)?;
        if version.value != VERSION {
            let problem = format!("version {} of tools.lock is not known", version.value);
            let fix =
                "use the wardgate that wrote it, or remove the file and approve the tools again";
            return Err(fault(version.referenced, problem, fix));
        }
        let lock: Lock = serde_saphyr::from_str(text).map_err(not_yaml)?;
        let mut pins = Self::default();
        for (source, tools) in lock.sources {
            for (name, entry) in tools {
                let at = entry.referenced;
                let Entry {
                    sha256,
                    approved_at,
                    approved_by,
                    definition,
                } = entry.value;
                let read = Definition::read(&definition.value).map_err(|bad| {
                    let problem = format!("tool {name}: {bad}");
                    fault(definition.referenced, problem, AGAIN)
                })?;
                if read.name() != name {
                    let problem = format!("the definition under `{name}` is that of another tool");
                    return Err(fault(at, problem, AGAIN));
                }
                if read.digest().to_string() != sha256.value {
                    let problem =
                        format!("the sha256 of tool {name} is not that of its definition");
                    return Err(fault(sha256.referenced, problem, AGAIN));
                }
                let approved_at: Timestamp = approved_at.value.parse().map_err(|_| {
                    let problem = format!("`approved_at` of tool {name} is no RFC 3339 time");
                    fault(approved_at.referenced, problem, AGAIN)
                })?;
                pins.approve(&source, read, &approved_by, approved_at);
            }
        }
        Ok(pins)
    }

    /// The lock file's text.
    pub(crate) fn to_text(&self) -> String {
        let mut out = format!("{HEADER}version: {VERSION}\n");
        out.push_str(if self.sources.is_empty() {
            "sources: {}\n"
        } else {
            "sources:\n"
        });
        for (source, tools) in &self.sources {
            out.push_str(&format!("  {}:\n", quoted(source)));
            for (name, pin) in tools {
                let Pin {
                    definition,
                    approved_at,
                    approved_by,
                } = pin;
                out.push_str(&format!("    {}:\n", quoted(name)));
                out.push_str(&format!("      sha256: \"{}\"\n", definition.digest()));
                out.push_str(&format!("      approved_at: \"{approved_at}\"\n"));
                out.push_str(&format!("      approved_by: {}\n", quoted(approved_by)));
                let json = definition.json().pretty(INDENT);
                out.push_str(&format!("      definition: |\n{INDENT}{json}\n"));
            }
        }
        out
    }

    /// Writes the lock file so that a reader finds either the old or the new one, whole, whatever happens.
    pub(crate) fn save(&self, path: &Path, ambient: &Ambient) -> io::Result<()> {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let unfinished = directory.join(format!(
            ".tools.lock.{:016x}",
            u64::from_ne_bytes(ambient.random())
        ));
        let written = write_synced(&unfinished, self.to_text().as_bytes())
            .and_then(|()| fs::rename(&unfinished, path))
            .and_then(|()| File::open(directory)?.sync_all());
        if written.is_err() {
            // What is left of it is of no use; that it cannot be removed changes nothing.
            let _ = fs::remove_file(&unfinished);
        }
        written
    }
}

fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// A text as JSON writes it, which YAML reads alike.
fn quoted(text: &str) -> String {
    super::json::visible(&Value::from(text).to_string())
}
