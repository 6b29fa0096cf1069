//! Definitions of tools, prompts, resources and templates.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use wardgate_mcp::Version;

use crate::envelope::object;

/// The kind of thing that a definition describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinitionKind {
    /// MCP `Tool`.
    Tool,
    /// MCP `Prompt`.
    Prompt,
    /// MCP `Resource`.
    Resource,
    /// MCP `ResourceTemplate`.
    Template,
    /// A skill (SEP-2640).
    Skill,
}

impl DefinitionKind {
    /// Returns the name of the member that identifies a definition of this kind.
    fn named_by(self) -> &'static str {
        match self {
            Self::Tool | Self::Prompt => "name",
            Self::Resource | Self::Skill => "uri",
            Self::Template => "uriTemplate",
        }
    }
}

/// The JSON text of a definition for each protocol version. Its members are byte for byte as configured.
#[derive(Debug)]
pub struct VersionedDefinition {
    kind: DefinitionKind,
    /// Length in bytes of the prefix of each text that ends after the name. The prefix is the same in every text.
    named: usize,
    whole: Arc<str>,
    /// The texts in the order of [`Version::EVERY`]. Consecutive versions share a text if it is the same.
    texts: [Arc<str>; Version::EVERY.len()],
}

impl VersionedDefinition {
    /// Creates the texts from `definition`, a JSON object without the name. Returns `None` if it is not a JSON object.
    pub fn new(kind: DefinitionKind, name: &str, definition: &str) -> Option<Self> {
        let members: BTreeMap<String, &RawValue> = object(definition)?;
        let named = begin_definition(kind, name);
        let write = |in_version: &dyn Fn(&str, &RawValue) -> Option<String>| {
            let mut text = named.clone();
            for (member, value) in &members {
                if let Some(value) = in_version(member, value) {
                    text += &format!(",{}:{value}", json!(member));
                }
            }
            text.push('}');
            text
        };
        let whole: Arc<str> = write(&|_, value| Some(value.get().to_owned())).into();
        let mut later = Arc::clone(&whole);
        let texts = Version::EVERY.map(|version| {
            let text = write(&|member, value| {
                let value = in_version(kind, member, value.get(), version)?;
                Some(value.into_owned())
            });
            if *text != *later {
                later = text.into();
            }
            Arc::clone(&later)
        });
        Some(Self {
            kind,
            named: named.len(),
            whole,
            texts,
        })
    }

    /// Returns the definition for clients of `version`, a JSON object.
    pub fn of_version(&self, version: Version) -> &str {
        let at = Version::EVERY.iter().position(|every| *every == version);
        at.map_or(&*self.whole, |at| &self.texts[at])
    }

    /// Returns the definition for clients of `version` under another name.
    pub fn with_name(&self, version: Version, name: &str) -> String {
        begin_definition(self.kind, name) + &self.of_version(version)[self.named..]
    }
}

/// Returns the beginning of a definition: the opening brace and the member with its name.
fn begin_definition(kind: DefinitionKind, name: &str) -> String {
    format!(r#"{{"{}":{}"#, kind.named_by(), json!(name))
}

/// Returns the value of a member in `version`, or `None` if the version does not define the member.
fn in_version<'v>(
    kind: DefinitionKind,
    member: &str,
    value: &'v str,
    version: Version,
) -> Option<Cow<'v, str>> {
    let stays = match member {
        // The gateway does not run the tasks of 2025-11-25, which this member is about.
        "execution" if kind == DefinitionKind::Tool => false,
        "outputSchema" if kind == DefinitionKind::Tool => {
            version.is_modern() || (version.has_structured_content() && is_schema_of_object(value))
        }
        "annotations" if kind == DefinitionKind::Tool => version.has_tool_annotations(),
        "arguments" if kind == DefinitionKind::Prompt && !version.has_titles() => {
            return Some(strip_titles(value));
        }
        "icons" => version.has_icons(),
        "title" | "_meta" => version.has_titles(),
        _ => true,
    };
    stays.then_some(value.into())
}

/// Returns whether the root of a JSON Schema has `type: object`.
fn is_schema_of_object(schema: &str) -> bool {
    #[derive(Deserialize)]
    struct SchemaRoot<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
    }
    object(schema).is_some_and(|root: SchemaRoot<'_>| root.kind == "object")
}

