//! What is wrong with an `assistants.yaml`, and where.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_saphyr::Location;

/// One fault of an assistants file, shown as `FILE:LINE:COLUMN: problem`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AssistantFault {
    file: PathBuf,
    line: u64,
    column: u64,
    problem: String,
}

impl fmt::Display for AssistantFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            problem,
        } = self;
        write!(f, "{}:{line}:{column}: {problem}", file.display())
    }
}

/// The faults found so far; reading goes on after each, so that one run shows them all.
#[derive(Debug, Default)]
pub(crate) struct AssistantFaults {
    file: PathBuf,
    found: Vec<AssistantFault>,
}

impl AssistantFaults {
    /// What is found from here on is in this file.
    pub(crate) fn in_file(&mut self, file: &Path) {
        file.clone_into(&mut self.file);
    }

    pub(crate) fn add(&mut self, at: Option<Location>, problem: impl Into<String>) {
        self.found.push(AssistantFault {
            file: self.file.clone(),
            line: at.map_or(1, |at| at.line().max(1)),
            column: at.map_or(1, |at| at.column().max(1)),
            problem: problem.into(),
        });
    }

    /// All of them, a line each; none: there is no fault.
    pub(crate) fn into_text(mut self) -> Option<String> {
        self.found
            .sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        let lines: Vec<String> = self.found.iter().map(ToString::to_string).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// The parser's message without the place, which a fault shows in front.
pub(crate) fn without_place(message: &str) -> String {
    let message = match message.split_once(": ") {
        Some((place, rest)) if place.contains("line ") && place.contains("column ") => rest,
        _ => message,
    };
    let message = message.split(" at line ").next().unwrap_or(message);
    message.trim_end_matches(',').to_owned()
}
