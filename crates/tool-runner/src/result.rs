//! Converts the output of tools into the results that are sent to clients.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_domain::{Status, duration, json_type};
use wardgate_redact::{DropReason, Redacted, Row};
use wardgate_rpc::client::{DroppedColumns, ResultFacts, ToolResult};

use wardgate_catalogue::{ResultShape, Shape, VALUE};

/// Column of content that an upstream returned as a whole, and member of an MCP result.
pub(crate) const CONTENT: &str = "content";
/// Column of the structured part of such content.
pub(crate) const STRUCTURED_CONTENT: &str = "structuredContent";

/// A description of a result as a whole.
#[derive(Debug)]
pub(crate) struct ResultSummary {
    /// Whether the result was truncated.
    pub(crate) truncated: bool,
    /// The handle of the stored result, or `None` if it was not stored.
    pub(crate) handle: Option<Handle>,
    /// Whether the result is a single value and not a list.
    pub(crate) single: bool,
    /// Whether the tool itself reports that it failed.
    pub(crate) is_error: bool,
}

/// The handle of a stored result that is too large for a response.
#[derive(Debug, Serialize)]
pub(crate) struct Handle {
    #[serde(rename = "handle")]
    pub(crate) text: String,
    /// The total number of rows.
    pub(crate) rows: usize,
    /// Whether the stored result contains all rows.
    pub(crate) complete: bool,
    pub(crate) columns: Vec<ColumnType>,
    /// The time of expiry in RFC 3339 form.
    pub(crate) expires_at: String,
}

/// The JSON type of a column, as far as the rows shown reveal it.
#[derive(Debug, Serialize)]
pub(crate) struct ColumnType {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
}

impl Handle {
    /// Adds the columns that `sample` contains.
    pub(crate) fn with_columns(self, sample: &[Row]) -> Self {
        let mut columns: Vec<ColumnType> = Vec::new();
        for (name, value) in sample.iter().flat_map(Row::fields) {
            match columns.iter_mut().find(|column| *column.name == **name) {
                Some(column) if column.kind == "null" => column.kind = json_type(value),
                Some(_) => {}
                None => columns.push(ColumnType {
                    name: name.to_string(),
                    kind: json_type(value),
                }),
            }
        }
        Self { columns, ..self }
    }
}

/// Returns the number of columns that were left out, by reason.
pub(crate) fn dropped_columns(dropped: &wardgate_redact::DroppedColumns) -> DroppedColumns {
    DroppedColumns {
        unclassified: dropped.count(DropReason::Unclassified),
        not_permitted: dropped.count(DropReason::NotPermitted),
    }
}

/// Returns the facts of a result without rows. `error_kind` is empty for a success.
pub(crate) fn facts(status: Status, error_kind: &str, stages: Vec<StageTime>) -> ResultFacts {
    ResultFacts {
        status,
        rows: 0,
        rows_withheld: 0,
        fields_redacted: 0,
        phi: false,
        error_kind: error_kind.to_owned(),
        retry_after: None,
        stages,
        dropped_columns: DroppedColumns::default(),
        outline: None,
    }
}

/// The structured content of a result with rows.
#[derive(Serialize)]
struct StructuredRows<'a, T> {
    data: &'a T,
    /// Whether rows were left out because there were too many.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    /// The handle, if the result is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<&'a Handle>,
}

/// An MCP content block of type text.
#[derive(Serialize)]
struct TextBlock<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

/// Creates a result from released rows, in the shape that the tool declares.
pub(crate) fn from_released_rows(
    shape: &ResultShape,
    rows: &Redacted<Vec<Row>>,
    whole: &ResultSummary,
    facts: ResultFacts,
) -> ToolResult {
    let truncated = whole.truncated;
    let kept = whole.handle.as_ref();
    let (content, structured) = match shape.shape {
        Shape::Rows => {
            let data = rows;
            let structured = json(&StructuredRows {
                data,
                truncated,
                kept,
            });
            (text_content(&structured), structured)
        }
        Shape::Value => {
            let data = &value(rows.get(), whole.single);
            // Serialization of a JSON value cannot fail.
            let text = serde_json::to_string_pretty(data).unwrap_or_default();
            (
                text_content(&text),
                json(&StructuredRows {
                    data,
                    truncated,
                    kept,
                }),
            )
        }
        Shape::Object => {
            let structured = rows.get().first().map_or("{}".to_owned(), json);
            (text_content(&structured), structured)
        }
        Shape::Text => {
            let data = rows;
            let text = texts(shape, rows.get());
            (
                text_content(&text),
                json(&StructuredRows {
                    data,
                    truncated,
                    kept,
                }),
            )
        }
        Shape::Content => content(rows.get()),
    };
    ToolResult {
        structured_content: structured.into(),
        is_error: whole.is_error,
        ..plain(content, facts)
    }
}

