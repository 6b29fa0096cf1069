//! The settings of `wardgate up`, as its start, the configuration check and the doctor read them.

use figment::value::{Dict, Value};

use crate::Failure;
use crate::config::{LocalConsole, LocalIssuer, Settings};
use crate::data_dir::DataDir;
use crate::issuer;

/// The settings of all sections, with paths in the data directory where the file sets none.
#[derive(Debug)]
pub(crate) struct UpSettings {
    pub(crate) telemetry: wardgate_telemetry::Config,
    pub(crate) gateway: wardgate_gateway::Config,
    pub(crate) policy: wardgate_policy::Config,
    pub(crate) tool_runner: wardgate_tool_runner::Config,
    pub(crate) audit: wardgate_audit::Config,
    pub(crate) memory: wardgate_memory::Config,
    /// The settings of the agent, or `None` if the configuration has no agent.
    pub(crate) agent: Option<wardgate_agent::Config>,
    pub(crate) console: LocalConsole,
}

impl UpSettings {
    /// Reads every section. Keys and stores of `dir` are named but not opened.
    pub(crate) fn from_settings(settings: &Settings, dir: &DataDir) -> Result<Self, Failure> {
        let set = |section: &mut Dict, key: &str, value: String| {
            section.entry(key.to_owned()).or_insert(value.into());
        };
        // Without configured issuers, the gateway trusts the local one.
        let local: LocalIssuer = settings.optional("local_issuer")?;
        let auth = Value::serialize(issuer::trust(dir, local))?;
        Ok(Self {
            telemetry: settings.optional("telemetry")?,
            gateway: settings.own_settings("gateway", |section| {
                section.entry("auth".to_owned()).or_insert(auth);
                set(section, "store", dir.gateway_store());
            })?,
            policy: settings.own_settings("policy", |section| {
                // The default is left to the service if the section has no bundle, or something else in its place.
                if let Some(Value::Dict(_, bundle)) = section.get_mut("bundle") {
                    set(bundle, "state_file", dir.policy_bundle());
                }
                if let Some(Value::Dict(_, shadow)) = section.get_mut("shadow")
                    && let Some(Value::Dict(_, bundle)) = shadow.get_mut("bundle")
                {
                    set(bundle, "state_file", dir.candidate_bundle());
                }
            })?,
            tool_runner: settings.own_settings("tool_runner", |section| {
                set(section, "store", dir.tool_runner_store());
            })?,
            audit: settings.own_settings("audit", |section| set(section, "store", dir.record()))?,
            memory: settings.own_settings("memory", |section| {
                set(section, "store", dir.memory_store());
            })?,
            // A section with `links` configures a console that runs as a separate service.
            console: if settings.has("console.links") {
                LocalConsole::default()
            } else {
                settings.optional("console")?
            },
            agent: if settings.has("agent") {
                Some(settings.own_settings("agent", |_| {})?)
            } else {
                None
            },
        })
    }
}
