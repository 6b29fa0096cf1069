//! What a client can take part in while a server works on its request.

use std::str::FromStr;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use wardgate_domain::RequiredCapabilities;
use wardgate_json::Members;
use wardgate_mcp::extension::TASKS;

use super::members::object;
use super::passthrough_members::PassthroughMembers;

/// What a client can be asked for, and which logs it wants.
#[derive(Debug, Clone)]
pub struct Participation {
    /// What the client declared.
    pub capabilities: ClientCapabilities,
    /// The log messages it wants are of this level or louder ones; none: it wants none.
    pub log_level: Option<LogLevel>,
    /// What else it says in the `_meta` of its request.
    pub others: PassthroughMembers,
    /// It speaks a version before 2026-07-28.
    pub is_legacy: bool,
}

/// MCP `ClientCapabilities`, as far as they can be carried.
#[derive(Debug, Clone)]
pub struct ClientCapabilities {
    /// As a server of 2026-07-28 is told them: what is not known here among them, each byte for byte.
    json: Box<RawValue>,
    /// The same where what is asked for may become a task; none of a client that takes no tasks.
    json_with_tasks: Option<Box<RawValue>>,
    pub(super) profile: ClientProfile,
}

/// Something a server may ask of a client.
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

/// The set of features that a server may ask its client for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ClientProfile(u8);

/// How loud a log message is (MCP `LoggingLevel`, of RFC 5424).
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

/// The capabilities or the log level of a client cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidParticipation {
    /// `clientCapabilities` is no JSON object of objects.
    #[error("is not a JSON object of MCP client capabilities, each once")]
    Capabilities,
    /// `logLevel` is none.
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
    /// All that a client can be asked for here.
    pub(super) const ALL: Self = Self(0b11_1111);

    /// This without `features`.
    pub(super) fn without(self, features: &[ClientFeature]) -> Self {
        let removed = features
            .iter()
            .fold(0, |removed, feature| removed | *feature as u8);
        Self(self.0 & !removed)
    }

    /// This with `features`.
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

    /// As a legacy server is told it.
    pub(super) fn to_json(self) -> Value {
        let mut json = json!({});
        let is_form_only = self.has(ClientFeature::Form) && !self.has(ClientFeature::Url);
        if self.has(ClientFeature::Form) || self.has(ClientFeature::Url) {
            json["elicitation"] = json!({});
        }
        // An empty object is a form, also to servers that know of no other mode.
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

    /// Whether this request to the client is covered.
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
    /// Of a client that can be asked for what `profile` says, and that says nothing else.
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
    /// Those that a client told; nothing at all is none.
    pub fn read(json: &[u8]) -> Result<Self, InvalidParticipation> {
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
        // Without a mode it is a form.
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
                    // Of 2025-11-25: answers that are tasks of the client's.
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

    /// As a server is told them, with tasks where they are offered.
    pub(super) fn as_json(&self, offers_tasks: bool) -> &RawValue {
        let with_tasks = self.json_with_tasks.as_ref().filter(|_| offers_tasks);
        with_tasks.unwrap_or(&self.json)
    }

    /// Whether the client declared all of `required`.
    pub fn satisfies(&self, required: &RequiredCapabilities) -> bool {
        required.are_declared(Some(self.json.get()))
    }

    /// Whether the client takes a task for the answer to a call.
    pub fn accepts_tasks(&self) -> bool {
        self.json_with_tasks.is_some()
    }

    /// Whether there is nothing that a client could be asked for.
    pub fn can_be_asked_nothing(&self) -> bool {
        self.profile.is_empty()
    }
}

/// The other extensions.
fn without_tasks(extensions: &str) -> Result<String, InvalidParticipation> {
    let extensions = members(extensions)?;
    let others = extensions.iter().filter(|(name, _)| name != TASKS);
    Ok(object(others.map(|(name, value)| {
        (name.as_str(), value.get().to_owned())
    })))
}

/// The members of an object, no name twice.
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

    fn read(json: &str) -> ClientCapabilities {
        ClientCapabilities::read(json.as_bytes()).unwrap()
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
            let profile = read(capabilities).profile;
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
        let capabilities = read(
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
            let capabilities = read(none);
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
            assert!(ClientCapabilities::read(odd.as_bytes()).is_err(), "{odd}");
        }
        assert!("loud".parse::<LogLevel>().is_err());
        assert!("debug".parse::<LogLevel>().unwrap() < LogLevel::Emergency);
        for (level, name) in LogLevel::ALL {
            assert_eq!((level.as_str(), name.parse()), (name, Ok(level)));
        }
    }
}
