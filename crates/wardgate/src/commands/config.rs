//! `wardgate config`: checks and prints configurations, and prints their schemas.

mod describe;
mod schema;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use wardgate_catalogue::Fault;
use wardgate_console::SignInConfig;
use wardgate_domain::{Ambient, mark_invisible};
use wardgate_edge::{Authenticator, EdgeClient, HttpsFiles, Origins};
use wardgate_gateway::Gateway;
use wardgate_policy::{PolicySet, ShadowConfig};

use crate::Failure;
use crate::cli::{ConfigArgs, ConfigCommand, SchemaOf};
use crate::commands::output::print_document;
use crate::commands::up::UpSettings;
use crate::commands::warnings;
use crate::compose;
use crate::config::{
    AgentWiring, ConsoleWiring, GatewayWiring, LocalIssuer, OperatorWiring, ServiceWiring,
    Settings, WitnessWiring, concurrency,
};
use crate::data_dir::DataDir;

pub(crate) async fn run(arguments: &ConfigArgs) -> Result<(), Failure> {
    match &arguments.command {
        ConfigCommand::Check(arguments) => {
            let settings = Settings::load(&arguments.file.config)?;
            check(&settings)?;
            if !arguments.alone {
                warnings::print_warnings(&check_files(&settings).await?);
            }
            println!("ok");
        }
        ConfigCommand::Dump { file, output } => {
            let settings = Settings::load(&file.config)?;
            let mut all = serde_json::to_value(settings.to_value()?)?;
            hide_secrets(&mut all);
            let json = serde_json::to_string_pretty(&all)?;
            print_document(*output, &json, || {
                let mut lines = String::new();
                describe_settings("", &all, &mut lines);
                lines
            })?;
        }
        ConfigCommand::Schema { of } => match of {
            SchemaOf::Tools => print!("{}", wardgate_catalogue::TOOLS_SCHEMA),
            SchemaOf::Configuration => {
                println!("{}", serde_json::to_string_pretty(&configuration())?);
            }
            SchemaOf::PolicyTests => {
                println!("{}", serde_json::to_string_pretty(&policy_tests())?);
            }
        },
    }
    Ok(())
}

/// Appends one line for each setting: its path and its value.
fn describe_settings(path: &str, value: &Value, lines: &mut String) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, member) in members {
                let dot = if path.is_empty() { "" } else { "." };
                describe_settings(&format!("{path}{dot}{name}"), member, lines);
            }
        }
        value => {
            let line = format!("{path:<48} {value}");
            *lines += &format!("{}\n", mark_invisible(&line));
        }
    }
}

