//! One tool of a `tools.yaml`.

mod imported;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use wardgate_arguments::{Arguments, InputSchema, JsonType, Property};
use wardgate_domain::{Digest, OfferKind, RequiredCapabilities, ToolFacts, ToolName};
use wardgate_redact::ConfiguredForms;
use wardgate_yaml::{KeyOrder, Node, Position, Yaml};

use crate::derive::DerivedArguments;
use crate::execute::{Execution, is_execute};
use crate::fault::{Faults, FieldReader, FilePosition};
use crate::limits::read_limits;
use crate::name::{MAX_NAME, is_name};
use crate::plan::{ApprovedTool, McpTarget, Plan};
use crate::result_shape::{MaxRows, ResultShape, Shape};
use crate::schema;
use crate::scope::{Scope, Types};
use crate::source::SourceSettings;
use crate::statement::Statement;
use crate::subject_key::SubjectKey;
use wardgate_mcp_client::ToolFingerprint;
use wardgate_resilience::LimitSettings;

/// Maximum time limit of a call. The audit service must wait longer than this before it considers a call lost.
const MAX_TIME_LIMIT: Duration = Duration::from_mins(5);

/// The parts of a file that its tools can refer to.
pub(crate) struct ToolFile<'f> {
    /// The directory of the file.
    pub(crate) base: &'f Path,
    pub(crate) types: &'f Types<'f>,
    pub(crate) sources: &'f BTreeMap<String, Option<SourceSettings>>,
    /// The redacted forms of column classes.
    pub(crate) forms: &'f Arc<ConfiguredForms>,
}

/// A configured tool.
#[derive(Debug)]
pub struct Tool {
    pub(super) facts: ToolFacts,
    pub(super) aliases: Vec<ToolName>,
    definition_json: Bytes,
    time_limit: Option<Duration>,
    /// Whether running the tool twice has the same effect as running it once.
    repeatable: bool,
    limits: LimitSettings,
    cache: Option<Duration>,
    input: InputSchema,
    derive: DerivedArguments,
    pub(super) plan: Plan,
    pub(super) result: ResultShape,
    /// The server's name of the tool, or `None` unless an MCP server defines the tool.
    own_name: Option<String>,
    /// The approved definition, or `None` unless an MCP server defines the tool.
    pin: Option<Arc<ToolFingerprint>>,
    /// The capabilities of clients for which an MCP server shows the tool.
    required: RequiredCapabilities,
    /// The positions in the file, or `None` if an MCP server defines the tool.
    pub(super) positions: Option<ToolPositions>,
}

/// Positions at which a tool is configured.
#[derive(Debug)]
pub(super) struct ToolPositions {
    pub(super) name: FilePosition,
    /// The position of the classes of its columns, or where these would be.
    pub(super) classes: FilePosition,
}

impl ToolPositions {
    /// Reads the positions of the tool at `node`. If the tool has no `result`, the position of its classes is that of
    /// `execute`.
    fn from_node(node: &Node, result: Option<&Node>, execute: Position, faults: &Faults) -> Self {
        Self {
            name: faults.position(node.follow("/name").at),
            classes: faults.position(result.map_or(execute, |it| it.follow("/classes").at)),
        }
    }
}

impl Tool {
    /// Returns this tool with other redacted forms for its results.
    pub(crate) fn with_forms(self, forms: &Arc<ConfiguredForms>) -> Self {
        let result = self.result.with_forms(forms);
        Self { result, ..self }
    }

    /// Restricts a tool that calls a tool of an MCP server to the approved definition of the latter. `called` contains the
    /// approved tools of each source whose tools must be approved, by the server's own names. Returns whether the tool can be
    /// offered.
    pub(crate) fn pin_upstream_tool(
        &mut self,
        called: &BTreeMap<String, BTreeMap<String, ApprovedTool>>,
    ) -> bool {
        let Plan::Mcp(plan) = &mut self.plan else {
            return true;
        };
        let McpTarget::Tool {
            name,
            pin,
            required,
            ..
        } = &mut plan.target
        else {
            return true;
        };
        let Some(approved) = called.get(&plan.source.name) else {
            return true;
        };
        let Some(approved) = approved.get(name.as_str()) else {
            return false;
        };
        *pin = Some(Arc::clone(&approved.pin));
        required.clone_from(&approved.required);
        self.required.clone_from(&approved.required);
        true
    }

    /// Returns the facts about the tool that the policy needs.
    pub fn facts(&self) -> &ToolFacts {
        &self.facts
    }

