//! `result`: how the rows of a result are found, governed and shown.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use cedar_policy::EntityTypeName;
use serde_json::{Map, Value};
use wardgate_domain::{ColumnClass, ColumnTier, DataSubjects, ResultColumn};
use wardgate_redact::{ConfiguredForms, Redacted, Row};
use wardgate_yaml::{Node, Position, Yaml};

use crate::fault::{Faults, FieldReader};
use crate::selector::Selector;
use crate::statement::{BadStatement, SqlDialect, check_expression};
use crate::subject_key::{self, SubjectKey};
use crate::template::Template;

/// The column of a row that is not a JSON object.
pub const VALUE: &str = "value";

/// How result rows are found, governed and shown.
#[derive(Debug)]
pub struct ResultShape {
    /// The location of the rows in a document, or `None` if the document itself is the rows.
    pub rows: Option<Selector>,
    /// The location of each column in a row. Without any, the columns are the members of the row.
    columns: Vec<(Arc<str>, Selector)>,
    /// The location of an error message. A document that has a value there is a failure.
    pub error: Option<Selector>,
    /// The shape of a result.
    pub shape: Shape,
    /// The template that formats each row, for [`Shape::Text`].
    pub text: Option<Template>,
    /// The separator between the rows of a text.
    pub separator: String,
    /// The entity type of the rows, if they are governed as entities.
    pub entity: Option<RowEntity>,
    /// The classes of columns, by column.
    pub classes: BTreeMap<String, ColumnClass>,
    /// The redacted forms of the classes.
    forms: Arc<ConfiguredForms>,
    /// The class of all other columns.
    unclassified: ColumnClass,
    /// Columns that only the policy sees.
    pub internal: BTreeSet<String>,
    /// The configured maximum number of rows of a response.
    pub max_rows: Option<MaxRows>,
    /// The error message for a result without rows, or `None` if such a result is an empty list.
    pub empty_error: Option<Template>,
    /// The columns and arguments that identify data subjects.
    pub subjects: Vec<SubjectKey>,
}

/// The maximum number of rows of a result.
#[derive(Debug)]
pub enum MaxRows {
    /// At most this number of rows. Further rows are truncated.
    Fixed(usize),
    /// The number of rows that an argument requests. Such a result is not truncated.
    Argument {
        /// The name of the argument.
        name: String,
        /// The position of the setting in the file.
        at: Position,
    },
}

/// The shape in which released rows are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `{"data":[…]}`, as text and as structured content.
    Rows,
    /// The whole document, indented as text, and under `data` as structured content.
    Value,
    /// The first row as structured content.
    Object,
    /// A text with each row formatted by a template.
    Text,
    /// MCP content as the upstream returned it.
    Content,
}

/// All values of `shape`.
const SHAPES: [(&str, Shape); 5] = [
    ("rows", Shape::Rows),
    ("value", Shape::Value),
    ("object", Shape::Object),
    ("text", Shape::Text),
    ("content", Shape::Content),
];

/// The entity that a row is in policies.
#[derive(Debug)]
pub struct RowEntity {
    /// The entity type of the rows in policies.
    pub type_name: EntityTypeName,
    /// The column that identifies a row.
    pub key: String,
    /// SQL expressions of attributes, by attribute, for pushing down row rules.
    pub pushdown: BTreeMap<String, String>,
    /// Whether the tool runs only if the database applies the whole row rule.
    pub requires_pushdown: bool,
    /// The step to which the time of a call is rounded up, or `None` if it is not.
    pub time_step: Option<Duration>,
}

impl ResultShape {
    /// Returns the class of a column.
    #[must_use]
    pub fn class(&self, column: &str) -> &ColumnClass {
        self.classes.get(column).unwrap_or(&self.unclassified)
    }

    /// The redacted forms of the classes.
    #[must_use]
    pub fn forms(&self) -> &ConfiguredForms {
        &self.forms
    }

