//! Resolves references of a schema to parts of itself.

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::UnsupportedSchema;

pub(super) struct SchemaReferences<'s> {
    root: &'s Value,
    /// The targets that are currently being converted, outermost first.
    inside: Vec<&'s Value>,
}

impl<'s> SchemaReferences<'s> {
    pub(super) fn new(root: &'s Value) -> Self {
        Self {
            root,
            inside: Vec::new(),
        }
    }

    /// Returns the target of a reference. Remote references are an error; nothing is ever fetched.
    pub(super) fn follow(&self, reference: &str) -> Result<&'s Value, UnsupportedSchema> {
        let fragment = reference
            .strip_prefix('#')
            .ok_or(UnsupportedSchema::Remote)?;
        let pointer = percent_decode_str(fragment).decode_utf8();
        let pointer = pointer.map_err(|_| UnsupportedSchema::Remote)?;
        self.root.pointer(&pointer).ok_or(UnsupportedSchema::Remote)
    }

    /// Starts the conversion of `target`. Returns `false` if it is already being converted.
    pub(super) fn enter(&mut self, target: &'s Value) -> bool {
        let is_new = !self.inside.iter().any(|it| std::ptr::eq(*it, target));
        if is_new {
            self.inside.push(target);
        }
        is_new
    }

    pub(super) fn leave(&mut self) {
        self.inside.pop();
    }
}
