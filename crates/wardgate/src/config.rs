//! The configuration: one file for all services, each of which reads its own section.
//!
//! Values come from the defaults, then the file, then the environment (`WARDGATE_GATEWAY__LISTEN` is `gateway.listen`).
//! Relative paths are relative to the file. An unknown key is an error.

mod console;
mod error;
mod witness;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use figment::Figment;
use figment::error::Kind;
use figment::providers::{Env, Serialized};
use figment::value::{Dict, Value};
use reqwest::Url;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use wardgate_agent::HttpLimits;
use wardgate_edge::{AuthConfig, HttpsFiles, TrustedProxies};
use wardgate_resilience::concurrency::Config as Concurrency;
use wardgate_rpc::Drain;
use wardgate_rpc::link::TlsFiles;
use wardgate_rpc::server::ListenConfig;
use wardgate_store::{Address, DatabaseSettings, NotAStore};
use wardgate_yaml::{Node, Position};

pub(crate) use console::{ConsoleWiring, LocalConsole};
pub(crate) use error::{Error, SECTIONS, ValueOrigin};
pub(crate) use witness::WitnessWiring;

/// Keys of a service's section that this binary reads instead of the service.
const WIRING: [&str; 19] = [
    "concurrency",
    "drain",
    "listen",
    "tls",
    "plaintext",
    "probes",
    "https",
    "trusted_proxies",
    "permit_key_file",
    "permit_public_key_files",
    "pseudonym_key_file",
    "mac_key_file",
    "log_key_file",
    "details_key_file",
    "former_details_key_files",
    "master_key_file",
    "former_master_key_files",
    "session_key_file",
    "links",
];

/// Keys of the section of a separate agent that this binary reads instead of the agent.
const AGENT_WIRING: [&str; 12] = [
    "drain",
    "listen",
    "probes",
    "https",
    "trusted_proxies",
    "public_url",
    "allowed_hosts",
    "allowed_origins",
    "limits",
    "auth",
    "approval_key_file",
    "links",
];

/// A configuration that is loaded but not yet split into sections.
#[derive(Debug)]
pub(crate) struct Settings {
    figment: Figment,
    /// The path of the file, for messages.
    file: String,
    /// The parsed document with positions, or `None` if only its values could be parsed.
    document: Option<Node>,
    /// The directory that relative paths are relative to.
    base: PathBuf,
}

/// Wiring of a separate gateway: its listener and its links to the other services.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GatewayWiring {
    pub(crate) links: Links,
    #[serde(default)]
    pub(crate) tls: Option<TlsFiles>,
    #[serde(default)]
    pub(crate) session_key_file: Option<PathBuf>,
    /// The certificate for TLS termination, or `None` for plain HTTP.
    #[serde(default)]
    pub(crate) https: Option<HttpsFiles>,
    /// The proxies whose statements about the client's address are trusted.
    #[serde(default)]
    pub(crate) trusted_proxies: TrustedProxies,
    /// Address of probes and `/metrics`. If it is set, `/ready` is not served on the address for clients. If it is `None`,
    /// port 9090 of loopback is used, or another port if that one is taken.
    #[serde(default)]
    pub(crate) probes: Option<SocketAddr>,
    /// Timing of the graceful shutdown.
    #[serde(default)]
    pub(crate) drain: Drain,
}

/// Settings of an edge's listener besides its address.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ListenerWiring {
    #[serde(default)]
    pub(crate) probes: Option<SocketAddr>,
    #[serde(default)]
    pub(crate) https: Option<HttpsFiles>,
    #[serde(default)]
    pub(crate) trusted_proxies: TrustedProxies,
}

/// URLs of the services that a gateway calls.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Links {
    pub(crate) policy: String,
    pub(crate) tool_runner: String,
    pub(crate) audit: String,
    /// The memory service, or `None` if there are no conversations.
    #[serde(default)]
    pub(crate) memory: Option<String>,
}

