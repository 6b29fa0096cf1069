//! `execute`: the action of a tool.

use wardgate_arguments::InputSchema;
use wardgate_yaml::{Key, Node, Position, Yaml};

use crate::derive::DerivedArguments;
use crate::fault::{Faults, FieldReader};
use crate::plan::{KINDS, Plan};
use crate::scope::{Scope, Types};

/// The `execute` of a tool, merged with the defaults of its type from `types`.
pub(super) struct Execution<'n> {
    at: Position,
    /// The entry of `types` for the type, if there is one.
    pub(super) word: Option<&'n Node>,
    kind: &'n Node,
    fields: FieldReader<'n>,
    derive: Option<&'n Node>,
}

/// Returns whether a key of a tool is its `execute`.
pub(super) fn is_execute(key: &str) -> bool {
    key == "execute" || key.ends_with("_command")
}

impl<'n> Execution<'n> {
    pub(super) fn from_entry(
        (key, node): (&Key, &'n Node),
        types: &Types<'n>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let fix = "add `type`, for example `type: sql`";
        let mut fields = FieldReader::new(node, key.name.as_str(), faults)?;
        let kind = fields.take_required("type", fix, faults)?;
        let word = match &kind.value {
            Yaml::Text(word) => types.get(word.as_str()).copied(),
            _ => None,
        };
        let (fields, kind) = match word {
            None => (fields, kind),
            Some(meaning) => {
                let mut fields =
                    FieldReader::with_defaults(node, meaning, key.name.as_str(), faults)?;
                fields.take_optional("type");
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
        execution.derive = execution.fields.take_optional("derive");
        Some(execution)
    }

    pub(super) fn at(&self) -> Position {
        self.at
    }

    pub(super) fn derive(
        &self,
        input: Option<&InputSchema>,
        faults: &mut Faults,
    ) -> DerivedArguments {
        match self.derive.zip(input) {
            Some((node, input)) => DerivedArguments::from_node(node, input, faults),
            None => DerivedArguments::default(),
        }
    }

    pub(super) fn read_plan(mut self, scope: &mut Scope<'_, '_>) -> Option<Plan> {
        let word = scope.faults.text(self.kind, "type")?;
        let Some((_, read)) = KINDS.into_iter().find(|(name, _)| *name == word) else {
            let names = KINDS.map(|(name, _)| name);
            scope.faults.add(
                self.kind.at,
                format!("`{word}` is not a type of execution"),
                format!("use one of {}, or add it to `types`", names.join(", ")),
            );
            return None;
        };
        let plan = read(&mut self.fields, scope);
        self.fields.finish(scope.faults);
        plan
    }
}
