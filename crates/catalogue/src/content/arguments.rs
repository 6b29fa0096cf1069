//! Typed arguments of a prompt or of a URI template. MCP transfers each of them as a string.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use wardgate_arguments::{
    Arguments as Checked, InputSchema, InvalidArguments, JsonType, UnusableSchema, default_fits,
};
use wardgate_domain::UriTemplate;
use wardgate_yaml::{Node, Yaml};

use crate::fault::Faults;
use crate::template::{Filter, Template};

/// The arguments that a prompt or a URI template accepts.
#[derive(Debug)]
pub(crate) struct Arguments {
    schema: InputSchema,
    declared: Vec<DeclaredArgument>,
}

/// One argument, as clients see it.
#[derive(Debug)]
struct DeclaredArgument {
    name: String,
    title: Option<String>,
    description: Option<String>,
    required: bool,
    /// The values that completion offers: those of an enumeration or a boolean, and otherwise none.
    choices: Vec<String>,
}

impl Arguments {
    /// Reads the map of arguments. Without a map there are no arguments.
    pub(super) fn from_node(node: Option<&Node>, faults: &mut Faults) -> Option<Self> {
        Self::with_texts(node, Vec::new(), faults)
    }

    /// Reads the arguments of a URI template. A variable that `node` does not describe is a string.
    pub(super) fn of_variables(
        template: &UriTemplate,
        node: Option<&Node>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let entries = node.and_then(|node| faults.map(node, "arguments"));
        let entries = entries.unwrap_or_default();
        for (key, _) in entries {
            if !template.variables().any(|name| name == key.name) {
                faults.add(
                    key.at,
                    format!("`{}` is not a variable of `uri_template`", key.name),
                    format!("add {{{}}} to the template, or remove it", key.name),
                );
            }
        }
        let is_described = |name: &str| entries.iter().any(|(key, _)| key.name == name);
        let others = template.variables().filter(|name| !is_described(name));
        Self::with_texts(node, others.collect(), faults)
    }

    /// Reads the arguments that `node` describes and adds `texts` as strings.
    fn with_texts(node: Option<&Node>, texts: Vec<&str>, faults: &mut Faults) -> Option<Self> {
        let before = faults.count();
        let (mut properties, mut required) = (Map::new(), Vec::new());
        let mut declared = Vec::new();
        for name in texts {
            properties.insert(name.to_owned(), json!({ "type": "string" }));
            declared.push(DeclaredArgument::text(name));
        }
        let entries = node.and_then(|node| faults.map(node, "arguments"));
        for (key, node) in entries.unwrap_or_default() {
            let Some((one, schema)) = read_one(&key.name, node, faults) else {
                continue;
            };
            if one.required {
                required.push(key.name.clone());
            }
            properties.insert(key.name.clone(), schema);
            declared.push(one);
        }
        let schema = json!({ "type": "object", "properties": properties, "required": required });
        let schema = InputSchema::compile_closed(&schema)
            .map_err(|unusable| {
                // Any other fault is in a property and has a path.
                if let (Some(node), UnusableSchema::Invalid { path, problem }) = (node, unusable) {
                    let path = path.strip_prefix("/properties").unwrap_or(&path);
                    faults.add(
                        node.follow(path).at,
                        format!("the schema of an argument is not a valid JSON Schema: {problem}"),
                        "fix it according to JSON Schema 2020-12",
                    );
                }
            })
            .ok()?;
        if let Some(node) = node {
            check_types(node, &schema, faults);
        }
        (faults.count() == before).then_some(Self { schema, declared })
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.declared.iter().map(|one| one.name.as_str())
    }

    /// Returns the arguments of a prompt as MCP lists them.
    pub(super) fn to_prompt_arguments(&self) -> Vec<Value> {
        let listed = |one: &DeclaredArgument| {
            let mut listed = json!({ "name": one.name, "required": one.required });
            for (member, text) in [("title", &one.title), ("description", &one.description)] {
                if let Some(text) = text {
                    listed[member] = text.as_str().into();
                }
            }
            listed
        };
        self.declared.iter().map(listed).collect()
    }

    /// Checks `raw`, which is one JSON object, and returns its values with defaults filled in.
    pub(super) fn check(&self, raw: &[u8]) -> Result<Map<String, Value>, InvalidArguments> {
        Checked::parse(&self.schema, raw).map(Checked::into_values)
    }

