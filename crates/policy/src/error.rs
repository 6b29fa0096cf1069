//! Errors of the policy service, and faults found in policy sets.

use std::fmt;
use std::path::PathBuf;

use miette::Diagnostic;
use wardgate_domain::UnknownTimeZone;
use wardgate_policy_bundle::{BundleConfigError, BundleError, SourceError};

use crate::correct_form::Mistake;

/// The reason why the service cannot start, or why a directory contains no usable policy set.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory, or a file in it, cannot be read.
    #[error("cannot read the policies in {}: {source}", path.display())]
    Unreadable {
        /// The directory or file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The files are not a usable policy set. Each finding names a fault to fix.
    #[error(transparent)]
    Invalid(#[from] Findings),
    /// A setting is out of range.
    #[error("policy setting `{setting}` must be 1 to {longest} seconds")]
    Setting {
        /// The name of the setting.
        setting: &'static str,
        /// The maximum value in seconds.
        longest: u64,
    },
    /// The settings name no policies, or two places of them.
    #[error(
        "exactly one of policy.policies and policy.bundle must be set: the directory of policies, or the source of bundles"
    )]
    Origin,
    /// The settings of bundles cannot be used.
    #[error("policy.{0}")]
    BundleSettings(#[from] BundleConfigError),
    /// The settings name no candidate policies, or two places of them.
    #[error(
        "exactly one of policy.shadow.policies and policy.shadow.bundle must be set: the directory of candidate policies, or the source \
         of bundles"
    )]
    CandidateOrigin,
    /// The settings of the bundles of a candidate cannot be used.
    #[error("policy.shadow.{0}")]
    CandidateSettings(BundleConfigError),
    /// No bundle can be put in force.
    #[error("policy.bundle: {0}")]
    Bundle(#[from] BundleRefusal),
    /// The source offers nothing to start with.
    #[error("policy.bundle.source contains no bundle")]
    NoBundle,
    /// The time zone does not exist.
    #[error("policy setting `time_zone`: {0}")]
    TimeZone(#[from] UnknownTimeZone),
    /// The tokens of callers cannot be verified.
    #[error("policy.{0}")]
    Tokens(#[from] wardgate_edge::Error),
    /// The roles of callers cannot be looked up.
    #[error("policy.{0}")]
    Lookup(#[from] wardgate_caller_lookup::Error),
    /// The compiler could not be started, or it ended abnormally. The policy set was not put in force.
    #[error("the policies in {} could not be compiled: the compiler process failed", path.display())]
    Compiler {
        /// The directory.
        path: PathBuf,
    },
}

/// The reason why a bundle is not put in force.
#[derive(Debug, thiserror::Error)]
pub enum BundleRefusal {
    /// The source offers nothing now.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A file of a directory cannot be read. The other files are not affected.
    #[error(transparent)]
    Unreadable(SourceError),
    /// What the source offers is no bundle that a trusted key signed.
    #[error("{origin}: {error}")]
    Invalid {
        /// The file or host.
        origin: String,
        /// What is wrong.
        error: BundleError,
    },
    /// The source offers an older version than one that was in force.
    #[error(
        "version {offered} is older than version {known}, which was in force; to return to previous policies, publish them as a new \
         version"
    )]
    Older {
        /// The version that the source offers.
        offered: u64,
        /// The newest version that was in force.
        known: u64,
    },
    /// The version is lower than the setting allows.
    #[error("version {offered} is below bundle.minimum_version, which is {minimum}")]
    BelowMinimum {
        /// The version that the source offers.
        offered: u64,
        /// The lowest version that is accepted.
        minimum: u64,
    },
    /// A version that was in force has other contents now.
    #[error(
        "version {0} was in force with different contents; publish changed policies as a new version"
    )]
    Reused(u64),
    /// The policies of the bundle cannot be used.
    #[error("version {version}: {error}")]
    Policies {
        /// The version of the bundle.
        version: u64,
        /// What is wrong with the policies.
        error: Box<Error>,
    },
    /// Tests of the bundle fail, or cannot be read.
    #[error("version {version}: {problem}")]
    Tests {
        /// The version of the bundle.
        version: u64,
        /// The tests and their differences.
        problem: String,
    },
    /// The file that remembers the version cannot be used.
    #[error("the version cannot be stored in {}: {source}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

impl BundleRefusal {
    /// Returns the label of the metric.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Source(SourceError::TooLarge { .. })
            | Self::Invalid {
                error: BundleError::TooLarge(_),
                ..
            } => "too_large",
            Self::Source(_) | Self::Unreadable(_) => "unreachable",
            Self::Invalid {
                error: BundleError::Signature,
                ..
            } => "signature",
            Self::Invalid { .. } => "damaged",
            Self::Older { .. } | Self::BelowMinimum { .. } => "older",
            Self::Reused(_) => "version_reused",
            Self::Policies { .. } => "policies",
            Self::Tests { .. } => "tests",
            Self::State { .. } => "state",
        }
    }
}

/// All faults found in a policy set. Displayed with one finding per line.
#[derive(Debug)]
pub struct Findings(pub(crate) Vec<Finding>);

impl Findings {
    /// Returns the findings in file order.
    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.0.iter()
    }
}

impl std::error::Error for Findings {}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            finding.fmt(f)?;
        }
        Ok(())
    }
}

/// One fault to fix. Displayed as `file:line:column: problem; fix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file, or the directory if no single file is at fault.
    pub file: PathBuf,
    /// The position in the file, if known.
    pub position: Option<Position>,
    /// The description of the fault.
    pub problem: String,
    /// The fix, unless it is obvious from the problem.
    pub fix: Option<String>,
}

/// A position in a text file. Lines and columns are counted from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Position {
    /// Returns the position of the byte `offset` in `text`.
    pub(crate) fn from_offset(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(Position { line, column }) = self.position {
            write!(f, "{line}:{column}:")?;
        }
        write!(f, " {}", self.problem)?;
        match &self.fix {
            Some(fix) => write!(f, "; {fix}"),
            None => Ok(()),
        }
    }
}

/// Converts an error or warning of Cedar, and everything related to it, to findings.
pub(crate) fn findings(file: &std::path::Path, text: &str, cedar: &dyn Diagnostic) -> Vec<Finding> {
    let label = cedar.labels().and_then(|mut labels| labels.next());
    let mut problem = cedar.to_string();
    if let Some(detail) = label.as_ref().and_then(miette::LabeledSpan::label) {
        problem = format!("{problem}: {detail}");
    }
    let help = cedar.help().map(|help| help.to_string());
    let mistake = Mistake {
        text,
        span: label.as_ref().map(|label| (label.offset(), label.len())),
        problem: &problem,
        help: help.as_deref(),
    };
    let fix = mistake.correct_form();
    let first = Finding {
        file: file.to_owned(),
        position: label.map(|label| Position::from_offset(text, label.offset())),
        problem,
        fix,
    };
    let related = cedar.related().into_iter().flatten();
    std::iter::once(first)
        .chain(related.flat_map(|other| findings(file, text, other)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let text = "ab\nçé x";
        assert_eq!(
            Position::from_offset(text, 0),
            Position { line: 1, column: 1 }
        );
        assert_eq!(
            Position::from_offset(text, text.find('x').unwrap()),
            Position { line: 2, column: 4 }
        );
        assert_eq!(
            Position::from_offset(text, 999),
            Position { line: 2, column: 5 }
        );
    }
}
