//! The schema of a policy set: the built-in declarations, and the declarations in the files of its directory.

use std::collections::BTreeMap;

use cedar_policy::{Schema, SchemaFragment};
use serde_json::{Map, Value, json};

use crate::error::{Finding, Findings, Position, findings};
use crate::files::SourceFile;
use crate::history::{CallCounter, CallCounters, HISTORY, MAX_COUNTERS};
use crate::limits::CedarLanguage;
use crate::schema_shape::{Declarations, Record, Type};
use crate::vocabulary::{ARGUMENTS, CALL_TOOL, READ, SUBJECT, TENANT, USER, Vocabulary};

/// The name of the entity whose attributes declare counters of earlier calls. No such entity exists at run time; the
/// counters are part of the context of a call.
const COUNTERS: &str = "History";

/// The built-in schema, which declares the entities and actions in Wardgate's requests.
pub(crate) const BASE: &str = include_str!("base.cedarschema");

/// The kind of entity to which a directory adds attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Row,
    Caller,
    Arguments,
}

impl Holder {
    /// Returns whether an attribute of this kind of entity can have a value of this type.
    fn takes(self, r#type: &Type) -> bool {
        match (self, r#type) {
            (_, Type::Text | Type::Integer | Type::Boolean) | (Self::Arguments, Type::Decimal) => {
                true
            }
            (Self::Caller, Type::Set(element)) => **element == Type::Text,
            (Self::Arguments, Type::Set(element)) => self.takes(element),
            (Self::Arguments, Type::Record(members)) => {
                members.values().all(|member| self.takes(&member.r#type))
            }
            _ => false,
        }
    }

    /// Returns the supported types, as a text for findings.
    fn types(self) -> &'static str {
        match self {
            Self::Row => "String, Long, Bool",
            Self::Caller => "String, Long, Bool, Set<String>",
            Self::Arguments => "String, Long, Bool, decimal, and sets and records of them",
        }
    }
}

/// Merges the built-in schema with the declarations in `files`.
pub(crate) fn compose(files: &[SourceFile<'_>]) -> Result<Vocabulary, Findings> {
    let mut composition = Composition::new()?;
    for file in files {
        if let Err(Findings(mut wrong)) = composition.add(file) {
            composition.found.append(&mut wrong);
        }
    }
    composition.finish(files)
}

/// A schema that is being merged, in Cedar's JSON format.
struct Composition<'a> {
    base: FileDeclarations,
    /// The additional attributes of `User` and `Arguments`, with the position of their declaration.
    extensions: BTreeMap<&'static str, SchemaEntry<'a>>,
    counters: CallCounters,
    /// The position of the declaration of the counters.
    counters_place: Option<DeclarationPosition<'a>>,
    rows: BTreeMap<String, SchemaEntry<'a>>,
    common_types: BTreeMap<String, SchemaEntry<'a>>,
    found: Vec<Finding>,
}

/// A declaration in a file.
struct SchemaEntry<'a> {
    json: Value,
    place: DeclarationPosition<'a>,
}

/// The position of a declaration.
#[derive(Clone, Copy)]
struct DeclarationPosition<'a> {
    file: &'a SourceFile<'a>,
    start: Option<usize>,
}

impl DeclarationPosition<'_> {
    fn finding(&self, problem: String, fix: impl Into<String>) -> Finding {
        Finding {
            file: self.file.path.clone(),
            position: self
                .start
                .map(|start| Position::from_offset(self.file.text, start)),
            problem,
            fix: Some(fix.into()),
        }
    }
}

/// The declarations of one text outside any namespace.
#[derive(Default)]
struct FileDeclarations {
    entities: Map<String, Value>,
    actions: Map<String, Value>,
    common_types: Map<String, Value>,
}

impl FileDeclarations {
    fn take_from(json: &mut Value) -> Self {
        let mut take = |kind: &str| match json.get_mut(kind).map(Value::take) {
            Some(Value::Object(declared)) => declared,
            _ => Map::new(),
        };
        Self {
            entities: take("entityTypes"),
            actions: take("actions"),
            common_types: take("commonTypes"),
        }
    }
}

