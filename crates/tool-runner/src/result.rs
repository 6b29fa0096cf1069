//! From what a tool gave to what is sent.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_domain::{Status, duration, json_type};
use wardgate_redact::{DropReason, Redacted, Row};
use wardgate_rpc::client::{DroppedColumns, ResultFacts, ToolResult};

use wardgate_catalogue::{ResultShape, Shape, VALUE};

/// Column of content that an upstream gave whole, and member of an MCP result.
pub(crate) const CONTENT: &str = "content";
/// Column of the structured part of such content.
pub(crate) const STRUCTURED_CONTENT: &str = "structuredContent";

/// What is said of a result as a whole.
#[derive(Debug)]
pub(crate) struct ResultSummary {
    /// There was more.
    pub(crate) truncated: bool,
    /// Where the rest is.
    pub(crate) handle: Option<Handle>,
    /// It was one thing, no list of them.
    pub(crate) single: bool,
    /// The tool itself says that it failed.
    pub(crate) is_error: bool,
}

/// Where a result is kept that is too large for an answer.
#[derive(Debug, Serialize)]
pub(crate) struct Handle {
    #[serde(rename = "handle")]
    pub(crate) text: String,
    /// All of its rows.
    pub(crate) rows: usize,
    /// Nothing was left out.
    pub(crate) complete: bool,
    pub(crate) columns: Vec<ColumnType>,
    /// RFC 3339.
    pub(crate) expires_at: String,
}

/// What a column holds, by JSON's names, as far as the rows shown tell.
#[derive(Debug, Serialize)]
pub(crate) struct ColumnType {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
}

impl Handle {
    /// With the columns that `sample` shows.
    pub(crate) fn described(self, sample: &[Row]) -> Self {
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

/// The number of columns that were left out, by reason.
pub(crate) fn dropped_columns(dropped: &wardgate_redact::DroppedColumns) -> DroppedColumns {
    DroppedColumns {
        unclassified: dropped.count(DropReason::Unclassified),
        not_permitted: dropped.count(DropReason::NotPermitted),
    }
}

/// The facts of a result without rows. An empty `error_kind` is that of a success.
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
    /// Present when rows were left out because there were too many.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    /// Present when they are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<&'a Handle>,
}

/// One MCP content block.
#[derive(Serialize)]
struct TextBlock<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

/// A result of released rows, in the tool's shape.
pub(crate) fn released(
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
            // A value always has a JSON form.
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

/// The result of an MCP server for a caller who may see all of it, each part byte for byte.
pub(crate) struct UnchangedResult {
    /// A JSON array.
    pub(crate) content: String,
    /// Any JSON; none: there is no structured content.
    pub(crate) structured: Option<Box<RawValue>>,
    pub(crate) is_error: bool,
    /// The other members, a JSON object.
    pub(crate) others: Option<String>,
    /// Its `_meta`, a JSON object.
    pub(crate) meta: Option<String>,
}

impl UnchangedResult {
    /// Bytes of all parts.
    pub(crate) fn size(&self) -> usize {
        let structured = self.structured.as_ref().map_or(0, |it| it.get().len());
        let others = [&self.others, &self.meta].into_iter().flatten();
        self.content.len() + structured + others.map(String::len).sum::<usize>()
    }
}

/// The result of an MCP server, as it is.
pub(crate) fn unchanged(result: UnchangedResult, facts: ResultFacts) -> ToolResult {
    let structured = result.structured.map(Box::<str>::from);
    ToolResult {
        structured_content: structured.map(String::from).unwrap_or_default().into(),
        is_error: result.is_error,
        other_members: result.others.unwrap_or_default().into(),
        meta: result.meta.unwrap_or_default().into(),
        ..plain(result.content.into(), facts)
    }
}

/// What the document was, as far as it was released.
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

/// Each row by the tool's template; a column that was not released leaves nothing.
fn texts(shape: &ResultShape, rows: &[Row]) -> String {
    let text = |row: &Row| {
        let values = row
            .fields()
            .iter()
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect();
        let template = shape.text.as_ref()?;
        // The texts of results have plain placeholders, which take any value.
        template.fill_plain(&values).ok()
    };
    let texts: Vec<_> = rows.iter().filter_map(text).collect();
    texts.join(&shape.separator)
}

/// Content as the upstream gave it, where it was released.
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
    // Rows and values always have a JSON form: their members are named by texts.
    serde_json::to_string(value).unwrap_or_default()
}

/// A result that says what went wrong.
pub(crate) fn error(text: &str, facts: ResultFacts) -> ToolResult {
    ToolResult {
        is_error: true,
        ..plain(text_content(text), facts)
    }
}

/// A result that has nothing but content.
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

/// The text of a call that took longer than `limit`.
pub(crate) fn timeout_text(limit: Duration) -> String {
    format!("Timeout after {}", duration::show(limit))
}

fn text_content(text: &str) -> Bytes {
    // A text always has a JSON form.
    serde_json::to_vec(&[TextBlock { kind: "text", text }])
        .unwrap_or_default()
        .into()
}

/// How many bytes `row` takes as JSON.
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
    // Counting does not fail.
    let _ = serde_json::to_writer(&mut counter, row);
    counter.0
}

/// The name of a stage, and how long it took.
pub(crate) type StageTime = (String, Duration);

/// When each stage of a call began, to tell how long it took.
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

    /// Ends the current stage under this name.
    pub(crate) fn lap(&mut self, stage: &str) {
        self.lap_with(stage, Duration::ZERO, None);
    }

    /// Ends the current stage, of which `inner` took place in a stage of its own.
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
