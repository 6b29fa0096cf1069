//! The two eras of the protocol, and how a server shows to which it belongs.
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

/// The versions that begin with `initialize`, best first.
const LEGACY: [&str; 4] = [
    LATEST_LEGACY,
    Version::V2025_06_18.as_str(),
    Version::V2025_03_26.as_str(),
    Version::V2024_11_05.as_str(),
];

const LATEST_LEGACY: &str = Version::NEWEST_LEGACY.as_str();

/// For how long a server is taken to be legacy without asking again: it may have been upgraded.
const OBSERVATION_TTL: Duration = Duration::from_hours(1);

/// The eras of the protocol that a server supports, as far as it has shown that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SupportedEras {
    /// It was not reached yet.
    Unknown,
    /// It named 2026-07-28 alone. Whether it takes `initialize` too is asked when a legacy client is there: the SDKs that serve
    /// both eras name the newer one alone.
    Unsettled,
    /// Both eras.
    Both,
    /// 2026-07-28 alone.
    Modern,
    /// 2025-11-25 and before alone.
    Legacy,
}

/// What a server has shown of itself by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedServer {
    pub eras: SupportedEras,
    /// Calls of its tools may become tasks, by the extension of 2026-07-28.
    pub has_tasks: bool,
    /// None before it was connected to.
    pub declares: Option<ServerCapabilities>,
}

/// What a server declared that it has, beside lists (MCP `ServerCapabilities`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCapabilities {
    /// It sends log messages.
    pub logging: bool,
    /// It completes arguments.
    pub completions: bool,
    /// It tells of changes of single resources.
    pub resource_subscriptions: bool,
}

/// Since when something is known of a server, so that it need not be asked at every connection.
#[derive(Debug, Default)]
pub(super) struct CachedObservation(Mutex<Option<Instant>>);

impl CachedObservation {
    /// Whether it is known, and not for too long.
    pub(super) fn holds(&self) -> bool {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(still_holds)
    }

    /// Sets whether the server has just shown it.
    pub(super) fn set(&self, is_so: bool) {
        let since = is_so.then(Instant::now);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}

/// Whether an observation of that time still holds.
pub(super) fn still_holds(since: Instant) -> bool {
    since.elapsed() < OBSERVATION_TTL
}

/// What the first exchange with a server settled.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that a server says it has"
)]
pub(super) struct Handshake {
    pub(super) era: Era,
    pub(super) version: &'static str,
    /// All that the server speaks.
    pub(super) eras: SupportedEras,
    /// The server announces changes of its lists.
    pub(super) announces: bool,
    pub(super) declares: ServerCapabilities,
    /// Its tools can be called as tasks of 2025-11-25.
    pub(super) tasks: bool,
    /// It has the extension of tasks of 2026-07-28.
    pub(super) task_extension: bool,
    /// A legacy server takes a level for its logs.
    pub(super) logs: bool,
    /// It has skills.
    pub(super) skills: Option<SkillsCapability>,
}

/// What a server says of its skills extension (SEP-2640).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkillsCapability {
    /// It reads directories too.
    pub directories: bool,
}

impl Handshake {
    pub(super) fn observed(&self) -> ObservedServer {
        ObservedServer {
            eras: self.eras,
            has_tasks: self.task_extension,
            declares: Some(self.declares),
        }
    }
}

/// What the first message showed.
#[derive(Debug)]
pub(super) enum Probe {
    Modern(Handshake),
    Legacy,
}

/// The first message to a server of unknown era.
pub(super) fn discover() -> UpstreamRequest<'static> {
    UpstreamRequest::new("server/discover", Vec::new())
}

/// The first message to a legacy server, which is offered what `profile` says and nothing else.
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
    /// Of resources.
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

    fn declared(&self) -> ServerCapabilities {
        ServerCapabilities {
            logging: self.logging.is_some(),
            completions: self.completions.is_some(),
            resource_subscriptions: self.resources.as_ref().is_some_and(|it| it.subscribe),
        }
    }
}

/// What the answer to [`discover`] shows.
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
            declares: capabilities.declared(),
            tasks: false,
            task_extension: capabilities.has_task_extension(),
            // It is told with each request.
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
    UpstreamError::BadResult("it speaks no version of the protocol that we speak");

/// What the answer to [`initialize`] settles.
pub(super) fn read_initialize(result: &RawValue) -> Result<Handshake, UpstreamError> {
    #[derive(Deserialize)]
    struct InitializeResult {
        #[serde(rename = "protocolVersion")]
        version: String,
        #[serde(default)]
        capabilities: Capabilities,
    }
    let initialized: InitializeResult = serde_json::from_str(result.get())
        .map_err(|_| UpstreamError::BadResult("its initialize result cannot be read"))?;
    let version = LEGACY
        .into_iter()
        .find(|version| *version == initialized.version)
        .ok_or(NO_COMMON_VERSION)?;
    let declared = initialized.capabilities.declared();
    Ok(Handshake {
        era: Era::Legacy,
        version,
        eras: SupportedEras::Legacy,
        announces: initialized.capabilities.announce(),
        declares: ServerCapabilities {
            // The first version has no word for it.
            completions: version == "2024-11-05" || declared.completions,
            ..declared
        },
        tasks: version == LATEST_LEGACY && initialized.capabilities.calls_as_tasks(),
        task_extension: false,
        logs: initialized.capabilities.logging.is_some(),
        // Extensions are of 2026-07-28.
        skills: None,
    })
}