/// Wiring of a separate gRPC service: its listener, its key files and its links.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServiceWiring {
    pub(crate) listen: SocketAddr,
    #[serde(default)]
    pub(crate) tls: Option<TlsFiles>,
    #[serde(default)]
    pub(crate) plaintext: bool,
    /// Address of `/health`, `/ready` and `/metrics`, or `None` if they are not served.
    #[serde(default)]
    pub(crate) probes: Option<SocketAddr>,
    #[serde(default)]
    pub(crate) permit_key_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) permit_public_key_files: Vec<PathBuf>,
    #[serde(default)]
    pub(crate) pseudonym_key_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) mac_key_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) log_key_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) details_key_file: Option<PathBuf>,
    /// Master keys of the details of calls that the store of the audit service is moved from.
    #[serde(default)]
    pub(crate) former_details_key_files: Vec<PathBuf>,
    #[serde(default)]
    pub(crate) master_key_file: Option<PathBuf>,
    /// Master keys that the store of the memory service is moved from.
    #[serde(default)]
    pub(crate) former_master_key_files: Vec<PathBuf>,
    #[serde(default)]
    pub(crate) links: ServiceLinks,
    /// Number of calls that are processed concurrently, and number of calls that are queued.
    #[serde(default)]
    pub(crate) concurrency: Option<Concurrency>,
    /// Timing of the graceful shutdown.
    #[serde(default)]
    pub(crate) drain: Drain,
}

/// URLs of the services that a service other than the gateway calls. The service decides which of them it requires.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServiceLinks {
    /// The audit service: the tool-runner and the memory service record changes there, and the policy service counts
    /// earlier calls.
    #[serde(default)]
    pub(crate) audit: Option<String>,
    /// The policy service: the memory service asks it for the rights of readers, and the tool-runner, the audit and the
    /// memory service ask it for the rights of operators.
    #[serde(default)]
    pub(crate) policy: Option<String>,
    /// The memory service, for tools about conversations.
    #[serde(default)]
    pub(crate) memory: Option<String>,
}

/// Wiring of a separate agent: its listener, its admission of clients and its gateway. In `up` the agent shares the
/// gateway's address and settings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentWiring {
    #[serde(default = "agent_listen")]
    pub(crate) listen: SocketAddr,
    /// The certificate for TLS termination, or `None` for plain HTTP.
    #[serde(default)]
    pub(crate) https: Option<HttpsFiles>,
    /// The proxies whose statements about the client's address are trusted.
    #[serde(default)]
    pub(crate) trusted_proxies: TrustedProxies,
    /// Address of probes and `/metrics`. If it is set, `/ready` is not served on the address for clients. If it is `None`,
    /// port 9090 of loopback is used, or another port if that one is taken.
    #[serde(default)]
    pub(crate) probes: Option<SocketAddr>,
    /// The URL at which clients reach the agent. Its host is allowed in `Host` headers.
    #[serde(default)]
    pub(crate) public_url: Option<String>,
    /// Additional hosts that are allowed in `Host` headers, without port, besides loopback and the host of the public URL.
    #[serde(default)]
    pub(crate) allowed_hosts: Vec<String>,
    /// Additional origins of web pages that may call, besides those on an allowed host.
    #[serde(default)]
    pub(crate) allowed_origins: Vec<String>,
    #[serde(default)]
    pub(crate) limits: HttpLimits,
    /// The issuers whose tokens are accepted. They must be those of the gateway, because it receives the same tokens.
    pub(crate) auth: AuthConfig,
    #[serde(default)]
    pub(crate) approval_key_file: Option<PathBuf>,
    pub(crate) links: AgentLinks,
    /// Timing of the graceful shutdown.
    #[serde(default)]
    pub(crate) drain: Drain,
}

/// URLs of the services that an agent calls.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentLinks {
    /// The base URL of the gateway.
    #[serde(deserialize_with = "url")]
    pub(crate) gateway: Url,
    /// The authorities of the gateway's certificate, or `None` for those of the system.
    #[serde(default)]
    pub(crate) ca: Option<PathBuf>,
}

fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Url, D::Error> {
    let text = String::deserialize(deserializer)?;
    Url::parse(&text).map_err(|error| D::Error::custom(format!("not a URL: {error}")))
}

fn agent_listen() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 8081).into()
}

