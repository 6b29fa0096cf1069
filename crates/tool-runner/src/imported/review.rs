//! The review of a person: what upstreams offer now, against what was approved.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;
use wardgate_domain::{Ambient, Digest, RequiredCapabilities, Timestamp};
use wardgate_mcp_client::CanonicalDefinition;

use super::importing::{self, ImportedSource, List};
use crate::Error;
use crate::executor::Sources;
use crate::platform::Platform;
use wardgate_catalogue::{Catalogue, Tool, lock_path};
use wardgate_catalogue::{Grade, JudgedTool, PinJudgement, Pins};

/// How long a server may take for its whole list.
const PATIENCE: Duration = Duration::from_secs(30);

/// What all upstreams of a catalogue offer, judged.
pub struct Review {
    pins: Pins,
    lock: PathBuf,
    upstreams: Vec<ReviewedUpstream>,
}

/// What one upstream offers, judged.
pub struct ReviewedUpstream {
    /// Its name in the catalogue.
    pub source: String,
    /// Why its tools are not known, where they are not.
    pub unreachable: Option<String>,
    /// Its tools by name.
    pub tools: Vec<JudgedTool>,
}

/// What to approve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// These, by the names that clients see.
    Tools(Vec<String>),
    /// Every change that is harmless.
    AllHarmless,
    /// All that one source offers, but nothing suspicious: that needs its name.
    Source(String),
}

/// Why nothing was approved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotApproved {
    /// No source of the catalogue is called so, or its tools are not imported.
    #[error("no tools are imported from a source `{0}`")]
    NoSource(String),
    /// The upstream did not answer.
    #[error("source `{0}`: {1}")]
    Unreachable(String, String),
    /// No upstream that answered offers it.
    #[error("no upstream that can be reached offers a tool `{0}`")]
    NoTool(String),
    /// It cannot be offered in any case.
    #[error("the tool `{0}` cannot be approved: {1}")]
    Refused(String, String),
}

impl Review {
    /// Loads the catalogue at `path` with its lock file, and asks each upstream for its tools.
    pub async fn of(
        path: &Path,
        variables: &BTreeMap<String, String>,
        ambient: &Ambient,
    ) -> Result<Self, Error> {
        let catalogue = Catalogue::load(path, variables).map_err(Error::Catalogue)?;
        let lock = lock_path(path);
        let pins = Pins::load(&lock).map_err(|fault| Error::Catalogue(vec![fault]))?;
        let importing = ImportedSource::of(&catalogue);
        let answers = ask(&catalogue, &importing, ambient).await?;
        let judged = importing::judge(&importing, &catalogue, &pins, |source| {
            answers.get(source)?.as_ref().ok().cloned()
        });
        let reviewed = |(source, mut tools): (&ImportedSource, Vec<JudgedTool>)| {
            let unreachable = answers
                .get(&source.name)
                .and_then(|answer| answer.clone().err());
            if unreachable.is_some() {
                tools.clear();
            }
            for tool in &mut tools {
                let definition = tool.definition.as_ref();
                let imported = definition.filter(|it| it.instructions().is_none());
                let required = RequiredCapabilities::default();
                let imported = imported
                    .map(|it| Tool::imported(it, &source.name, &source.settings, &required));
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
        let upstreams = importing.iter().zip(judged).map(reviewed).collect();
        Ok(Self {
            pins,
            lock,
            upstreams,
        })
    }

    /// The upstreams by name.
    #[must_use]
    pub fn upstreams(&self) -> &[ReviewedUpstream] {
        &self.upstreams
    }

    /// SHA-256 over all that an approval of `selection` would change: which tools, and each definition. Whoever was shown
    /// the tools approves exactly those by it.
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
        Digest::of(taken.collect::<String>().as_bytes())
    }

    /// Approves what `selection` says, all of it or nothing, in the name of `by`. What is gone is forgotten.
    /// Gives the names, as clients see them, of the tools that this changes.
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
                    (PinJudgement::Gone, _) => self.pins.forget(&upstream.source, &tool.name),
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

    /// The lock file.
    #[must_use]
    pub fn lock(&self) -> &Path {
        &self.lock
    }

    /// Whether everything that `selection` names is there and can be approved.
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
        let mut tools = self.upstreams.iter().flat_map(|upstream| &upstream.tools);
        match tools
            .find(|tool| tool.shown == name)
            .map(|tool| &tool.judged)
        {
            None => Err(NotApproved::NoTool(name.to_owned())),
            Some(PinJudgement::Refused { reason }) => {
                Err(NotApproved::Refused(name.to_owned(), reason.clone()))
            }
            Some(_) => Ok(()),
        }
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

/// What each source offers, or why that is not known; all are asked at once.
async fn ask(
    catalogue: &Catalogue,
    importing: &[ImportedSource],
    ambient: &Ambient,
) -> Result<BTreeMap<String, Result<List, String>>, Error> {
    let mut sources = Sources::new(&Arc::new(Platform::new()), None, None);
    for settings in catalogue.sources() {
        if importing.iter().any(|source| source.name == settings.name) {
            sources.open(settings.clone(), PATIENCE, ambient, None)?;
        }
    }
    let deadline = Instant::now() + PATIENCE;
    let answers = importing.iter().map(async |source| {
        let upstream = sources.mcp(&source.name)?;
        let answer = List::fetch(&upstream, deadline).await;
        let answer = answer.map_err(|error| error.to_string());
        upstream.close().await;
        Ok((source.name.clone(), answer))
    });
    join_all(answers).await.into_iter().collect()
}
