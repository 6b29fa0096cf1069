//! Faults of a `tools.yaml`, with remedies.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use wardgate_domain::duration;
use wardgate_yaml::{Key, Node, Position, Yaml};

/// One fault of a `tools.yaml`. Displayed as `FILE:LINE:COLUMN: problem; fix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The path of the file, as it was given.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: u64,
    /// The column in characters, counted from 1.
    pub column: u64,
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub fix: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            problem,
            fix,
        } = self;
        write!(f, "{}:{line}:{column}: {problem}; {fix}", file.display())
    }
}

/// A position in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilePosition {
    file: PathBuf,
    at: Position,
}

impl FilePosition {
    pub(crate) fn fault(&self, problem: impl Into<String>, fix: impl Into<String>) -> Fault {
        Fault {
            file: self.file.clone(),
            line: self.at.line,
            column: self.at.column,
            problem: problem.into(),
            fix: fix.into(),
        }
    }
}

/// The faults found so far. Reading continues after each, so that one run reports all of them.
pub(crate) struct Faults {
    file: PathBuf,
    found: Vec<Fault>,
    warnings: Vec<Fault>,
}

impl Faults {
    pub(crate) fn for_file(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            found: Vec::new(),
            warnings: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, at: Position, problem: impl Into<String>, fix: impl Into<String>) {
        self.found.push(self.position(at).fault(problem, fix));
    }

    /// Adds a warning about a value that is valid but probably not intended.
    pub(crate) fn warn(
        &mut self,
        at: Position,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.warnings.push(self.position(at).fault(problem, fix));
    }

    /// Returns a position in the file that is being read.
    pub(crate) fn position(&self, at: Position) -> FilePosition {
        FilePosition {
            file: self.file.clone(),
            at,
        }
    }

    /// Sets the file to which the following faults belong.
    pub(crate) fn in_file(&mut self, file: &Path) {
        file.clone_into(&mut self.file);
    }

    /// Returns the number of faults so far.
    pub(crate) fn count(&self) -> usize {
        self.found.len()
    }

    /// Returns all faults in the order of the file.
    pub(crate) fn into_vec(self) -> Vec<Fault> {
        in_order(self.found)
    }

    /// Returns the warnings if there is no fault, and the faults otherwise, in the order of the file.
    pub(crate) fn into_warnings(self) -> Result<Vec<Fault>, Vec<Fault>> {
        if self.found.is_empty() {
            Ok(in_order(self.warnings))
        } else {
            Err(in_order(self.found))
        }
    }

    fn wrong_kind(&mut self, node: &Node, what: &str, wanted: &str, fix: &str) {
        self.add(
            node.at,
            format!("`{what}` is {}, not {wanted}", node.kind()),
            fix,
        );
    }

    pub(crate) fn text<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n str> {
        match &node.value {
            Yaml::Text(text) if !text.trim().is_empty() => Some(text),
            Yaml::Text(_) | Yaml::Null => {
                self.add(node.at, format!("`{what}` is empty"), "write a string");
                None
            }
            _ => {
                self.wrong_kind(node, what, "a string", "put it in quotes");
                None
            }
        }
    }

    /// Reads a text that may be empty.
    pub(crate) fn any_text(&mut self, node: &Node, what: &str) -> Option<String> {
        match &node.value {
            Yaml::Text(text) => Some(text.clone()),
            _ => self.text(node, what).map(str::to_owned),
        }
    }

    pub(crate) fn boolean(&mut self, node: &Node, what: &str) -> Option<bool> {
        if let Yaml::Boolean(truth) = node.value {
            return Some(truth);
        }
        self.wrong_kind(node, what, "a boolean", "write true or false");
        None
    }

    pub(crate) fn positive(&mut self, node: &Node, what: &str) -> Option<usize> {
        let count = match node.value {
            Yaml::Integer(number) => usize::try_from(number).ok().filter(|&count| count > 0),
            _ => None,
        };
        if count.is_none() {
            self.add(
                node.at,
                format!("`{what}` is not a whole number above 0"),
                "write for example 100",
            );
        }
        count
    }

    /// Reads a number of bytes, for example `64MiB`.
    pub(crate) fn size(&mut self, node: &Node, what: &str) -> Option<usize> {
        let size = match &node.value {
            Yaml::Integer(bytes) => usize::try_from(*bytes).ok(),
            Yaml::Text(text) => size(text),
            _ => None,
        };
        let size = size.filter(|&size| size > 0);
        if size.is_none() {
            self.add(
                node.at,
                format!("`{what}` is not a size above 0"),
                "write for example 64MiB, 512KiB or a number of bytes",
            );
        }
        size
    }

    pub(crate) fn duration(&mut self, node: &Node, what: &str) -> Option<Duration> {
        let duration = match &node.value {
            Yaml::Integer(seconds) => u64::try_from(*seconds).ok().map(Duration::from_secs),
            Yaml::Text(text) => duration::parse(text),
            _ => None,
        };
        let duration = duration.filter(|duration| !duration.is_zero());
        if duration.is_none() {
            self.add(
                node.at,
                format!("`{what}` is not a duration above 0"),
                "write for example 30s, 500ms or 2m",
            );
        }
        duration
    }

