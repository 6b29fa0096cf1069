//! The interaction that a client supports while a server works on its request.

use std::str::FromStr;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use wardgate_domain::RequiredCapabilities;
use wardgate_json::Members;
use wardgate_mcp::extension::TASKS;

use super::members::object;
use super::passthrough_members::PassthroughMembers;

/// The capabilities of a client, and the log messages that it asks for.
#[derive(Debug, Clone)]
pub struct Participation {
    /// The capabilities that the client declared.
    pub capabilities: ClientCapabilities,
    /// The lowest level of the log messages that the client asks for, or `None` for no log messages.
    pub log_level: Option<LogLevel>,
    /// The other members of `_meta` that the client sent.
    pub others: PassthroughMembers,
    /// Whether the client uses a version before 2026-07-28.
    pub is_legacy: bool,
}

/// MCP `ClientCapabilities`, without those that cannot be passed on.
#[derive(Debug, Clone)]
pub struct ClientCapabilities {
    /// The capabilities for a server of 2026-07-28, including unknown ones, each byte for byte.
    json: Box<RawValue>,
    /// The capabilities for a request that may become a task, or `None` if the client does not support tasks.
    json_with_tasks: Option<Box<RawValue>>,
    pub(super) profile: ClientProfile,
}

/// A feature of clients that a server may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ClientFeature {
    Form = 1,
    Url = 1 << 1,
    Sampling = 1 << 2,
    SamplingTools = 1 << 3,
    SamplingContext = 1 << 4,
    Roots = 1 << 5,
}

/// The set of features that a server may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ClientProfile(u8);

/// The severity of a log message (MCP `LoggingLevel`, from RFC 5424).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// The error for capabilities or a log level that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidParticipation {
    /// `clientCapabilities` is not a JSON object of objects.
    #[error("is not a JSON object of MCP client capabilities, each once")]
    Capabilities,
    /// `logLevel` is not a valid level.
    #[error(
        "is not an MCP log level; send debug, info, notice, warning, error, critical, alert or emergency"
    )]
    LogLevel,
}

impl LogLevel {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Debug, "debug"),
        (Self::Info, "info"),
        (Self::Notice, "notice"),
        (Self::Warning, "warning"),
        (Self::Error, "error"),
        (Self::Critical, "critical"),
        (Self::Alert, "alert"),
        (Self::Emergency, "emergency"),
    ];

    pub fn as_str(self) -> &'static str {
        let name = Self::ALL.into_iter().find(|(level, _)| *level == self);
        name.map_or("emergency", |(_, name)| name)
    }
}

impl FromStr for LogLevel {
    type Err = InvalidParticipation;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let level = Self::ALL.into_iter().find(|(_, known)| *known == name);
        level
            .map(|(level, _)| level)
            .ok_or(InvalidParticipation::LogLevel)
    }
}

impl ClientProfile {
    /// All features.
    pub(super) const ALL: Self = Self(0b11_1111);

    /// Returns this profile without `features`.
    pub(super) fn without(self, features: &[ClientFeature]) -> Self {
        let removed = features
            .iter()
            .fold(0, |removed, feature| removed | *feature as u8);
        Self(self.0 & !removed)
    }

    /// Returns this profile with `features`.
    pub(super) fn with(self, features: &[ClientFeature]) -> Self {
        Self(
            features
                .iter()
                .fold(self.0, |all, feature| all | *feature as u8),
        )
    }

    pub(super) fn has(self, feature: ClientFeature) -> bool {
        self.0 & feature as u8 != 0
    }

    /// Returns the profile as MCP `ClientCapabilities` for a legacy server.
    pub(super) fn to_json(self) -> Value {
        let mut json = json!({});
        let is_form_only = self.has(ClientFeature::Form) && !self.has(ClientFeature::Url);
        if self.has(ClientFeature::Form) || self.has(ClientFeature::Url) {
            json["elicitation"] = json!({});
        }
        // An empty object means forms, also for servers that know no other mode.
        let modes = [(ClientFeature::Form, "form"), (ClientFeature::Url, "url")];
        for (_, mode) in modes
            .iter()
            .filter(|(feature, _)| self.has(*feature) && !is_form_only)
        {
            json["elicitation"][mode] = json!({});
        }
        if self.has(ClientFeature::Sampling) {
            json["sampling"] = json!({});
        }
        let ways = [
            (ClientFeature::SamplingTools, "tools"),
            (ClientFeature::SamplingContext, "context"),
        ];
        for (_, way) in ways.iter().filter(|(feature, _)| self.has(*feature)) {
            json["sampling"][way] = json!({});
        }
        if self.has(ClientFeature::Roots) {
            json["roots"] = json!({});
        }
        json
    }

    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }

    fn with_if(self, holds: bool, feature: ClientFeature) -> Self {
        if holds {
            Self(self.0 | feature as u8)
        } else {
            self
        }
    }

    /// Returns whether the profile permits a request of a server to the client.
    pub(super) fn covers(self, method: &str, params: Option<&RawValue>) -> bool {
        #[derive(Default, Deserialize)]
        struct Params {
            #[serde(default)]
            mode: Option<String>,
            #[serde(default)]
            tools: Option<Value>,
            #[serde(default, rename = "toolChoice")]
            tool_choice: Option<Value>,
        }
        let params = params.map_or("{}", RawValue::get);
        let Ok(params) = serde_json::from_str::<Params>(params) else {
            return false;
        };
        match (method, params.mode.as_deref()) {
            ("elicitation/create", None | Some("form")) => self.has(ClientFeature::Form),
            ("elicitation/create", Some("url")) => self.has(ClientFeature::Url),
            ("sampling/createMessage", _) => {
                let needs_tools = params.tools.is_some() || params.tool_choice.is_some();
                self.has(ClientFeature::Sampling)
                    && (!needs_tools || self.has(ClientFeature::SamplingTools))
            }
            ("roots/list", _) => self.has(ClientFeature::Roots),
            _ => false,
        }
    }
}