impl<'a> Composition<'a> {
    fn new() -> Result<Self, Findings> {
        let refused = |error: &dyn miette::Diagnostic| {
            Findings(findings("base.cedarschema".as_ref(), BASE, error))
        };
        let (fragment, _) =
            SchemaFragment::from_cedarschema_str(BASE).map_err(|error| refused(&error))?;
        let mut json = fragment.to_json_value().map_err(|error| refused(&error))?;
        Ok(Self {
            base: json
                .get_mut("")
                .map(FileDeclarations::take_from)
                .unwrap_or_default(),
            extensions: BTreeMap::new(),
            counters: CallCounters::new(),
            counters_place: None,
            rows: BTreeMap::new(),
            common_types: BTreeMap::new(),
            found: Vec::new(),
        })
    }

    fn add(&mut self, file: &'a SourceFile<'a>) -> Result<(), Findings> {
        let starts = file.statements(CedarLanguage::Schema)?;
        let refused =
            |error: &dyn miette::Diagnostic| Findings(findings(&file.path, file.text, error));
        let (fragment, _) =
            SchemaFragment::from_cedarschema_str(file.text).map_err(|error| refused(&error))?;
        let json = fragment.to_json_value().map_err(|error| refused(&error))?;
        let place = |keyword: &str, name: &str| DeclarationPosition {
            file,
            start: declaration(file.text, &starts, keyword, name),
        };
        for (namespace, mut json) in json.as_object().cloned().unwrap_or_default() {
            if !namespace.is_empty() {
                self.found.push(place("namespace", &namespace).finding(
                    format!(
                        "declares names in the namespace `{namespace}`, which Wardgate does not use"
                    ),
                    "move them out of `namespace … { … }`",
                ));
                continue;
            }
            let declared = FileDeclarations::take_from(&mut json);
            for name in declared.actions.keys() {
                self.refuse_action(name, &place("action", name));
            }
            for (name, json) in declared.entities {
                let place = place("entity", &name);
                self.add_entity(&name, json, place);
            }
            for (name, json) in declared.common_types {
                let place = place("type", &name);
                let entry = SchemaEntry { json, place };
                if let Some(first) = self.common_types.insert(name.clone(), entry) {
                    self.found.push(twice("type", &name, &place, &first.place));
                }
            }
        }
        Ok(())
    }

    fn refuse_action(&mut self, name: &str, place: &DeclarationPosition<'_>) {
        let finding = if name == READ {
            place.finding(
                "`action read` is built in, for every row type".to_owned(),
                "delete `action read …;`",
            )
        } else if self.base.actions.contains_key(name) {
            place.finding(
                format!("`action {name}` is built in"),
                format!("delete `{name}` and what it applies to"),
            )
        } else {
            let known: Vec<_> = self.base.actions.keys().map(String::as_str).collect();
            place.finding(
                format!("`action {name}` is never requested"),
                format!("delete it; the supported actions are {}", known.join(", ")),
            )
        };
        self.found.push(finding);
    }

    fn add_entity(&mut self, name: &str, json: Value, place: DeclarationPosition<'a>) {
        if let Some(extended) = [USER, ARGUMENTS].into_iter().find(|it| *it == name) {
            return self.extend_entity(extended, &json, place);
        }
        if name == COUNTERS {
            return self.declare_counters(&json, place);
        }
        if self.base.entities.contains_key(name) {
            return self.found.push(place.finding(
                format!("`entity {name}` is built in"),
                format!("delete it; a row type must not be named `{name}`"),
            ));
        }
        let parts = [
            ("memberOfTypes", "in […]"),
            ("tags", "tags …"),
            ("enum", "enum […]"),
        ];
        for (_, part) in parts.into_iter().filter(|(key, _)| is_declared(&json, key)) {
            self.found.push(place.finding(
                format!("row type `{name}` has `{part}`, which row types do not support"),
                format!("delete `{part}`"),
            ));
        }
        let entry = SchemaEntry { json, place };
        if let Some(first) = self.rows.insert(name.to_owned(), entry) {
            self.found.push(twice("entity", name, &place, &first.place));
        }
    }

    fn declare_counters(&mut self, json: &Value, place: DeclarationPosition<'a>) {
        if let Some(first) = self.counters_place.replace(place) {
            self.found.push(twice("entity", COUNTERS, &place, &first));
        }
        let parts = ["memberOfTypes", "tags", "enum"];
        let attributes = json.pointer("/shape/attributes").and_then(Value::as_object);
        let attributes = attributes.filter(|_| !parts.iter().any(|it| is_declared(json, it)));
        let Some(attributes) = attributes.filter(|it| it.len() <= MAX_COUNTERS) else {
            return self.found.push(place.finding(
                format!(
                    "`entity {COUNTERS}` does not contain 1 to {MAX_COUNTERS} counters in braces"
                ),
                "write `entity History { @tools(\"TOOL\") @within(\"24h\") NAME: Long };`",
            ));
        };
        for (name, attribute) in attributes {
            match CallCounter::parse(name, attribute) {
                Ok(counter) => {
                    self.counters.insert(name.clone(), counter);
                }
                Err(fault) => self.found.push(place.finding(fault.problem, fault.fix)),
            }
        }
    }

