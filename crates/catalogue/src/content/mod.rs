//! `type: content`: prompts and resources that are defined in the catalogue itself.
//!
//! ```text
//!   prompts    name ── typed arguments ──▶ messages, texts or resources of the same source
//!   resources  uri ─────────────────────▶ text or file
//!              uri_template ── typed variables ──▶ text
//! ```
//!
//! All content is read and checked with the catalogue, so every prompt and resource that is listed can also be read.

mod arguments;
mod prompt;
mod resource;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde_json::{Value, json};
use wardgate_arguments::InvalidArguments;
use wardgate_domain::{ColumnClass, Digest, OfferKind};
use wardgate_yaml::{KeyOrder, Node, Position, Yaml};

use self::arguments::Arguments;
use self::prompt::Prompt;
use self::resource::{Address, Resource};
use crate::fault::{Faults, FieldReader};
use crate::files::AttachedFile;
use crate::result_shape::read_classes;
use crate::template::UnfitValue;

/// The column whose class governs every text of this source.
pub const CONTENT: &str = "content";

/// The reason why a prompt, resource or completion cannot be returned. Its message names arguments and rules, never a
/// value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// There is no prompt, resource or template with that name.
    #[error("no prompt or resource has this name")]
    Unknown,
    /// The arguments are invalid.
    #[error("{0}")]
    Invalid(String),
}

impl From<InvalidArguments> for ContentError {
    fn from(invalid: InvalidArguments) -> Self {
        Self::Invalid(invalid.to_string())
    }
}

impl From<UnfitValue> for ContentError {
    fn from(unfit: UnfitValue) -> Self {
        Self::Invalid(unfit.to_string())
    }
}

/// The prompts and resources of one source.
#[derive(Debug)]
pub struct FileContent {
    /// The tags that policies can refer to.
    pub tags: Vec<String>,
    /// The column class of every text of the source.
    pub class: ColumnClass,
    prompts: Vec<Prompt>,
    resources: Vec<Resource>,
    /// SHA-256 of all prompts and resources, including their files.
    pub(crate) digest: Digest,
}

/// Sources with equal digests are equal.
impl PartialEq for FileContent {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for FileContent {}

/// The name and definition of a prompt or resource, as clients see them.
#[derive(Debug, Clone, PartialEq)]
pub struct OfferedItem {
    /// The name of a prompt, the URI of a resource, or the template of URIs.
    pub name: String,
    /// The entry in the MCP list.
    pub definition: Value,
}

impl FileContent {
    /// Reads the source `source`. Relative paths are relative to `base`.
    pub(crate) fn from_fields(
        source: &str,
        node: &Node,
        fields: &mut FieldReader<'_>,
        base: &Path,
        faults: &mut Faults,
    ) -> Option<Self> {
        let tags = fields.take_optional("tags");
        let tags = tags.map(|node| faults.tags(node));
        let classes = fields.take_optional("classes");
        let class = classes.and_then(|node| class(node, faults));
        let lists = ["prompts", "resources"].map(|key| (key, fields.take_optional(key)));
        let [prompts, resources] = lists.map(|(key, node)| {
            let nodes = node.map(|node| faults.list(node, key));
            nodes.unwrap_or_default()
        });
        if prompts.is_empty() && resources.is_empty() {
            faults.add(
                node.at,
                format!("`sources.{source}` has neither `prompts` nor `resources`"),
                "add one of them, with at least one entry",
            );
        }
        let before = faults.count();
        let own = Self {
            tags: tags.unwrap_or_default(),
            class: class.unwrap_or_else(ColumnClass::unclassified),
            prompts: prompts
                .iter()
                .filter_map(|node| Prompt::from_node(node, faults))
                .collect(),
            resources: resources
                .iter()
                .filter_map(|node| Resource::from_node(node, base, faults))
                .collect(),
            digest: Digest::compute(b""),
        };
        if faults.count() > before {
            return None;
        }
        own.check_references(faults);
        let bodies = own.resources.iter().map(Resource::body);
        let written = node.to_json(KeyOrder::Sorted);
        let parts = [written.as_str()]
            .into_iter()
            .chain(bodies)
            .map(|part| Digest::compute(part.as_bytes()).to_string());
        let digest = Digest::compute(parts.collect::<String>().as_bytes());
        Some(Self { digest, ..own })
    }

    /// Returns the kinds of offers that the source has.
    pub fn kinds(&self) -> impl Iterator<Item = OfferKind> + use<> {
        let prompts = (!self.prompts.is_empty()).then_some(OfferKind::Prompts);
        let resources = (!self.resources.is_empty()).then_some(OfferKind::Resources);
        resources.into_iter().chain(prompts)
    }

    /// Returns the files from which resources are read.
    pub fn files(&self) -> impl Iterator<Item = &AttachedFile> {
        self.resources.iter().filter_map(Resource::file)
    }