/// Returns the schema of a whole configuration file. The schema of a section covers the keys that its service reads and the
/// keys that this binary reads for that service.
fn configuration() -> Value {
    use schema::{derive_schema, merge_schemas};
    let service = || derive_schema::<ServiceWiring>();
    let sections = [
        ("telemetry", derive_schema::<wardgate_telemetry::Config>()),
        ("local_issuer", derive_schema::<LocalIssuer>()),
        (
            "gateway",
            merge_schemas([
                derive_schema::<wardgate_gateway::Config>(),
                derive_schema::<GatewayWiring>(),
            ]),
        ),
        (
            "policy",
            merge_schemas([derive_schema::<wardgate_policy::Config>(), service()]),
        ),
        (
            "tool_runner",
            merge_schemas([derive_schema::<wardgate_tool_runner::Config>(), service()]),
        ),
        (
            "audit",
            merge_schemas([derive_schema::<wardgate_audit::Config>(), service()]),
        ),
        (
            "memory",
            merge_schemas([derive_schema::<wardgate_memory::Config>(), service()]),
        ),
        (
            "agent",
            merge_schemas([
                derive_schema::<wardgate_agent::Config>(),
                derive_schema::<AgentWiring>(),
            ]),
        ),
        ("console", derive_schema::<ConsoleWiring>()),
        ("operator", derive_schema::<OperatorWiring>()),
        ("witness", derive_schema::<WitnessWiring>()),
    ];
    let sections = sections.map(|(name, section)| (name.to_owned(), section));
    let mut whole = schema::object(Map::from_iter(sections));
    whole["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    whole["title"] = "wardgate.yaml".into();
    describe::describe(&mut whole);
    whole
}

/// Returns the schema of a file of policy tests.
fn policy_tests() -> Value {
    let mut whole = schema::derive_schema::<wardgate_policy::TestFile>();
    whole["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    whole["title"] = "Policy tests".into();
    whole
}

/// Returns whether the file is for `wardgate up`, which means that no section configures a separate service.
pub(crate) fn is_for_up(settings: &Settings) -> bool {
    const OF_ITS_OWN: [&str; 9] = [
        "gateway.links",
        "agent.links",
        "policy.listen",
        "tool_runner.listen",
        "audit.listen",
        "memory.listen",
        "console.links",
        "operator",
        "witness",
    ];
    !OF_ITS_OWN.iter().any(|key| settings.has(key))
}

/// Reads every section as its service would, and the settings of `wardgate up` if the file is for it. Errors contain the
/// position in the file.
pub(crate) fn check(settings: &Settings) -> Result<(), Failure> {
    settings.optional::<LocalIssuer>("local_issuer")?;
    let telemetry: wardgate_telemetry::Config = settings.optional("telemetry")?;
    at(settings, "telemetry", telemetry.validate())?;
    if is_for_up(settings) {
        let up = UpSettings::from_settings(settings, &DataDir::at(Path::new("data")))?;
        settings.listener("gateway")?;
        check_gateway(settings, &up.gateway)?;
        at(settings, "policy", up.policy.validate())?;
        at(settings, "audit", up.audit.validate())?;
        check_sign_in(
            settings,
            up.console.sign_in.as_ref(),
            Some(public_url_of_up(&up.gateway)),
        )?;
    } else {
        check_services(settings)?;
    }
    for service in ["gateway", "policy", "tool_runner", "audit", "memory"] {
        check_store(settings, service)?;
        let key = format!("{service}.concurrency");
        if settings.has(&key) {
            let limits = concurrency(service, Some(settings.optional(&key)?));
            at(settings, service, limits.map_err(CheckError))?;
        }
    }
    Ok(())
}

/// Checks how the console signs people in.
fn check_sign_in(
    settings: &Settings,
    sign_in: Option<&SignInConfig>,
    public_url: Option<&str>,
) -> Result<(), Failure> {
    let checked = sign_in.map_or(Ok(()), |sign_in| sign_in.validate(public_url));
    at(settings, "console", checked)
}

/// Returns the URL at which browsers reach `wardgate up`. Without the setting it is the listening address, which only a start
/// knows, so a local URL is returned instead.
fn public_url_of_up(gateway: &wardgate_gateway::Config) -> &str {
    gateway.public_url.as_deref().unwrap_or("http://localhost")
}

/// Checks the files that the configuration names as a start does, without opening any connection. Returns warnings: entries
/// that nobody can reach, and faults of a candidate policy set.
pub(crate) async fn check_files(settings: &Settings) -> Result<Vec<Fault>, Failure> {
    let warnings = check_contents(settings)?;
    let telemetry: wardgate_telemetry::Config = settings.optional("telemetry")?;
    at(settings, "telemetry", telemetry.check_files())?;
    if is_for_up(settings) {
        check_edge_of_up(settings).await?;
    } else {
        check_separate_edges(settings).await?;
    }
    Ok(warnings)
}

/// Checks the catalogue, the policies and the assistants, and returns warnings about them.
fn check_contents(settings: &Settings) -> Result<Vec<Fault>, Failure> {
    let mut policies = None;
    let mut faults_of_candidate = Vec::new();
    if settings.has("policy.policies") {
        let config: wardgate_policy::Config = settings.own_settings("policy", |_| {})?;
        let directory = config.policies.as_deref();
        policies = directory.map(PolicySet::load).transpose()?;
        config.check_table()?;
    }
    if settings.has("policy.shadow") {
        let config: wardgate_policy::Config = settings.own_settings("policy", |_| {})?;
        faults_of_candidate = config.shadow.map(check_shadow).unwrap_or_default();
    }
    if settings.has("policy.bundle") {
        // The bundles themselves may be elsewhere, so only the settings and the keys are checked.
        let config: wardgate_policy::Config = settings.own_settings("policy", |_| {})?;
        let bundle = config.bundle.as_ref();
        let keys = bundle.map_or(Ok(()), |bundle| bundle.verifier().map(drop));
        at(settings, "policy", keys)?;
    }
    let mut found = Vec::new();
    if settings.has("tool_runner") {
        let config = settings.own_settings("tool_runner", |_| {})?;
        let (catalogue, pins) = wardgate_tool_runner::check(&config)?;
        found = warnings::collect_warnings(&catalogue, policies.as_ref(), Some(&pins));
    }
    if settings.has("agent") {
        let config = settings.own_settings("agent", |_| {})?;
        at(settings, "agent", wardgate_agent::check(&config))?;
    }
    found.extend(faults_of_candidate);
    Ok(found)
}

/// Checks the files with which `wardgate up` authenticates callers, signs people in and terminates TLS.
async fn check_edge_of_up(settings: &Settings) -> Result<(), Failure> {
    let https = settings.listener("gateway")?.https;
    check_https(settings, "gateway", https.as_ref())?;
    let data = DataDir::at(Path::new("data"));
    let UpSettings {
        mut gateway,
        console,
        ..
    } = UpSettings::from_settings(settings, &data)?;
    if !settings.has("gateway.auth") {
        // The files of the local issuer are in the data directory, and the start writes them.
        gateway.auth.api_keys = None;
        for issuer in &mut gateway.auth.issuers {
            issuer.jwks = None;
        }
    }
    let checked = Gateway::check_files(&gateway).await;
    at(settings, "gateway", checked)?;
    let public_url = public_url_of_up(&gateway);
    check_sign_in_files(settings, console.sign_in.as_ref(), Some(public_url)).await
}

/// Checks the files with which separate services authenticate callers, sign people in and terminate TLS.
async fn check_separate_edges(settings: &Settings) -> Result<(), Failure> {
    if settings.has("gateway.links") {
        let (gateway, wiring): (wardgate_gateway::Config, GatewayWiring) =
            settings.service("gateway")?;
        check_https(settings, "gateway", wiring.https.as_ref())?;
        let checked = Gateway::check_files(&gateway).await;
        at(settings, "gateway", checked)?;
    }
    if settings.has("policy") {
        let policy: wardgate_policy::Config = settings.own_settings("policy", |_| {})?;
        let checked = Authenticator::check_files(&policy.auth).await;
        at(
            settings,
            "policy",
            checked.map_err(wardgate_policy::Error::from),
        )?;
    }
    if settings.has("agent.links") {
        let (_, wiring): (wardgate_agent::Config, AgentWiring) = settings.service("agent")?;
        check_https(settings, "agent", wiring.https.as_ref())?;
        let checked = Authenticator::check_files(&wiring.auth).await;
        at(settings, "agent", checked)?;
    }
    if settings.has("console") {
        let wiring: ConsoleWiring = settings.wiring("console")?;
        check_https(settings, "console", wiring.https.as_ref())?;
        let checked = Authenticator::check_files(&wiring.auth).await;
        at(settings, "console", checked)?;
        let public_url = wiring.public_url.as_deref();
        check_sign_in_files(settings, wiring.sign_in.as_ref(), public_url).await?;
    }
    Ok(())
}

/// Checks the certificate with which an edge terminates TLS, and its key.
fn check_https(
    settings: &Settings,
    section: &str,
    files: Option<&HttpsFiles>,
) -> Result<(), Failure> {
    let checked = files.map_or(Ok(()), HttpsFiles::check);
    at(settings, section, checked)
}

/// Checks the client secret with which the console signs people in.
async fn check_sign_in_files(
    settings: &Settings,
    sign_in: Option<&SignInConfig>,
    public_url: Option<&str>,
) -> Result<(), Failure> {
    let opened = compose::console_sign_in(sign_in, public_url, &Ambient::system()).await;
    let opened = opened.map_err(|error| settings.locate_error("console", error.as_ref()));
    opened?;
    Ok(())
}

/// Returns the faults because of which a candidate policy set would not decide. They do not prevent a start.
fn check_shadow(config: ShadowConfig) -> Vec<Fault> {
    let directory = config.policies.as_deref();
    let mut faults = directory.map(check_candidate).unwrap_or_default();
    if let Some(bundle) = config.bundle
        && let Err(error) = bundle.verifier()
    {
        // The bundles themselves may be elsewhere, so only the keys are checked. The message names the file.
        let key = bundle.public_key_files.first();
        let key = key.map_or(Path::new(""), PathBuf::as_path);
        faults.push(candidate_fault(key, 1, 1, format!("policy.shadow.{error}")));
    }
    faults
}

fn candidate_fault(file: &Path, line: usize, column: usize, problem: String) -> Fault {
    Fault {
        file: file.to_owned(),
        line: line as u64,
        column: column as u64,
        problem,
        fix: "until this is fixed, the candidate policies of policy.shadow are not evaluated"
            .to_owned(),
    }
}

fn check_candidate(directory: &Path) -> Vec<Fault> {
    let Err(error) = PolicySet::load(directory) else {
        return Vec::new();
    };
    match error {
        wardgate_policy::Error::Invalid(findings) => {
            let findings = findings.iter();
            let findings = findings.map(|finding| {
                let (line, column) = finding.position.map_or((1, 1), |it| (it.line, it.column));
                candidate_fault(&finding.file, line, column, finding.problem.clone())
            });
            findings.collect()
        }
        other => vec![candidate_fault(directory, 1, 1, other.to_string())],
    }
}

/// Checks the sections of separate services.
fn check_services(settings: &Settings) -> Result<(), Failure> {
    if settings.has("gateway.links") {
        let (gateway, _): (wardgate_gateway::Config, GatewayWiring) =
            settings.service("gateway")?;
        check_gateway(settings, &gateway)?;
    } else if settings.has("gateway") {
        let gateway: wardgate_gateway::Config = settings.own_settings("gateway", |section| {
            // The section may omit `auth` because `wardgate up` trusts its local issuer.
            let none = figment::value::Dict::new();
            section.entry("auth".to_owned()).or_insert(none.into());
        })?;
        at(settings, "gateway", gateway.validate())?;
    }
    if settings.has("policy") {
        let policy: wardgate_policy::Config = settings.own_settings("policy", |_| {})?;
        at(settings, "policy", policy.validate())?;
        // A policy section without `listen` may omit issuers because `wardgate up` uses the issuers of the gateway.
        if settings.has("policy.listen") || !policy.auth.issuers.is_empty() {
            let checked = policy.auth.validate();
            at(
                settings,
                "policy",
                checked.map_err(wardgate_policy::Error::from),
            )?;
        }
    }
    if settings.has("tool_runner") {
        settings.own_settings::<wardgate_tool_runner::Config>("tool_runner", |_| {})?;
    }
    if settings.has("audit") {
        let audit: wardgate_audit::Config = settings.own_settings("audit", |_| {})?;
        at(settings, "audit", audit.validate())?;
    }
    if settings.has("agent.links") {
        let (_, wiring): (wardgate_agent::Config, AgentWiring) = settings.service("agent")?;
        let url = wiring.public_url.as_deref();
        at(settings, "agent", wiring.auth.validate_for(url))?;
        let gateway = wardgate_agent::GatewayEndpoint::over_http(
            &wiring.links.gateway,
            wiring.links.ca.as_deref(),
        );
        let gateway = gateway.map_err(|error| CheckError(format!("agent.links.gateway: {error}")));
        at(settings, "agent", gateway)?;
    } else if settings.has("agent") {
        settings.own_settings::<wardgate_agent::Config>("agent", |_| {})?;
    }
    if settings.has("memory") {
        settings.own_settings::<wardgate_memory::Config>("memory", |section| {
            // The section may omit `store` because `wardgate up` sets it.
            let none = "sqlite:memory.sqlite".to_owned();
            section.entry("store".to_owned()).or_insert(none.into());
        })?;
    }
    if settings.has("console") {
        let wiring: ConsoleWiring = settings.wiring("console")?;
        let url = wiring.public_url.as_deref();
        at(settings, "console", wiring.auth.validate_for(url))?;
        check_sign_in(settings, wiring.sign_in.as_ref(), url)?;
        for (key, url) in [
            ("gateway", Some(&wiring.links.gateway)),
            ("agent", wiring.links.agent.as_ref()),
        ] {
            let edge = url.map(|url| EdgeClient::http(url, "wardgate", wiring.links.ca.as_deref()));
            let edge = edge.transpose();
            let edge = edge.map_err(|error| CheckError(format!("console.links.{key}: {error}")));
            at(settings, "console", edge)?;
        }
    }
    if settings.has("operator") {
        settings.wiring::<OperatorWiring>("operator")?;
    }
    if settings.has("witness") {
        let wiring: WitnessWiring = settings.wiring("witness")?;
        let keys = wiring.keys();
        let keys = keys.map_err(|error| CheckError(format!("witness.logs: {error}")));
        at(settings, "witness", keys)?;
    }
    for service in ["policy", "tool_runner", "audit", "memory"] {
        if settings.has(&format!("{service}.listen")) {
            settings.service::<figment::value::Dict, ServiceWiring>(service)?;
        }
    }
    Ok(())
}

fn check_gateway(settings: &Settings, config: &wardgate_gateway::Config) -> Result<(), Failure> {
    at(settings, "gateway", config.validate())?;
    let url = config.public_url.as_deref();
    at(settings, "gateway", config.auth.validate_for(url))?;
    let pages = config.allowed_origins.clone();
    at(
        settings,
        "gateway",
        Origins::new("gateway", url, Vec::new(), pages),
    )?;
    Ok(())
}

fn check_store(settings: &Settings, service: &str) -> Result<(), Failure> {
    let Some(store) = settings.store(service)? else {
        return Ok(());
    };
    let address = store.address();
    let address = address.map_err(|error| CheckError(format!("{service}.store: {error}")));
    at(settings, service, address)?;
    Ok(())
}

/// Adds to an error the position in the file of the key that the error names.
fn at<T, E>(settings: &Settings, section: &str, checked: Result<T, E>) -> Result<T, Failure>
where
    E: std::error::Error,
{
    checked.map_err(|error| settings.locate_error(section, &error).into())
}

/// A failed check that has only a message.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct CheckError(String);

/// Hides values that must not be pasted into a ticket: the passwords of URLs, and the values of variables, which are mostly
/// URLs with passwords.
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
            let Ok(mut url) = reqwest::Url::parse(text) else {
                // The position of a password in an unparsable URL is unknown.
                if text.contains("://") && text.contains('@') {
                    HIDDEN.clone_into(text);
                }
                return;
            };
            if url.password().is_some() || url.query().is_some() {
                // Neither fails for a URL that has a host, and only such a URL has a password.
                let _ = url.set_password(url.password().is_some().then_some(HIDDEN));
                url.set_query(url.query().is_some().then_some(HIDDEN));
                *text = url.to_string();
            }
        }
        _ => {}
    }
}