/// Wiring for the commands of operators of separate services.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OperatorWiring {
    pub(crate) links: OperatorLinks,
    #[serde(default)]
    pub(crate) tls: Option<TlsFiles>,
}

/// URLs of the services that an operator calls.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OperatorLinks {
    pub(crate) tool_runner: String,
    #[serde(default)]
    pub(crate) memory: Option<String>,
    /// The audit service, for reading the record.
    #[serde(default)]
    pub(crate) audit: Option<String>,
    /// The policy service, for reading what a candidate would change.
    #[serde(default)]
    pub(crate) policy: Option<String>,
}

/// The store of a service and the settings of its database connection.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct StoreSettings {
    pub(crate) store: String,
    #[serde(default)]
    pub(crate) database: DatabaseSettings,
}

impl StoreSettings {
    /// Creates the settings of a store in a data directory.
    pub(crate) fn file(store: String) -> Self {
        Self {
            store,
            database: DatabaseSettings::default(),
        }
    }

    pub(crate) fn address(&self) -> Result<Address, NotAStore> {
        Address::new(&self.store, &self.database)
    }
}

/// Returns the limit of concurrent calls of a service, as its section sets it. Returns `None` for the audit service, which
/// rejects no calls for load: the gateway's limit accounts for its capacity.
pub(crate) fn concurrency(
    section: &str,
    set: Option<Concurrency>,
) -> Result<Option<Concurrency>, String> {
    if section == "audit" {
        return match set {
            None => Ok(None),
            Some(_) => Err("audit.concurrency: the audit service does not reject requests; remove this setting, and set \
                            gateway.concurrency".to_owned()),
        };
    }
    let concurrency = set.unwrap_or_default();
    match concurrency.validate() {
        Ok(()) => Ok(Some(concurrency)),
        Err(error) => Err(format!("{section}.{error}")),
    }
}

impl ServiceWiring {
    pub(crate) fn server(&self) -> ListenConfig {
        ListenConfig {
            listen: self.listen,
            tls: self.tls.clone(),
            plaintext: self.plaintext,
        }
    }
}

/// Claims that the tokens of the local issuer may have besides roles.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LocalIssuer {
    /// Names of claims by attribute name.
    #[serde(default)]
    pub(crate) attributes: std::collections::BTreeMap<String, String>,
}

impl Settings {
    /// Reads `path` and the environment.
    pub(crate) fn load(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        let base = path.parent().unwrap_or(Path::new("")).to_owned();
        let options = serde_saphyr::options! { with_snippet: false };
        let sections: Dict =
            serde_saphyr::from_str_with_options(&text, options).map_err(|error| Error::Syntax {
                path: path.to_owned(),
                position: error.location().map_or(Position::START, Position::from),
                message: error.to_string(),
            })?;
        let settings = Self {
            figment: Figment::from(Serialized::defaults(sections)).merge(
                // Other tools use the prefix too, so only names that contain a section are read.
                Env::prefixed("WARDGATE_")
                    .filter(|name| name.as_str().contains("__"))
                    .split("__"),
            ),
            file: path.display().to_string(),
            document: Node::parse(&text).ok(),
            base,
        };
        let all: Dict = settings
            .figment
            .extract()
            .map_err(|error| settings.create_section_error("", &error))?;
        match all.keys().find(|name| !SECTIONS.contains(&name.as_str())) {
            Some(name) => Err(Error::UnknownSection {
                origin: settings.origin(&[name]),
                section: name.clone(),
            }),
            None => Ok(settings),
        }
    }

    /// Reads a section that has defaults for all of its keys.
    pub(crate) fn optional<T: DeserializeOwned + Default>(&self, name: &str) -> Result<T, Error> {
        if !self.has(name) {
            return Ok(T::default());
        }
        let section: Dict = self
            .figment
            .extract_inner(name)
            .map_err(|error| self.create_section_error(name, &error))?;
        self.deserialize_section(name, section)
    }

