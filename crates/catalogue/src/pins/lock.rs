//! `tools.lock`: a file of the approved definitions, which people review like code.
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
//! The instructions of servers are in a separate map, `instructions`, by source. A file with this map has version 2.
//!
//! Sources and tools are ordered by name, and a definition has one line for each value, so that diffs are small. The
//! definition is JSON without invisible characters. Its members keep the order in which the upstream sent them, because a
//! model reads them in that order.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use wardgate_domain::{Ambient, NewFileAccess, Timestamp, replace_file};
use wardgate_mcp_client::{CanonicalDefinition, INSTRUCTIONS};
use wardgate_yaml::{NotYaml, Position, Spanned};

use super::display::{pretty, visible};
use super::{Pin, Pins};
use crate::fault::Fault;

/// Versions of the format. The second version adds `instructions` and is written only if there are any. A file of the first
/// version therefore stays unchanged with all of its approvals, and older programs can read files as long as possible.
const FIRST: u64 = 1;
const WITH_INSTRUCTIONS: u64 = 2;

/// Remedy for an entry that cannot be used.
const AGAIN: &str = "restore it from version control, or remove it and approve the tool again";

const HEADER: &str = "\
# The approved definitions of the tools of MCP upstreams. `wardgate tools diff` shows what differs from
# them, `wardgate tools approve` writes them. Review a change of this file like a change of code.
";

/// The version of a lock file, which is read first because a later format may have other fields.
#[derive(Deserialize)]
struct FormatVersion {
    version: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lock {
    #[expect(dead_code, reason = "read before, by `Versioned`")]
    version: u64,
    sources: BTreeMap<String, BTreeMap<String, Spanned<LockEntry>>>,
    #[serde(default)]
    instructions: BTreeMap<String, Spanned<LockEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LockEntry {
    sha256: Spanned<String>,
    approved_at: Spanned<String>,
    approved_by: String,
    definition: Spanned<String>,
}

impl Pins {
    /// Reads the lock file. A missing file is equivalent to an empty one.
    pub fn load(path: &Path) -> Result<Self, Fault> {
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

    /// Parses the text of a lock file. `file` names it in faults.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Fault> {
        let fault = |at: Position, problem: String, fix: &str| Fault {
            file: file.to_owned(),
            line: at.line,
            column: at.column,
            problem,
            fix: fix.to_owned(),
        };
        let not_yaml = |NotYaml { at, problem }| {
            fault(
                at,
                format!("the file is not a tools.lock: {problem}"),
                "restore it from version control, or remove it and approve the tools again",
            )
        };
        let FormatVersion { version } = wardgate_yaml::parse(text).map_err(not_yaml)?;
        if !(FIRST..=WITH_INSTRUCTIONS).contains(&version.value) {
            let problem = format!("version {} of tools.lock is not supported", version.value);
            let fix = "use the version of wardgate that wrote it, or remove the file and approve the tools again";
            return Err(fault(version.referenced.into(), problem, fix));
        }
        let lock: Lock = wardgate_yaml::parse(text).map_err(not_yaml)?;
        let mut pins = Self::default();
        let tools = lock.sources.into_iter().flat_map(|(source, tools)| {
            let tools = tools.into_iter();
            tools.map(move |(name, entry)| (source.clone(), Some(name), entry))
        });
        let instructions = lock.instructions.into_iter();
        let instructions = instructions.map(|(source, entry)| (source, None, entry));
        for (source, tool, entry) in tools.chain(instructions) {
            let at = Position::from(entry.referenced);
            let LockEntry {
                sha256,
                approved_at,
                approved_by,
                definition,
            } = entry.value;
            let read = match &tool {
                Some(_) => CanonicalDefinition::parse_tool(&definition.value),
                None => CanonicalDefinition::read_instructions(&definition.value),
            };
            let name = tool.unwrap_or_else(|| format!("{source} {INSTRUCTIONS}"));
            let read = read.map_err(|bad| {
                let problem = format!("tool {name}: {bad}");
                fault(definition.referenced.into(), problem, AGAIN)
            })?;
            if read.instructions().is_none() && read.name() != name {
                let problem = format!("the definition under `{name}` belongs to another tool");
                return Err(fault(at, problem, AGAIN));
            }
            if read.digest().to_string() != sha256.value {
                let problem = format!("the sha256 of tool {name} does not match its definition");
                return Err(fault(sha256.referenced.into(), problem, AGAIN));
            }
            let approved_at: Timestamp = approved_at.value.parse().map_err(|_| {
                let problem = format!("`approved_at` of tool {name} is not an RFC 3339 time");
                fault(approved_at.referenced.into(), problem, AGAIN)
            })?;
            pins.approve(&source, read, &approved_by, approved_at);
        }
        Ok(pins)
    }

    /// Returns the text of the lock file.
    pub fn to_text(&self) -> String {
        let version = if self.instructions.is_empty() {
            FIRST
        } else {
            WITH_INSTRUCTIONS
        };
        let mut out = format!("{HEADER}version: {version}\n");
        out.push_str(if self.sources.is_empty() {
            "sources: {}\n"
        } else {
            "sources:\n"
        });
        for (source, tools) in &self.sources {
            out.push_str(&format!("  {}:\n", quote(source)));
            for (name, pin) in tools {
                out.push_str(&format!("    {}:\n{}", quote(name), pin.to_text("      ")));
            }
        }
        if !self.instructions.is_empty() {
            out.push_str("instructions:\n");
        }
        for (source, pin) in &self.instructions {
            out.push_str(&format!("  {}:\n{}", quote(source), pin.to_text("    ")));
        }
        out
    }

    /// Replaces the lock file atomically, so that a reader finds either the complete old file or the complete new one, even
    /// after a crash.
    pub fn save(&self, path: &Path, ambient: &Ambient) -> io::Result<()> {
        let random = u64::from_ne_bytes(ambient.random());
        let unfinished = path.with_file_name(format!(".tools.lock.{random:016x}"));
        let text = self.to_text();
        let access = NewFileAccess::Default;
        Ok(replace_file(path, &unfinished, access, text.as_bytes())?)
    }
}

impl Pin {
    /// Returns the members of the entry, each line prefixed with `indent`.
    fn to_text(&self, indent: &str) -> String {
        let Self {
            definition,
            approved_at,
            approved_by,
        } = self;
        let (digest, by) = (definition.digest(), quote(approved_by));
        let inner = format!("{indent}  ");
        let json = pretty(definition.json(), &inner);
        format!(
            "{indent}sha256: \"{digest}\"\n{indent}approved_at: \"{approved_at}\"\n{indent}approved_by: {by}\n\
             {indent}definition: |\n{inner}{json}\n"
        )
    }
}

/// Quotes a text as a JSON string, which is also valid YAML.
fn quote(text: &str) -> String {
    visible(&Value::from(text).to_string())
}
