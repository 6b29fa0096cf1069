//! Faults of an `assistants.yaml` and their positions.

use std::fmt;
use std::path::{Path, PathBuf};

use wardgate_yaml::Position;

/// A fault of an assistants file, displayed as `FILE:LINE:COLUMN: problem`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AssistantFault {
    file: PathBuf,
    at: Position,
    problem: String,
}

impl fmt::Display for AssistantFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, at, problem } = self;
        write!(f, "{}:{at}: {problem}", file.display())
    }
}

/// The faults found so far. Parsing continues after a fault, so that one run reports all of them.
#[derive(Debug, Default)]
pub(crate) struct AssistantFaults {
    file: PathBuf,
    found: Vec<AssistantFault>,
}

impl AssistantFaults {
    /// Sets the file of the faults that are added from now on.
    pub(crate) fn in_file(&mut self, file: &Path) {
        file.clone_into(&mut self.file);
    }

    pub(crate) fn add(&mut self, at: impl Into<Position>, problem: impl Into<String>) {
        self.found.push(AssistantFault {
            file: self.file.clone(),
            at: at.into(),
            problem: problem.into(),
        });
    }

    /// Returns all faults, one per line, or `None` if there are none.
    pub(crate) fn into_text(mut self) -> Option<String> {
        self.found
            .sort_by(|a, b| (&a.file, a.at).cmp(&(&b.file, b.at)));
        let lines: Vec<String> = self.found.iter().map(ToString::to_string).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}
