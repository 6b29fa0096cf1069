//! The context that readers of `execute` can refer to.

use std::collections::BTreeMap;
use std::path::Path;

use wardgate_arguments::InputSchema;
use wardgate_yaml::{Node, Position};

use crate::derive::DerivedArguments;
use crate::fault::Faults;
use crate::source::SourceSettings;
use crate::template::{JsonTemplate, Placeholder, Template};

/// The values of `execute.type` that a file defines, each with the keys that it stands for.
pub(crate) type Types<'n> = BTreeMap<&'n str, &'n Node>;

/// Reads the `types` of a file.
pub(crate) fn read_types<'n>(node: Option<&'n Node>, faults: &mut Faults) -> Types<'n> {
    let entries = node.and_then(|node| faults.map(node, "types"));
    entries
        .unwrap_or_default()
        .iter()
        .map(|(key, node)| (key.name.as_str(), node))
        .collect()
}

/// The context of a reader of `execute`.
pub(crate) struct Scope<'s, 'f> {
    pub(crate) faults: &'f mut Faults,
    /// The arguments of the tool, or `None` if their schema has faults.
    pub(crate) input: Option<&'s InputSchema>,
    pub(crate) derive: &'s DerivedArguments,
    pub(crate) sources: &'s BTreeMap<String, Option<SourceSettings>>,
    /// The directory of the file, to which relative paths are relative.
    pub(crate) base: &'s Path,
}

impl<'s> Scope<'s, '_> {
    /// Returns the source that `node` names. Also returns `None` if the source has faults, which are reported with the
    /// source.
    pub(crate) fn source(&mut self, node: &Node) -> Option<&'s SourceSettings> {
        let name = self.faults.text(node, "source")?;
        let Some(source) = self.sources.get(name) else {
            let known: Vec<_> = self.sources.keys().map(String::as_str).collect();
            self.faults.add(
                node.at,
                format!("the source `{name}` does not exist"),
                format!(
                    "use one of `{}`, or add it to `sources`",
                    known.join("`, `")
                ),
            );
            return None;
        };
        source.as_ref()
    }

    /// Reports that the source named by `node` is not of the kind that the tool needs.
    pub(crate) fn wrong_source(&mut self, node: &Node, wanted: &str) {
        self.faults.add(
            node.at,
            format!("the source is not {wanted}"),
            format!("use a source that is {wanted}"),
        );
    }

    /// Reads a text whose placeholders must be arguments or derived values.
    pub(crate) fn template(&mut self, node: &Node, what: &str) -> Option<Template> {
        let text = self.faults.text(node, what)?;
        Some(self.template_of(text, node.at))
    }

    /// Parses a text at `at` whose placeholders must be arguments or derived values.
    pub(crate) fn template_of(&mut self, text: &str, at: Position) -> Template {
        let template = Template::parse(text, at);
        self.check_places(template.places(), at);
        template
    }

    /// Reads JSON whose placeholders must be arguments or derived values.
    pub(crate) fn json_template(&mut self, node: &Node) -> JsonTemplate {
        let template = JsonTemplate::from_node(node);
        self.check_places(template.places().into_iter(), node.at);
        template
    }

    fn check_places<'p>(&mut self, places: impl Iterator<Item = &'p Placeholder>, at: Position) {
        for place in places {
            let is_known = self.derive.get(&place.name).is_some()
                || self
                    .input
                    .is_none_or(|input| input.property(&place.name).is_some());
            if !is_known {
                self.unknown_value(at, &format!("{{{}}}", place.name));
            }
        }
    }

    /// Reports a placeholder that is neither an argument nor a derived value. `shown` is the placeholder as it is written.
    pub(crate) fn unknown_value(&mut self, at: Position, shown: &str) {
        let arguments = self.input.map(InputSchema::properties).unwrap_or_default();
        let arguments = arguments.iter().map(|property| property.name.as_str());
        let known: Vec<_> = arguments.chain(self.derive.names()).collect();
        self.faults.add(
            at,
            format!("`{shown}` is not a property of `input_schema`"),
            format!(
                "use one of `{}`, or add it to `input_schema` or `derive`",
                known.join("`, `")
            ),
        );
    }
}
