//! Imports the tools of MCP servers into the catalogue, and pins those that tools of the catalogue call.
//!
//! ```text
//!   follow ──▶ roster ─┐                  ┌▶ approved: in the catalogue, as pinned
//!    tools/list        ├─▶ judge, by pins ┤
//!    again and again   │                  └▶ new, drifted, refused: kept out, each alone
//!   tools.lock ─▶ pins ┘
//! ```
//!
//! A server that has not answered yet is assumed to offer what was approved, so the list is complete from the start. A
//! server that becomes unavailable keeps its last list. Meanwhile calls of its tools fail, and lists name the server as
//! missing.
//!
//! A tool of the catalogue that calls a tool of a server is judged by the pin of the latter, under its own name, and kept out
//! like an imported tool. Only while the lock file has no entry of its source, it is neither judged nor kept out.

mod approval_state;
mod importing;
mod recorder;
mod review;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;
use wardgate_domain::{Ambient, Digest, RequiredCapabilities};
use wardgate_rpc::client::AuditClient;

use crate::Error;
use crate::following::{Followers, Roster, ServerListing};
use wardgate_catalogue::plan::ApprovedTool;
use wardgate_catalogue::{Catalogue, Imports, Tool, lock_path};
use wardgate_catalogue::{Grade, JudgedTool, PinJudgement, Pins};
use wardgate_mcp_client::{Upstream, UpstreamError};

use approval_state::ApprovalStates;
use importing::{List, PinnedSource};
use recorder::{ITSELF, Recorder};

pub use review::{NotApproved, Review, ReviewedUpstream, Selection};

/// Name of the approver of the tools that a source with `pins: first_use` offers.
const FIRST_USE: &str = "first use";

/// Reads and checks the lock file next to `catalogue`. A missing file is equivalent to an empty one.
pub(crate) fn load_lock(catalogue: &Path) -> Result<Pins, Error> {
    let pins = Pins::load(&lock_path(catalogue));
    pins.map_err(|fault| Error::Catalogue(vec![fault]))
}

/// Imports the approved tools of MCP servers into the catalogue, and pins those that tools of the catalogue call.
pub(crate) struct Importer {
    lock: PathBuf,
    ambient: Ambient,
    roster: Roster<List>,
    followers: Followers<ToolListing>,
    recorder: Recorder,
    state: Mutex<ImportState>,
}

/// The listing of `tools/list`.
struct ToolListing;

impl ServerListing for ToolListing {
    type List = List;

    fn changes(upstream: &Upstream) -> watch::Receiver<u64> {
        upstream.tools_changed()
    }

    async fn fetch(upstream: &Upstream, deadline: Instant) -> Result<List, UpstreamError> {
        List::fetch(upstream, deadline).await
    }
}

/// The state that is carried from one catalogue to the next.
#[derive(Default)]
struct ImportState {
    /// The tools that sources with `pins: first_use` offered when they were first seen.
    first_seen: Pins,
    approval_states: ApprovalStates,
    /// The tools that toolsets name and no server offers.
    absent: BTreeSet<String>,
    /// The warnings about tools of the catalogue that call tools without an entry in the lock file.
    unpinned: BTreeSet<String>,
    /// The digest of the lock file in force.
    lock: Option<Digest>,
}

impl Importer {
    /// Creates the importer of the catalogue at `path`. Changes of the servers' tools are recorded with `audit`.
    pub(crate) fn new(path: &Path, audit: AuditClient, ambient: Ambient) -> Self {
        let roster = Roster::default();
        Self {
            lock: lock_path(path),
            followers: Followers::new(roster.clone()),
            recorder: Recorder::new(audit, ambient.clone()),
            roster,
            ambient,
            state: Mutex::default(),
        }
    }

