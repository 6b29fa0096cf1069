//! Compares what upstreams offer now with what was approved, so that a person can review and approve the changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;
use wardgate_domain::{Ambient, Digest, RequiredCapabilities, Timestamp};
use wardgate_mcp_client::CanonicalDefinition;

use super::importing::{self, List, PinnedSource};
use super::load_lock;
use crate::Error;
use crate::executor::Sources;
use crate::platform::Platform;
use wardgate_catalogue::{Catalogue, Tool, lock_path};
use wardgate_catalogue::{Grade, JudgedTool, PinJudgement, Pins};

/// Maximum time that a server may take for its whole list.
const PATIENCE: Duration = Duration::from_secs(30);

/// The judged tools of all upstreams of a catalogue.
pub struct Review {
    pins: Pins,
    lock: PathBuf,
    upstreams: Vec<ReviewedUpstream>,
}

/// The judged tools of one upstream.
pub struct ReviewedUpstream {
    /// The name of the source in the catalogue.
    pub source: String,
    /// The reason why the upstream's tools are not known, or `None` if the upstream answered.
    pub unreachable: Option<String>,
    /// The imported tools, sorted by name, then those that tools of the catalogue call.
    pub tools: Vec<JudgedTool>,
}

/// A selection of the changes to approve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// These tools, by the names that clients see.
    Tools(Vec<String>),
    /// Every harmless change.
    AllHarmless,
    /// Everything that one source offers, except suspicious tools, which must be selected by name.
    Source(String),
}

/// The reason why nothing was approved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotApproved {
    /// The catalogue has no source of that name, or the tools of the source are neither imported nor called.
    #[error("no tools of a source `{0}` are imported or called")]
    NoSource(String),
    /// The upstream did not answer.
    #[error("source `{0}`: {1}")]
    Unreachable(String, String),
    /// No upstream that answered offers the tool.
    #[error("no reachable upstream server offers the tool `{0}`")]
    NoTool(String),
    /// The tool cannot be offered at all.
    #[error("the tool `{0}` cannot be approved: {1}")]
    Refused(String, String),
}

impl Review {
    /// Loads the catalogue at `path` and its lock file, and requests the tools of each upstream.
    pub async fn load(
        path: &Path,
        variables: &BTreeMap<String, String>,
        ambient: &Ambient,
    ) -> Result<Self, Error> {
        let catalogue = Catalogue::load(path, variables).map_err(Error::Catalogue)?;
        let lock = lock_path(path);
        let pins = load_lock(path)?;
        let sources = PinnedSource::from_catalogue(&catalogue);
        let answers = fetch_lists(&catalogue, &sources, ambient).await?;
        let judged = importing::judge(&sources, &catalogue, &pins, |source| {
            answers.get(source)?.as_ref().ok().cloned()
        });
        let reviewed = |(source, mut tools): (&PinnedSource, Vec<JudgedTool>)| {
            let unreachable = answers
                .get(&source.name)
                .and_then(|answer| answer.clone().err());
            if unreachable.is_some() {
                tools.clear();
            }
            for tool in tools.iter_mut().filter(|tool| !tool.is_configured) {
                let definition = tool.definition.as_ref();
                let imported = definition.filter(|it| it.instructions().is_none());
                let required = RequiredCapabilities::default();
                let imported = imported
                    .map(|it| Tool::from_definition(it, &source.name, &source.settings, &required));
                if let Some(Err(reason)) = imported {
                    tool.judged = PinJudgement::Refused { reason };
                }
            }
            ReviewedUpstream {
                source: source.name.clone(),
                unreachable,
                tools,
            }
        };
        let upstreams = sources.iter().zip(judged).map(reviewed).collect();
        Ok(Self {
            pins,
            lock,
            upstreams,
        })
    }

    /// Returns the upstreams, sorted by name.
    #[must_use]
    pub fn upstreams(&self) -> &[ReviewedUpstream] {
        &self.upstreams
    }

    /// Returns the SHA-256 digest of everything that an approval of `selection` would change, which is the tools and
    /// their definitions. A person who was shown the tools can use the digest to approve exactly those.
    #[must_use]
    pub fn digest(&self, selection: &Selection) -> Digest {
        let taken = self.upstreams.iter().flat_map(|upstream| {
            let tools = upstream.tools.iter();
            let taken = tools.filter(|tool| selection.takes(upstream, tool) && tool.is_pending());
            taken.map(|tool| {
                let definition = tool.definition.as_ref().map(CanonicalDefinition::digest);
                format!("{:?} {:?} {definition:?}\n", upstream.source, tool.name)
            })
        });
        Digest::compute(taken.collect::<String>().as_bytes())
    }

