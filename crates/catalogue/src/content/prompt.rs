//! One prompt of a `content` source.

use serde_json::{Map, Value, json};
use wardgate_domain::UriTemplate;
use wardgate_yaml::{Node, Position, Yaml};

use super::{Arguments, ContentError, FileContent};
use crate::fault::{Faults, FieldReader};
use crate::name::is_name;
use crate::template::Template;

/// A prompt: messages with placeholders for arguments.
#[derive(Debug)]
pub(crate) struct Prompt {
    pub(super) at: Position,
    pub(super) name: String,
    title: Option<String>,
    description: Option<String>,
    pub(super) arguments: Arguments,
    messages: Vec<PromptMessage>,
}

#[derive(Debug)]
struct PromptMessage {
    role: &'static str,
    says: PromptContent,
}

/// The content of one message.
#[derive(Debug)]
enum PromptContent {
    Text(Template),
    /// A resource of the same source.
    Resource(Template),
}

impl Prompt {
    pub(super) fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut fields = FieldReader::new(node, super::what("prompt", node, "name"), faults)?;
        let name_node = fields.take_required("name", "add a `name`", faults);
        let name = name_node.and_then(|node| name(node, faults));
        let [title, description] = ["title", "description"].map(|member| {
            let node = fields.take_optional(member)?;
            faults
                .text(node, member)
                .map(|text| text.trim_end().to_owned())
        });
        let arguments = Arguments::from_node(fields.take_optional("arguments"), faults);
        let fix = "add `messages: [ { role: user, text: … } ]`";
        let messages_node = fields.take_required("messages", fix, faults);
        fields.finish(faults);
        let arguments = arguments?;
        let nodes = messages_node.map(|node| faults.list(node, "messages"));
        let nodes = nodes.unwrap_or_default();
        if let (Some(node), []) = (messages_node, nodes) {
            faults.add(node.at, "`messages` is empty", fix);
        }
        let messages: Vec<_> = nodes
            .iter()
            .filter_map(|node| PromptMessage::from_node(node, &arguments, faults))
            .collect();
        Some(Self {
            at: name_node?.at,
            name: name?,
            title,
            description,
            arguments,
            messages,
        })
    }

    /// Returns what clients see of the prompt besides its name.
    pub(super) fn definition(&self) -> Value {
        let mut definition = json!({});
        for (member, text) in [("title", &self.title), ("description", &self.description)] {
            if let Some(text) = text {
                definition[member] = text.as_str().into();
            }
        }
        let arguments = self.arguments.to_prompt_arguments();
        if !arguments.is_empty() {
            definition["arguments"] = arguments.into();
        }
        definition
    }

    /// Returns the URIs of resources in the messages that do not depend on arguments.
    pub(super) fn fixed_resources(&self) -> impl Iterator<Item = (Position, String)> {
        self.messages
            .iter()
            .filter_map(|message| match &message.says {
                PromptContent::Resource(uri) if uri.places().next().is_none() => {
                    Some((uri.at(), uri.fill_plain(&Map::new()).ok()?))
                }
                PromptContent::Resource(_) | PromptContent::Text(_) => None,
            })
    }

    /// Returns the result of `prompts/get`.
    pub(super) fn get(&self, arguments: &[u8], own: &FileContent) -> Result<Value, ContentError> {
        // The client sent no arguments.
        let arguments = if arguments.is_empty() {
            b"{}"
        } else {
            arguments
        };
        let values = self.arguments.check(arguments)?;
        let message = |message: &PromptMessage| {
            let content = match &message.says {
                PromptContent::Text(text) => {
                    json!({ "type": "text", "text": text.fill_plain(&values)? })
                }
                PromptContent::Resource(uri) => {
                    let uri = uri.fill(&values, UriTemplate::escape)?;
                    let contents = own.resource(&uri)?;
                    json!({ "type": "resource", "resource": contents })
                }
            };
            Ok(json!({ "role": message.role, "content": content }))
        };
        let messages = self.messages.iter().map(message);
        let messages = messages.collect::<Result<Vec<_>, ContentError>>()?;
        let mut result = json!({ "messages": messages });
        if let Some(description) = &self.description {
            result["description"] = description.as_str().into();
        }
        Ok(result)
    }
}

fn name(node: &Node, faults: &mut Faults) -> Option<String> {
    let name = faults.text(node, "name")?;
    if !is_name(name) {
        faults.add(
            node.at,
            "the name is not accepted by every client",
            "use 1 to 64 characters of A-Z a-z 0-9 _ . -",
        );
        return None;
    }
    Some(name.to_owned())
}

impl PromptMessage {
    fn from_node(node: &Node, arguments: &Arguments, faults: &mut Faults) -> Option<Self> {
        let mut fields = FieldReader::new(node, "messages", faults)?;
        let role = match fields.take_optional("role") {
            None => Some("user"),
            Some(node) => role(node, faults),
        };
        let (text, resource) = (
            fields.take_optional("text"),
            fields.take_optional("resource"),
        );
        fields.finish(faults);
        let says = match (text, resource) {
            (Some(node), None) => arguments
                .template(node, "text", faults)
                .map(PromptContent::Text),
            (None, Some(node)) => {
                let uri = arguments.template(node, "resource", faults)?;
                Some(PromptContent::Resource(uri))
            }
            _ => {
                faults.add(
                    node.at,
                    "a message must have either a `text` or a `resource`",
                    "write `{ role: user, text: … }`, or the URI of a resource of this source",
                );
                None
            }
        };
        Some(Self {
            role: role?,
            says: says?,
        })
    }
}

fn role(node: &Node, faults: &mut Faults) -> Option<&'static str> {
    match &node.value {
        Yaml::Text(word) if word == "user" => Some("user"),
        Yaml::Text(word) if word == "assistant" => Some("assistant"),
        _ => {
            faults.add(
                node.at,
                "`role` is neither user nor assistant",
                "write user or assistant",
            );
            None
        }
    }
}