    /// Returns the aliases of the tool.
    pub fn aliases(&self) -> &[ToolName] {
        &self.aliases
    }

    /// Returns the MCP tool definition without `name`: one JSON object whose keys keep the configured order.
    pub fn definition_json(&self) -> &Bytes {
        &self.definition_json
    }

    /// Returns the configured time limit of a call.
    pub fn time_limit(&self) -> Option<Duration> {
        self.time_limit
    }

    /// Returns the name of the source that the tool uses, or `None` if it has none.
    pub fn source(&self) -> Option<&str> {
        self.plan.source().map(|source| source.name.as_str())
    }

    /// Returns the MCP server's name of the tool, or `None` if the file defines the tool.
    pub fn own_name(&self) -> Option<&str> {
        self.own_name.as_deref()
    }

    /// Returns the approved definition of a tool that an MCP server defines.
    pub fn pin(&self) -> Option<&Arc<ToolFingerprint>> {
        self.pin.as_ref()
    }

    /// Returns the capabilities that clients must have for the tool to be offered to them.
    pub fn required_capabilities(&self) -> &RequiredCapabilities {
        &self.required
    }

    /// Returns whether running the tool twice has the same effect as running it once.
    pub fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    /// Returns whether a result that is too large for a response is kept. This applies to lists of rows whose number is not
    /// configured.
    pub fn keeps_large_results(&self) -> bool {
        self.facts.read_only
            && self.result.shape == Shape::Rows
            && self.result.max_rows.is_none()
            && !self.plan.reads_kept_results()
    }

    /// Returns the limits of rate and concurrency.
    pub fn limits(&self) -> LimitSettings {
        self.limits
    }

    /// Returns how long results may be cached.
    pub fn cache(&self) -> Option<Duration> {
        self.cache
    }

    /// Returns the plan of the tool.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the input schema.
    pub fn input(&self) -> &InputSchema {
        &self.input
    }

    /// Returns the derived values.
    pub fn derive(&self) -> &DerivedArguments {
        &self.derive
    }

    /// Returns the shape of the results.
    pub fn result(&self) -> &ResultShape {
        &self.result
    }

    pub(super) fn from_node(node: &Node, file: &ToolFile<'_>, faults: &mut Faults) -> Option<Self> {
        let mut fields = FieldReader::new(node, what(node), faults)?;
        let name = fields
            .take_required("name", "add a `name`", faults)
            .and_then(|node| name(node, faults));
        let aliases = fields
            .take_optional("aliases")
            .map(|node| aliases(node, faults))
            .unwrap_or_default();
        let title = fields.take_optional("title");
        let description = fields.take_optional("description");
        let texts: [Option<&str>; 2] = [
            title.and_then(|node| faults.text(node, "title")),
            description.and_then(|node| faults.text(node, "description")),
        ];
        let tags = fields
            .take_optional("tags")
            .map(|node| faults.tags(node))
            .unwrap_or_default();
        let annotations = fields.take_optional("annotations");
        let hints = annotations.map(|node| Hints::from_node(node, faults));
        let hints = hints.unwrap_or_default();
        let input_node = fields.take_required(
            "input_schema",
            "add `input_schema: { type: object, properties: {} }`",
            faults,
        );
        let input = input_node.and_then(|node| schema::read_input_schema(node, faults));
        let output = fields.take_optional("output_schema");
        if let Some(output) = output {
            schema::compile(output, "output_schema", faults);
        }
        let examples = fields.take_optional("examples");
        if let Some((examples, input)) = examples.zip(input.as_ref()) {
            check_examples(examples, input, faults);
        }
        let time_limit = fields
            .take_optional("time_limit")
            .and_then(|node| time_limit(node, faults));
        let limits = fields
            .take_optional("limits")
            .and_then(|node| read_limits(node, faults));
        let cache = fields
            .take_optional("cache")
            .and_then(|node| cache(node, hints.read_only, faults));
        let result_node = fields.take_optional("result");
        let execute = fields.take_entry("execute", is_execute);
        fields.finish(faults);
        let execute = execute.or_else(|| miss_execute(node, faults))?;
        let execution = Execution::from_entry(execute, file.types, faults)?;
        let (at, word) = (execution.at(), execution.word);
        let derive = execution.derive(input.as_ref(), faults);
        let plan = execution.read_plan(&mut Scope {
            faults,
            input: input.as_ref(),
            derive: &derive,
            sources: file.sources,
            base: file.base,
        });
        let dialect = plan
            .as_ref()
            .and_then(|plan| Some(plan.statement()?.dialect()));
        let shape = plan.as_ref().map_or(Shape::Rows, Plan::shape);
        let result = match result_node {
            Some(node) => ResultShape::from_node(node, shape, dialect, faults),
            None => Some(ResultShape::plain(shape)),
        };
        let (plan, input, result) = (plan?, input?, result?.with_forms(file.forms));
        check_together(at, &plan, &input, &result, &hints, faults);
        let positions = ToolPositions::from_node(node, result_node, at, faults);
        Some(Self {
            facts: ToolFacts {
                kind: OfferKind::Tool,
                name: name?,
                definition_digest: definition_digest(node, word),
                read_only: hints.read_only,
                tags: tags.into(),
                entity: result
                    .entity
                    .as_ref()
                    .map(|entity| entity.type_name.to_string()),
                classes: result.released_classes(),
                argument_defaults: schema::argument_defaults(&input),
            },
            aliases,
            definition_json: definition_json(texts, input_node?, examples, output, annotations),
            time_limit,
            repeatable: hints.read_only || hints.idempotent,
            limits: limits.unwrap_or_default(),
            cache,
            input,
            derive,
            plan,
            result,
            own_name: None,
            pin: None,
            required: RequiredCapabilities::default(),
            positions: Some(positions),
        })
    }
}