    /// Returns whether the tool runs only if the database applies the whole row rule.
    #[must_use]
    pub fn requires_pushdown(&self) -> bool {
        self.entity
            .as_ref()
            .is_some_and(|entity| entity.requires_pushdown)
    }

    /// Returns the step to which the time of a call is rounded up, so that it does not depend on withheld rows.
    #[must_use]
    pub fn time_step(&self) -> Option<Duration> {
        self.entity.as_ref()?.time_step
    }

    /// Returns this shape with other redacted forms.
    pub(crate) fn with_forms(self, forms: &Arc<ConfiguredForms>) -> Self {
        Self {
            forms: Arc::clone(forms),
            ..self
        }
    }

    /// Removes the columns that only the policy sees.
    #[must_use]
    pub fn without_internal(&self, row: Row) -> Row {
        let fields = row.into_fields().into_iter();
        fields
            .filter(|(name, _)| !self.internal.contains(&**name))
            .collect()
    }

    /// Returns the default settings for a shape.
    pub(crate) fn plain(shape: Shape) -> Self {
        Self {
            rows: None,
            columns: Vec::new(),
            error: None,
            shape,
            text: None,
            separator: "\n".to_owned(),
            entity: None,
            classes: BTreeMap::new(),
            forms: Arc::default(),
            unclassified: ColumnClass::unclassified(),
            internal: BTreeSet::new(),
            max_rows: None,
            empty_error: None,
            subjects: Vec::new(),
        }
    }

    /// Reads the `result` of a tool. `dialect` is the dialect of the source if it is an SQL database. Returns `None` if
    /// there are faults, so that no further faults are derived from them.
    pub(super) fn from_node(
        node: &Node,
        default: Shape,
        dialect: Option<SqlDialect>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let faults_before = faults.count();
        let mut fields = FieldReader::new(node, "result", faults)?;
        let rows = fields.take_optional("rows");
        let rows = rows.and_then(|node| Selector::from_node(node, "rows", faults));
        let columns = fields.take_optional("columns");
        let columns = columns.map(|node| read_columns(node, faults));
        let error = fields.take_optional("error");
        let error = error.and_then(|node| Selector::from_node(node, "error", faults));
        let shape_node = fields.take_optional("shape");
        let text = fields.take_optional("text");
        let separator = fields.take_optional("separator");
        let separator = separator.and_then(|node| faults.any_text(node, "separator"));
        let entity = fields.take_optional("entity");
        let key = fields.take_optional("key");
        let row_rule = fields.take_optional("row_rule");
        let require_pushdown = fields.take_optional("require_pushdown");
        let time_step = fields.take_optional("time_step");
        let internal = fields.take_optional("internal");
        let max_rows = fields
            .take_optional("max_rows")
            .and_then(|node| read_max_rows(node, faults));
        let classes = fields
            .take_optional("classes")
            .map(|node| read_classes(node, faults))
            .unwrap_or_default();
        let subjects = fields
            .take_optional("subject")
            .map(|node| subject_key::read_subject_keys(node, faults))
            .unwrap_or_default();
        let empty_error = fields
            .take_optional("empty")
            .and_then(|node| read_empty(node, faults));
        fields.finish(faults);

        if entity.is_none() {
            let fields = [
                ("key", key),
                ("row_rule", row_rule),
                ("require_pushdown", require_pushdown),
                ("time_step", time_step),
                ("internal", internal),
            ];
            refuse_without_entity(fields, faults);
        }
        let type_name = entity.and_then(|node| entity_type(node, faults));
        let key = key.and_then(|node| faults.text(node, "key"));
        if let (Some(entity), None) = (entity, key) {
            faults.add(
                entity.at,
                "`entity` requires a `key`",
                "add `key`, the column that identifies a row",
            );
        }
        let shape = match shape_node {
            Some(node) => read_shape(node, faults),
            None if text.is_some() => Shape::Text,
            None => default,
        };
        if (shape == Shape::Text) != text.is_some() {
            faults.add(
                text.or(shape_node).unwrap_or(node).at,
                "`shape: text` and `text` require each other",
                "add the missing one or remove the other",
            );
        }
        let text = text.and_then(|node| Some(Template::parse(faults.text(node, "text")?, node.at)));
        let pushdown = row_rule
            .map(|node| read_row_rule(node, dialect, faults))
            .unwrap_or_default();
        let requires_pushdown =
            require_pushdown.and_then(|node| faults.boolean(node, "require_pushdown"));
        let time_step = time_step.and_then(|node| faults.duration(node, "time_step"));
        let internal = internal
            .map(|node| faults.texts(node, "internal").into_iter().collect())
            .unwrap_or_default();
        (faults.count() == faults_before).then(|| Self {
            rows,
            columns: columns.unwrap_or_default(),
            error,
            shape,
            text,
            separator: separator.unwrap_or_else(|| "\n".to_owned()),
            entity: type_name.zip(key).map(|(type_name, key)| RowEntity {
                type_name,
                key: key.to_owned(),
                pushdown,
                requires_pushdown: requires_pushdown.unwrap_or_default(),
                time_step,
            }),
            classes,
            forms: Arc::default(),
            unclassified: ColumnClass::unclassified(),
            internal,
            max_rows,
            empty_error,
            subjects,
        })
    }

