//! The parts of a deployment to check: those that the configuration of separate services names, or those in the data
//! directory of `wardgate up`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use figment::value::Dict;
use wardgate_audit::{ExportSettings, StoreRoom, WitnessSettings};
use wardgate_policy::{BundleConfig, LookupConfig};
use wardgate_rpc::Peer;
use wardgate_rpc::link::TlsFiles;
use wardgate_store::{DatabaseSettings, Layout};

use super::certificates::Certificate;
use super::dependencies::ServiceDependency;
use super::edges::{ALIVE, Edge, Issuers, READY};
use super::finding::{Finding, FindingSubject};
use super::keys::{KeyFile, KeyKind};
use super::secrets::{self, SecretFile};
use super::stores::ServiceStore;
use crate::Failure;
use crate::cli::{ConfigSection, DoctorArgs};
use crate::commands::config;
use crate::commands::up::UpSettings;
use crate::compose;
use crate::config::{
    AgentWiring, ConsoleWiring, Error, GatewayWiring, OperatorWiring, ServiceWiring, Settings,
    StoreSettings,
};
use crate::data_dir::DataDir;

#[derive(Debug, Default)]
pub(super) struct Deployment {
    pub(super) keys: Vec<KeyFile>,
    pub(super) secrets: Vec<SecretFile>,
    pub(super) certificates: Vec<Certificate>,
    pub(super) issuers: Vec<Issuers>,
    pub(super) neighbours: Vec<ServiceDependency>,
    pub(super) edges: Vec<Edge>,
    pub(super) stores: Vec<ServiceStore>,
    pub(super) caller_lookup: Option<LookupConfig>,
    /// The source of policy bundles, or `None` if the policies come from a directory.
    pub(super) policy_bundle: Option<BundleConfig>,
    /// The store of the record, or `None` if it cannot be read from here.
    pub(super) record: Option<StoreSettings>,
    /// The limits of the size of the record, if they are configured.
    pub(super) room: StoreRoom,
    /// The witnesses that cosign the checkpoints of the record.
    pub(super) witnesses: Option<WitnessSettings>,
    /// The names of the exports of the record.
    pub(super) exports: Vec<String>,
    /// Whether the whole record is verified.
    pub(super) whole_record: bool,
}

fn names(exports: Vec<ExportSettings>) -> Vec<String> {
    exports.into_iter().map(|export| export.name).collect()
}

fn store_settings(store: Option<String>, database: DatabaseSettings) -> Option<StoreSettings> {
    store.map(|store| StoreSettings { store, database })
}

impl Deployment {
    /// Returns the deployment, and findings about its configuration.
    pub(super) async fn from_args(arguments: &DoctorArgs) -> Result<(Self, Vec<Finding>), Failure> {
        let (mut deployment, findings) = match &arguments.config {
            Some(file) => Box::pin(Self::from_config(file, arguments)).await,
            None => (Self::up(&arguments.data_dir)?, Vec::new()),
        };
        deployment.whole_record = arguments.whole_record;
        Ok((deployment, findings))
    }

    async fn from_config(file: &Path, arguments: &DoctorArgs) -> (Self, Vec<Finding>) {
        let only = &arguments.service;
        let about = FindingSubject::new("configuration", file.display().to_string());
        let remedy =
            "fix the file or the environment; `wardgate config check` reports the same error";
        let settings = match Settings::load(file) {
            Ok(settings) => settings,
            Err(error) => return (Self::default(), vec![about.fail(error.to_string(), remedy)]),
        };
        let mut findings = vec![match config::check(&settings) {
            Ok(()) => about.ok("can be used"),
            Err(error) => about.fail(error.to_string(), remedy),
        }];
        if config::is_for_up(&settings) {
            findings.extend(files(&settings).await);
            let (mut deployment, finding) = Self::configured_up(&settings, &arguments.data_dir);
            deployment
                .secrets
                .extend(secrets::referenced_files(&settings, only));
            findings.extend(finding);
            return (deployment, findings);
        }
        let mut deployment = Self::default();
        for part in ConfigSection::ALL {
            if !settings.has(part.section()) || !(only.is_empty() || only.contains(&part)) {
                continue;
            }
            if let Err(error) = deployment.add(part, &settings) {
                let about = FindingSubject::new("configuration", part.section());
                findings.push(about.fail(error.to_string(), remedy));
            }
        }
        deployment
            .secrets
            .extend(secrets::referenced_files(&settings, only));
        (deployment, findings)
    }