fn miss_execute<T>(node: &Node, faults: &mut Faults) -> Option<T> {
    faults.add(
        node.at,
        format!("`{}` has no `execute`", what(node)),
        "add an `execute` with a `type`",
    );
    None
}

fn what(node: &Node) -> String {
    match node.get("name").map(|name| &name.value) {
        Some(Yaml::Text(name)) => format!("tool {name}"),
        _ => "tool".to_owned(),
    }
}

fn name(node: &Node, faults: &mut Faults) -> Option<ToolName> {
    let text = faults.text(node, "name")?;
    let name = text.parse::<ToolName>().ok().filter(|_| is_name(text));
    if name.is_none() {
        faults.add(
            node.at,
            "the name is not accepted by every client",
            format!("use 1 to {MAX_NAME} characters of A-Z a-z 0-9 _ . -"),
        );
    }
    name
}

fn aliases(node: &Node, faults: &mut Faults) -> Vec<ToolName> {
    let nodes = faults.list(node, "aliases");
    nodes.iter().filter_map(|node| name(node, faults)).collect()
}

/// The hints of `ToolAnnotations` (MCP 2025-11-25) that are used here.
#[derive(Default)]
struct Hints {
    read_only: bool,
    idempotent: bool,
}

impl Hints {
    fn from_node(node: &Node, faults: &mut Faults) -> Self {
        let Some(mut fields) = FieldReader::new(node, "annotations", faults) else {
            return Self::default();
        };
        if let Some(title) = fields.take_optional("title") {
            faults.text(title, "title");
        }
        let mut hint = |name| {
            let node = fields.take_optional(name)?;
            faults.boolean(node, name)
        };
        let hints = Self {
            read_only: hint("readOnlyHint") == Some(true),
            idempotent: hint("idempotentHint") == Some(true),
        };
        for name in ["destructiveHint", "openWorldHint"] {
            hint(name);
        }
        fields.finish(faults);
        hints
    }
}

fn time_limit(node: &Node, faults: &mut Faults) -> Option<Duration> {
    let limit = faults.duration(node, "time_limit")?;
    if limit > MAX_TIME_LIMIT {
        faults.add(
            node.at,
            "`time_limit` is longer than 5 minutes",
            "choose a shorter one: audit closes calls without an outcome shortly after this time",
        );
    }
    Some(limit)
}

/// Reads how long results may be cached, which requires a tool that changes nothing.
fn cache(node: &Node, read_only: bool, faults: &mut Faults) -> Option<Duration> {
    if !read_only {
        faults.add(
            node.at,
            "the results of a tool that may write cannot be cached: the tool would not run",
            "set `annotations: { readOnlyHint: true }`, or remove `cache`",
        );
    }
    faults.duration(node, "cache")
}

/// Checks that every example is a call that the schema accepts.
fn check_examples(node: &Node, input: &InputSchema, faults: &mut Faults) {
    for example in faults.list(node, "examples") {
        let Some(mut fields) = FieldReader::new(example, "examples", faults) else {
            continue;
        };
        let arguments = fields.take_required("arguments", "add the arguments of the call", faults);
        if let Some(description) = fields.take_optional("description") {
            faults.text(description, "description");
        }
        fields.finish(faults);
        let Some(arguments) = arguments else {
            continue;
        };
        let raw = arguments.to_json(KeyOrder::Author);
        if let Err(invalid) = Arguments::parse(input, raw.as_bytes()) {
            faults.add(
                arguments.at,
                format!("the example does not match `input_schema`: {invalid}"),
                "change the example or the schema",
            );
        }
    }
}