    /// Returns every name of a prompt and every address of a resource, with its kind and position.
    pub(crate) fn names(&self) -> impl Iterator<Item = (Position, &'static str, &str)> {
        let prompts = self.prompts.iter();
        let prompts = prompts.map(|prompt| (prompt.at, "prompt", prompt.name.as_str()));
        let resources = self
            .resources
            .iter()
            .map(|resource| match &resource.address {
                Address::Uri(uri) => (resource.at, "resource", uri.as_str()),
                Address::Template(template, _) => (resource.at, "resource", template.as_str()),
            });
        prompts.chain(resources)
    }

    /// Returns the entries of `prompts/list`.
    pub fn prompts(&self) -> impl Iterator<Item = OfferedItem> {
        self.prompts.iter().map(|prompt| OfferedItem {
            name: prompt.name.clone(),
            definition: prompt.definition(),
        })
    }

    /// Returns the entries of `resources/list`.
    pub fn resources(&self) -> impl Iterator<Item = OfferedItem> {
        self.resources
            .iter()
            .filter_map(|resource| match &resource.address {
                Address::Uri(uri) => Some(OfferedItem {
                    name: uri.clone(),
                    definition: resource.definition(),
                }),
                Address::Template(..) => None,
            })
    }

    /// Returns the entries of `resources/templates/list`.
    pub fn templates(&self) -> impl Iterator<Item = OfferedItem> {
        self.resources
            .iter()
            .filter_map(|resource| match &resource.address {
                Address::Template(template, _) => Some(OfferedItem {
                    name: template.to_string(),
                    definition: resource.definition(),
                }),
                Address::Uri(_) => None,
            })
    }

    /// Returns the result of `prompts/get`. `arguments` is one JSON object.
    pub fn get_prompt(&self, name: &str, arguments: &[u8]) -> Result<Value, ContentError> {
        self.prompt(name)?.get(arguments, self)
    }

    /// Returns the result of `resources/read`.
    pub fn read_resource(&self, uri: &str) -> Result<Value, ContentError> {
        Ok(json!({ "contents": [self.resource(uri)?] }))
    }

    /// Returns the values of a prompt's argument that begin with `begun`.
    pub fn complete_prompt(
        &self,
        name: &str,
        argument: &str,
        begun: &str,
    ) -> Result<Vec<String>, ContentError> {
        complete(&self.prompt(name)?.arguments, argument, begun)
    }

    /// Returns the values of a variable of a URI template that begin with `begun`.
    pub fn complete_template(
        &self,
        template: &str,
        argument: &str,
        begun: &str,
    ) -> Result<Vec<String>, ContentError> {
        let mut resources = self.resources.iter();
        let arguments = resources.find_map(|resource| match &resource.address {
            Address::Template(own, arguments) if own.as_str() == template => Some(arguments),
            _ => None,
        });
        complete(arguments.ok_or(ContentError::Unknown)?, argument, begun)
    }

    fn prompt(&self, name: &str) -> Result<&Prompt, ContentError> {
        let mut prompts = self.prompts.iter();
        prompts
            .find(|prompt| prompt.name == name)
            .ok_or(ContentError::Unknown)
    }

    /// Returns the contents at `uri`. A plain URI takes precedence over a matching template.
    fn resource(&self, uri: &str) -> Result<Value, ContentError> {
        let by_address = |templated: bool| {
            let resources = self.resources.iter();
            let mut resources = resources
                .filter(move |it| matches!(it.address, Address::Template(..)) == templated);
            resources.find_map(|resource| resource.contents(uri))
        };
        by_address(false)
            .or_else(|| by_address(true))
            .unwrap_or(Err(ContentError::Unknown))
    }

    /// Checks that every resource that a message refers to exists.
    fn check_references(&self, faults: &mut Faults) {
        for prompt in &self.prompts {
            for (at, uri) in prompt.fixed_resources() {
                if self.resource(&uri) == Err(ContentError::Unknown) {
                    faults.add(
                        at,
                        format!("the resource `{uri}` does not exist in this source"),
                        "use a `uri` of its `resources`, or one that matches a `uri_template`",
                    );
                }
            }
        }
    }
}

fn complete(
    arguments: &Arguments,
    argument: &str,
    begun: &str,
) -> Result<Vec<String>, ContentError> {
    arguments
        .complete(argument, begun)
        .ok_or_else(|| ContentError::Invalid("no argument has this name".to_owned()))
}

/// Reads the class of the column `content`, which is the only column.
fn class(node: &Node, faults: &mut Faults) -> Option<ColumnClass> {
    let mut classes = read_classes(node, faults);
    let class = classes.remove(CONTENT);
    if let Some((other, _)) = classes.pop_first() {
        faults.add(
            node.get(&other).unwrap_or(node).at,
            format!("`{other}` is not a column of prompts and resources"),
            "write `classes: { content: … }`",
        );
    }
    class
}

/// Returns a name for an entry in faults.
fn what(kind: &str, node: &Node, name: &str) -> String {
    match node.get(name).map(|name| &name.value) {
        Some(Yaml::Text(name)) => format!("{kind} {name}"),
        _ => kind.to_owned(),
    }
}
