//! From what a tool gave to what is sent.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_redact::{Redacted, Row};

use crate::duration;

/// The structured content of a result.
#[derive(Serialize)]
struct Structured<'a> {
    data: &'a Redacted<Vec<Row>>,
    /// Present when rows were left out because there were too many.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

/// One MCP content block.
#[derive(Serialize)]
struct TextBlock<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

/// A result with `data`, once as text and once structured.
pub(crate) fn rows(
    data: &Redacted<Vec<Row>>,
    truncated: bool,
    facts: pb::ResultFacts,
) -> pb::ToolResult {
    // Rows always have a JSON form: their members are named by texts.
    let structured = serde_json::to_string(&Structured { data, truncated }).unwrap_or_default();
    pb::ToolResult {
        content_json: text_content(&structured),
        structured_content_json: structured.into(),
        is_error: false,
        facts: Some(facts),
    }
}

/// A result that says what went wrong.
pub(crate) fn error(text: &str, facts: pb::ResultFacts) -> pb::ToolResult {
    pb::ToolResult {
        content_json: text_content(text),
        structured_content_json: Bytes::new(),
        is_error: true,
        facts: Some(facts),
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

/// When each stage of a call began, to tell how long it took.
pub(crate) struct Stopwatch {
    stage_began: std::time::Instant,
    stages: Vec<pb::StageTime>,
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
        self.stages.push(pb::StageTime {
            stage: stage.to_owned(),
            // Less than ages.
            duration: time.try_into().ok(),
        });
    }

    pub(crate) fn into_stages(self) -> Vec<pb::StageTime> {
        self.stages
    }
}
