//! The definition of one tool, as its upstream sent it.

use std::collections::BTreeMap;

use wardgate_domain::Digest;
use wardgate_json::{Json, NotJson};

/// Larger than any definition that a model should be given.
const MAX_BYTES: usize = 256 * 1024;

/// What stands in the place of a tool's name for what a server says of itself; no tool can be called so.
pub const INSTRUCTIONS: &str = "(instructions)";

/// An MCP tool definition with all its members, known and unknown; or a server's instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanonicalDefinition {
    name: String,
    json: Json,
    digest: Digest,
}

/// What cannot be a tool definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDefinition {
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

/// A tool definition, member by member: what a server offers is compared with it before a call is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFingerprint(BTreeMap<String, Digest>);

/// Says how a tool is called, in versions before 2026-07-28 only.
const EXECUTION: &str = "execution";

/// Members that not every version of MCP has. A server leaves them out for a client of a version without them.
const OF_SOME_VERSIONS: [&str; 6] = [
    EXECUTION,
    "_meta",
    "annotations",
    "icons",
    "outputSchema",
    "title",
];

impl ToolFingerprint {
    /// Whether `offered`, the definition in any version of MCP, is of the tool that this is the approved definition of.
    pub fn admits(&self, offered: &Self) -> bool {
        let is_approved = |(member, digest): (&String, &Digest)| {
            member == EXECUTION || self.0.get(member) == Some(digest)
        };
        let is_offered = |member: &String| {
            OF_SOME_VERSIONS.contains(&member.as_str()) || offered.0.contains_key(member)
        };
        offered.0.iter().all(is_approved) && self.0.keys().all(is_offered)
    }
}

impl CanonicalDefinition {
    /// Reads the JSON object that describes one tool.
    pub fn read(text: &str) -> Result<Self, BadDefinition> {
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
    pub fn of_instructions(text: &str) -> Self {
        let member = ("instructions".to_owned(), Json::Text(text.to_owned()));
        let json = Json::Object(vec![member]);
        Self {
            name: INSTRUCTIONS.to_owned(),
            digest: Digest::of(json.canonical().as_bytes()),
            json,
        }
    }

    /// The same from its JSON object.
    pub fn read_instructions(text: &str) -> Result<Self, BadDefinition> {
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
    pub fn instructions(&self) -> Option<&str> {
        let text = self.json.get("instructions")?.as_text();
        text.filter(|_| self.name == INSTRUCTIONS)
    }

    /// The upstream's own name of the tool.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// SHA-256 of the canonical form: changes with everything but white space and the order of members.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The canonical digest of each member.
    pub fn fingerprint(&self) -> ToolFingerprint {
        let members = self.json.members().iter();
        let digest = |json: &Json| Digest::of(json.canonical().as_bytes());
        ToolFingerprint(
            members
                .map(|(name, json)| (name.clone(), digest(json)))
                .collect(),
        )
    }

    /// The definition as JSON, its members in the order they were sent.
    pub fn text(&self) -> String {
        self.json.compact()
    }

    /// The schema of the arguments, as JSON.
    pub fn input_schema(&self) -> String {
        self.json
            .get("inputSchema")
            .map(Json::compact)
            .unwrap_or_default()
    }

    /// Whether the annotation `hint` is true.
    pub fn hints(&self, hint: &str) -> bool {
        let annotations = self.json.get("annotations");
        annotations.and_then(|it| it.get(hint)?.as_boolean()) == Some(true)
    }

    /// The definition without its name, its members in the order they were sent.
    pub fn without_name(&self) -> String {
        let members = self.json.members().iter();
        let members = members.filter(|(name, _)| name != "name").cloned();
        Json::Object(members.collect()).compact()
    }

    /// The definition itself.
    pub fn json(&self) -> &Json {
        &self.json
    }
}

/// The name that `text` gives its tool, to report on a definition that cannot be read.
pub fn name_in(text: &str) -> String {
    let value: Option<serde_json::Value> = serde_json::from_str(text).ok();
    match value.as_ref().and_then(|value| value["name"].as_str()) {
        Some(name) => name.to_owned(),
        None => "(no name)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(members: &str) -> ToolFingerprint {
        let text = format!(r#"{{"name":"read","inputSchema":{{"type":"object"}}{members}}}"#);
        CanonicalDefinition::read(&text).unwrap().fingerprint()
    }

    #[test]
    fn a_definition_is_admitted_in_every_version_and_no_other_definition_is() {
        let approved = fingerprint(r#","description":"Reads.","title":"Read","x":1.0"#);
        for same in [
            r#","description":"Reads.","title":"Read","x":1.0"#,
            r#","x":1.0,"description":"Reads.","execution":{"taskSupport":"optional"}"#,
        ] {
            assert!(approved.admits(&fingerprint(same)), "{same}");
        }
        for other in [
            r#","description":"Reads and sends.","title":"Read","x":1.0"#,
            r#","description":"Reads.","title":"Write","x":1.0"#,
            r#","description":"Reads.","title":"Read""#,
            r#","description":"Reads.","title":"Read","x":1.0,"y":1"#,
            r#","title":"Read","x":1.0"#,
        ] {
            assert!(!approved.admits(&fingerprint(other)), "{other}");
        }
    }
}
