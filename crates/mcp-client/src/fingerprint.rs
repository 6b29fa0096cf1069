//! Canonical form and fingerprint of a tool definition, for pinning.

use std::collections::BTreeMap;

use wardgate_domain::Digest;
use wardgate_json::{Json, NotJson};

/// Maximum size of a definition in bytes, which is larger than any definition that a model should be given.
const MAX_BYTES: usize = 256 * 1024;

/// The name under which the instructions of a server are pinned. It is not a valid name of a tool.
pub const INSTRUCTIONS: &str = "(instructions)";

/// An MCP tool definition with all its members, known and unknown, or the instructions of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanonicalDefinition {
    name: String,
    json: Json,
    digest: Digest,
}

/// The reason why a text is not a usable definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDefinition {
    /// The definition is too large.
    #[error("its definition takes {0} bytes, more than {MAX_BYTES}")]
    TooLarge(usize),
    /// The definition is ambiguous or not valid JSON.
    #[error("its definition is not plain JSON: {0}")]
    NotJson(String),
    /// The definition lacks a required member.
    #[error("its definition has no {0}")]
    Lacks(&'static str),
}

impl From<NotJson> for BadDefinition {
    fn from(not_json: NotJson) -> Self {
        Self::NotJson(not_json.to_string())
    }
}

/// The digests of the members of a tool definition. The definition that a server offers is compared with the
/// approved one before a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFingerprint(BTreeMap<String, Digest>);

/// The member that specifies how a tool is called. It only exists before 2026-07-28.
const EXECUTION: &str = "execution";

/// Members that some versions of MCP lack. A server omits them for clients of these versions.
const OF_SOME_VERSIONS: [&str; 6] = [
    EXECUTION,
    "_meta",
    "annotations",
    "icons",
    "outputSchema",
    "title",
];

impl ToolFingerprint {
    /// Returns whether `offered`, the definition in any version of MCP, matches this fingerprint of the approved definition.
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
    /// Reads the JSON object that defines a tool.
    pub fn parse_tool(text: &str) -> Result<Self, BadDefinition> {
        if text.len() > MAX_BYTES {
            return Err(BadDefinition::TooLarge(text.len()));
        }
        let json = Json::parse(text)?;
        let name = json.get("name").and_then(Json::as_text);
        let name = name.ok_or(BadDefinition::Lacks("name"))?.to_owned();
        if !matches!(json.get("inputSchema"), Some(Json::Object(_))) {
            return Err(BadDefinition::Lacks("inputSchema object"));
        }
        let digest = Digest::compute(json.canonical().as_bytes());
        Ok(Self { name, json, digest })
    }

    /// Creates the canonical form of the instructions of a server, which are pinned like a tool.
    pub fn of_instructions(text: &str) -> Self {
        let member = ("instructions".to_owned(), Json::Text(text.to_owned()));
        let json = Json::Object(vec![member]);
        Self {
            name: INSTRUCTIONS.to_owned(),
            digest: Digest::compute(json.canonical().as_bytes()),
            json,
        }
    }

    /// Reads the canonical form of instructions from its JSON object.
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

    /// Returns the text of instructions, or `None` for a tool.
    pub fn instructions(&self) -> Option<&str> {
        let text = self.json.get("instructions")?.as_text();
        text.filter(|_| self.name == INSTRUCTIONS)
    }

    /// Returns the name that the upstream uses for the tool.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the SHA-256 digest of the canonical form. White space and the order of members do not change it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the digests of the members.
    pub fn fingerprint(&self) -> ToolFingerprint {
        let members = self.json.members().iter();
        let digest = |json: &Json| Digest::compute(json.canonical().as_bytes());
        ToolFingerprint(
            members
                .map(|(name, json)| (name.clone(), digest(json)))
                .collect(),
        )
    }

    /// Returns the definition as JSON, with its members in the original order.
    pub fn text(&self) -> String {
        self.json.compact()
    }

    /// Returns the schema of the arguments as JSON.
    pub fn input_schema(&self) -> String {
        self.json
            .get("inputSchema")
            .map(Json::compact)
            .unwrap_or_default()
    }

    /// Returns whether the annotation `hint` is true.
    pub fn hints(&self, hint: &str) -> bool {
        let annotations = self.json.get("annotations");
        annotations.and_then(|it| it.get(hint)?.as_boolean()) == Some(true)
    }

    /// Returns the definition without its name, with its members in the original order.
    pub fn without_name(&self) -> String {
        let members = self.json.members().iter();
        let members = members.filter(|(name, _)| name != "name").cloned();
        Json::Object(members.collect()).compact()
    }

    /// Returns the definition.
    pub fn json(&self) -> &Json {
        &self.json
    }
}

/// Returns the name of the tool in `text`, to report a definition that cannot be read.
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
        CanonicalDefinition::parse_tool(&text)
            .unwrap()
            .fingerprint()
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