    /// Returns the data subjects of a call, identified by the columns of `rows` before redaction and by the arguments. All
    /// rows count for a data subject that an argument identifies. Such a data subject is included even without rows,
    /// because an empty result is also an answer about them.
    pub fn data_subjects<'r>(
        &self,
        rows: impl IntoIterator<Item = &'r Row>,
        arguments: &Map<String, Value>,
    ) -> DataSubjects {
        let mut subjects = DataSubjects::default();
        if self.subjects.is_empty() {
            return subjects;
        }
        let mut count = 0;
        for row in rows {
            count += 1;
            let mut seen: Option<&Value> = None;
            for key in &self.subjects {
                if let SubjectKey::Column(name) = key
                    && let Some(value) = row.get(name).filter(|value| seen != Some(*value))
                {
                    subjects.add(value, 1);
                    seen = Some(value);
                }
            }
        }
        let by_column = self.subjects.iter().any(SubjectKey::is_column);
        for key in &self.subjects {
            if let SubjectKey::Argument { name, .. } = key
                && let Some(value) = arguments.get(name)
            {
                // If there are columns that identify data subjects, the rows are already counted.
                subjects.add(value, if by_column { 0 } else { count });
            }
        }
        subjects
    }

    /// Returns the configured columns that occur in released `rows`, each with the tier of its class.
    pub fn outline(
        &self,
        rows: &Redacted<Vec<Row>>,
        tier: impl Fn(&ColumnClass) -> ColumnTier,
    ) -> Vec<ResultColumn> {
        let named: BTreeSet<&str> = (self.classes.keys().map(String::as_str))
            .chain(self.columns.iter().map(|(name, _)| &**name))
            .collect();
        let mut outline: Vec<ResultColumn> = Vec::new();
        for (name, value) in rows.get().iter().flat_map(Row::fields) {
            if let Some(column) = outline.iter_mut().find(|column| *column.name == **name) {
                column.observe(value);
            } else if named.contains(&**name) && outline.len() < ResultColumn::MOST {
                let class = self.class(name);
                let mut column = ResultColumn {
                    name: name.to_string(),
                    class: class.clone(),
                    tier: tier(class),
                    kind: "null".to_owned(),
                };
                column.observe(value);
                outline.push(column);
            }
        }
        outline
    }

    /// Returns whether the columns of the rows are configured.
    pub(super) fn has_columns(&self) -> bool {
        !self.columns.is_empty()
    }

    /// Returns the columns of the rows if they are configured.
    pub fn column_names(&self) -> Option<Vec<String>> {
        let names = self.columns.iter().map(|(name, _)| name.to_string());
        self.has_columns().then(|| names.collect())
    }

    /// Returns the classes that released rows can have, in order.
    pub(super) fn released_classes(&self) -> Vec<ColumnClass> {
        let released = self
            .classes
            .iter()
            .filter(|(column, _)| !self.internal.contains(*column));
        let classes: BTreeSet<_> = released
            .map(|(_, class)| class.clone())
            .chain([ColumnClass::unclassified()])
            .collect();
        classes.into_iter().collect()
    }

    /// Converts a value of a document to a row.
    pub fn row_of(&self, value: Value) -> Row {
        if !self.columns.is_empty() {
            let column = |(name, place): &(Arc<str>, Selector)| {
                let found = place.first(&value).cloned().unwrap_or(Value::Null);
                (Arc::clone(name), found)
            };
            return self.columns.iter().map(column).collect();
        }
        match value {
            Value::Object(members) => members
                .into_iter()
                .map(|(name, value)| (Arc::from(name), value))
                .collect(),
            other => Row::new(vec![(Arc::from(VALUE), other)]),
        }
    }
}

