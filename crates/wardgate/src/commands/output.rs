//! Printing of data on standard output: rows or one document, as a table, JSON or YAML.

use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};

use serde_json::Value;
use wardgate_domain::escape_invisible_json;
use wardgate_yaml::YamlWriter;

use crate::Failure;
use crate::cli::OutputFormat;

/// A printer that writes rows one after the other, so that a listing may be larger than memory.
pub(crate) struct RowPrinter<W: Write> {
    out: W,
    format: OutputFormat,
    printed: u64,
    is_closed: bool,
}

impl RowPrinter<BufWriter<StdoutLock<'static>>> {
    /// Creates a printer on standard output, which prints `heading` above a table.
    pub(crate) fn stdout(format: OutputFormat, heading: Option<&str>) -> Result<Self, Failure> {
        Self::new(BufWriter::new(io::stdout().lock()), format, heading)
    }
}

impl<W: Write> RowPrinter<W> {
    fn new(out: W, format: OutputFormat, heading: Option<&str>) -> Result<Self, Failure> {
        let mut printer = Self {
            out,
            format,
            printed: 0,
            is_closed: false,
        };
        if let (OutputFormat::Table, Some(heading)) = (format, heading) {
            printer.write(&format!("{heading}\n"))?;
        }
        Ok(printer)
    }

    /// Prints one row: `json`, or `text` in a table. The caller must mark the invisible characters of `text`.
    pub(crate) fn print(
        &mut self,
        json: &str,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let row = match self.format {
            OutputFormat::Table => format!("{}\n", text()),
            OutputFormat::Jsonl => format!("{}\n", escape_invisible_json(json)),
            OutputFormat::Json => {
                let before = if self.printed == 0 { "[" } else { "," };
                format!("{before}\n{}", escape_invisible_json(json))
            }
            OutputFormat::Yaml => {
                let mut yaml = YamlWriter::default();
                yaml.element(&serde_json::from_str(json)?);
                yaml.into_text()
            }
        };
        self.printed += 1;
        self.write(&row)
    }

    /// Prints the end of the document and flushes the output.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        match (self.format, self.printed) {
            (OutputFormat::Json | OutputFormat::Yaml, 0) => self.write("[]\n")?,
            (OutputFormat::Json, _) => self.write("\n]\n")?,
            _ => {}
        }
        self.flush()
    }

    /// Flushes the output.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let flushed = self.out.flush();
        self.note(flushed)
    }

    /// Returns whether the reader closed the pipe (`| head`), which is not an error.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        if self.is_closed {
            return Ok(());
        }
        let written = self.out.write_all(text.as_bytes());
        self.note(written)
    }

    fn note(&mut self, done: io::Result<()>) -> Result<(), Failure> {
        match done {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => self.is_closed = true,
            done => done?,
        }
        Ok(())
    }
}

/// Prints one document: `json`, or `text` in the table format. The caller must mark the invisible characters of `text`.
pub(crate) fn print_document(
    format: OutputFormat,
    json: &str,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    print_text(&match format {
        OutputFormat::Table => text(),
        OutputFormat::Json | OutputFormat::Jsonl => format!("{}\n", escape_invisible_json(json)),
        OutputFormat::Yaml => {
            let mut yaml = YamlWriter::default();
            yaml.document(&serde_json::from_str::<Value>(json)?);
            yaml.into_text()
        }
    })
}

/// Prints a text unchanged. A reader that closes the pipe is not an error.
fn print_text(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print_rows(format: OutputFormat, rows: &[&str]) -> String {
        let mut out = Vec::new();
        let mut printer = RowPrinter::new(&mut out, format, Some("NAME")).unwrap();
        for row in rows {
            printer.print(row, || "a row".to_owned()).unwrap();
        }
        printer.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_format_says_the_same_and_is_whole_without_rows_too() {
        let rows = [
            r#"{"name":"a\u202eb","list":[1,{"x":null}]}"#,
            r#"{"name":"- c"}"#,
        ];
        let values: Vec<Value> = rows.map(|row| serde_json::from_str(row).unwrap()).into();
        let raw = values.clone().into_iter().map(|row| row.to_string());
        let raw: Vec<_> = raw.collect();
        let raw: Vec<_> = raw.iter().map(String::as_str).collect();
        let json = print_rows(OutputFormat::Json, &raw);
        assert_eq!(serde_json::from_str::<Vec<Value>>(&json).unwrap(), values);
        let yaml = print_rows(OutputFormat::Yaml, &raw);
        assert_eq!(serde_saphyr::from_str::<Vec<Value>>(&yaml).unwrap(), values);
        let lines = print_rows(OutputFormat::Jsonl, &raw);
        let lines: Vec<Value> = lines
            .lines()
            .map(|it| serde_json::from_str(it).unwrap())
            .collect();
        assert_eq!(lines, values);
        for text in [json, yaml] {
            assert!(!text.contains('\u{202e}'), "{text}");
        }
        assert_eq!(
            print_rows(OutputFormat::Table, &raw),
            "NAME\na row\na row\n"
        );
        for (format, nothing) in [
            (OutputFormat::Json, "[]\n"),
            (OutputFormat::Yaml, "[]\n"),
            (OutputFormat::Jsonl, ""),
            (OutputFormat::Table, "NAME\n"),
        ] {
            assert_eq!(print_rows(format, &[]), nothing);
        }
    }

    /// A pipe whose reader has closed it.
    struct ClosedPipe;

    impl Write for ClosedPipe {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn a_reader_that_has_seen_enough_is_no_failure() {
        let mut printer = RowPrinter::new(ClosedPipe, OutputFormat::Json, None).unwrap();
        assert!(!printer.is_closed());
        printer.print("{}", String::new).unwrap();
        assert!(printer.is_closed());
        printer.finish().unwrap();
    }
}
