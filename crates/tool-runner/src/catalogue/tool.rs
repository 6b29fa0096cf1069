//! One tool of a `tools.yaml`.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use cedar_policy::EntityTypeName;
use serde_json::Value;
use wardgate_domain::{ColumnClass, Digest, ToolFacts, ToolName};

use super::fault::{Faults, Fields};
use super::schema::{self, InputSchema};
use super::source::SourceSettings;
use super::statement::{BadStatement, Dialect, Statement, check_expression};
use super::template::Template;
use super::yaml::{KeyOrder, Mark, Node, Yaml};
use crate::arguments::as_seen;

/// Longest time one call may take. The audit service must wait longer than this before it calls a call lost.
const MAX_TIME_LIMIT: Duration = Duration::from_secs(300);

/// Clients cut or refuse longer names.
const MAX_NAME: usize = 64;

/// A configured tool.
#[derive(Debug)]
pub struct Tool {
    pub(super) facts: ToolFacts,
    pub(super) aliases: Vec<ToolName>,
    definition_json: Bytes,
    time_limit: Option<Duration>,
    source: String,
    statement: Statement,
    input: InputSchema,
    result: ResultShape,
}

/// How result rows are governed and shown.
#[derive(Debug, Default)]
pub(crate) struct ResultShape {
    /// Set when rows are governed as entities.
    pub(crate) entity: Option<RowEntity>,
    pub(crate) classes: BTreeMap<String, ColumnClass>,
    /// Columns for the policy only.
    pub(crate) internal: BTreeSet<String>,
    pub(crate) max_rows: Option<usize>,
    /// What a result without rows answers; without one it is an empty list.
    pub(crate) empty_error: Option<Template>,
}

/// What the policy knows a row as.
#[derive(Debug)]
pub(crate) struct RowEntity {
    pub(crate) type_name: EntityTypeName,
    /// The column that identifies a row.
    pub(crate) key: String,
    /// SQL expressions of the attributes that a row rule can be pushed down to.
    pub(crate) pushdown: BTreeMap<String, String>,
}

impl Tool {
    /// What the policy needs to know of it.
    pub fn facts(&self) -> &ToolFacts {
        &self.facts
    }

    /// Other names it answers to.
    pub fn aliases(&self) -> &[ToolName] {
        &self.aliases
    }

    /// The MCP tool definition without `name`: one JSON object, its keys as the author ordered them.
    pub fn definition_json(&self) -> &Bytes {
        &self.definition_json
    }

    /// How long one call may take, where the tool itself says so.
    pub fn time_limit(&self) -> Option<Duration> {
        self.time_limit
    }

    /// Name of the source it reads from or writes to.
    pub fn source(&self) -> &str {
        &self.source
    }

    pub(crate) fn statement(&self) -> &Statement {
        &self.statement
    }

    pub(crate) fn input(&self) -> &InputSchema {
        &self.input
    }

    pub(crate) fn result(&self) -> &ResultShape {
        &self.result
    }