    /// Returns the parts that `wardgate up` uses with this configuration and data directory. Faults of the configuration
    /// were reported before.
    fn configured_up(settings: &Settings, path: &Path) -> (Self, Option<Finding>) {
        let dir = DataDir::at(path);
        let Ok(up) = UpSettings::from_settings(settings, &dir) else {
            return (Self::default(), None);
        };
        let about = FindingSubject::new("data directory", path.display().to_string());
        let Ok(mut deployment) = Self::up(path) else {
            let remedy = "nothing, before the first start; otherwise specify it with --data-dir";
            let finding = about.warn("does not exist yet; `wardgate up` creates it", remedy);
            return (Self::default(), Some(finding));
        };
        let finding = about.ok("exists");
        deployment.stores.clear();
        let room = up.audit.room();
        let record = store_settings(Some(up.audit.store), up.audit.database);
        deployment.store("audit.store", record.clone(), &wardgate_audit::LAYOUT);
        deployment.store(
            "gateway.store",
            store_settings(up.gateway.store, up.gateway.database),
            &wardgate_gateway::LAYOUT,
        );
        deployment.store(
            "tool_runner.store",
            store_settings(Some(up.tool_runner.store), up.tool_runner.database),
            &wardgate_tool_runner::LAYOUT,
        );
        deployment.store(
            "memory.store",
            store_settings(Some(up.memory.store), up.memory.database),
            &wardgate_memory::LAYOUT,
        );
        deployment.caller_lookup = up.policy.caller_lookup;
        deployment.policy_bundle = up.policy.bundle;
        deployment.record = record;
        deployment.room = room;
        deployment.witnesses = up.audit.witnesses;
        deployment.exports = names(up.audit.exports);
        deployment.issuers.push(Issuers {
            name: "gateway",
            auth: up.gateway.auth,
            public_url: up.gateway.public_url,
        });
        (deployment, Some(finding))
    }

    fn add(&mut self, part: ConfigSection, settings: &Settings) -> Result<(), Error> {
        match part {
            ConfigSection::Gateway => self.add_gateway(settings),
            ConfigSection::Policy => self.add_service(Peer::Policy, settings),
            ConfigSection::ToolRunner => self.add_service(Peer::ToolRunner, settings),
            ConfigSection::Audit => self.add_service(Peer::Audit, settings),
            ConfigSection::Memory => self.add_service(Peer::Memory, settings),
            ConfigSection::Agent => self.add_agent(settings),
            ConfigSection::Console => self.add_console(settings),
            ConfigSection::Operator => {
                let OperatorWiring { links, tls } = settings.wiring("operator")?;
                self.link(
                    Peer::Operator,
                    Peer::ToolRunner,
                    Some(&links.tool_runner),
                    tls.as_ref(),
                );
                self.link(
                    Peer::Operator,
                    Peer::Memory,
                    links.memory.as_ref(),
                    tls.as_ref(),
                );
                self.link(
                    Peer::Operator,
                    Peer::Audit,
                    links.audit.as_ref(),
                    tls.as_ref(),
                );
                self.certificate(Peer::Operator, tls);
                Ok(())
            }
        }
    }