    /// Adds attributes to a built-in entity.
    fn extend_entity(&mut self, name: &'static str, json: &Value, place: DeclarationPosition<'a>) {
        let parts = [
            ("memberOfTypes", "in […]"),
            ("tags", "tags …"),
            ("enum", "enum […]"),
        ];
        for (_, part) in parts.into_iter().filter(|(key, _)| is_declared(json, key)) {
            self.found.push(place.finding(
                format!("`entity {name}` has `{part}`, which is built in or not supported"),
                format!("delete `{part}`; write `entity {name} {{ …attributes… }};`"),
            ));
        }
        let attributes = json.pointer("/shape/attributes").and_then(Value::as_object);
        if attributes.is_none() && is_declared(json, "shape") {
            self.found.push(place.finding(
                format!("the attributes of `{name}` are not in braces"),
                format!("write `entity {name} {{ attribute?: String }};`"),
            ));
        }
        let mut attributes = attributes.cloned().unwrap_or_default();
        if name == USER {
            for built_in in [SUBJECT, TENANT] {
                if attributes.remove(built_in).is_some() {
                    self.found.push(place.finding(
                        format!("`{built_in}` of `entity User` is built in"),
                        format!("delete `{built_in}: String`"),
                    ));
                }
            }
        } else {
            let is_required =
                |attribute: &&String| attributes[*attribute].get("required") != Some(&json!(false));
            self.found.extend(attributes.keys().filter(is_required).map(|attribute| {
                place.finding(
                    format!("`{attribute}` of `entity Arguments` is not optional, but a call may omit it"),
                    format!("write `{attribute}?`, and test it with `context.arguments has {attribute}`"),
                )
            }));
        }
        let entry = SchemaEntry {
            json: Value::Object(attributes),
            place,
        };
        if let Some(first) = self.extensions.insert(name, entry) {
            self.found.push(twice("entity", name, &place, &first.place));
        }
    }

