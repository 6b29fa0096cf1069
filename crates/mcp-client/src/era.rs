//! The eras of the protocol, and detection of the era of a server.
//!
//! ```text
//!   server/discover ─▶ DiscoverResult, or "unsupported version" ─▶ the best version both speak
//!                   └▶ anything else                            ─▶ initialize
//! ```

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;
use wardgate_mcp::error_code::{HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION};
use wardgate_mcp::extension::{SKILLS, TASKS};
use wardgate_mcp::{Era, Version};

use super::error::{UpstreamError, UpstreamRpcError};
use super::message::{MODERN, MemberValue, UpstreamRequest, client_info};
use super::participation::ClientProfile;

/// The versions that begin with `initialize`, newest first.
const LEGACY: [&str; 4] = [
    LATEST_LEGACY,
    Version::V2025_06_18.as_str(),
    Version::V2025_03_26.as_str(),
    Version::V2024_11_05.as_str(),
];

const LATEST_LEGACY: &str = Version::NEWEST_LEGACY.as_str();

/// Time for which observations about a server are cached. After that they are made again, because the server
/// may have been upgraded.
const OBSERVATION_TTL: Duration = Duration::from_hours(1);

/// The eras of the protocol that a server is known to support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SupportedEras {
    /// The server was not reached yet.
    Unknown,
    /// The server declared only 2026-07-28. The SDKs that support both eras declare only the newer one, so `initialize` is tried
    /// when a legacy client needs it.
    Unsettled,
    /// The server supports both eras.
    Both,
    /// The server supports only 2026-07-28.
    Modern,
    /// The server supports only versions up to 2025-11-25.
    Legacy,
}

/// The properties of a server that were observed so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedServer {
    pub eras: SupportedEras,
    /// Whether tool calls may become tasks, by the extension of 2026-07-28.
    pub has_tasks: bool,
    /// The declared capabilities, or `None` before the first connection.
    pub declares: Option<ServerCapabilities>,
}

/// The MCP `ServerCapabilities` of a server that do not concern lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCapabilities {
    /// Whether the server sends log messages.
    pub logging: bool,
    /// Whether the server completes arguments.
    pub completions: bool,
    /// Whether the server notifies about changes of single resources.
    pub resource_subscriptions: bool,
}

/// The time of an observation about a server, so that it does not have to be made for each connection.
#[derive(Debug, Default)]
pub(super) struct CachedObservation(Mutex<Option<Instant>>);

impl CachedObservation {
    /// Returns whether the observation was made and is not too old.
    pub(super) fn holds(&self) -> bool {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(still_holds)
    }

    /// Records that the observation was just made, or that it does not apply.
    pub(super) fn set(&self, is_so: bool) {
        let since = is_so.then(Instant::now);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}

/// Returns whether an observation made at `since` is still valid.
pub(super) fn still_holds(since: Instant) -> bool {
    since.elapsed() < OBSERVATION_TTL
}

/// The result of the handshake with a server.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that a server says it has"
)]
pub(super) struct Handshake {
    pub(super) era: Era,
    pub(super) version: &'static str,
    /// The eras that the server supports.
    pub(super) eras: SupportedEras,
    /// Whether the server announces changes of its lists.
    pub(super) announces: bool,
    pub(super) declares: ServerCapabilities,
    /// Whether tools can be called as tasks of 2025-11-25.
    pub(super) tasks: bool,
    /// Whether the server supports the tasks extension of 2026-07-28.
    pub(super) task_extension: bool,
    /// Whether a legacy server accepts a log level.
    pub(super) logs: bool,
    /// The skills capability, or `None` if the server has no skills.
    pub(super) skills: Option<SkillsCapability>,
}

/// The skills capability of a server (SEP-2640).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkillsCapability {
    /// Whether the server can list directories.
    pub directories: bool,
}

impl Handshake {
    pub(super) fn observed_server(&self) -> ObservedServer {
        ObservedServer {
            eras: self.eras,
            has_tasks: self.task_extension,
            declares: Some(self.declares),
        }
    }
}

/// The result of the first message to a server.
#[derive(Debug)]
pub(super) enum Probe {
    Modern(Handshake),
    Legacy,
}

/// Returns the first request to a server of unknown era.
pub(super) fn discover() -> UpstreamRequest<'static> {
    UpstreamRequest::new("server/discover", Vec::new())
}

/// Returns the first request to a legacy server. It declares the capabilities of `profile` and no others.
pub(super) fn initialize(profile: ClientProfile) -> UpstreamRequest<'static> {
    let members = vec![
        ("protocolVersion", MemberValue::Text(LATEST_LEGACY)),
        ("capabilities", MemberValue::Json(profile.to_json())),
        ("clientInfo", MemberValue::Json(client_info())),
    ];
    UpstreamRequest::new("initialize", members)
}

#[derive(Default, Deserialize)]
struct Capabilities {
    #[serde(default)]
    tools: Option<ListCapability>,
    #[serde(default)]
    prompts: Option<ListCapability>,
    #[serde(default)]
    resources: Option<ListCapability>,
    #[serde(default)]
    logging: Option<IgnoredAny>,
    #[serde(default)]
    completions: Option<IgnoredAny>,
    #[serde(default)]
    tasks: Option<Value>,
    #[serde(default)]
    extensions: Option<Value>,
}