    fn add_gateway(&mut self, settings: &Settings) -> Result<(), Error> {
        let (config, wiring): (wardgate_gateway::Config, GatewayWiring) =
            settings.service("gateway")?;
        let GatewayWiring {
            links,
            tls,
            session_key_file,
            probes,
            https,
            ..
        } = wiring;
        let is_https = https.is_some();
        self.key(
            "gateway.session_key_file",
            session_key_file,
            KeyKind::Secret,
        );
        for (peer, url) in [
            (Peer::Policy, Some(&links.policy)),
            (Peer::ToolRunner, Some(&links.tool_runner)),
            (Peer::Audit, Some(&links.audit)),
            (Peer::Memory, links.memory.as_ref()),
        ] {
            self.link(Peer::Gateway, peer, url, tls.as_ref());
        }
        self.certificate(Peer::Gateway, tls);
        let store = store_settings(config.store, config.database);
        self.store("gateway.store", store, &wardgate_gateway::LAYOUT);
        self.edge(
            ["gateway", "probes of the gateway"],
            config.public_url.clone(),
            config.listen,
            is_https,
            probes,
        );
        self.issuers.push(Issuers {
            name: "gateway",
            auth: config.auth,
            public_url: config.public_url,
        });
        Ok(())
    }

    fn add_agent(&mut self, settings: &Settings) -> Result<(), Error> {
        // A separate agent has links; an agent in `wardgate up` shares the gateway's address.
        if !settings.has("agent.links") {
            return Ok(());
        }
        let (_, wiring): (Dict, AgentWiring) = settings.service("agent")?;
        self.key(
            "agent.approval_key_file",
            wiring.approval_key_file,
            KeyKind::Secret,
        );
        self.edge(
            ["agent", "probes of the agent"],
            wiring.public_url.clone(),
            wiring.listen,
            wiring.https.is_some(),
            wiring.probes,
        );
        self.issuers.push(Issuers {
            name: "agent",
            auth: wiring.auth,
            public_url: wiring.public_url,
        });
        self.edges.push(Edge {
            name: "gateway of the agent",
            url: wiring.links.gateway.to_string(),
            // The gateway may serve its probes on another address, which the agent does not know.
            tells: ALIVE,
        });
        Ok(())
    }

    fn add_console(&mut self, settings: &Settings) -> Result<(), Error> {
        let wiring: ConsoleWiring = settings.wiring("console")?;
        let store = store_settings(wiring.store, wiring.database);
        self.store("console.store", store, &wardgate_console::LAYOUT);
        self.key(
            "console.cookie_key_file",
            wiring.cookie_key_file,
            KeyKind::Secret,
        );
        self.edge(
            ["console", "probes of the console"],
            wiring.public_url.clone(),
            wiring.listen,
            wiring.https.is_some(),
            wiring.probes,
        );
        self.issuers.push(Issuers {
            name: "console",
            auth: wiring.auth,
            public_url: None,
        });
        let links = wiring.links;
        let edges = [
            ("gateway of the console", Some(links.gateway)),
            ("agent of the console", links.agent),
        ];
        self.edges
            .extend(edges.into_iter().filter_map(|(name, url)| {
                Some(Edge {
                    name,
                    url: url?.to_string(),
                    tells: ALIVE,
                })
            }));
        for (peer, url) in [(Peer::Policy, links.policy), (Peer::Audit, links.audit)] {
            self.link(Peer::Console, peer, url.as_ref(), wiring.tls.as_ref());
        }
        self.certificate(Peer::Console, wiring.tls);
        Ok(())
    }