    pub(super) fn read(
        node: &Node,
        sources: &BTreeMap<String, Option<SourceSettings>>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let mut fields = Fields::of(node, what(node), faults)?;
        let name = fields
            .required("name", "add a `name`", faults)
            .and_then(|node| name(node, faults));
        let aliases = fields
            .optional("aliases")
            .map(|node| aliases(node, faults))
            .unwrap_or_default();
        let title = fields.optional("title");
        let description = fields.required(
            "description",
            "add a `description`: it is what a model chooses the tool by",
            faults,
        );
        let texts: [Option<&str>; 2] = [
            title.and_then(|node| faults.text(node, "title")),
            description.and_then(|node| faults.text(node, "description")),
        ];
        let tags = fields
            .optional("tags")
            .map(|node| texts_of(node, "tags", faults))
            .unwrap_or_default();
        let annotations = fields.optional("annotations");
        let read_only = annotations.is_some_and(|node| check_annotations(node, faults));
        let input_node = fields.required(
            "input_schema",
            "add `input_schema: { type: object, properties: {} }`",
            faults,
        );
        let input = input_node.and_then(|node| InputSchema::read(node, faults));
        let output = fields.optional("output_schema");
        if let Some(output) = output {
            schema::compile(output, "output_schema", faults);
        }
        let time_limit = fields.optional("time_limit").and_then(|node| {
            let limit = faults.duration(node, "time_limit")?;
            if limit > MAX_TIME_LIMIT {
                faults.add(
                    node.at,
                    "`time_limit` is longer than 5 minutes".to_owned(),
                    "choose a shorter one: the record gives a call up some time after that"
                        .to_owned(),
                );
            }
            Some(limit)
        });
        let result_node = fields.optional("result");
        let execution = fields
            .required(
                "execute",
                "add an `execute` with type, source and statement",
                faults,
            )
            .and_then(|node| Execution::read(node, sources, faults));
        let result = result_node.map_or_else(
            || Some(ResultShape::default()),
            |node| ResultShape::read(node, execution.as_ref().map(Execution::dialect), faults),
        );
        fields.finish(faults);

        let (execution, input, result) = (execution?, input?, result?);
        check_together(&execution, &input, &result, read_only, faults);
        let classes = result
            .classes
            .iter()
            .filter(|(column, _)| !result.internal.contains(*column))
            .map(|(_, class)| class.clone())
            .chain([ColumnClass::unclassified()])
            .collect::<BTreeSet<_>>();
        Some(Self {
            facts: ToolFacts {
                name: name?,
                definition_digest: definition_digest(node),
                read_only,
                tags,
                entity: result
                    .entity
                    .as_ref()
                    .map(|entity| entity.type_name.to_string()),
                classes: classes.into_iter().collect(),
                argument_defaults: input
                    .properties()
                    .iter()
                    .filter_map(|property| {
                        let default = property.default.as_ref()?;
                        Some((property.name.clone(), as_seen(default)))
                    })
                    .collect(),
            },
            aliases,
            definition_json: definition_json(texts, input_node, output, annotations),
            time_limit,
            source: execution.source,
            statement: execution.statement,
            input,
            result,
        })
    }
}

fn what(node: &Node) -> String {
    match node.get("name").map(|name| &name.value) {
        Some(Yaml::Text(name)) => format!("tool {name}"),
        _ => "tool".to_owned(),
    }
}

fn name(node: &Node, faults: &mut Faults) -> Option<ToolName> {
    let text = faults.text(node, "name")?;
    let name = text
        .parse::<ToolName>()
        .ok()
        .filter(|_| text.len() <= MAX_NAME);
    if name.is_none() {
        faults.add(
            node.at,
            "the name is not one that every client accepts",
            format!("use 1 to {MAX_NAME} characters of A-Z a-z 0-9 _ . -"),
        );
    }
    name
}

fn aliases(node: &Node, faults: &mut Faults) -> Vec<ToolName> {
    let nodes = faults.list(node, "aliases");
    nodes.iter().filter_map(|node| name(node, faults)).collect()
}

fn texts_of(node: &Node, what: &str, faults: &mut Faults) -> Vec<String> {
    let nodes = faults.list(node, what);
    nodes
        .iter()
        .filter_map(|node| faults.text(node, what).map(str::to_owned))
        .collect()
}

/// Checks the hints of MCP 2025-11-25, `ToolAnnotations`; returns whether the tool is read-only.
fn check_annotations(node: &Node, faults: &mut Faults) -> bool {
    let Some(mut fields) = Fields::of(node, "annotations", faults) else {
        return false;
    };
    if let Some(title) = fields.optional("title") {
        faults.text(title, "title");
    }
    let mut hint = |name| {
        let node = fields.optional(name)?;
        faults.boolean(node, name)
    };
    let read_only = hint("readOnlyHint") == Some(true);
    for name in ["destructiveHint", "idempotentHint", "openWorldHint"] {
        hint(name);
    }
    fields.finish(faults);
    read_only
}

struct Execution {
    source: String,
    statement: Statement,
    statement_at: Mark,
}

impl Execution {
    fn read(
        node: &Node,
        sources: &BTreeMap<String, Option<SourceSettings>>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let mut fields = Fields::of(node, "execute", faults)?;
        let kind = fields.required("type", "add `type: sql`", faults);
        if let Some(node) = kind
            && let Some(kind) = faults.text(node, "type")
            && kind != "sql"
        {
            faults.add(
                node.at,
                format!("`{kind}` is no type of execution"),
                "use `type: sql`",
            );
        }
        let source = fields.required("source", "name one of `sources`", faults);
        let statement = fields.required("statement", "add the SQL statement", faults);
        fields.finish(faults);

        let source = source.and_then(|node| source_of(node, sources, faults));
        let sql = statement.and_then(|node| Some((node.at, faults.text(node, "statement")?)));
        let (source, (at, sql)) = (source?, sql?);
        let statement = Statement::parse(source.dialect, sql)
            .map_err(|BadStatement { problem, fix }| faults.add(at, problem, fix))
            .ok()?;
        Some(Self {
            source: source.name.clone(),
            statement,
            statement_at: at,
        })
    }

