//! Options of `wardgate doctor`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::OutputOptions;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Path of the configuration file. Everything that it names is checked; for `wardgate up`, the data directory too.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Check only this section, if the files of other sections are on other hosts; may be repeated.
    #[arg(long, value_enum, value_name = "NAME", requires = "config")]
    pub(crate) service: Vec<ConfigSection>,
    /// Data directory of `wardgate up`.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data_dir: PathBuf,
    /// Verify all records, not only the newest thousand.
    #[arg(long)]
    pub(crate) whole_record: bool,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// The sections of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConfigSection {
    Gateway,
    Policy,
    ToolRunner,
    Audit,
    Memory,
    Agent,
    Console,
    Operator,
}

impl ConfigSection {
    pub(crate) const ALL: [Self; 8] = [
        Self::Gateway,
        Self::Policy,
        Self::ToolRunner,
        Self::Audit,
        Self::Memory,
        Self::Agent,
        Self::Console,
        Self::Operator,
    ];

    /// Returns the name of the section in the configuration file.
    pub(crate) fn section(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Policy => "policy",
            Self::ToolRunner => "tool_runner",
            Self::Audit => "audit",
            Self::Memory => "memory",
            Self::Agent => "agent",
            Self::Console => "console",
            Self::Operator => "operator",
        }
    }
}
