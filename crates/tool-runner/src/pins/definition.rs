//! The definition of one tool, as its upstream sent it.

use wardgate_domain::Digest;

use super::json::{Json, NotJson};

/// Larger than any definition that a model should be given.
const MAX_BYTES: usize = 256 * 1024;

/// What stands in the place of a tool's name for what a server says of itself; no tool can be called so.
pub(crate) const INSTRUCTIONS: &str = "(instructions)";

/// An MCP tool definition with all its members, known and unknown; or a server's instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    name: String,
    json: Json,
    digest: Digest,
}

/// What cannot be a tool definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadDefinition {
    /// It takes too much room.
    #[error("its definition takes {0} bytes, more than {MAX_BYTES}")]
    TooLarge(usize),
    /// Readers could take it for different things.
    #[error("its definition is not plain JSON: {0}")]
    NotJson(String),
    /// A member every definition needs is not there.
    #[error("its definition has no {0}")]
    Lacks(&'static str),
}

impl From<NotJson> for BadDefinition {
    fn from(not_json: NotJson) -> Self {
        Self::NotJson(not_json.to_string())
    }
}

impl Definition {
    /// Reads the JSON object that describes one tool.
    pub(crate) fn read(text: &str) -> Result<Self, BadDefinition> {
        if text.len() > MAX_BYTES {
            return Err(BadDefinition::TooLarge(text.len()));
        }
        let json = Json::parse(text)?;
        let name = json.get("name").and_then(Json::as_text);
        let name = name.ok_or(BadDefinition::Lacks("name"))?.to_owned();
        if !matches!(json.get("inputSchema"), Some(Json::Object(_))) {
            return Err(BadDefinition::Lacks("inputSchema object"));
        }
        let digest = Digest::of(json.canonical().as_bytes());
        Ok(Self { name, json, digest })
    }

    /// What a server says of itself, pinned as a tool is.
    pub(crate) fn of_instructions(text: &str) -> Self {
        let member = ("instructions".to_owned(), Json::Text(text.to_owned()));
        let json = Json::Object(vec![member]);
        Self {
            name: INSTRUCTIONS.to_owned(),
            digest: Digest::of(json.canonical().as_bytes()),
            json,
        }
    }

    /// The same from its JSON object.
    pub(crate) fn read_instructions(text: &str) -> Result<Self, BadDefinition> {
        let json = Json::parse(text)?;
        let text = json.get("instructions").and_then(Json::as_text);
        let instructions = Self::of_instructions(text.ok_or(BadDefinition::Lacks("instructions"))?);
        if instructions.json == json {
            Ok(instructions)
        } else {
            Err(BadDefinition::NotJson("it has other members".to_owned()))
        }
    }

    /// The text, where these are instructions.
    pub(crate) fn instructions(&self) -> Option<&str> {
        let text = self.json.get("instructions")?.as_text();
        text.filter(|_| self.name == INSTRUCTIONS)
    }

    /// The upstream's own name of the tool.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// SHA-256 of the canonical form: changes with everything but white space and the order of members.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The definition as JSON, its members in the order they were sent.
    pub(crate) fn text(&self) -> String {
        self.json.compact()
    }

    /// The schema of the arguments, as JSON.
    pub(crate) fn input_schema(&self) -> String {
        self.json
            .get("inputSchema")
            .map(Json::compact)
            .unwrap_or_default()
    }

    /// Whether the annotation `hint` is true.
    pub(crate) fn hints(&self, hint: &str) -> bool {
        let annotations = self.json.get("annotations");
        annotations.and_then(|it| it.get(hint)?.as_boolean()) == Some(true)
    }

    /// The definition without its name, its members in the order they were sent.
    pub(crate) fn without_name(&self) -> String {
        let members = self.json.members().iter();
        let members = members.filter(|(name, _)| name != "name").cloned();
        Json::Object(members.collect()).compact()
    }

    pub(crate) fn json(&self) -> &Json {
        &self.json
    }
}

/// The name that `text` gives its tool, to report on a definition that cannot be read.
pub(crate) fn name_in(text: &str) -> String {
    let value: Option<serde_json::Value> = serde_json::from_str(text).ok();
    match value.as_ref().and_then(|value| value["name"].as_str()) {
        Some(name) => name.to_owned(),
        None => "(no name)".to_owned(),
    }
}
