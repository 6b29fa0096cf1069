//! Facts about a schema that are needed before it is compiled.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::unusable_schema::UnusableSchema;

/// Maximum number of JSON values in a schema.
const MAX_VALUES: usize = 100_000;

/// Maximum number of distinct targets of references. The compiler follows them recursively.
const MAX_TARGETS: usize = 512;

/// Maximum number of distinct targets in a schema with `unevaluatedProperties` or `unevaluatedItems`, which need far more
/// stack.
const MAX_TARGETS_UNEVALUATED: usize = 48;

/// The references and anchors of a schema.
#[derive(Debug, Default)]
pub(super) struct SchemaOutline {
    /// JSON Pointers to the schemas that `$anchor` and `$dynamicAnchor` name.
    anchors: BTreeMap<String, String>,
    /// The references as they are written.
    references: Vec<String>,
    /// The `$id` of the root.
    id: Option<String>,
    evaluates: bool,
}

impl SchemaOutline {
    pub(super) fn from_schema(schema: &Value) -> Result<Self, UnusableSchema> {
        let mut outline = Self {
            id: schema.get("$id").and_then(Value::as_str).map(str::to_owned),
            ..Self::default()
        };
        let mut inner_id = None;
        let mut values = 0;
        let mut ahead = vec![(schema, String::new())];
        while let Some((value, path)) = ahead.pop() {
            values += 1;
            if values > MAX_VALUES {
                return Err(invalid(path, "the schema is too large"));
            }
            match value {
                Value::Array(items) => ahead.extend(
                    items
                        .iter()
                        .enumerate()
                        .map(|(index, item)| (item, format!("{path}/{index}"))),
                ),
                Value::Object(members) => {
                    for (name, member) in members {
                        match (name.as_str(), member) {
                            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(to)) => {
                                outline.references.push(to.clone());
                            }
                            ("$anchor" | "$dynamicAnchor", Value::String(anchor)) => {
                                outline.anchors.insert(anchor.clone(), path.clone());
                            }
                            ("$id", Value::String(_)) if !path.is_empty() => {
                                inner_id = Some(path.clone());
                            }
                            ("unevaluatedProperties" | "unevaluatedItems", _) => {
                                outline.evaluates = true;
                            }
                            _ => {}
                        }
                        let name = name.replace('~', "~0").replace('/', "~1");
                        ahead.push((member, format!("{path}/{name}")));
                    }
                }
                _ => {}
            }
        }
        outline.references.sort_unstable();
        outline.references.dedup();
        let most = if outline.evaluates {
            MAX_TARGETS_UNEVALUATED
        } else {
            MAX_TARGETS
        };
        if outline.references.len() > most {
            let problem = format!("the schema refers to more than {most} places in itself");
            return Err(invalid(String::new(), &problem));
        }
        match inner_id {
            Some(path) if outline.is_winding() => Err(invalid(
                path,
                "`$id` inside a schema that also refers to parts of itself is not supported",
            )),
            _ => Ok(outline),
        }
    }

    /// Returns whether checking a value can take more steps than the schema and the value have parts.
    pub(super) fn is_winding(&self) -> bool {
        self.evaluates || !self.references.is_empty()
    }

    /// Returns the schema that a reference refers to.
    pub(super) fn follow<'s>(&self, reference: &str, schema: &'s Value) -> Option<&'s Value> {
        let own = self.id.as_deref().map(|id| id.trim_end_matches('#'));
        let reference = own
            .and_then(|id| reference.strip_prefix(id))
            .unwrap_or(reference);
        let fragment = match reference {
            "" => "",
            _ => reference.strip_prefix('#')?,
        };
        let fragment = percent_decoded(fragment)?;
        match self.anchors.get(&fragment) {
            Some(path) => schema.pointer(path),
            None => schema.pointer(&fragment),
        }
    }
}

fn invalid(path: String, problem: &str) -> UnusableSchema {
    UnusableSchema::Invalid {
        path,
        problem: problem.to_owned(),
    }
}

/// Decodes the percent-encoding of a reference's fragment (RFC 3986, section 2.1).
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after;
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}
