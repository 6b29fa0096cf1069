//! A catalogue in force: its tools with their sources, and the permits seen under it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use wardgate_domain::{ColumnClass, Digest, PermitVerifier};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_redact::PseudonymKey;

use crate::catalogue::{Catalogue, SourceSettings, Tool};
use crate::compiled::CompiledPermits;
use crate::sql::Source;
use crate::{Config, Error};

/// A tool and all that one call of it needs.
pub(crate) struct RunnableTool {
    pub(crate) tool: Tool,
    pub(crate) source: Arc<Source>,
    pub(crate) time_limit: Duration,
    pub(crate) max_rows: usize,
    pub(crate) max_result_bytes: usize,
    pub(crate) unclassified: ColumnClass,
}

/// What is in force until the file changes. Permits are remembered here, so that none outlives the
/// definitions it was compiled for.
pub(crate) struct Loaded {
    tools: HashMap<String, Arc<RunnableTool>>,
    sources: BTreeMap<String, Arc<Source>>,
    list: pb::ListToolsResponse,
    version: Digest,
    compiled: CompiledPermits,
}

/// What every catalogue is put in force with.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) permits: PermitVerifier,
    pub(crate) pseudonyms: Arc<PseudonymKey>,
}

impl Loaded {
    /// Sources that did not change are taken over from `previous` with their connections.
    pub(crate) fn new(
        catalogue: Catalogue,
        config: &Config,
        keys: &Keys,
        previous: Option<&Self>,
    ) -> Result<Self, Error> {
        let (tools, settings, version) = catalogue.into_parts();
        let mut sources = BTreeMap::new();
        for settings in settings {
            let name = settings.name.clone();
            let limit = longest(&tools, &name, config.time_limit);
            sources.insert(name, source(settings, limit, previous)?);
        }
        let list = pb::ListToolsResponse {
            tools: tools.iter().map(|tool| wire(tool, config)).collect(),
            catalogue_version: version.to_wire(),
        };
        let tools = tools
            .into_iter()
            .filter_map(|tool| {
                // The catalogue has no tool without its source.
                let source = Arc::clone(sources.get(tool.source())?);
                let runnable = RunnableTool {
                    source,
                    time_limit: tool.time_limit().unwrap_or(config.time_limit),
                    max_rows: tool.result().max_rows.unwrap_or(config.max_rows),
                    max_result_bytes: config.max_result_bytes,
                    unclassified: ColumnClass::unclassified(),
                    tool,
                };
                let name = runnable.tool.facts().name.to_string();
                Some((name, Arc::new(runnable)))
            })
            .collect();
        Ok(Self {
            tools,
            sources,
            list,
            version,
            compiled: CompiledPermits::new(keys, config.pushdown),
        })
    }

    /// By canonical name only.
    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<RunnableTool>> {
        self.tools.get(name)
    }

    pub(crate) fn list(&self) -> &pb::ListToolsResponse {
        &self.list
    }

    pub(crate) fn version(&self) -> Digest {
        self.version
    }

    pub(crate) fn compiled(&self) -> &CompiledPermits {
        &self.compiled
    }
}

/// The longest that any tool of the source may take.
fn longest(tools: &[Tool], source: &str, default: Duration) -> Duration {
    tools
        .iter()
        .filter(|tool| tool.source() == source)
        .map(|tool| tool.time_limit().unwrap_or(default))
        .max()
        .unwrap_or(default)
}

fn source(
    settings: SourceSettings,
    limit: Duration,
    previous: Option<&Loaded>,
) -> Result<Arc<Source>, Error> {
    let kept = previous
        .and_then(|previous| previous.sources.get(&settings.name))
        .filter(|source| source.is(&settings, limit));
    match kept {
        Some(source) => Ok(Arc::clone(source)),
        None => Source::new(settings, limit)
            .map(Arc::new)
            .map_err(Error::Source),
    }
}

fn wire(tool: &Tool, config: &Config) -> pb::Tool {
    let time_limit = tool.time_limit().unwrap_or(config.time_limit);
    pb::Tool {
        facts: Some(tool.facts().into()),
        aliases: tool.aliases().iter().map(ToString::to_string).collect(),
        definition_json: tool.definition_json().clone(),
        time_limit: time_limit.try_into().ok(),
        switches: Vec::new(),
    }
}