    /// Approves all of `selection`, or nothing, in the name of `by`. The pins of tools that are gone are removed, unless
    /// tools of the catalogue call them. Returns the names, as clients see them, of the tools that this changes.
    pub fn approve(
        &mut self,
        selection: &Selection,
        by: &str,
        now: Timestamp,
    ) -> Result<Vec<String>, NotApproved> {
        self.check(selection)?;
        let mut changed = Vec::new();
        for upstream in &self.upstreams {
            for tool in &upstream.tools {
                if !selection.takes(upstream, tool) {
                    continue;
                }
                match (&tool.judged, tool.definition.clone()) {
                    (PinJudgement::New { .. } | PinJudgement::Drifted { .. }, Some(definition)) => {
                        self.pins.approve(&upstream.source, definition, by, now);
                    }
                    (PinJudgement::Gone, _) if !upstream.is_called(&tool.name) => {
                        self.pins.forget(&upstream.source, &tool.name);
                    }
                    _ => continue,
                }
                changed.push(tool.shown.clone());
            }
        }
        Ok(changed)
    }

    /// Writes the lock file.
    pub fn save(&self, ambient: &Ambient) -> std::io::Result<()> {
        self.pins.save(&self.lock, ambient)
    }

    /// Returns the path of the lock file.
    #[must_use]
    pub fn lock(&self) -> &Path {
        &self.lock
    }

    /// Checks that everything that `selection` names exists and can be approved.
    pub fn check(&self, selection: &Selection) -> Result<(), NotApproved> {
        match selection {
            Selection::AllHarmless => Ok(()),
            Selection::Source(name) => {
                let upstream = self.upstreams.iter().find(|it| it.source == *name);
                let upstream = upstream.ok_or_else(|| NotApproved::NoSource(name.clone()))?;
                match &upstream.unreachable {
                    Some(why) => Err(NotApproved::Unreachable(name.clone(), why.clone())),
                    None => Ok(()),
                }
            }
            Selection::Tools(names) => names.iter().try_for_each(|name| self.check_tool(name)),
        }
    }

    fn check_tool(&self, name: &str) -> Result<(), NotApproved> {
        let tools = self.upstreams.iter().flat_map(|upstream| &upstream.tools);
        let mut checked = Err(NotApproved::NoTool(name.to_owned()));
        // An imported tool is refused if a tool of the catalogue has its name.
        for tool in tools.filter(|tool| tool.shown == name) {
            let PinJudgement::Refused { reason } = &tool.judged else {
                return Ok(());
            };
            checked = Err(NotApproved::Refused(name.to_owned(), reason.clone()));
        }
        checked
    }
}

impl ReviewedUpstream {
    /// Returns whether a tool of the catalogue calls the upstream's tool `name`.
    fn is_called(&self, name: &str) -> bool {
        let mut tools = self.tools.iter();
        tools.any(|tool| tool.is_configured && tool.name == name)
    }
}

impl Selection {
    fn takes(&self, upstream: &ReviewedUpstream, tool: &JudgedTool) -> bool {
        match self {
            Self::Tools(names) => names.contains(&tool.shown),
            Self::AllHarmless => tool.judged.grade() == Some(Grade::Harmless),
            Self::Source(name) => {
                upstream.source == *name && tool.judged.grade() != Some(Grade::Suspicious)
            }
        }
    }
}

/// Requests the list of each source concurrently. Returns the list, or the reason why it is not known.
async fn fetch_lists(
    catalogue: &Catalogue,
    pinned: &[PinnedSource],
    ambient: &Ambient,
) -> Result<BTreeMap<String, Result<List, String>>, Error> {
    let mut sources = Sources::new(&Arc::new(Platform::new()), None, None);
    for settings in catalogue.sources() {
        if pinned.iter().any(|source| source.name == settings.name) {
            sources.open(settings.clone(), PATIENCE, ambient, None)?;
        }
    }
    let deadline = Instant::now() + PATIENCE;
    let answers = pinned.iter().map(async |source| {
        let upstream = sources.mcp(&source.name)?;
        let answer = List::fetch(&upstream, deadline).await;
        let answer = answer.map_err(|error| error.to_string());
        upstream.close().await;
        Ok((source.name.clone(), answer))
    });
    join_all(answers).await.into_iter().collect()
}