impl Participation {
    /// Creates the participation of a client with the features of `profile` and nothing else.
    pub(super) fn of_profile(profile: ClientProfile) -> Self {
        Self {
            capabilities: ClientCapabilities {
                json: to_raw_value(&profile.to_json()).unwrap_or_default(),
                json_with_tasks: None,
                profile,
            },
            log_level: None,
            others: PassthroughMembers::default(),
            is_legacy: false,
        }
    }
}

impl ClientCapabilities {
    /// Reads the capabilities that a client declared. An empty text means none.
    pub fn parse(json: &[u8]) -> Result<Self, InvalidParticipation> {
        let json = match json {
            [] => "{}",
            json => std::str::from_utf8(json).map_err(|_| InvalidParticipation::Capabilities)?,
        };
        let members = members(json)?;
        let of = |name: &str| {
            let member = members.iter().find(|(own, _)| own == name);
            let member = member.filter(|(_, value)| value.get() != "null");
            member
                .map(|(_, value)| self::members(value.get()))
                .transpose()
        };
        let (elicitation, sampling) = (of("elicitation")?, of("sampling")?);
        let has = |of: &Option<Vec<(String, &RawValue)>>, name: &str| {
            let members = of.iter().flatten();
            members
                .into_iter()
                .any(|(own, value)| own == name && value.get() != "null")
        };
        let has_url = has(&elicitation, "url");
        // An elicitation capability without a mode means forms.
        let has_form = elicitation.is_some() && (has(&elicitation, "form") || !has_url);
        let profile = ClientProfile::default()
            .with_if(has_form, ClientFeature::Form)
            .with_if(has_url, ClientFeature::Url)
            .with_if(sampling.is_some(), ClientFeature::Sampling)
            .with_if(has(&sampling, "tools"), ClientFeature::SamplingTools)
            .with_if(has(&sampling, "context"), ClientFeature::SamplingContext)
            .with_if(of("roots")?.is_some(), ClientFeature::Roots);
        let to_json = |with_tasks: bool| {
            let declared = members.iter().filter_map(|(name, value)| {
                let value = match name.as_str() {
                    // The `tasks` of 2025-11-25 are about responses of the client that are tasks.
                    "tasks" => return None,
                    "extensions" if !with_tasks => without_tasks(value.get()).ok()?,
                    _ => value.get().to_owned(),
                };
                Some((name.as_str(), value))
            });
            RawValue::from_string(object(declared)).map_err(|_| InvalidParticipation::Capabilities)
        };
        let extensions = members.iter().find(|(name, _)| name == "extensions");
        let extensions = extensions.and_then(|(_, value)| self::members(value.get()).ok());
        let mut extensions = extensions.iter().flatten();
        let takes_tasks =
            extensions.any(|(name, value)| name == TASKS && value.get().starts_with('{'));
        Ok(Self {
            json: to_json(false)?,
            json_with_tasks: takes_tasks.then(|| to_json(true)).transpose()?,
            profile,
        })
    }

    /// Returns the capabilities for a server, with tasks if they are offered.
    pub(super) fn as_json(&self, offers_tasks: bool) -> &RawValue {
        let with_tasks = self.json_with_tasks.as_ref().filter(|_| offers_tasks);
        with_tasks.unwrap_or(&self.json)
    }

    /// Returns whether the client declared all of `required`.
    pub fn satisfies(&self, required: &RequiredCapabilities) -> bool {
        required.are_declared(Some(self.json.get()))
    }

    /// Returns whether the client accepts a task as the response to a call.
    pub fn accepts_tasks(&self) -> bool {
        self.json_with_tasks.is_some()
    }