/// Returns the arguments of a prompt without their titles.
fn strip_titles(arguments: &str) -> Cow<'_, str> {
    let Ok(mut all) = serde_json::from_str::<Vec<serde_json::Map<String, Value>>>(arguments) else {
        return arguments.into();
    };
    let titles = all.iter_mut().filter_map(|one| one.remove("title")).count();
    if titles == 0 {
        return arguments.into();
    }
    json!(all).to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of a member in each version, the oldest first.
    fn member_by_version(kind: DefinitionKind, member: &str, value: &str) -> [Option<Value>; 5] {
        let text = format!(r#"{{"{member}":{value}}}"#);
        let definition = VersionedDefinition::new(kind, "n", &text).unwrap();
        Version::EVERY.map(|version| {
            let of_version = definition.of_version(version);
            let all: Value = serde_json::from_str(of_version).unwrap();
            assert_eq!(all[kind.named_by()], "n");
            assert_eq!(
                serde_json::from_str::<Value>(&definition.whole).unwrap()[member],
                all_of(value)
            );
            all.get(member).cloned()
        })
    }

    fn all_of(value: &str) -> Value {
        serde_json::from_str(value).unwrap()
    }

    #[test]
    fn a_member_is_in_the_versions_that_know_it() {
        use DefinitionKind::{Prompt, Resource, Template, Tool};
        let object = r#"{"type":"object"}"#;
        for (kind, member, value, versions) in [
            (Tool, "inputSchema", object, [true, true, true, true, true]),
            (
                Tool,
                "description",
                r#""d""#,
                [true, true, true, true, true],
            ),
            (Tool, "x-vendor", "1.10", [true, true, true, true, true]),
            (Tool, "annotations", "{}", [false, true, true, true, true]),
            (Tool, "title", r#""t""#, [false, false, true, true, true]),
            (Tool, "_meta", "{}", [false, false, true, true, true]),
            (
                Tool,
                "outputSchema",
                object,
                [false, false, true, true, true],
            ),
            (
                Tool,
                "outputSchema",
                r#"{"type":"array"}"#,
                [false, false, false, false, true],
            ),
            (
                Tool,
                "outputSchema",
                "true",
                [false, false, false, false, true],
            ),
            (Tool, "icons", "[]", [false, false, false, true, true]),
            (
                Tool,
                "execution",
                r#"{"taskSupport":"optional"}"#,
                [false; 5],
            ),
            (Prompt, "title", r#""t""#, [false, false, true, true, true]),
            (Prompt, "icons", "[]", [false, false, false, true, true]),
            (Prompt, "execution", "1", [true, true, true, true, true]),
            (
                Resource,
                "annotations",
                "{}",
                [true, true, true, true, true],
            ),
            (Resource, "size", "7", [true, true, true, true, true]),
            (
                Resource,
                "title",
                r#""t""#,
                [false, false, true, true, true],
            ),
            (Template, "icons", "[]", [false, false, false, true, true]),
            (Template, "_meta", "{}", [false, false, true, true, true]),
        ] {
            let expected = versions.map(|has| has.then(|| all_of(value)));
            assert_eq!(
                member_by_version(kind, member, value),
                expected,
                "{member} of {kind:?}"
            );
        }
    }

    #[test]
    fn arguments_of_a_prompt_lose_their_titles_alone() {
        let arguments = r#"[{"name":"a","title":"A","required":true}]"#;
        let [_, oldest, later, ..] =
            member_by_version(DefinitionKind::Prompt, "arguments", arguments);
        assert_eq!(oldest, Some(json!([{ "name": "a", "required": true }])));
        assert_eq!(later, Some(all_of(arguments)));
    }

    #[test]
    fn what_stays_stays_as_it_is_written_and_is_kept_once() {
        let definition =
            VersionedDefinition::new(DefinitionKind::Resource, "a\"b", r#"{"x" : 1.10 }"#).unwrap();
        assert_eq!(&*definition.whole, r#"{"uri":"a\"b","x":1.10}"#);
        for text in &definition.texts {
            assert!(Arc::ptr_eq(text, &definition.whole));
        }
        let renamed = definition.with_name(Version::V2025_06_18, "c");
        assert_eq!(renamed, r#"{"uri":"c","x":1.10}"#);
        assert!(VersionedDefinition::new(DefinitionKind::Tool, "n", "[]").is_none());
    }
}