/// Performs the checks that need all parts of a tool.
fn check_together(
    at: Position,
    plan: &Plan,
    input: &InputSchema,
    result: &ResultShape,
    hints: &Hints,
    faults: &mut Faults,
) {
    if result.entity.is_some() && !hints.read_only {
        faults.add(
            at,
            "the rows of a tool that may write cannot be governed: the rule would be applied after the change",
            "set `annotations: { readOnlyHint: true }`, or omit `result.entity` and govern its arguments",
        );
    }
    if input.property("row_rule").is_some() {
        faults.add(
            at,
            "`row_rule` is a reserved parameter name",
            "give the property another name",
        );
    }
    let pushes = result
        .entity
        .as_ref()
        .is_some_and(|entity| !entity.pushdown.is_empty());
    let has_place = plan.statement().is_some_and(Statement::has_row_rule);
    if has_place != pushes {
        faults.add(
            at,
            "`:row_rule` in the statement and `result.row_rule` require each other",
            "add the missing one or remove the other",
        );
    }
    let restricts = plan.statement().is_some_and(Statement::restricts_every_row);
    if result.requires_pushdown() && !restricts {
        faults.add(
            at,
            "`require_pushdown` requires a statement whose rows `:row_rule` restricts",
            "write `:row_rule` as a condition of the WHERE clause of the query that reads the governed rows, or remove `require_pushdown`",
        );
    } else if result.entity.is_some() && plan.combines_rows() && !restricts {
        faults.warn(
            at,
            "the statement combines rows before the row rule can be applied, so the tool is refused to callers with a row rule",
            "write `:row_rule` as a condition of the WHERE clause of the query that reads the governed rows",
        );
    }
    if let Some(MaxRows::Argument { name, at }) = &result.max_rows
        && input.property(name).and_then(Property::scalar) != Some(JsonType::Integer)
    {
        faults.add(
            *at,
            format!("`{name}` is not a property of type integer of `input_schema`"),
            "use a property of type integer, or write a number",
        );
    }
    for key in &result.subjects {
        if let SubjectKey::Argument { name, at } = key
            && input.property(name).is_none()
        {
            faults.add(
                *at,
                format!("`{name}` is not a property of `input_schema`"),
                "use the argument that contains the key of the data subject",
            );
        }
    }
    if let Some(template) = &result.empty_error {
        for place in template.places() {
            if input.property(&place.name).is_none() {
                let names = input.properties().iter().map(|it| it.name.as_str());
                let names: Vec<_> = names.collect();
                faults.add(
                    template.at(),
                    format!("`{{{}}}` is not a property of `input_schema`", place.name),
                    format!(
                        "use one of `{}`, or add it to `input_schema`",
                        names.join("`, `")
                    ),
                );
            }
        }
    }
}

/// Returns the SHA-256 of everything in the tool's entry except its aliases. The URL of the source, which may contain
/// secrets, is not part of the entry. `word` is the file's definition of the tool's `execute.type`.
fn definition_digest(node: &Node, word: Option<&Node>) -> Digest {
    let mut parts = Vec::new();
    if let Some(word) = word {
        parts.push(format!("types:{}", word.to_json(KeyOrder::Sorted)));
    }
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
    Digest::compute(format!("{{{}}}", parts.join(",")).as_bytes())
}

fn definition_json(
    [title, description]: [Option<&str>; 2],
    input: &Node,
    examples: Option<&Node>,
    output: Option<&Node>,
    annotations: Option<&Node>,
) -> Bytes {
    let text = |text: &str| Value::from(text.trim_end()).to_string();
    let node = |node: &Node| node.to_json(KeyOrder::Author);
    let members = [
        ("title", title.map(text)),
        ("description", description.map(text)),
        ("inputSchema", Some(schema::definition(input, examples))),
        ("outputSchema", output.map(node)),
        ("annotations", annotations.map(node)),
    ];
    let members: Vec<_> = members
        .into_iter()
        .filter_map(|(name, value)| Some(format!("\"{name}\":{}", value?)))
        .collect();
    format!("{{{}}}", members.join(",")).into()
}