    /// Returns whether the client declared no feature that a server may use.
    pub fn can_be_asked_nothing(&self) -> bool {
        self.profile.is_empty()
    }
}

/// Returns the extensions without tasks.
fn without_tasks(extensions: &str) -> Result<String, InvalidParticipation> {
    let extensions = members(extensions)?;
    let others = extensions.iter().filter(|(name, _)| name != TASKS);
    Ok(object(others.map(|(name, value)| {
        (name.as_str(), value.get().to_owned())
    })))
}

/// Returns the members of an object, or an error if a name occurs twice.
fn members(json: &str) -> Result<Vec<(String, &RawValue)>, InvalidParticipation> {
    let members: Members<'_> =
        serde_json::from_str(json).map_err(|_| InvalidParticipation::Capabilities)?;
    let mut members = members.0;
    let names = members.len();
    let mut seen = std::collections::HashSet::new();
    members.retain(|(name, _)| seen.insert(name.clone()));
    if members.len() == names {
        Ok(members)
    } else {
        Err(InvalidParticipation::Capabilities)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_capabilities(json: &str) -> ClientCapabilities {
        ClientCapabilities::parse(json.as_bytes()).unwrap()
    }

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn a_server_may_ask_only_what_the_client_offered() {
        let form = r#"{"message":"m","requestedSchema":{}}"#;
        let url = r#"{"mode":"url","url":"https://a.example"}"#;
        let (tools, plain) = (r#"{"messages":[],"tools":[]}"#, r#"{"messages":[]}"#);
        for (capabilities, covered) in [
            ("", [false; 5]),
            ("{}", [false; 5]),
            (r#"{"elicitation":{}}"#, [true, false, false, false, false]),
            (
                r#"{"elicitation":{"url":{}}}"#,
                [false, true, false, false, false],
            ),
            (
                r#"{"elicitation":{"form":{},"url":{}}}"#,
                [true, true, false, false, false],
            ),
            (r#"{"sampling":{}}"#, [false, false, true, false, false]),
            (
                r#"{"sampling":{"tools":{}}}"#,
                [false, false, true, true, false],
            ),
            (
                r#"{"roots":{"listChanged":true}}"#,
                [false, false, false, false, true],
            ),
            (r#"{"roots":null}"#, [false; 5]),
        ] {
            let profile = parse_capabilities(capabilities).profile;
            let covers = |method, params: &str| profile.covers(method, Some(&raw(params)));
            let found = [
                covers("elicitation/create", form),
                covers("elicitation/create", url),
                covers("sampling/createMessage", plain),
                covers("sampling/createMessage", tools),
                profile.covers("roots/list", None),
            ];
            assert_eq!(found, covered, "{capabilities}");
            assert!(!profile.covers("tools/list", None));
            assert!(!covers("elicitation/create", r#"{"mode":"other"}"#));
        }
    }

    #[test]
    fn what_is_not_known_goes_on_byte_for_byte_and_tasks_only_where_they_are_offered() {
        let capabilities = parse_capabilities(
            r#"{"x-new": {"n":1.10}, "extensions":{"io.modelcontextprotocol/tasks":{},"example/ui":{"a":[1e400]}},"tasks":{}}"#,
        );
        assert_eq!(
            capabilities.as_json(false).get(),
            r#"{"x-new":{"n":1.10},"extensions":{"example/ui":{"a":[1e400]}}}"#
        );
        assert_eq!(
            capabilities.as_json(true).get(),
            r#"{"x-new":{"n":1.10},"extensions":{"io.modelcontextprotocol/tasks":{},"example/ui":{"a":[1e400]}}}"#
        );
        assert!(capabilities.can_be_asked_nothing() && capabilities.accepts_tasks());
        for none in [
            "{}",
            r#"{"tasks":{}}"#,
            r#"{"extensions":{"io.modelcontextprotocol/tasks":null}}"#,
        ] {
            let capabilities = parse_capabilities(none);
            assert!(!capabilities.accepts_tasks(), "{none}");
            assert!(
                !capabilities.as_json(true).get().contains("tasks"),
                "{none}"
            );
        }
    }

    #[test]
    fn what_is_no_capabilities_is_refused() {
        for odd in [
            "[]",
            "7",
            "{",
            "\u{7f}",
            r#"{"roots":{},"roots":{}}"#,
            r#"{"sampling":7}"#,
        ] {
            assert!(ClientCapabilities::parse(odd.as_bytes()).is_err(), "{odd}");
        }
        assert!("loud".parse::<LogLevel>().is_err());
        assert!("debug".parse::<LogLevel>().unwrap() < LogLevel::Emergency);
        for (level, name) in LogLevel::ALL {
            assert_eq!((level.as_str(), name.parse()), (name, Ok(level)));
        }
    }
}