    /// Checks arguments that are given as strings, and returns their values with defaults filled in.
    pub(super) fn check_texts(
        &self,
        texts: &BTreeMap<String, String>,
    ) -> Result<Map<String, Value>, InvalidArguments> {
        self.check(json!(texts).to_string().as_bytes())
    }

    /// Returns the values of `argument` that begin with `begun`, or `None` if there is no such argument.
    pub(super) fn complete(&self, argument: &str, begun: &str) -> Option<Vec<String>> {
        let mut declared = self.declared.iter();
        let argument = declared.find(|one| one.name == argument)?;
        let begun = begun.to_lowercase();
        let fits = |choice: &&String| choice.to_lowercase().starts_with(&begun);
        Some(argument.choices.iter().filter(fits).cloned().collect())
    }

    /// Reads a template whose placeholders must be names of these arguments.
    pub(super) fn template(
        &self,
        node: &Node,
        what: &str,
        faults: &mut Faults,
    ) -> Option<Template> {
        let template = Template::parse(faults.text(node, what)?, node.at);
        for place in template.places() {
            if self.schema.property(&place.name).is_none() {
                let known: Vec<_> = self.names().collect();
                faults.add(
                    node.at,
                    format!("`{{{}}}` is not an argument", place.name),
                    match known.as_slice() {
                        [] => "add it to `arguments`, or write {{ and }} for braces".to_owned(),
                        known => format!(
                            "use one of `{}`, or add it to `arguments`",
                            known.join("`, `")
                        ),
                    },
                );
            } else if place.filter != Filter::Plain {
                faults.add(
                    node.at,
                    format!(
                        "`{{{}:…}}` has a filter, which is not supported in plain text",
                        place.name
                    ),
                    format!("write `{{{}}}`", place.name),
                );
            }
        }
        Some(template)
    }
}

impl DeclaredArgument {
    fn text(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            title: None,
            description: None,
            required: true,
            choices: Vec::new(),
        }
    }
}

fn read_one(name: &str, node: &Node, faults: &mut Faults) -> Option<(DeclaredArgument, Value)> {
    let entries = faults.map(node, name)?;
    let mut schema: Map<String, Value> = entries
        .iter()
        .map(|(key, node)| (key.name.clone(), node.to_value()))
        .collect();
    let is_required = match schema.remove("required") {
        None => Some(false),
        Some(Value::Bool(required)) => Some(required),
        Some(_) => {
            let required = node.get("required").unwrap_or(node);
            faults.boolean(required, "required")
        }
    };
    schema.entry("type").or_insert_with(|| "string".into());
    let text = |member: &str, faults: &mut Faults| match node.get(member) {
        Some(node) => faults.text(node, member).map(str::to_owned),
        None => None,
    };
    let (title, description) = (text("title", faults), text("description", faults));
    if let Some(default) = node.get("default") {
        if is_required == Some(true) {
            faults.add(
                default.at,
                format!("`{name}` is required and has a default"),
                "remove one of them",
            );
        }
        if !default_fits(&Value::Object(schema.clone()), &default.to_value()) {
            faults.add(
                default.at,
                format!("the default of `{name}` does not match its own schema"),
                "change the default or the schema",
            );
        }
    }
    let choices = match (node.get("enum").map(|it| &it.value), &schema["type"]) {
        (Some(Yaml::List(values)), _) => values.iter().map(as_text).collect(),
        (None, Value::String(kind)) if kind == "boolean" => {
            vec!["true".to_owned(), "false".to_owned()]
        }
        _ => Vec::new(),
    };
    let declared = DeclaredArgument {
        name: name.to_owned(),
        title,
        description,
        required: is_required?,
        choices,
    };
    Some((declared, Value::Object(schema)))
}

fn as_text(node: &Node) -> String {
    wardgate_arguments::as_seen(&node.to_value())
}

/// Checks that every property is a string, a number or a boolean, because only these can be transferred as strings.
fn check_types(node: &Node, schema: &InputSchema, faults: &mut Faults) {
    for property in schema.properties() {
        let is_plain = property.scalar().is_some_and(|kind| kind != JsonType::Null);
        if !is_plain {
            let at = node.get(&property.name).unwrap_or(node).at;
            faults.add(
                at,
                format!("`{}` does not have a single plain type", property.name),
                "write `type: string`, integer, number or boolean: arguments are sent as strings",
            );
        }
    }
}