    /// Returns a channel that changes when the list of a server does, and when a server becomes unavailable or
    /// available.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.roster.changes()
    }

    /// Adds the approved tools to `catalogue`, and removes the tools that call unapproved tools of a source with entries in the
    /// lock file. `lock` is the text of the lock file, or empty if there is none.
    pub(crate) fn import(&self, catalogue: &mut Catalogue, lock: &str) -> Result<(), Error> {
        let mut pins = match lock {
            "" => Pins::default(),
            text => Pins::parse(&self.lock, text).map_err(|fault| Error::Catalogue(vec![fault]))?,
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sources = PinnedSource::from_catalogue(catalogue);
        sources.retain(|source| source.is_compared(&pins));
        let judge = |pins: &Pins| {
            let list = |source: &str| self.roster.list(source);
            importing::judge(&sources, catalogue, pins, list)
        };
        for source in sources.iter().filter(|it| it.trusts_first_use()) {
            pins.adopt(&source.name, &state.first_seen);
        }
        let mut judged = judge(&pins);
        if self.see_first(&sources, &judged, &mut pins, &mut state.first_seen) {
            judged = judge(&pins);
        }
        let mut tools = Vec::new();
        let mut instructions = BTreeMap::new();
        let mut called = BTreeMap::new();
        for (source, judged) in sources.iter().zip(&mut judged) {
            let required = self.roster.list(&source.name).unwrap_or_default().required;
            if pins.knows(&source.name) {
                let approved = collect_called_tools(&source.name, judged, &pins, &required);
                called.insert(source.name.clone(), approved);
            } else {
                judged.retain(|tool| !tool.is_configured);
            }
            tools.extend(import_approved_tools(source, judged, &pins, &required));
            let said = judged
                .iter()
                .filter(|it| it.judged == PinJudgement::Approved);
            let mut said = said.filter_map(|it| it.definition.as_ref()?.instructions());
            if let Some(said) = said.next() {
                instructions.insert(source.name.clone(), said.to_owned());
            }
        }
        let digest = Digest::compute(lock.as_bytes());
        if !lock.is_empty() && state.lock.replace(digest) != Some(digest) {
            self.recorder
                .record(ITSELF, "tools.lock", "tools.lock".to_owned(), Some(digest));
        }
        state
            .approval_states
            .update(&sources, &judged, &pins, &self.recorder);
        let unpinned = catalogue.unpinned_tools(&pins);
        let unpinned: BTreeSet<_> = unpinned.iter().map(ToString::to_string).collect();
        for warning in unpinned.difference(&state.unpinned) {
            warn!("{warning}");
        }
        state.unpinned = unpinned;
        let missing = self.roster.missing_servers();
        let imported = sources.iter().filter(|it| it.is_imported);
        let imported: Vec<_> = imported.map(|it| it.name.clone()).collect();
        let missing = imported.iter().filter(|&name| missing.contains(name));
        catalogue.import(Imports {
            tools,
            instructions,
            called,
            missing: missing.cloned().collect(),
            sources: imported,
            followed: sources.into_iter().map(|it| it.name).collect(),
        });
        let absent = catalogue.absent();
        for tool in absent.difference(&state.absent) {
            warn!(tool, "a toolset contains a tool that no source offers now");
        }
        state.absent = absent;
        Ok(())
    }

    /// Follows exactly the servers of the catalogue in force.
    pub(crate) fn follow(&self, upstreams: &BTreeMap<String, Arc<Upstream>>) {
        self.followers.follow(upstreams);
    }

    /// Approves the tools of sources with `pins: first_use` of which nothing has been approved yet, except suspicious
    /// tools. Returns whether it approved any.
    fn see_first(
        &self,
        sources: &[PinnedSource],
        judged: &[Vec<JudgedTool>],
        pins: &mut Pins,
        first_seen: &mut Pins,
    ) -> bool {
        let mut any = false;
        for (source, judged) in sources.iter().zip(judged) {
            if !source.trusts_first_use() || pins.knows(&source.name) {
                continue;
            }
            for tool in judged {
                let is_clean = tool.judged.grade() == Some(Grade::Wider);
                if let Some(definition) = tool.definition.clone().filter(|_| is_clean) {
                    first_seen.approve(&source.name, definition, FIRST_USE, self.ambient.now());
                    any = true;
                }
            }
            if first_seen.knows(&source.name) {
                warn!(
                    upstream = source.name,
                    "the tools of an upstream server are offered as first seen, without an approval"
                );
            }
            pins.adopt(&source.name, first_seen);
        }
        any
    }
}

/// Returns the tools of `source` that can be offered, as they are pinned. An approved tool that cannot be imported is
/// marked as refused.
fn import_approved_tools(
    source: &PinnedSource,
    judged: &mut [JudgedTool],
    pins: &Pins,
    required: &BTreeMap<String, RequiredCapabilities>,
) -> Vec<Tool> {
    let mut tools = Vec::new();
    let none = RequiredCapabilities::default();
    for tool in judged
        .iter_mut()
        .filter(|tool| tool.judged == PinJudgement::Approved && !tool.is_configured)
    {
        let Some(pinned) = pins.approved_definition(&source.name, &tool.name) else {
            continue;
        };
        let required = required.get(&tool.name).unwrap_or(&none);
        match Tool::from_definition(pinned, &source.name, &source.settings, required) {
            Ok(imported) => tools.push(imported),
            Err(reason) => tool.judged = PinJudgement::Refused { reason },
        }
    }
    tools
}

/// Returns the approved tools of `source` that tools of the catalogue call, by the server's own names.
fn collect_called_tools(
    source: &str,
    judged: &[JudgedTool],
    pins: &Pins,
    required: &BTreeMap<String, RequiredCapabilities>,
) -> BTreeMap<String, ApprovedTool> {
    let called = judged
        .iter()
        .filter(|tool| tool.judged == PinJudgement::Approved && tool.is_configured);
    let called = called.filter_map(|tool| {
        let name = tool.definition.as_ref()?.name();
        let pinned = pins.approved_definition(source, name)?;
        let approved = ApprovedTool {
            pin: Arc::new(pinned.fingerprint()),
            required: required.get(name).cloned().unwrap_or_default(),
        };
        Some((name.to_owned(), approved))
    });
    called.collect()
}

#[cfg(test)]
mod tests;
