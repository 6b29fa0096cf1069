//! `wardgate config`: a configuration, checked and shown.

use serde_json::Value;

use crate::Failure;
use crate::cli::{Config, ConfigCommand};
use crate::config::{AgentWiring, GatewayWiring, OperatorWiring, ServiceWiring, Settings};

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
            let mut all = serde_json::to_value(settings.all()?)?;
            hide_secrets(&mut all);
            println!("{}", serde_json::to_string_pretty(&all)?);
        }
        ConfigCommand::Schema => print!("{}", wardgate_tool_runner::TOOLS_SCHEMA),
    }
    Ok(())
}

/// Reads every section that is there, as its service would. A gateway without links is one for `up`, which may
/// leave out the rest.
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
    if settings.has("agent") {
        wardgate_agent::check(&settings.unwired("agent", |_| {})?)?;
    }
    if settings.has("agent.links") {
        settings.service::<wardgate_agent::Config, AgentWiring>("agent")?;
    }
    if settings.has("memory") {
        settings.unwired::<wardgate_memory::Config>("memory", |section| {
            // `up` names one.
            let none = "sqlite:memory.sqlite".to_owned();
            section.entry("store".to_owned()).or_insert(none.into());
        })?;
    }
    if settings.has("operator") {
        settings.wiring::<OperatorWiring>("operator")?;
    }
    for service in ["policy", "tool_runner", "audit", "memory"] {
        if settings.has(&format!("{service}.listen")) {
            settings.service::<figment::value::Dict, ServiceWiring>(service)?;
        }
    }
    Ok(())
}

/// Hides what must not be pasted into a ticket: the passwords of URLs, and the values of variables, which are
/// mostly URLs with passwords.
fn hide_secrets(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::Object(variables) if name == "variables" => {
                        variables
                            .values_mut()
                            .for_each(|value| *value = HIDDEN.into());
                    }
                    member => hide_secrets(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_secrets),
        Value::String(text) => {
            if let Ok(mut url) = reqwest::Url::parse(text)
                && (url.password().is_some() || url.query().is_some())
            {
                // Neither fails for a URL that has a host, and only such a URL has a password.
                let _ = url.set_password(url.password().is_some().then_some(HIDDEN));
                url.set_query(url.query().is_some().then_some(HIDDEN));
                *text = url.to_string();
            }
        }
        _ => {}
    }
}

/// Stands for what is not shown.
const HIDDEN: &str = "hidden";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dump_shows_no_secret() {
        let mut value = json!({
            "audit": { "store": "postgres://w:s3@cret@db.example:5432/w?password=x" },
            "tool_runner": { "variables": { "DB_URL": "plain" } },
            "other": ["a@b", "http://h:1/"],
        });
        hide_secrets(&mut value);
        assert_eq!(
            value,
            json!({
                "audit": { "store": "postgres://w:hidden@db.example:5432/w?hidden" },
                "tool_runner": { "variables": { "DB_URL": "hidden" } },
                "other": ["a@b", "http://h:1/"],
            })
        );
    }
}
