//! `execute`: what a tool does when it is called.

use std::collections::BTreeMap;
use std::path::Path;

use wardgate_arguments::InputSchema;

use super::derive::Derive;
use super::fault::{Faults, Fields};
use super::source::SourceSettings;
use super::template::{JsonTemplate, Placeholder, Template};
use super::yaml::{Key, Mark, Node, Yaml};
use crate::executor::{KINDS, Plan};

/// What a reader of `execute` may look at besides its own keys.
pub(crate) struct Scope<'s, 'f> {
    pub(crate) faults: &'f mut Faults,
    /// The arguments; none when they have faults themselves.
    pub(crate) input: Option<&'s InputSchema>,
    pub(crate) derive: &'s Derive,
    pub(crate) sources: &'s BTreeMap<String, Option<SourceSettings>>,
    /// What relative paths are relative to: the directory of the file.
    pub(crate) base: &'s Path,
}

impl<'s> Scope<'s, '_> {
    /// The source named by `node`; none either when the source itself has a fault, which is reported there.
    pub(crate) fn source(&mut self, node: &Node) -> Option<&'s SourceSettings> {
        let name = self.faults.text(node, "source")?;
        let Some(source) = self.sources.get(name) else {
            let known: Vec<_> = self.sources.keys().map(String::as_str).collect();
            self.faults.add(
                node.at,
                format!("there is no source `{name}`"),
                format!(
                    "use one of `{}`, or add it to `sources`",
                    known.join("`, `")
                ),
            );
            return None;
        };
        source.as_ref()
    }

    /// Adds the fault of a source, named by `node`, that is not what the execution needs.
    pub(crate) fn wrong_source(&mut self, node: &Node, wanted: &str) {
        self.faults.add(
            node.at,
            format!("the source is not {wanted}"),
            format!("name a source that is {wanted}"),
        );
    }

    /// A text with placeholders, each an argument or derived.
    pub(crate) fn template(&mut self, node: &Node, what: &str) -> Option<Template> {
        let text = self.faults.text(node, what)?;
        Some(self.template_of(text, node.at))
    }

    /// The same of a text that stands at `at`.
    pub(crate) fn template_of(&mut self, text: &str, at: Mark) -> Template {
        let template = Template::parse(text, at);
        self.check_places(template.places(), at);
        template
    }

    /// JSON with placeholders, each an argument or derived.
    pub(crate) fn json_template(&mut self, node: &Node) -> JsonTemplate {
        let template = JsonTemplate::read(node);
        self.check_places(template.places().into_iter(), node.at);
        template
    }

    fn check_places<'p>(&mut self, places: impl Iterator<Item = &'p Placeholder>, at: Mark) {
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

    /// Adds the fault of a placeholder, shown as written, that stands for nothing.
    pub(crate) fn unknown_value(&mut self, at: Mark, shown: &str) {
        let arguments = self.input.map(InputSchema::properties).unwrap_or_default();
        let arguments = arguments.iter().map(|property| property.name.as_str());
        let known: Vec<_> = arguments.chain(self.derive.names()).collect();
        self.faults.add(
            at,
            format!("`{shown}` is no property of `input_schema`"),
            format!(
                "use one of `{}`, or add it to `input_schema` or `derive`",
                known.join("`, `")
            ),
        );
    }
}

/// Words that `execute.type` may use in one file, each with the keys it stands for.
pub(super) type Types<'n> = BTreeMap<&'n str, &'n Node>;

/// Reads the `types` of a file.
pub(super) fn read_types<'n>(node: Option<&'n Node>, faults: &mut Faults) -> Types<'n> {
    let entries = node.and_then(|node| faults.map(node, "types"));
    entries
        .unwrap_or_default()
        .iter()
        .map(|(key, node)| (key.name.as_str(), node))
        .collect()
}

/// A tool's `execute`, with what `types` adds to it.
pub(super) struct Execution<'n> {
    at: Mark,
    /// What the type's word stands for, in the file.
    pub(super) word: Option<&'n Node>,
    kind: &'n Node,
    fields: Fields<'n>,
    derive: Option<&'n Node>,
}

/// Whether a tool's key holds what it does.
pub(super) fn is_execute(key: &str) -> bool {
    key == "execute" || key.ends_with("_command")
}

impl<'n> Execution<'n> {
    pub(super) fn of(
        (key, node): (&Key, &'n Node),
        types: &Types<'n>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let fix = "add `type`, for example `type: sql`";
        let mut fields = Fields::of(node, key.name.as_str(), faults)?;
        let kind = fields.required("type", fix, faults)?;
        let word = match &kind.value {
            Yaml::Text(word) => types.get(word.as_str()).copied(),
            _ => None,
        };
        let (fields, kind) = match word {
            None => (fields, kind),
            Some(meaning) => {
                let mut fields = Fields::with_defaults(node, meaning, key.name.as_str(), faults)?;
                fields.optional("type");
                let kind = meaning.get("type");
                if kind.is_none() {
                    faults.add(meaning.at, "the entry of `types` has no `type`", fix);
                }
                (fields, kind?)
            }
        };
        let mut execution = Self {
            at: node.at,
            word,
            kind,
            fields,
            derive: None,
        };
        execution.derive = execution.fields.optional("derive");
        Some(execution)
    }

    pub(super) fn at(&self) -> Mark {
        self.at
    }

    pub(super) fn derive(&self, input: Option<&InputSchema>, faults: &mut Faults) -> Derive {
        match self.derive.zip(input) {
            Some((node, input)) => Derive::read(node, input, faults),
            None => Derive::default(),
        }
    }

    pub(super) fn read(mut self, scope: &mut Scope<'_, '_>) -> Option<Box<dyn Plan>> {
        let word = scope.faults.text(self.kind, "type")?;
        let Some(kind) = KINDS.iter().find(|kind| kind.name == word) else {
            let names: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
            scope.faults.add(
                self.kind.at,
                format!("`{word}` is no type of execution"),
                format!("use one of {}, or add it to `types`", names.join(", ")),
            );
            return None;
        };
        let plan = (kind.read)(&mut self.fields, scope);
        self.fields.finish(scope.faults);
        plan
    }
}