/// Placeholder of a hidden value.
const HIDDEN: &str = "hidden";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::SECTIONS;

    /// Collects the names of `value` that `schema` does not define.
    fn unknown(schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
        if let Value::Array(items) = value {
            for item in items {
                unknown(&schema["items"], item, at, found);
            }
        }
        let (Value::Object(members), Some("object")) = (value, schema["type"].as_str()) else {
            return;
        };
        for (name, member) in members {
            let at = format!("{at}/{name}");
            match (&schema["properties"][name], &schema["additionalProperties"]) {
                (Value::Null, Value::Bool(false)) => found.push(at),
                (Value::Null, entry) => unknown(entry, member, &at, found),
                (known, _) => unknown(known, member, &at, found),
            }
        }
    }

    #[test]
    fn the_schema_knows_every_section_and_every_name_of_the_examples() {
        let whole = configuration();
        let sections = whole["properties"].as_object().unwrap();
        assert!(SECTIONS.iter().all(|name| sections.contains_key(*name)));
        assert_eq!(sections.len(), SECTIONS.len());
        let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/examples");
        let mut seen = 0;
        for example in std::fs::read_dir(examples).unwrap() {
            let file = example.unwrap().path().join("wardgate.yaml");
            let Ok(text) = std::fs::read_to_string(&file) else {
                continue;
            };
            let value: Value = serde_saphyr::from_str(&text).unwrap();
            let mut found = Vec::new();
            unknown(&whole, &value, "", &mut found);
            assert!(found.is_empty(), "{}: {found:?}", file.display());
            seen += 1;
        }
        assert!(seen > 1, "the examples are where they are looked for");
        let mut found = Vec::new();
        let wrong = json!({ "gateway": { "auth": { "issuers": [{ "isuer": "" }] } } });
        unknown(&whole, &wrong, "", &mut found);
        assert_eq!(found, ["/gateway/auth/issuers/isuer"]);
    }

    fn check_text(text: &str) -> Result<(), String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wardgate.yaml");
        std::fs::write(&path, text).unwrap();
        check(&Settings::load(&path).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn limits_of_any_service_that_cannot_be_are_named_by_their_key() {
        for (text, says) in [
            (
                "gateway: { concurrency: { min: 0 } }",
                "gateway.concurrency.min",
            ),
            (
                "policy: { policies: p, concurrency: { initial: 3 } }",
                "policy.concurrency.initial",
            ),
            (
                "tool_runner: { catalogue: t, concurrency: { tolerance: 20 } }",
                "tool_runner.concurrency.tolerance",
            ),
            (
                "memory: { concurrency: { wait_ms: 60000 } }",
                "memory.concurrency.wait_ms",
            ),
            ("memory: { concurrency: { mni: 1 } }", "mni"),
            (
                "audit: { store: \"sqlite:s\", concurrency: {} }",
                "audit.concurrency",
            ),
        ] {
            let text = if text.starts_with("policy") {
                text.to_owned()
            } else {
                format!("{text}\npolicy: {{ policies: p }}\n")
            };
            let told = check_text(&text).unwrap_err();
            assert!(told.contains(says), "{text}: {told}");
            assert!(told.contains("wardgate.yaml:1:"), "{text}: {told}");
        }
        let rest = "audit: { store: \"sqlite:s\" }\npolicy: { policies: p }\n";
        check_text(&format!("memory: {{ concurrency: {{ min: 20 }} }}\n{rest}")).unwrap();
    }

    #[test]
    fn a_candidate_from_bundles_needs_no_state_file_in_one_process_and_has_one_place() {
        let shadow = |more: &str| {
            let bundle = "bundle: { source: b, public_key_files: [k] }";
            check_text(&format!(
                "policy: {{ policies: p, shadow: {{ {more}{bundle} }} }}\naudit: {{ store: \"sqlite:s\" }}\n"
            ))
        };
        shadow("").unwrap();
        let told = shadow("policies: c, ").unwrap_err();
        assert!(told.contains("policy.shadow.bundle"), "{told}");
        assert!(told.contains("wardgate.yaml:1:"), "{told}");
    }

    #[test]
    fn a_dump_shows_no_secret() {
        let mut value = json!({
            "audit": { "store": "postgres://w:s3@cret@db.example:5432/w?password=x" },
            "tool_runner": { "variables": { "DB_URL": "plain" } },
            "other": ["a@b", "http://h:1/", "postgres://w:s3@cret@db:port/w"],
        });
        hide_secrets(&mut value);
        assert_eq!(
            value,
            json!({
                "audit": { "store": "postgres://w:hidden@db.example:5432/w?hidden" },
                "tool_runner": { "variables": { "DB_URL": "hidden" } },
                "other": ["a@b", "http://h:1/", "hidden"],
            })
        );
    }
}