/// The result of an MCP server for a caller who may see all of it, with each part byte for byte.
pub(crate) struct UnchangedResult {
    /// The content as a JSON array.
    pub(crate) content: String,
    /// The structured content as JSON, or `None` if there is none.
    pub(crate) structured: Option<Box<RawValue>>,
    pub(crate) is_error: bool,
    /// The other members as a JSON object.
    pub(crate) others: Option<String>,
    /// The `_meta` as a JSON object.
    pub(crate) meta: Option<String>,
}

impl UnchangedResult {
    /// Returns the total size of all parts, in bytes.
    pub(crate) fn size(&self) -> usize {
        let structured = self.structured.as_ref().map_or(0, |it| it.get().len());
        let others = [&self.others, &self.meta].into_iter().flatten();
        self.content.len() + structured + others.map(String::len).sum::<usize>()
    }
}

/// Creates a result that passes on the result of an MCP server unchanged.
pub(crate) fn from_unchanged(result: UnchangedResult, facts: ResultFacts) -> ToolResult {
    let structured = result.structured.map(Box::<str>::from);
    ToolResult {
        structured_content: structured.map(String::from).unwrap_or_default().into(),
        is_error: result.is_error,
        other_members: result.others.unwrap_or_default().into(),
        meta: result.meta.unwrap_or_default().into(),
        ..plain(result.content.into(), facts)
    }
}

/// Returns the released part of the original document.
fn value(rows: &[Row], single: bool) -> Value {
    let plain = |row: &Row| match row.fields() {
        [(name, value)] if &**name == VALUE => value.clone(),
        fields => fields
            .iter()
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect(),
    };
    match rows {
        [only] if single => plain(only),
        rows => rows.iter().map(plain).collect(),
    }
}

/// Fills the tool's template with each row. A column that was not released leaves nothing.
fn texts(shape: &ResultShape, rows: &[Row]) -> String {
    let text = |row: &Row| {
        let values = row
            .fields()
            .iter()
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect();
        let template = shape.text.as_ref()?;
        // Text templates of results have plain placeholders, which accept any value.
        template.fill_plain(&values).ok()
    };
    let texts: Vec<_> = rows.iter().filter_map(text).collect();
    texts.join(&shape.separator)
}

/// Returns the released content and structured content of an upstream.
pub(crate) fn content(rows: &[Row]) -> (Bytes, String) {
    let released = |column| rows.first().and_then(|row| row.get(column));
    let structured = released(STRUCTURED_CONTENT).map(json);
    let content = match released(CONTENT) {
        Some(content) => json(content).into(),
        None => text_content("The content is withheld."),
    };
    (content, structured.unwrap_or_default())
}

fn json<T: Serialize + ?Sized>(value: &T) -> String {
    // Serialization cannot fail because all keys of rows and values are strings.
    serde_json::to_string(value).unwrap_or_default()
}

/// Creates a result with an error message.
pub(crate) fn error(text: &str, facts: ResultFacts) -> ToolResult {
    ToolResult {
        is_error: true,
        ..plain(text_content(text), facts)
    }
}

/// Creates a result that has only content.
fn plain(content: Bytes, facts: ResultFacts) -> ToolResult {
    ToolResult {
        content,
        structured_content: Bytes::new(),
        is_error: false,
        facts,
        other_members: Bytes::new(),
        meta: Bytes::new(),
        error: Bytes::new(),
    }
}

/// Returns the message of a call that exceeded `limit`.
pub(crate) fn timeout_text(limit: Duration) -> String {
    format!("Timeout after {}", duration::format(limit))
}

fn text_content(text: &str) -> Bytes {
    // Serialization of a string cannot fail.
    serde_json::to_vec(&[TextBlock { kind: "text", text }])
        .unwrap_or_default()
        .into()
}

/// Returns the size of `row` as JSON, in bytes.
pub(crate) fn json_size(row: &Row) -> usize {
    struct Counter(usize);

    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let mut counter = Counter(0);
    // The counter never returns an error.
    let _ = serde_json::to_writer(&mut counter, row);
    counter.0
}

/// The name of a stage and its duration.
pub(crate) type StageTime = (String, Duration);

/// A stopwatch that measures the stages of a call.
pub(crate) struct Stopwatch {
    stage_began: std::time::Instant,
    stages: Vec<StageTime>,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self {
            stage_began: std::time::Instant::now(),
            stages: Vec::with_capacity(5),
        }
    }

    /// Ends the current stage and records it under this name.
    pub(crate) fn lap(&mut self, stage: &str) {
        self.lap_with(stage, Duration::ZERO, None);
    }

    /// Ends the current stage. `inner` is the part of it that is recorded as the separate stage `inner_stage`.
    pub(crate) fn lap_with(&mut self, stage: &str, inner: Duration, inner_stage: Option<&str>) {
        let now = std::time::Instant::now();
        let whole = now.duration_since(self.stage_began);
        self.stage_began = now;
        self.push(stage, whole.saturating_sub(inner));
        if let Some(inner_stage) = inner_stage {
            self.push(inner_stage, inner);
        }
    }

    fn push(&mut self, stage: &str, time: Duration) {
        self.stages.push((stage.to_owned(), time));
    }

    pub(crate) fn into_stages(self) -> Vec<StageTime> {
        self.stages
    }
}