    /// Returns whether the file or the environment has the section or key.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.figment.find_value(name).is_ok()
    }

    /// Reads a service's section in two halves: the service's own settings, and the wiring that this binary reads.
    pub(crate) fn service<T: DeserializeOwned, W: DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<(T, W), Error> {
        let (own, wiring) = self.halves(name)?;
        Ok((
            self.deserialize_section(name, own)?,
            self.deserialize_section(name, wiring)?,
        ))
    }

    /// Reads a section that has only wiring.
    pub(crate) fn wiring<W: DeserializeOwned>(&self, name: &str) -> Result<W, Error> {
        self.deserialize_section(name, self.section(name)?)
    }

    /// Reads the service's own settings if this process does the wiring itself. `fill` adds values that the file does not
    /// set.
    pub(crate) fn own_settings<T: DeserializeOwned>(
        &self,
        name: &str,
        fill: impl FnOnce(&mut Dict),
    ) -> Result<T, Error> {
        let (mut own, _) = if self.has(name) {
            self.halves(name)?
        } else {
            Default::default()
        };
        fill(&mut own);
        self.deserialize_section(name, own)
    }

    /// Reads the store of the service of this section, or `None` if the configuration sets none. Other keys of the section
    /// are not checked.
    pub(crate) fn store(&self, name: &str) -> Result<Option<StoreSettings>, Error> {
        if !self.has(&format!("{name}.store")) {
            return Ok(None);
        }
        let mut section = self.section(name)?;
        section.retain(|key, _| matches!(key.as_str(), "store" | "database"));
        self.deserialize_section(name, section).map(Some)
    }

    /// Reads the listener settings of an edge if this process does the rest of the wiring itself.
    pub(crate) fn listener(&self, name: &str) -> Result<ListenerWiring, Error> {
        if !self.has(name) {
            return Ok(ListenerWiring::default());
        }
        let mut section = self.section(name)?;
        section.retain(|key, _| matches!(key.as_str(), "probes" | "https" | "trusted_proxies"));
        self.deserialize_section(name, section)
    }

    /// Returns the whole configuration.
    pub(crate) fn to_value(&self) -> Result<Value, Error> {
        self.figment
            .extract()
            .map_err(|error| self.create_section_error("", &error))
    }

    /// Reads a section and resolves its relative paths.
    fn section(&self, name: &str) -> Result<Dict, Error> {
        let mut section: Dict = self
            .figment
            .extract_inner(name)
            .map_err(|error| self.create_section_error(name, &error))?;
        for (key, value) in &mut section {
            self.resolve(key, value);
        }
        Ok(section)
    }

    fn halves(&self, name: &str) -> Result<(Dict, Dict), Error> {
        let is_wiring = |key: &str| match name {
            "agent" => AGENT_WIRING.contains(&key),
            "gateway" => !matches!(key, "listen" | "concurrency") && WIRING.contains(&key),
            _ => WIRING.contains(&key),
        };
        let section = self.section(name)?.into_iter();
        Ok(section.partition(|(key, _)| !is_wiring(key)))
    }

    fn deserialize_section<T: DeserializeOwned>(&self, name: &str, half: Dict) -> Result<T, Error> {
        Figment::from(Serialized::defaults(half))
            .extract()
            .map_err(|error| self.create_section_error(name, &error))
    }

    /// Resolves the paths of a section relative to the directory of the file.
    fn resolve(&self, key: &str, value: &mut Value) {
        match value {
            // The keys of these members are chosen by users and may look like keys of paths.
            Value::Dict(..) if matches!(key, "attributes" | "variables") => {}
            Value::Dict(_, inner) => {
                for (key, value) in inner {
                    self.resolve(key, value);
                }
            }
            Value::Array(_, items) => {
                for item in items {
                    self.resolve(key, item);
                }
            }
            Value::String(_, text) => {
                // The source of policy bundles is a path unless it is a URL.
                if is_path(key) || (key == "source" && !text.contains("://")) {
                    *text = self.base.join(&text).display().to_string();
                } else if key == "advertise" {
                    *text = with_bracketed_host(text);
                } else if let Some(path) = text
                    .strip_prefix("sqlite:")
                    .filter(|_| matches!(key, "store" | "url"))
                {
                    *text = format!("sqlite:{}", self.base.join(path).display());
                }
            }
            _ => {}
        }
    }

    /// Adds the position of a key to `error`, which names the key with its section (`gateway.public_url: …`).
    pub(crate) fn locate_error(&self, section: &str, error: &dyn std::error::Error) -> Error {
        let message = crate::with_causes(error);
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '[' | ']');
        let mut words = message.split(|c: char| !is_word(c));
        let key = words.find(|word| {
            let of_section = word.split_once('.').map(|(first, _)| first);
            of_section
                .is_some_and(|first| SECTIONS.contains(&first) || self.has_key(section, first))
        });
        let mut path: Vec<&str> = key.map(steps).unwrap_or_default();
        if path.first().is_none_or(|first| !SECTIONS.contains(first)) {
            path.insert(0, section);
        }
        Error::Value {
            origin: self.origin(&path),
            message,
        }
    }

    fn has_key(&self, section: &str, key: &str) -> bool {
        let document = self.document.as_ref();
        document.is_some_and(|it| it.get(section).is_some_and(|it| it.get(key).is_some()))
    }

    /// Returns the origin of the value at `path`: the environment if it has the variable, else the file.
    fn origin(&self, path: &[&str]) -> ValueOrigin {
        let variable = format!("WARDGATE_{}", path.join("__").to_uppercase());
        if path.len() > 1 && std::env::var_os(&variable).is_some() {
            return ValueOrigin::Environment(variable);
        }
        let document = self.document.as_ref();
        let position = document.and_then(|it| it.position_of(path.iter().copied()));
        ValueOrigin::File {
            file: self.file.clone(),
            position: position.unwrap_or(Position::START),
        }
    }

    fn create_section_error(&self, section: &str, error: &figment::Error) -> Error {
        let unknown = match &error.kind {
            Kind::UnknownField(name, _) => Some(name.as_str()),
            _ => None,
        };
        let mut path: Vec<&str> = steps(section);
        let below = error.path.iter().map(String::as_str).chain(unknown);
        for step in below {
            if path.last() != Some(&step) {
                path.push(step);
            }
        }
        Error::Section {
            origin: self.origin(&path),
            section: section.to_owned(),
            message: describe_faults(error),
        }
    }
}

