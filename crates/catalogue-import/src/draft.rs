//! The file that is being generated. A source or tool is added only if it loads.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::text::{Description, UniqueNames};
use super::{ImportError, ImportNote, ImportedCatalogue};
use wardgate_catalogue::{Catalogue, Fault};
use wardgate_yaml::YamlWriter;

/// Name of the file while it is checked.
const FILE: &str = "tools.yaml";

/// Maximum length of a description in characters, about the length that clients pass on to models.
const MAX_DESCRIPTION: usize = 2_000;

/// Maximum number of values and keys in the tools of one file, which is the limit of the catalogue's parser.
const MAX_NODES: usize = 200_000;

#[derive(Debug)]
pub(super) struct Draft {
    /// A description of the origin of the import.
    origin: &'static str,
    sources: YamlWriter,
    tools: YamlWriter,
    toolsets: YamlWriter,
    tool_names: UniqueNames,
    variables: BTreeMap<String, Variable>,
    notes: Vec<ImportNote>,
    nodes: usize,
    source_count: usize,
    tool_count: usize,
    toolset_count: usize,
}

/// A variable that the file reads from the environment.
#[derive(Debug)]
struct Variable {
    /// A description of the value to set.
    about: String,
    /// The value that is used while the file is checked.
    sample: String,
}

/// A source before it is written.
#[derive(Debug, Default)]
pub(super) struct SourceDraft {
    pub(super) name: String,
    pub(super) fields: Map<String, Value>,
    pub(super) reviews: Vec<String>,
}

/// A tool before it is written.
#[derive(Debug, Default)]
pub(super) struct ToolDraft {
    pub(super) name: String,
    pub(super) description: String,
    /// The annotations that are true of the tool.
    pub(super) hints: Vec<&'static str>,
    pub(super) input_schema: Value,
    pub(super) execute: Map<String, Value>,
    pub(super) result: Map<String, Value>,
    /// Suggested keys of `result`, which are written as a comment.
    pub(super) suggestions: Map<String, Value>,
    pub(super) reviews: Vec<String>,
}

impl ToolDraft {
    /// Sets the description from imported text.
    pub(super) fn describe(&mut self, text: &str) {
        let description = Description::from_text(text, MAX_DESCRIPTION);
        if description.had_hidden {
            self.reviews
                .push("invisible characters were removed from the description".to_owned());
        }
        if description.is_cut {
            self.reviews.push(format!(
                "the description is truncated after {MAX_DESCRIPTION} characters"
            ));
        }
        self.description = description.text;
    }
}

impl Draft {
    pub(super) fn new(origin: &'static str) -> Self {
        Self {
            origin,
            sources: YamlWriter::with_indent(2),
            tools: YamlWriter::with_indent(2),
            toolsets: YamlWriter::with_indent(2),
            tool_names: UniqueNames::default(),
            variables: BTreeMap::new(),
            notes: Vec::new(),
            nodes: 0,
            source_count: 0,
            tool_count: 0,
            toolset_count: 0,
        }
    }

    pub(super) fn note(&mut self, about: impl Into<String>, text: impl Into<String>) {
        self.notes.push(ImportNote {
            about: about.into(),
            text: text.into(),
        });
    }

    /// Returns a name for a tool that no other tool has.
    pub(super) fn tool_name(&mut self, wanted: &str) -> String {
        self.tool_names.unique(wanted)
    }

    /// Returns a reference to an environment variable, which a person will set as `about` describes. `sample` is its value
    /// while the file is checked.
    pub(super) fn variable(&mut self, name: &str, about: &str, sample: &str) -> String {
        let variable = || Variable {
            about: about.to_owned(),
            sample: sample.to_owned(),
        };
        self.variables
            .entry(name.to_owned())
            .or_insert_with(variable);
        format!("${{{name}}}")
    }

    /// Adds the source and returns whether it was added. A source that would not load is left out.
    pub(super) fn source(&mut self, source: &SourceDraft) -> bool {
        let about = format!("source `{}`", source.name);
        let mut entry = YamlWriter::with_indent(2);
        write_reviews(&mut entry, &source.reviews);
        entry.map(&source.name, |writer| {
            for (key, value) in &source.fields {
                writer.entry(key, value);
            }
        });
        let text = entry.into_text();
        let file = format!("sources:\n{text}tools: []\n");
        if let Some(problem) = self.problem(file) {
            self.leave_out_source(&source.name, &problem);
            return false;
        }
        self.sources.raw(&text);
        self.note_reviews(&about, &source.reviews);
        self.source_count += 1;
        true
    }

    /// Records in a comment of the file and in a note why a source is left out.
    pub(super) fn leave_out_source(&mut self, name: &str, reason: &str) {
        self.sources
            .review(&format!("source `{name}` is omitted: {reason}"));
        self.note(format!("source `{name}`"), format!("omitted: {reason}"));
    }