    fn add_service(&mut self, peer: Peer, settings: &Settings) -> Result<(), Error> {
        let section = match peer {
            Peer::ToolRunner => "tool_runner",
            peer => peer.as_str(),
        };
        let (own, wiring): (Dict, ServiceWiring) = settings.service(section)?;
        let store = settings.store(section)?;
        let settings_of_record = ["capacity_bytes", "exports", "second_copy_dir", "witnesses"];
        let has_settings = settings_of_record.iter().any(|key| own.contains_key(*key));
        let links = wiring.links;
        match peer {
            Peer::Policy => {
                self.key(
                    "policy.permit_key_file",
                    wiring.permit_key_file,
                    KeyKind::PermitPrivate,
                );
                let config: wardgate_policy::Config = settings.own_settings("policy", |_| {})?;
                self.caller_lookup = config.caller_lookup;
                self.policy_bundle = config.bundle;
            }
            Peer::ToolRunner => {
                let setting = "tool_runner.permit_public_key_files";
                if wiring.permit_public_key_files.is_empty() {
                    self.key(setting, None, KeyKind::PermitPublic);
                }
                for file in wiring.permit_public_key_files {
                    self.key(setting, Some(file), KeyKind::PermitPublic);
                }
                let setting = "tool_runner.pseudonym_key_file";
                self.key(setting, wiring.pseudonym_key_file, KeyKind::Secret);
                self.store("tool_runner.store", store, &wardgate_tool_runner::LAYOUT);
            }
            Peer::Audit => {
                let setting = "audit.mac_key_file";
                self.key(setting, wiring.mac_key_file, KeyKind::LastingSecret);
                self.key(
                    "audit.log_key_file",
                    wiring.log_key_file,
                    KeyKind::LogPrivate,
                );
                let setting = "audit.details_key_file";
                self.key(setting, wiring.details_key_file, KeyKind::Secret);
                for file in wiring.former_details_key_files {
                    let setting = "audit.former_details_key_files";
                    self.key(setting, Some(file), KeyKind::LastingSecret);
                }
                self.record.clone_from(&store);
                if has_settings {
                    let config: wardgate_audit::Config = settings.own_settings("audit", |_| {})?;
                    self.room = config.room();
                    self.witnesses = config.witnesses;
                    self.exports = names(config.exports);
                }
                self.store("audit.store", store, &wardgate_audit::LAYOUT);
            }
            Peer::Memory => {
                self.key(
                    "memory.master_key_file",
                    wiring.master_key_file,
                    KeyKind::Secret,
                );
                for file in wiring.former_master_key_files {
                    let setting = "memory.former_master_key_files";
                    self.key(setting, Some(file), KeyKind::LastingSecret);
                }
                self.store("memory.store", store, &wardgate_memory::LAYOUT);
            }
            Peer::Gateway | Peer::Console | Peer::Operator => {}
        }
        self.link(
            peer,
            Peer::Policy,
            links.policy.as_ref(),
            wiring.tls.as_ref(),
        );
        self.link(peer, Peer::Audit, links.audit.as_ref(), wiring.tls.as_ref());
        self.link(
            peer,
            Peer::Memory,
            links.memory.as_ref(),
            wiring.tls.as_ref(),
        );
        self.certificate(peer, wiring.tls);
        Ok(())
    }

