//! `derive`: additional placeholders of a tool, computed from its arguments or from the caller's token.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use wardgate_arguments::{InputSchema, JsonType, Property};
use wardgate_domain::{AttributeValue, Caller};
use wardgate_yaml::{Node, Yaml};

use crate::fault::{Faults, FieldReader};
use crate::template::{Filter, Template, UnfitValue};

/// Words at the beginning of SQL statements. Inserting a plain value into such a text could change the statement.
const SQL_VERBS: [&str; 6] = ["select", "with", "values", "insert", "update", "delete"];

/// The definition of one derived placeholder.
#[derive(Debug, Clone)]
pub(crate) enum DerivedValue {
    /// A text with placeholders for arguments.
    Text(Template),
    /// One of the allowed values, which the argument selects.
    Choice {
        argument: String,
        allow: Vec<String>,
    },
    /// A claim of the caller's verified token: `subject`, `tenant`, or the name of an attribute.
    CallerClaim(String),
}

/// All derived placeholders of a tool, by name.
#[derive(Debug, Clone, Default)]
pub struct DerivedArguments(BTreeMap<String, DerivedValue>);

impl DerivedArguments {
    pub(super) fn from_node(node: &Node, input: &InputSchema, faults: &mut Faults) -> Self {
        let mut derive = BTreeMap::new();
        for (key, node) in faults.map(node, "derive").unwrap_or_default() {
            if input.property(&key.name).is_some() {
                faults.add(
                    key.at,
                    format!("`{}` is both an argument and a derived name", key.name),
                    "rename the derived one",
                );
            }
            if let Some(derived) = read_one(node, input, faults) {
                derive.insert(key.name.clone(), derived);
            }
        }
        Self(derive)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&DerivedValue> {
        self.0.get(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Adds the derived values to the arguments of a call by `caller`. A derived value replaces an argument with the same
    /// name, so a call cannot set a value that stands for the caller.
    pub fn extend(
        &self,
        caller: &Caller,
        values: &mut Map<String, Value>,
    ) -> Result<(), UnfitValue> {
        for (name, derived) in &self.0 {
            let value = match derived {
                DerivedValue::Text(template) => template.fill_plain(values)?,
                DerivedValue::Choice { argument, allow } => {
                    let chosen = values.get(argument).and_then(Value::as_str);
                    match chosen.filter(|chosen| allow.iter().any(|it| it == chosen)) {
                        Some(chosen) => chosen.to_owned(),
                        None => {
                            return Err(UnfitValue {
                                argument: argument.clone(),
                                problem: "is not one of the allowed values",
                            });
                        }
                    }
                }
                DerivedValue::CallerClaim(claim) => {
                    let unfit = || UnfitValue {
                        argument: claim.clone(),
                        problem: "is not a string claim of the caller's token, and this tool requires it",
                    };
                    caller_claim(caller, claim).ok_or_else(unfit)?.to_owned()
                }
            };
            values.insert(name.clone(), Value::String(value));
        }
        Ok(())
    }
}

/// Returns a claim of the token, or `None` if it is missing, empty or not a string.
fn caller_claim<'c>(caller: &'c Caller, claim: &str) -> Option<&'c str> {
    match (claim, caller.attributes().get(claim)) {
        ("subject", _) => Some(caller.subject()),
        // In many statements an empty tenant would match the rows of all tenants.
        ("tenant", _) => Some(caller.tenant()).filter(|tenant| !tenant.is_empty()),
        (_, Some(AttributeValue::Text(text))) => {
            Some(text.as_str()).filter(|text| !text.is_empty())
        }
        _ => None,
    }
}

fn read_one(node: &Node, input: &InputSchema, faults: &mut Faults) -> Option<DerivedValue> {
    if let Yaml::Map(_) = node.value {
        return read_claim_or_choice(node, input, faults);
    }
    let text = faults.text(node, "derive")?;
    let template = Template::parse(text, node.at);
    let first = text.split_whitespace().next().unwrap_or_default();
    let is_sql = SQL_VERBS.contains(&first.to_ascii_lowercase().as_str());
    for place in template.places() {
        match input.property(&place.name) {
            None => faults.add(
                node.at,
                format!("`{{{}}}` is not a property of `input_schema`", place.name),
                "derived texts may use arguments only; add it there",
            ),
            Some(property) => {
                let is_harmless = place.filter != Filter::Plain
                    || matches!(
                        property.scalar(),
                        Some(JsonType::Integer | JsonType::Number | JsonType::Boolean)
                    );
                if is_sql && !is_harmless {
                    faults.add(
                        node.at,
                        format!("`{{{}}}` could change the meaning of the SQL", place.name),
                        format!(
                            "write {{{0}:identifier}} or {{{0}:sql}}, or bind it",
                            place.name
                        ),
                    );
                }
            }
        }
    }
    Some(DerivedValue::Text(template))
}

fn read_claim_or_choice(
    node: &Node,
    input: &InputSchema,
    faults: &mut Faults,
) -> Option<DerivedValue> {
    let mut fields = FieldReader::new(node, "derive", faults)?;
    if let Some(claim) = fields.take_optional("caller") {
        fields.finish(faults);
        let claim = faults.text(claim, "caller")?;
        return Some(DerivedValue::CallerClaim(claim.to_owned()));
    }
    let argument = fields.take_required(
        "argument",
        "specify the argument that selects the value",
        faults,
    );
    let allow = fields.take_required("allow", "list the allowed values", faults);
    fields.finish(faults);
    let (argument_node, allow) = (argument?, allow?);
    let argument = faults.text(argument_node, "argument")?;
    if input.property(argument).and_then(Property::scalar) != Some(JsonType::String) {
        faults.add(
            argument_node.at,
            format!("`{argument}` is not a property of type string of `input_schema`"),
            "use a property of type string",
        );
    }
    let allowed = faults.texts(allow, "allow");
    if matches!(&allow.value, Yaml::List(items) if items.is_empty()) {
        faults.add(allow.at, "`allow` is empty", "list the allowed values");
    }
    Some(DerivedValue::Choice {
        argument: argument.to_owned(),
        allow: allowed,
    })
}
