//! `wardgate config`: a configuration, checked and shown.

use crate::Failure;
use crate::cli::{Config, ConfigCommand};
use crate::config::{GatewayWiring, ServiceWiring, Settings};

pub(crate) fn run(arguments: &Config) -> Result<(), Failure> {
    match &arguments.command {
        ConfigCommand::Check(file) => {
            let settings = Settings::load(&file.config)?;
            settings.optional::<wardgate_telemetry::Config>("telemetry")?;
            check(&settings)?;
            println!("ok");
        }
        ConfigCommand::Dump(file) => {
            let settings = Settings::load(&file.config)?;
            println!("{}", serde_json::to_string_pretty(&settings.all()?)?);
        }
    }
    Ok(())
}

/// Reads every section that is there, as its service would.
fn check(settings: &Settings) -> Result<(), Failure> {
    if settings.has("gateway.links") {
        settings.service::<wardgate_gateway::Config, GatewayWiring>("gateway")?;
    }
    if settings.has("policy") {
        settings.unwired::<wardgate_policy::Config>("policy", |_| {})?;
    }
    if settings.has("tool_runner") {
        settings.unwired::<wardgate_tool_runner::Config>("tool_runner", |_| {})?;
    }
    if settings.has("audit") {
        settings.unwired::<wardgate_audit::Config>("audit", |_| {})?;
    }
    for service in ["policy", "tool_runner", "audit"] {
        if settings.has(&format!("{service}.listen")) {
            settings.service::<figment::value::Dict, ServiceWiring>(service)?;
        }
    }
    Ok(())
}