    /// Adds the tool and returns whether it was added. A tool that would not load is left out.
    pub(super) fn tool(&mut self, tool: &ToolDraft) -> bool {
        let nodes = self.nodes + nodes(&tool.input_schema) + members(&tool.execute);
        if nodes > MAX_NODES {
            self.leave_out_tool(
                &tool.name,
                "the file has reached its size limit; import a part of the document",
            );
            return false;
        }
        let mut entry = YamlWriter::with_indent(2);
        write_reviews(&mut entry, &tool.reviews);
        entry.item(|writer| tool.write(writer));
        let text = entry.into_text();
        let file = format!("sources:\n{}tools:\n{text}", self.sources.text());
        if let Some(problem) = self.problem(file) {
            self.leave_out_tool(&tool.name, &problem);
            return false;
        }
        self.part_tools();
        self.tools.raw(&text);
        self.note_reviews(&format!("tool `{}`", tool.name), &tool.reviews);
        self.nodes = nodes;
        self.tool_count += 1;
        true
    }

    /// Records in a comment of the file and in a note why a tool is left out.
    pub(super) fn leave_out_tool(&mut self, name: &str, reason: &str) {
        self.part_tools();
        self.tools
            .review(&format!("tool `{name}` is omitted: {reason}"));
        self.note(format!("tool `{name}`"), format!("omitted: {reason}"));
    }

    pub(super) fn toolset(&mut self, name: &str, tools: &[String]) {
        self.toolsets.map(name, |writer| {
            writer.entry("tools", &Value::from(tools));
        });
        self.toolset_count += 1;
    }

    fn part_tools(&mut self) {
        if !self.tools.text().is_empty() {
            self.tools.blank();
        }
    }

    fn note_reviews(&mut self, about: &str, reviews: &[String]) {
        for review in reviews {
            self.note(about, review.as_str());
        }
    }

    /// Returns the file after loading it as a whole.
    pub(super) fn finish(mut self) -> Result<ImportedCatalogue, ImportError> {
        if self.source_count + self.tool_count == 0 {
            let reasons: Vec<_> = self.notes.iter().map(ToString::to_string).collect();
            let reasons = if reasons.is_empty() {
                "the document contains nothing that can be imported".to_owned()
            } else {
                reasons.join("; ")
            };
            return Err(ImportError::Nothing(reasons));
        }
        let yaml = self.yaml();
        self.load(yaml.clone()).map_err(ImportError::Unusable)?;
        for (name, variable) in std::mem::take(&mut self.variables) {
            self.note(
                format!("${{{name}}}"),
                format!("set it to {}", variable.about),
            );
        }
        Ok(ImportedCatalogue {
            yaml,
            notes: self.notes,
        })
    }

    fn yaml(&self) -> String {
        let mut file = YamlWriter::default();
        file.comment("yaml-language-server: $schema=./tools.schema.json");
        file.comment(&format!("Imported from {}.", self.origin));
        file.comment(
            "Check every `review:` before using this file, then run `wardgate tools check` on it.",
        );
        if !self.variables.is_empty() {
            file.comment("Required environment variables:");
            for (name, variable) in &self.variables {
                file.comment(&format!("  {name}: {}", variable.about));
            }
        }
        for (key, section, count) in [
            ("sources", &self.sources, self.source_count),
            ("toolsets", &self.toolsets, self.toolset_count),
            ("tools", &self.tools, self.tool_count),
        ] {
            // A key that is followed only by comments would have no value.
            let head = match (count, key) {
                (0, "tools") => "tools: []\n".to_owned(),
                (0, _) => String::new(),
                _ => format!("{key}:\n"),
            };
            if !head.is_empty() || !section.text().is_empty() {
                file.blank();
                file.raw(&head);
                file.raw(section.text());
            }
        }
        file.into_text()
    }

    /// Returns the problems because of which a file does not load, or `None` if it loads.
    fn problem(&self, file: String) -> Option<String> {
        let faults = self.load(file).err()?;
        let problems: Vec<_> = faults.into_iter().map(|fault| fault.problem).collect();
        Some(problems.join("; "))
    }

    fn load(&self, text: String) -> Result<(), Vec<Fault>> {
        let samples = self
            .variables
            .iter()
            .map(|(name, variable)| (name.clone(), variable.sample.clone()))
            .collect();
        let path = PathBuf::from(FILE);
        Catalogue::parse_file(path, text, &samples).map(|_| ())
    }
}

impl ToolDraft {
    fn write(&self, writer: &mut YamlWriter) {
        writer.entry("name", &Value::from(self.name.as_str()));
        if !self.description.is_empty() {
            writer.entry("description", &Value::from(self.description.as_str()));
        }
        if !self.hints.is_empty() {
            let hints = self
                .hints
                .iter()
                .map(|&hint| (hint.to_owned(), true.into()));
            writer.entry("annotations", &Value::Object(hints.collect()));
        }
        writer.entry("input_schema", &self.input_schema);
        writer.entry("execute", &Value::Object(self.execute.clone()));
        if !self.result.is_empty() {
            writer.entry("result", &Value::Object(self.result.clone()));
        }
        if !self.suggestions.is_empty() {
            let mut result = YamlWriter::with_indent(2);
            for (key, value) in &self.suggestions {
                result.entry(key, value);
            }
            writer.comment(if self.result.is_empty() {
                "result:"
            } else {
                "add to `result`:"
            });
            for line in result.text().lines() {
                writer.comment(line);
            }
        }
    }
}

/// Returns the number of values and keys in a value.
fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Object(members) => self::members(members),
        _ => 0,
    }
}

fn members(members: &Map<String, Value>) -> usize {
    members.values().map(|member| 1 + nodes(member)).sum()
}

fn write_reviews(writer: &mut YamlWriter, reviews: &[String]) {
    for review in reviews {
        writer.review(review);
    }
}