    fn dialect(&self) -> Dialect {
        self.statement.dialect()
    }
}

/// The source named by `node`; none either when the source itself has a fault, which is reported there.
fn source_of<'s>(
    node: &Node,
    sources: &'s BTreeMap<String, Option<SourceSettings>>,
    faults: &mut Faults,
) -> Option<&'s SourceSettings> {
    let name = faults.text(node, "source")?;
    let Some(source) = sources.get(name) else {
        let known = sources
            .keys()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("`, `");
        faults.add(
            node.at,
            format!("there is no source `{name}`"),
            format!("use one of `{known}`, or add it to `sources`"),
        );
        return None;
    };
    source.as_ref()
}

impl ResultShape {
    /// `dialect` is that of the source, if the tool has a usable one. A shape with faults is none, so that
    /// nothing else is held against it.
    fn read(node: &Node, dialect: Option<Dialect>, faults: &mut Faults) -> Option<Self> {
        let faults_before = faults.count();
        let mut fields = Fields::of(node, "result", faults)?;
        let entity = fields.optional("entity");
        let key = fields.optional("key");
        let row_rule = fields.optional("row_rule");
        let internal = fields.optional("internal");
        let max_rows = fields
            .optional("max_rows")
            .and_then(|node| faults.positive(node, "max_rows"));
        let classes = fields
            .optional("classes")
            .map(|node| read_classes(node, faults))
            .unwrap_or_default();
        let empty_error = fields
            .optional("empty")
            .and_then(|node| read_empty(node, faults));
        fields.finish(faults);

        for (name, field) in [("key", key), ("row_rule", row_rule), ("internal", internal)] {
            if let (Some(field), None) = (field, entity) {
                faults.add(
                    field.at,
                    format!("`{name}` is given without an `entity`"),
                    "add `entity`, the type the policy knows a row as, or remove it",
                );
            }
        }
        let type_name = entity.and_then(|node| entity_type(node, faults));
        let key = key.and_then(|node| faults.text(node, "key"));
        if let (Some(entity), None) = (entity, key) {
            faults.add(
                entity.at,
                "`entity` is given without a `key`",
                "add `key`, the column that identifies a row",
            );
        }
        let pushdown = row_rule
            .map(|node| read_row_rule(node, dialect, faults))
            .unwrap_or_default();
        let internal = internal
            .map(|node| texts_of(node, "internal", faults).into_iter().collect())
            .unwrap_or_default();
        (faults.count() == faults_before).then(|| Self {
            entity: type_name.zip(key).map(|(type_name, key)| RowEntity {
                type_name,
                key: key.to_owned(),
                pushdown,
            }),
            classes,
            internal,
            max_rows,
            empty_error,
        })
    }
}

fn entity_type(node: &Node, faults: &mut Faults) -> Option<EntityTypeName> {
    let text = faults.text(node, "entity")?;
    let name = EntityTypeName::from_str(text).ok();
    if name.is_none() {
        faults.add(
            node.at,
            format!("`{text}` is no Cedar entity type"),
            "use the type's name in the policy schema, for example MedicalRecord",
        );
    }
    name
}

fn read_classes(node: &Node, faults: &mut Faults) -> BTreeMap<String, ColumnClass> {
    let mut classes = BTreeMap::new();
    for (column, node) in faults.map(node, "classes").unwrap_or_default() {
        let Some(text) = faults.text(node, &column.name) else {
            continue;
        };
        match text.parse() {
            Ok(class) => {
                classes.insert(column.name.clone(), class);
            }
            Err(_) => faults.add(
                node.at,
                format!("`{text}` is no column class"),
                "use a dotted name of A-Z a-z 0-9 _ . -, for example phi.date",
            ),
        }
    }
    classes
}

