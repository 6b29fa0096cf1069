//! Options of every command that prints data, and options for the level of logging.

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use wardgate_telemetry::Config;

/// The output format.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputOptions {
    /// Output format.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Table)]
    output: OutputFormat,
    /// Former name of `--output jsonl`.
    #[arg(long, hide = true, conflicts_with = "output")]
    json: bool,
}

impl OutputOptions {
    pub(crate) fn format(self) -> OutputFormat {
        if self.json {
            OutputFormat::Jsonl
        } else {
            self.output
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Human-readable table or text.
    Table,
    /// One JSON document; an array for lists.
    Json,
    /// One JSON object per line.
    Jsonl,
    /// One YAML document; a sequence for lists.
    Yaml,
}

/// Format in which records are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordFormat {
    Output(OutputFormat),
    Csv,
}

impl ValueEnum for RecordFormat {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Output(OutputFormat::Table),
            Self::Output(OutputFormat::Json),
            Self::Output(OutputFormat::Jsonl),
            Self::Output(OutputFormat::Yaml),
            Self::Csv,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Output(format) => format.to_possible_value(),
            Self::Csv => Some(
                PossibleValue::new("csv")
                    .help("Comma-separated values (RFC 4180) with a heading, for spreadsheets"),
            ),
        }
    }
}

/// The log level.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct LogVerbosity {
    /// Set the log level of services and of `stdio` to `debug`, overriding `telemetry.log`.
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    verbose: bool,
    /// Set the log level to `error`, overriding `telemetry.log`, and print no progress.
    #[arg(short, long, global = true)]
    quiet: bool,
}

impl LogVerbosity {
    pub(crate) fn is_quiet(self) -> bool {
        self.quiet
    }

    /// Returns `config` with the log level that the command line sets.
    pub(crate) fn apply(self, mut config: Config) -> Config {
        let level = match (self.verbose, self.quiet) {
            (true, _) => "debug",
            (_, true) => "error",
            _ => return config,
        };
        level.clone_into(&mut config.log);
        config
    }
}
