//! Parses the output of a program into rows.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::{Value, json};
use wardgate_catalogue::plan::OutputFormat;
use wardgate_redact::Row;
use wardgate_sandbox::OutputListener;

use crate::executor::Output;
use crate::executor_error::ExecutorError;

/// A parser for the output of one run.
pub(super) struct OutputReader<'r, 'o> {
    format: OutputFormat,
    /// Whether lines of standard error are sent as progress.
    progress: bool,
    out: &'r mut Output<'o>,
    /// Bytes that do not form a complete row yet.
    rest: Vec<u8>,
    error_lines: u32,
    is_not_utf8: bool,
}

impl<'r, 'o> OutputReader<'r, 'o> {
    pub(super) fn new(format: OutputFormat, progress: bool, out: &'r mut Output<'o>) -> Self {
        Self {
            format,
            progress,
            out,
            rest: Vec::new(),
            error_lines: 0,
            is_not_utf8: false,
        }
    }

    /// Processes the remaining output after the program exited successfully.
    pub(super) fn finish(mut self) -> Result<(), ExecutorError> {
        let rest = std::mem::take(&mut self.rest);
        match self.format {
            OutputFormat::Json => {
                let document = serde_json::from_slice(&rest).map_err(|error| bad_json(&error))?;
                self.out.document(document).map(drop)?;
            }
            OutputFormat::Lines if rest.is_empty() => {}
            OutputFormat::Lines => {
                let _ = self.line(&rest);
            }
            OutputFormat::Text => match String::from_utf8(rest) {
                Ok(text) => {
                    self.out.document(json!({ "text": text })).map(drop)?;
                }
                Err(_) => self.is_not_utf8 = true,
            },
        }
        if self.is_not_utf8 {
            return Err(ExecutorError::BadResult(
                "standard output is not UTF-8".to_owned(),
            ));
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> ControlFlow<()> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Ok(line) = str::from_utf8(line) else {
            self.is_not_utf8 = true;
            return ControlFlow::Continue(());
        };
        let row = Row::new(vec![(Arc::from("line"), Value::from(line))]);
        self.out.row(row)
    }
}

impl OutputListener for OutputReader<'_, '_> {
    fn output(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        if self.format != OutputFormat::Lines {
            self.rest.extend_from_slice(bytes);
            return ControlFlow::Continue(());
        }
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.rest.extend_from_slice(piece);
            if self.rest.ends_with(b"\n") {
                let mut line = std::mem::take(&mut self.rest);
                line.pop();
                if self.line(&line) == ControlFlow::Break(()) {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn error_line(&mut self, line: &str) {
        if self.progress {
            self.error_lines += 1;
            self.out.progress(self.error_lines.into(), None, line);
        }
    }
}

/// Creates an error that names the position of the problem but never the content.
fn bad_json(error: &serde_json::Error) -> ExecutorError {
    let what = match error.classify() {
        serde_json::error::Category::Eof => "ends in the middle of a JSON document",
        _ => "is not a single JSON document",
    };
    let (line, column) = (error.line(), error.column());
    ExecutorError::BadResult(format!(
        "standard output {what} (line {line}, column {column})"
    ))
}