fn read_row_rule(
    node: &Node,
    dialect: Option<Dialect>,
    faults: &mut Faults,
) -> BTreeMap<String, String> {
    let mut pushdown = BTreeMap::new();
    for (attribute, node) in faults.map(node, "row_rule").unwrap_or_default() {
        let Some((sql, dialect)) = faults.text(node, &attribute.name).zip(dialect) else {
            continue;
        };
        match check_expression(dialect, sql) {
            Ok(()) => {
                pushdown.insert(attribute.name.clone(), sql.to_owned());
            }
            Err(BadStatement { problem, fix }) => faults.add(node.at, problem, fix),
        }
    }
    pushdown
}

fn read_empty(node: &Node, faults: &mut Faults) -> Option<Template> {
    let mut fields = Fields::of(node, "empty", faults)?;
    let error = fields.required(
        "error",
        "add `error`, the text for a result without rows",
        faults,
    );
    fields.finish(faults);
    let node = error?;
    let text = faults.text(node, "error")?;
    Some(Template::parse(text, node.at))
}

/// What can only be checked once all parts are known.
fn check_together(
    execution: &Execution,
    input: &InputSchema,
    result: &ResultShape,
    read_only: bool,
    faults: &mut Faults,
) {
    let statement = &execution.statement;
    let at = execution.statement_at;
    if result.entity.is_some() && !read_only {
        faults.add(
            at,
            "the rows of a tool that may write cannot be governed: the rule would come after the change".to_owned(),
            "set `annotations: { readOnlyHint: true }`, or leave out `result.entity` and govern its arguments"
                .to_owned(),
        );
    }
    let known = || {
        let names: Vec<_> = input
            .properties()
            .iter()
            .map(|property| property.name.as_str())
            .collect();
        format!(
            "use one of `{}`, or add it to `input_schema`",
            names.join("`, `")
        )
    };
    for param in statement.params() {
        match input.property(param) {
            None => faults.add(
                at,
                format!("`:{param}` is no property of `input_schema`"),
                known(),
            ),
            Some(property) if property.scalar().is_none() => faults.add(
                at,
                format!("`:{param}` has no single type that can be bound"),
                "give the property one type of string, integer, number or boolean",
            ),
            Some(_) => {}
        }
    }
    if input.property("row_rule").is_some() {
        faults.add(
            at,
            "`row_rule` is a reserved name of parameters",
            "give the property another name",
        );
    }
    let pushes = result
        .entity
        .as_ref()
        .is_some_and(|entity| !entity.pushdown.is_empty());
    if statement.has_row_rule() != pushes {
        faults.add(
            at,
            "`:row_rule` in the statement and `result.row_rule` need one another",
            "add the missing one or remove the other",
        );
    }
    if let Some(template) = &result.empty_error {
        for name in template.arguments() {
            if input.property(name).is_none() {
                faults.add(
                    template.at(),
                    format!("`{{{name}}}` is no property of `input_schema`"),
                    known(),
                );
            }
        }
    }
}

/// SHA-256 over everything written about the tool except its other names. The source's URL, where secrets
/// are, stands elsewhere.
fn definition_digest(node: &Node) -> Digest {
    let mut parts = Vec::new();
    if let Yaml::Map(entries) = &node.value {
        for (key, value) in entries {
            if key.name != "aliases" {
                parts.push(format!(
                    "{}:{}",
                    Value::from(key.name.as_str()),
                    value.to_json(KeyOrder::Sorted)
                ));
            }
        }
    }
    parts.sort_unstable();
    Digest::of(format!("{{{}}}", parts.join(",")).as_bytes())
}

fn definition_json(
    [title, description]: [Option<&str>; 2],
    input: Option<&Node>,
    output: Option<&Node>,
    annotations: Option<&Node>,
) -> Bytes {
    let text = |text: &str| Value::from(text.trim_end()).to_string();
    let node = |node: &Node| node.to_json(KeyOrder::Author);
    let members = [
        ("title", title.map(text)),
        ("description", description.map(text)),
        ("inputSchema", input.map(node)),
        ("outputSchema", output.map(node)),
        ("annotations", annotations.map(node)),
    ];
    let members: Vec<_> = members
        .into_iter()
        .filter_map(|(name, value)| Some(format!("\"{name}\":{}", value?)))
        .collect();
    format!("{{{}}}", members.join(",")).into()
}