/// Adds a fault for each of `fields`, which require an `entity`, that is there.
fn refuse_without_entity(fields: [(&str, Option<&Node>); 5], faults: &mut Faults) {
    for (name, field) in fields {
        if let Some(field) = field {
            faults.add(
                field.at,
                format!("`{name}` requires an `entity`"),
                "add `entity`, the type of the row in the policy schema, or remove it",
            );
        }
    }
}

fn read_max_rows(node: &Node, faults: &mut Faults) -> Option<MaxRows> {
    let Yaml::Map(_) = node.value else {
        return faults.positive(node, "max_rows").map(MaxRows::Fixed);
    };
    let mut fields = FieldReader::new(node, "max_rows", faults)?;
    let argument = fields.take_required(
        "argument",
        "use an argument that contains the number of rows",
        faults,
    );
    fields.finish(faults);
    let argument = argument?;
    Some(MaxRows::Argument {
        name: faults.text(argument, "argument")?.to_owned(),
        at: argument.at,
    })
}

fn read_shape(node: &Node, faults: &mut Faults) -> Shape {
    let word = faults.text(node, "shape").unwrap_or_default();
    let known = SHAPES.iter().find(|(name, _)| *name == word);
    if known.is_none() {
        let names: Vec<_> = SHAPES.iter().map(|(name, _)| *name).collect();
        faults.add(
            node.at,
            format!("`{word}` is not a shape of a result"),
            format!("use one of {}", names.join(", ")),
        );
    }
    known.map_or(Shape::Rows, |(_, shape)| *shape)
}

fn read_columns(node: &Node, faults: &mut Faults) -> Vec<(Arc<str>, Selector)> {
    let columns = faults.map(node, "columns").unwrap_or_default();
    columns
        .iter()
        .filter_map(|(key, node)| {
            let place = Selector::from_node(node, &key.name, faults)?;
            Some((Arc::from(key.name.as_str()), place))
        })
        .collect()
}

fn entity_type(node: &Node, faults: &mut Faults) -> Option<EntityTypeName> {
    let text = faults.text(node, "entity")?;
    let name = EntityTypeName::from_str(text).ok();
    if name.is_none() {
        faults.add(
            node.at,
            format!("`{text}` is not a Cedar entity type"),
            "use the type's name in the policy schema, for example MedicalRecord",
        );
    }
    name
}

pub(crate) fn read_classes(node: &Node, faults: &mut Faults) -> BTreeMap<String, ColumnClass> {
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
                format!("`{text}` is not a column class"),
                "use a dotted name of A-Z a-z 0-9 _ . -, for example phi.date",
            ),
        }
    }
    classes
}

fn read_row_rule(
    node: &Node,
    dialect: Option<SqlDialect>,
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
    let mut fields = FieldReader::new(node, "empty", faults)?;
    let error = fields.take_required(
        "error",
        "add `error`, the message for a result without rows",
        faults,
    );
    fields.finish(faults);
    let node = error?;
    let text = faults.text(node, "error")?;
    Some(Template::parse(text, node.at))
}