    pub(crate) fn list<'n>(&mut self, node: &'n Node, what: &str) -> &'n [Node] {
        if let Yaml::List(items) = &node.value {
            return items;
        }
        self.wrong_kind(
            node,
            what,
            "a list",
            "write one entry per line, each after `- `",
        );
        &[]
    }

    /// Reads a list of texts.
    pub(crate) fn texts(&mut self, node: &Node, what: &str) -> Vec<String> {
        let nodes = self.list(node, what);
        nodes
            .iter()
            .filter_map(|node| self.text(node, what).map(str::to_owned))
            .collect()
    }

    /// Reads a list of tags. Tags that policies cannot name are faults.
    pub(crate) fn tags(&mut self, node: &Node) -> Vec<String> {
        let nodes = self.list(node, "tags");
        let read = |node: &Node| {
            let tag = self.text(node, "tags")?;
            let Some(problem) = tag_problem(tag) else {
                return Some(tag.to_owned());
            };
            self.add(
                node.at,
                format!("the tag `{tag}` {problem}"),
                "write each tag as an entry of its own, without commas and without white space at its ends",
            );
            None
        };
        nodes.iter().filter_map(read).collect()
    }

    pub(crate) fn map<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n [(Key, Node)]> {
        if let Yaml::Map(entries) = &node.value {
            return Some(entries);
        }
        self.wrong_kind(node, what, "a map", "write one `key: value` per line");
        None
    }
}

/// Returns what keeps policies from naming a tag, or `None` if they can name it. The annotation `@tags` of a counter in a
/// policy schema separates tags with commas and ignores white space around them, so calls with such a tag would never be
/// counted.
pub(crate) fn tag_problem(tag: &str) -> Option<&'static str> {
    if tag.contains(',') {
        Some("contains a comma, which separates tags in policies")
    } else if tag.trim() != tag {
        Some("begins or ends with white space, which policies ignore")
    } else {
        None
    }
}

/// Parses a number of bytes with an optional unit.
fn size(text: &str) -> Option<usize> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim_start() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(unit)
}

/// A reader of the fields of one map. Fields that were never requested are reported as faults.
pub(crate) struct FieldReader<'n> {
    at: Position,
    what: String,
    entries: Vec<(&'n Key, &'n Node)>,
    known: Vec<&'static str>,
}

impl<'n> FieldReader<'n> {
    /// Creates a reader of `node`. `what` names the map in faults, for example ``tool `x` ``.
    pub(crate) fn new(
        node: &'n Node,
        what: impl Into<String>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let what = what.into();
        let entries = faults.map(node, &what)?;
        Some(Self {
            at: node.at,
            entries: entries.iter().map(|(key, node)| (key, node)).collect(),
            known: Vec::new(),
            what,
        })
    }

    /// Creates a reader like [`Self::new`], which takes missing keys of `node` from `defaults`.
    pub(crate) fn with_defaults(
        node: &'n Node,
        defaults: &'n Node,
        what: impl Into<String>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let mut fields = Self::new(node, what, faults)?;
        for (key, value) in faults.map(defaults, &fields.what)? {
            if !fields.entries.iter().any(|(own, _)| own.name == key.name) {
                fields.entries.push((key, value));
            }
        }
        Some(fields)
    }

    /// Removes and returns the first entry whose key satisfies `is_it`. `name` is the name of the key in faults.
    pub(crate) fn take_entry(
        &mut self,
        name: &'static str,
        is_it: impl Fn(&str) -> bool,
    ) -> Option<(&'n Key, &'n Node)> {
        self.known.push(name);
        let at = self.entries.iter().position(|(key, _)| is_it(&key.name))?;
        Some(self.entries.swap_remove(at))
    }

    pub(crate) fn take_optional(&mut self, name: &'static str) -> Option<&'n Node> {
        self.known.push(name);
        let at = self.entries.iter().position(|(key, _)| key.name == name)?;
        Some(self.entries.swap_remove(at).1)
    }

    pub(crate) fn take_required(
        &mut self,
        name: &'static str,
        fix: &str,
        faults: &mut Faults,
    ) -> Option<&'n Node> {
        let node = self.take_optional(name);
        if node.is_none() {
            faults.add(self.at, format!("`{}` has no `{name}`", self.what), fix);
        }
        node
    }

    /// Reports the remaining fields as faults. Must be called after every known field was requested.
    pub(crate) fn finish(self, faults: &mut Faults) {
        for (key, _) in self.entries {
            let known = self.known.join("`, `");
            faults.add(
                key.at,
                format!("`{}` has an unknown key `{}`", self.what, key.name),
                format!("use one of `{known}`"),
            );
        }
    }
}

fn in_order(mut faults: Vec<Fault>) -> Vec<Fault> {
    faults.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    faults
}