#[derive(Deserialize)]
struct ListCapability {
    #[serde(default, rename = "listChanged")]
    list_changed: bool,
    /// Whether single resources can be subscribed to; only used for `resources`.
    #[serde(default)]
    subscribe: bool,
}

impl Capabilities {
    fn calls_as_tasks(&self) -> bool {
        let call = "/requests/tools/call";
        self.tasks
            .as_ref()
            .is_some_and(|tasks| tasks.pointer(call).is_some_and(Value::is_object))
    }

    fn has_task_extension(&self) -> bool {
        let extensions = self.extensions.as_ref();
        extensions.is_some_and(|extensions| extensions.get(TASKS).is_some())
    }

    fn skills(&self) -> Option<SkillsCapability> {
        let settings = self.extensions.as_ref()?.get(SKILLS)?;
        settings.is_object().then(|| SkillsCapability {
            directories: settings["directoryRead"] == true,
        })
    }

    fn announce(&self) -> bool {
        let lists = [&self.tools, &self.prompts, &self.resources];
        lists.into_iter().flatten().any(|list| list.list_changed)
    }

    fn server_capabilities(&self) -> ServerCapabilities {
        ServerCapabilities {
            logging: self.logging.is_some(),
            completions: self.completions.is_some(),
            resource_subscriptions: self.resources.as_ref().is_some_and(|it| it.subscribe),
        }
    }
}

/// Reads the response to [`discover`].
pub(super) fn read_probe(
    answer: Result<Box<RawValue>, UpstreamRpcError>,
) -> Result<Probe, UpstreamError> {
    #[derive(Deserialize)]
    struct DiscoverResult {
        #[serde(rename = "supportedVersions")]
        versions: Vec<String>,
        #[serde(default)]
        capabilities: Capabilities,
    }
    #[derive(Deserialize)]
    struct SupportedVersions {
        supported: Vec<String>,
    }
    let (versions, capabilities) = match answer {
        Ok(result) => match serde_json::from_str::<DiscoverResult>(result.get()) {
            Ok(discovered) => (discovered.versions, discovered.capabilities),
            Err(_) => return Ok(Probe::Legacy),
        },
        Err(error) if matches!(error.code, HEADER_MISMATCH | MISSING_CAPABILITY) => {
            return Err(UpstreamError::Rpc(error));
        }
        Err(error) if error.code == UNSUPPORTED_VERSION => {
            let data = error.data.as_deref().map_or("null", RawValue::get);
            match serde_json::from_str::<SupportedVersions>(data) {
                Ok(data) => (data.supported, Capabilities::default()),
                Err(_) => return Err(UpstreamError::Rpc(error)),
            }
        }
        Err(_) => return Ok(Probe::Legacy),
    };
    let speaks = |version: &str| versions.iter().any(|spoken| spoken == version);
    let is_legacy = LEGACY.into_iter().any(speaks);
    if speaks(MODERN) {
        return Ok(Probe::Modern(Handshake {
            era: Era::Modern,
            version: MODERN,
            eras: if is_legacy {
                SupportedEras::Both
            } else {
                SupportedEras::Modern
            },
            announces: capabilities.announce(),
            declares: capabilities.server_capabilities(),
            tasks: false,
            task_extension: capabilities.has_task_extension(),
            // A server of 2026-07-28 receives the level with each request.
            logs: false,
            skills: capabilities.skills(),
        }));
    }
    if is_legacy {
        return Ok(Probe::Legacy);
    }
    Err(NO_COMMON_VERSION)
}

const NO_COMMON_VERSION: UpstreamError =
    UpstreamError::BadResult("it supports no protocol version that this client supports");

/// Reads the response to [`initialize`].
pub(super) fn read_initialize(result: &RawValue) -> Result<Handshake, UpstreamError> {
    #[derive(Deserialize)]
    struct InitializeResult {
        #[serde(rename = "protocolVersion")]
        version: String,
        #[serde(default)]
        capabilities: Capabilities,
    }
    let initialized: InitializeResult = serde_json::from_str(result.get())
        .map_err(|_| UpstreamError::BadResult("its initialize result is not valid"))?;
    let version = LEGACY
        .into_iter()
        .find(|version| *version == initialized.version)
        .ok_or(NO_COMMON_VERSION)?;
    let declared = initialized.capabilities.server_capabilities();
    Ok(Handshake {
        era: Era::Legacy,
        version,
        eras: SupportedEras::Legacy,
        announces: initialized.capabilities.announce(),
        declares: ServerCapabilities {
            // 2024-11-05 has no capability for completions.
            completions: version == "2024-11-05" || declared.completions,
            ..declared
        },
        tasks: version == LATEST_LEGACY && initialized.capabilities.calls_as_tasks(),
        task_extension: false,
        logs: initialized.capabilities.logging.is_some(),
        // Extensions exist since 2026-07-28.
        skills: None,
    })
}
