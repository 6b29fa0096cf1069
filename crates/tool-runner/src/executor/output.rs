//! What comes out of a run: judged by the row rule and counted as it comes.
//!
//! ```text
//!   row ──────────────┐
//!   document ─▶ rows ─┼─▶ row rule ─▶ caps ─▶ rows kept
//!   content ─▶ a row ─┘      └ withheld: forgotten at once
//! ```

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::mpsc;
use wardgate_domain::{ColumnClass, Permit};
use wardgate_redact::{Redacted, RedactionCounts, Row};
use wardgate_rpc::client::{self, CallEvent, CallProgress};

use crate::compiled_permit::CompiledPermit;
use crate::executor_error::ExecutorError;
use crate::interaction::{FollowedTask, SuspendedRound};
use crate::result::{self, UnchangedResult};
use crate::row_rule::{RowGate, RowRuleUndecided, RowVerdict};
use wardgate_catalogue::{ResultShape, Shape};
use wardgate_mcp_client::LogMessage;

/// Whoever listens to a run.
#[derive(Clone, Copy)]
pub(crate) struct Audience<'a> {
    pub(crate) listener: &'a mpsc::Sender<CallEvent>,
    pub(crate) permit: &'a Permit,
    pub(crate) compiled: &'a CompiledPermit,
    /// The classes that a result can carry.
    pub(crate) classes: &'a [ColumnClass],
}

impl Audience<'_> {
    /// Tells it. What nobody takes in time is of no use later, so it never waits.
    fn send_event(&self, event: CallEvent) {
        let _ = self.listener.try_send(event);
    }

    fn may_read_texts(&self) -> bool {
        !self.is_restricted()
    }

    /// Whether the permit restricts what may be seen.
    pub(crate) fn is_restricted(&self) -> bool {
        self.compiled.restricts(self.permit, self.classes)
    }
}

/// How much a result may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caps {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
    /// What is taken beyond that, to be kept for later.
    pub(crate) overflow: Option<RetentionLimit>,
    /// To stop work that writes in the middle would leave open whether it did.
    pub(crate) stops: bool,
}

/// How much of a result is kept for later, the answer included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetentionLimit {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

/// Takes what a run gives.
pub(crate) struct Output<'a> {
    shape: &'a ResultShape,
    gate: Option<&'a RowGate>,
    caps: Caps,
    /// Rows that were asked for.
    page: Option<usize>,
    audience: Option<Audience<'a>>,
    retained: RetainedRows,
}

/// What is left of it at the end.
#[derive(Default)]
pub(crate) struct RetainedRows {
    pub(crate) rows: Vec<Row>,
    /// Rows behind them that no answer has room for.
    pub(crate) overflow: Vec<Row>,
    /// Rows of a result that was redacted before, with what that did.
    pub(crate) released: Option<(Redacted<Vec<Row>>, RedactionCounts)>,
    /// The result of an MCP server that goes on as it is.
    pub(crate) unchanged: Option<UnchangedResult>,
    bytes: usize,
    /// Rows the rule did not admit.
    pub(crate) withheld: u64,
    /// Those of them that the rule could not be decided on.
    pub(crate) rows_undecided: u64,
    /// Why one of these could not be decided.
    pub(crate) undecided: Option<RowRuleUndecided>,
    /// Time spent on the row rule.
    pub(crate) row_rule_time: Duration,
    /// There was more than a result may be.
    pub(crate) truncated: bool,
    /// The whole result was one thing, no list of them.
    pub(crate) single: bool,
    /// The tool itself says that it failed.
    pub(crate) is_error: bool,
    /// What the client is asked before there is anything else.
    pub(crate) suspended: Option<SuspendedRound>,
    /// The task that it is, or is about. What a completed one gave stands beside it.
    pub(crate) task: Option<FollowedTask>,
}

impl<'a> Output<'a> {
    pub(crate) fn new(
        shape: &'a ResultShape,
        gate: Option<&'a RowGate>,
        caps: Caps,
        audience: Option<Audience<'a>>,
    ) -> Self {
        Self {
            shape,
            gate,
            caps,
            page: None,
            audience,
            retained: RetainedRows::default(),
        }
    }