/// Splits a key such as `gateway.auth.issuers[0].issuer` into its steps.
fn steps(key: &str) -> Vec<&str> {
    let steps = key.split(['.', '[', ']']);
    steps.filter(|step| !step.is_empty()).collect()
}

/// Returns which keys are faulty and why. The error's own text would name the place in this program where the value was
/// created.
fn describe_faults(error: &figment::Error) -> String {
    let faults: Vec<String> = error
        .clone()
        .into_iter()
        .map(|fault| match fault.path.join(".").as_str() {
            "" => describe_fault(&fault.kind),
            key => format!("`{key}`: {}", describe_fault(&fault.kind)),
        })
        .collect();
    faults.join("; ")
}

/// Returns what is wrong. The error's own text has the list of known names in nested backticks.
fn describe_fault(kind: &Kind) -> String {
    let (what, name, known) = match kind {
        Kind::UnknownField(name, known) => ("key", name, known),
        Kind::UnknownVariant(name, known) => ("value", name, known),
        other => return other.to_string(),
    };
    format!(
        "unknown {what} `{name}`; known {what}s are {}",
        known.join(", ")
    )
}

/// Puts brackets around an IPv6 address in `scheme://host:port` (RFC 3986, section 3.2.2). Kubernetes substitutes the
/// address of a pod without brackets, whichever its family.
fn with_bracketed_host(url: &str) -> String {
    let parts = url
        .split_once("://")
        .and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once(':')?)));
    match parts {
        Some((scheme, (host, port))) if host.parse::<Ipv6Addr>().is_ok() => {
            format!("{scheme}://[{host}]:{port}")
        }
        _ => url.to_owned(),
    }
}

/// Returns whether values of `key` are paths.
fn is_path(key: &str) -> bool {
    matches!(
        key,
        "ca" | "cert" | "key" | "file" | "policies" | "catalogue" | "assistants"
    ) || key.ends_with("_file")
        || key.ends_with("_files")
        || key.ends_with("_dir")
}

#[cfg(test)]
mod tests;