    /// Returns the keys, the record and the other stores of a data directory. The services on it share one process and have
    /// no links.
    fn up(path: &Path) -> Result<Self, Failure> {
        let dir = DataDir::open_existing(path)?;
        let mut deployment = Self::default();
        deployment.key("permit.pem", Some(dir.permit_key()), KeyKind::PermitPrivate);
        deployment.key(
            "permit.pub",
            Some(dir.permit_public_key()),
            KeyKind::PermitPublic,
        );
        deployment.key("audit-log.pem", Some(dir.log_key()), KeyKind::LogPrivate);
        for (name, path) in [
            ("pseudonym.key", dir.pseudonym_key()),
            ("audit-details.key", dir.details_key()),
            ("memory.key", dir.memory_key()),
            ("approval.key", dir.approval_key()),
            ("session.key", dir.session_key()),
            ("console.key", dir.console_key()),
        ] {
            deployment.key(name, Some(path), KeyKind::Secret);
        }
        let mac = Some(dir.mac_key());
        deployment.key("audit-mac.key", mac, KeyKind::LastingSecret);
        for path in dir.former_details_keys() {
            let name = "audit-details-former.key";
            deployment.key(name, Some(path), KeyKind::LastingSecret);
        }
        for path in dir.former_memory_keys() {
            deployment.key("memory-former.key", Some(path), KeyKind::LastingSecret);
        }
        let record = Some(StoreSettings::file(dir.record()));
        deployment.store("audit.store", record.clone(), &wardgate_audit::LAYOUT);
        for (setting, store, layout) in [
            (
                "gateway.store",
                dir.gateway_store(),
                &wardgate_gateway::LAYOUT,
            ),
            (
                "tool_runner.store",
                dir.tool_runner_store(),
                &wardgate_tool_runner::LAYOUT,
            ),
            ("memory.store", dir.memory_store(), &wardgate_memory::LAYOUT),
            (
                "console.store",
                dir.console_store(),
                &wardgate_console::LAYOUT,
            ),
        ] {
            deployment.store(setting, Some(StoreSettings::file(store)), layout);
        }
        deployment.record = record;
        Ok(deployment)
    }

    fn key(&mut self, setting: &str, path: Option<PathBuf>, kind: KeyKind) {
        let setting = setting.to_owned();
        self.keys.push(KeyFile {
            setting,
            path,
            kind,
        });
    }

    fn certificate(&mut self, peer: Peer, files: Option<TlsFiles>) {
        self.certificates
            .extend(files.map(|files| Certificate { peer, files }));
    }

    fn link(&mut self, of: Peer, peer: Peer, url: Option<&String>, tls: Option<&TlsFiles>) {
        self.neighbours.extend(url.map(|url| ServiceDependency {
            of,
            peer,
            name: compose::proto_name(peer),
            url: url.clone(),
            tls: tls.cloned(),
        }));
    }

    fn store(
        &mut self,
        setting: &'static str,
        configured: Option<StoreSettings>,
        layout: &'static Layout,
    ) {
        let password = configured.as_ref();
        let password = password.and_then(|store| store.database.password_file.clone());
        self.secrets.extend(password.map(|path| SecretFile {
            setting: setting.replace(".store", ".database.password_file"),
            path,
        }));
        self.stores
            .extend(configured.map(|configured| ServiceStore {
                setting,
                configured,
                layout,
            }));
    }

    /// Adds the address for clients, and that of the probes if it is a different one.
    fn edge(
        &mut self,
        [name, of_probes]: [&'static str; 2],
        public_url: Option<String>,
        listen: SocketAddr,
        is_https: bool,
        probes: Option<SocketAddr>,
    ) {
        let at = |scheme, listen| format!("{scheme}://{}", reachable(listen));
        let scheme = if is_https { "https" } else { "http" };
        let url = public_url.unwrap_or_else(|| at(scheme, listen));
        let tells = probes.map_or(READY, |_| ALIVE);
        self.edges.push(Edge { name, url, tells });
        self.edges.extend(probes.map(|listen| Edge {
            name: of_probes,
            url: at("http", listen),
            tells: READY,
        }));
    }
}

/// Checks the files that the configuration names: whether a start can use them, and which of their entries nobody can
/// reach.
async fn files(settings: &Settings) -> Vec<Finding> {
    let about = FindingSubject::new("files", "those that the configuration names");
    match config::check_files(settings).await {
        Ok(warnings) if warnings.is_empty() => vec![about.ok("can be used")],
        Ok(warnings) => warnings
            .into_iter()
            .map(|warning| {
                let place = format!(
                    "{}:{}:{}",
                    warning.file.display(),
                    warning.line,
                    warning.column
                );
                FindingSubject::new("files", place).warn(warning.problem, warning.fix)
            })
            .collect(),
        Err(error) => vec![about.fail(error.to_string(), "fix the file that the message names")],
    }
}

/// Returns the address at which a listener of this machine can be reached.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}