    /// With at most so many rows. A result that has them is whole, whatever else there is.
    pub(crate) fn with_page(mut self, rows: Option<usize>) -> Self {
        self.page = rows;
        self
    }

    /// Takes one row. What the row rule does not admit is forgotten at once.
    pub(crate) fn row(&mut self, row: Row) -> ControlFlow<()> {
        let flow = self.judged(row);
        if self.caps.stops {
            flow
        } else {
            ControlFlow::Continue(())
        }
    }

    fn judged(&mut self, row: Row) -> ControlFlow<()> {
        if self.is_full() {
            return ControlFlow::Break(());
        }
        if let Some(gate) = self.gate {
            let began = Instant::now();
            let verdict = gate.verdict(&row);
            self.retained.row_rule_time += began.elapsed();
            match verdict {
                RowVerdict::Admitted => {}
                RowVerdict::Withheld => {
                    self.retained.withheld += 1;
                    return ControlFlow::Continue(());
                }
                RowVerdict::Undecided(why) => {
                    self.retained.withheld += 1;
                    self.retained.rows_undecided += 1;
                    self.retained.undecided = Some(why);
                    return ControlFlow::Continue(());
                }
            }
        }
        match self.retained.retain(row, self.caps) {
            ControlFlow::Continue(()) if self.is_full() => ControlFlow::Break(()),
            flow => flow,
        }
    }

    fn is_full(&self) -> bool {
        self.page
            .is_some_and(|page| self.retained.rows.len() >= page)
    }