    /// Builds the schema from everything that was added from `files`.
    fn finish(mut self, files: &[SourceFile<'_>]) -> Result<Vocabulary, Findings> {
        if !self.found.is_empty() {
            return Err(Findings(self.found));
        }
        let json = self.merge_declarations();
        let declared = Declarations::from_schema(&json).unwrap_or_default();
        let schema = Schema::from_json_value(json.clone())
            .map_err(|error| resolution_findings(&error, files))?;
        for (name, extension) in &self.extensions {
            let holder = if *name == USER {
                Holder::Caller
            } else {
                Holder::Arguments
            };
            let attributes = declared.attributes(name);
            self.found
                .extend(misfits(name, &attributes, &extension.place, holder));
        }
        let mut rows = BTreeMap::new();
        for (name, row) in &self.rows {
            let attributes = declared.attributes(name);
            self.found
                .extend(misfits(name, &attributes, &row.place, Holder::Row));
            rows.insert(name.clone(), attributes);
        }
        if !self.found.is_empty() {
            return Err(Findings(self.found));
        }
        let mut callers = declared.attributes(USER);
        callers.retain(|name, _| ![SUBJECT, TENANT].contains(&name.as_str()));
        let (arguments, counters) = (declared.attributes(ARGUMENTS), self.counters);
        Vocabulary::new(schema, json, callers, arguments, counters, rows).ok_or_else(|| {
            Findings(vec![Finding {
                file: "base.cedarschema".into(),
                position: None,
                problem: "lacks a declaration that Wardgate requires".to_owned(),
                fix: None,
            }])
        })
    }

    /// Returns the whole schema in Cedar's JSON format.
    fn merge_declarations(&mut self) -> Value {
        let FileDeclarations {
            mut entities,
            mut actions,
            mut common_types,
        } = std::mem::take(&mut self.base);
        for (name, extension) in &self.extensions {
            let (Some(entity), Value::Object(added)) = (entities.get_mut(*name), &extension.json)
            else {
                continue;
            };
            let mut attributes = added.clone();
            if let Some(Value::Object(built_in)) = entity.pointer_mut("/shape/attributes") {
                attributes.append(built_in);
            }
            entity["shape"] = json!({ "type": "Record", "attributes": attributes });
        }
        let rows: Vec<_> = self.rows.keys().collect();
        let context = actions["show_clear"]["appliesTo"]["context"].clone();
        let read = json!({ "appliesTo": { "principalTypes": [USER], "resourceTypes": rows, "context": context } });
        actions.insert(READ.to_owned(), read);
        if !self.counters.is_empty() {
            let counters = self.counters.keys();
            let counters = counters.map(|name| (name.clone(), json!({ "type": "Long" })));
            let counters: Map<_, _> = counters.collect();
            actions[CALL_TOOL]["appliesTo"]["context"]["attributes"][HISTORY] =
                json!({ "type": "Record", "attributes": counters });
        }
        let copied =
            |(name, entry): (&String, &SchemaEntry<'_>)| (name.clone(), entry.json.clone());
        entities.extend(self.rows.iter().map(copied));
        common_types.extend(self.common_types.iter().map(copied));
        json!({ "": {
            "entityTypes": entities, "actions": actions, "commonTypes": common_types,
        } })
    }
}

/// Returns a finding for an error in resolving the schema, at the position of the last name in Cedar's message that
/// occurs in a file.
fn resolution_findings(error: &dyn miette::Diagnostic, files: &[SourceFile<'_>]) -> Findings {
    let problem = error.to_string();
    let words = problem.rsplit(|character: char| !is_of_word(character));
    let at = words.filter(|word| !word.is_empty()).find_map(|word| {
        let found = |file: &SourceFile<'_>| {
            let at = whole_word(file.text, word)?;
            Some((file.path.clone(), Position::from_offset(file.text, at)))
        };
        files.iter().find_map(found)
    });
    let (file, position) = at.unzip();
    Findings(vec![Finding {
        file: file.unwrap_or_else(|| "base.cedarschema".into()),
        position,
        problem,
        fix: error.help().map(|help| help.to_string()),
    }])
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Returns the position of `word` in `text` where it is not part of a longer word.
fn whole_word(text: &str, word: &str) -> Option<usize> {
    let mut found = text.match_indices(word).map(|(at, _)| at);
    found.find(|at| {
        let (before, after) = (text.get(..*at), text.get(at + word.len()..));
        let free = |neighbour: Option<char>| !neighbour.is_some_and(is_of_word);
        free(before.and_then(|before| before.chars().next_back()))
            && free(after.and_then(|after| after.chars().next()))
    })
}

/// Returns the start of the statement that declares `name` with `keyword`. `starts` are the starts of all statements.
fn declaration(text: &str, starts: &[usize], keyword: &str, name: &str) -> Option<usize> {
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let mut statements = starts.iter().copied().zip(ends);
    let declares = |(start, end): &(usize, usize)| {
        let head = text.get(*start..*end).unwrap_or_default();
        let head = head.split(['{', ';', '=']).next().unwrap_or_default();
        let mut words = head.split(|character: char| !is_of_word(character));
        words.by_ref().any(|word| word == keyword)
            && words
                .take_while(|word| !["in", "appliesTo", "tags", "enum"].contains(word))
                .any(|word| word == name)
    };
    statements.find(declares).map(|(start, _)| start)
}

fn is_declared(json: &Value, key: &str) -> bool {
    match json.get(key) {
        None | Some(Value::Null) => false,
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    }
}

fn twice(
    keyword: &str,
    name: &str,
    second: &DeclarationPosition<'_>,
    first: &DeclarationPosition<'_>,
) -> Finding {
    let at = first.start.map_or(1, |start| {
        Position::from_offset(first.file.text, start).line
    });
    let problem = format!(
        "`{keyword} {name}` is already declared in {}:{at}",
        first.file.path.display()
    );
    second.finding(problem, "keep one of the two")
}

/// Returns a finding for each attribute of the entity `name` whose type is not supported.
fn misfits(
    name: &str,
    attributes: &Record,
    place: &DeclarationPosition<'_>,
    holder: Holder,
) -> Vec<Finding> {
    let misfit = attributes
        .iter()
        .filter(|(_, attribute)| !holder.takes(&attribute.r#type));
    let finding = |attribute: &String| {
        place.finding(
            format!("`{attribute}` of `entity {name}` has a type that is never provided"),
            format!("declare `{attribute}?` as one of {}", holder.types()),
        )
    };
    misfit.map(|(attribute, _)| finding(attribute)).collect()
}