    /// Takes a JSON document: its rows are where `result.rows` and `result.columns` say.
    pub(crate) fn document(&mut self, document: Value) -> Result<ControlFlow<()>, ExecutorError> {
        if let Some(error) = self.reported(&document) {
            return Err(error);
        }
        let rows = match &self.shape.rows {
            Some(rows) => rows.rows(&document).ok_or_else(|| {
                let problem = format!(
                    "the answer has nothing at `{rows}`, where `result.rows` says its rows are"
                );
                ExecutorError::Misshapen(problem)
            })?,
            None => match document {
                Value::Array(items) => items,
                single => {
                    self.retained.single = true;
                    vec![single]
                }
            },
        };
        for value in rows {
            if self.row(self.shape.row_of(value)) == ControlFlow::Break(()) {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The error that stands in a document where `result.error` says.
    pub(crate) fn reported(&self, document: &Value) -> Option<ExecutorError> {
        let found = self.shape.error.as_ref()?.first(document)?;
        match found {
            Value::Null => None,
            Value::String(text) => Some(ExecutorError::Reported(text.clone())),
            other => Some(ExecutorError::Reported(other.to_string())),
        }
    }

    /// Takes MCP content: whole, unless `result.rows` says where rows are in its structured part.
    pub(crate) fn content(
        &mut self,
        content: Value,
        structured: Option<Value>,
        is_error: bool,
    ) -> Result<ControlFlow<()>, ExecutorError> {
        self.retained.is_error |= is_error;
        match structured {
            Some(structured) if self.shape.shape != Shape::Content && !is_error => {
                self.document(structured)
            }
            structured => {
                self.retained.single = true;
                let mut fields = vec![(Arc::from(result::CONTENT), content)];
                if let Some(structured) = structured {
                    fields.push((Arc::from(result::STRUCTURED_CONTENT), structured));
                }
                Ok(self.row(Row::new(fields)))
            }
        }
    }

    /// Whether the result of an MCP server goes to the client as it is: nothing is to be read of it, and all of it may be
    /// seen.
    pub(crate) fn takes_unchanged(&self) -> bool {
        let is_restricted = self
            .audience
            .is_none_or(|audience| audience.is_restricted());
        !is_restricted
            && self.gate.is_none()
            && self.shape.shape == Shape::Content
            && self.shape.internal.is_empty()
    }

    /// Takes such a result.
    pub(crate) fn unchanged(&mut self, result: UnchangedResult) -> Result<(), ExecutorError> {
        if result.size() > self.caps.bytes {
            return Err(ExecutorError::TooLarge);
        }
        self.retained.unchanged = Some(result);
        Ok(())
    }

    /// Takes rows of a result that was redacted before.
    pub(crate) fn released(
        &mut self,
        rows: Redacted<Vec<Row>>,
        counts: RedactionCounts,
        truncated: bool,
    ) {
        self.retained.truncated = truncated;
        self.retained.released = Some((rows, counts));
    }

    /// Tells how far the run is, to whoever listens; in words too, unless the permit restricts what may be seen.
    pub(crate) fn progress(&mut self, progress: f64, total: Option<f64>, message: &str) {
        if let Some(audience) = self.audience {
            let may_pass = message.is_empty() || audience.may_read_texts();
            audience.send_event(CallEvent::Progress(CallProgress {
                done: progress,
                total: total.filter(|total| *total != 0.0),
                message: if may_pass { message } else { "" }.to_owned(),
            }));
        }
    }

    /// Passes on what the source logs, unless the permit restricts what may be seen.
    pub(crate) fn log(&mut self, message: LogMessage) {
        if let Some(audience) = self.audience.filter(Audience::may_read_texts) {
            audience.send_event(CallEvent::Log(client::LogMessage {
                level: message.level.as_str().to_owned(),
                logger: message.logger.filter(|logger| !logger.is_empty()),
                data_json: message.data.get().to_owned(),
            }));
        }
    }

    /// Passes on that an elicitation is over, unless the permit restricts what may be seen.
    pub(crate) fn completed(&mut self, elicitation: String) {
        if let Some(audience) = self.audience.filter(Audience::may_read_texts) {
            audience.send_event(CallEvent::Completed(elicitation));
        }
    }

    /// Passes on that the server closed the stream of the call, to be asked for the rest.
    pub(crate) fn stream_closed(&mut self) {
        if let Some(audience) = self.audience {
            audience.send_event(CallEvent::StreamClosed);
        }
    }

    /// The run goes on once the client has answered.
    pub(crate) fn suspended(&mut self, suspended: SuspendedRound) {
        self.retained.suspended = Some(suspended);
    }

    /// The run is a task, or is about one.
    pub(crate) fn task(&mut self, task: FollowedTask) {
        self.retained.task = Some(task);
    }

    /// More bytes than this are never needed.
    pub(crate) fn max_bytes(&self) -> usize {
        self.caps.bytes
    }

    /// Nothing came out yet, so the work can be tried again.
    pub(crate) fn is_untouched(&self) -> bool {
        self.retained.rows.is_empty()
            && self.retained.withheld == 0
            && self.retained.unchanged.is_none()
    }

    pub(crate) fn into_retained(self) -> RetainedRows {
        self.retained
    }
}

impl RetainedRows {
    /// Some row could not be decided, and not because of its own values.
    pub(crate) fn is_schema_mismatch(&self) -> bool {
        self.undecided
            .as_ref()
            .is_some_and(RowRuleUndecided::is_schema_mismatch)
    }

    /// Keeps an admitted row unless the result is full.
    fn retain(&mut self, row: Row, caps: Caps) -> ControlFlow<()> {
        let bytes = self.bytes + result::json_size(&row);
        let fits = |rows, limit| self.rows.len() + self.overflow.len() < rows && bytes <= limit;
        let has_room = !self.truncated && self.overflow.is_empty() && fits(caps.rows, caps.bytes);
        let is_kept = caps
            .overflow
            .is_some_and(|overflow| fits(overflow.rows, overflow.bytes));
        if has_room {
            self.rows.push(row);
        } else if is_kept && !self.truncated {
            self.overflow.push(row);
        } else {
            self.truncated = true;
            return ControlFlow::Break(());
        }
        self.bytes = bytes;
        ControlFlow::Continue(())
    }
}
