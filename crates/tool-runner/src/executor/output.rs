//! Collects the output of a run, applies the row rule, and enforces the limits on the size of a result.
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
use wardgate_catalogue::{ResultShape, RowRange, Shape};
use wardgate_mcp_client::LogMessage;

/// The receiver of the events of a run, and the permit that decides what it may see.
#[derive(Clone, Copy)]
pub(crate) struct Audience<'a> {
    pub(crate) listener: &'a mpsc::Sender<CallEvent>,
    pub(crate) permit: &'a Permit,
    pub(crate) compiled: &'a CompiledPermit,
    /// The classes that a result can have.
    pub(crate) classes: &'a [ColumnClass],
}

impl Audience<'_> {
    /// Sends an event without waiting. An event that the receiver does not take in time is dropped, because it is of no
    /// use later.
    fn send_event(&self, event: CallEvent) {
        let _ = self.listener.try_send(event);
    }

    fn may_read_texts(&self) -> bool {
        !self.is_restricted()
    }

    /// Returns whether the permit restricts what may be seen.
    pub(crate) fn is_restricted(&self) -> bool {
        self.compiled.restricts(self.permit, self.classes)
    }
}

/// The limits on the size of a result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caps {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
    /// The limits on the rows that are kept for later, or `None` if rows beyond the result are not kept.
    pub(crate) overflow: Option<RetentionLimit>,
    /// Whether the run may be stopped at a limit. A run that writes is not stopped, because its effect would be
    /// unknown.
    pub(crate) stops: bool,
}

/// The limits on the rows that are kept for later, including those in the response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetentionLimit {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

/// A collector for the output of a run.
pub(crate) struct Output<'a> {
    shape: &'a ResultShape,
    gate: Option<&'a RowGate>,
    caps: Caps,
    /// The requested number of rows.
    page: Option<usize>,
    /// The number of admitted rows that are left out at the beginning.
    skip: usize,
    audience: Option<Audience<'a>>,
    retained: RetainedRows,
}

/// The numbers of rows that are not released. They are recorded, and nothing that the caller receives depends on them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WithheldRows {
    pub(crate) total: u64,
    /// The number of those rows that the rule could not decide on.
    pub(crate) undecided: u64,
}

/// The rows and other output that remain at the end of a run.
#[derive(Default)]
pub(crate) struct RetainedRows {
    pub(crate) rows: Vec<Row>,
    /// The rows beyond the limits of the response.
    pub(crate) overflow: Vec<Row>,
    /// The rows of a result that was redacted earlier, and the counts of that redaction.
    pub(crate) released: Option<(Redacted<Vec<Row>>, RedactionCounts)>,
    /// The result of an MCP server that is passed on unchanged.
    pub(crate) unchanged: Option<UnchangedResult>,
    bytes: usize,
    /// The number of admitted rows that were left out at the beginning.
    skipped: usize,
    /// The numbers of rows that the rule did not admit.
    pub(crate) withheld: WithheldRows,
    /// The reason why one of the withheld rows could not be decided.
    pub(crate) undecided: Option<RowRuleUndecided>,
    /// The time spent on the row rule.
    pub(crate) row_rule_time: Duration,
    /// Whether there was more output than a result may contain.
    pub(crate) truncated: bool,
    /// Whether the result is a single value and not a list.
    pub(crate) single: bool,
    /// Whether the tool itself reports that it failed.
    pub(crate) is_error: bool,
    /// The question to the client that has to be answered before the run goes on.
    pub(crate) suspended: Option<SuspendedRound>,
    /// The task that the call became or asked about. The result of a completed task is in the other fields.
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
            skip: 0,
            audience,
            retained: RetainedRows::default(),
        }
    }

    /// Limits the result to the given number of rows. A result that has reached this number is complete, even if there
    /// are more rows.
    pub(crate) fn with_page(mut self, rows: Option<usize>) -> Self {
        self.page = rows;
        self
    }

    /// Limits the result to some of the admitted rows, in addition to [`Self::with_page`].
    pub(crate) fn limit_to(&mut self, range: RowRange) {
        self.skip = range.skip;
        self.page = self.page.into_iter().chain(range.take).min();
    }

    /// Takes one row. A row that the row rule does not admit is dropped immediately.
    pub(crate) fn row(&mut self, row: Row) -> ControlFlow<()> {
        let flow = self.retain_if_selected(row);
        if self.caps.stops {
            flow
        } else {
            ControlFlow::Continue(())
        }
    }

    fn retain_if_selected(&mut self, row: Row) -> ControlFlow<()> {
        if self.is_full() {
            return ControlFlow::Break(());
        }
        if !self.selects(&row) {
            return ControlFlow::Continue(());
        }
        match self.retained.retain(row, self.caps) {
            ControlFlow::Continue(()) if self.is_full() => ControlFlow::Break(()),
            flow => flow,
        }
    }

    /// Returns whether `row` belongs to the result: the row rule admits it, and it is not left out by the limits on the
    /// number of rows.
    pub(crate) fn selects(&mut self, row: &Row) -> bool {
        if self.is_full() || !self.admits(row) {
            return false;
        }
        let is_skipped = self.retained.skipped < self.skip;
        self.retained.skipped += usize::from(is_skipped);
        !is_skipped
    }

    /// Returns whether the row rule admits `row`. A row that is not admitted is counted as withheld.
    fn admits(&mut self, row: &Row) -> bool {
        let Some(gate) = self.gate else {
            return true;
        };
        let began = Instant::now();
        let verdict = gate.verdict(row);
        self.retained.row_rule_time += began.elapsed();
        match verdict {
            RowVerdict::Admitted => return true,
            RowVerdict::Withheld => {}
            RowVerdict::Undecided(why) => {
                self.retained.withheld.undecided += 1;
                self.retained.undecided = Some(why);
            }
        }
        self.retained.withheld.total += 1;
        false
    }

    fn is_full(&self) -> bool {
        let rows = self.retained.rows.len() + self.retained.overflow.len();
        self.page.is_some_and(|page| rows >= page)
    }

    /// Takes a JSON document, whose rows are where `result.rows` and `result.columns` say.
    pub(crate) fn document(&mut self, document: Value) -> Result<ControlFlow<()>, ExecutorError> {
        if let Some(error) = self.reported_error(&document) {
            return Err(error);
        }
        let rows = match &self.shape.rows {
            Some(rows) => rows.rows(&document).ok_or_else(|| {
                let problem = format!(
                    "the answer contains nothing at `{rows}`, which `result.rows` specifies as the location of its rows"
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

    /// Returns the error that a document contains at the place that `result.error` names.
    pub(crate) fn reported_error(&self, document: &Value) -> Option<ExecutorError> {
        let found = self.shape.error.as_ref()?.first(document)?;
        match found {
            Value::Null => None,
            Value::String(text) => Some(ExecutorError::Reported(text.clone())),
            other => Some(ExecutorError::Reported(other.to_string())),
        }
    }

    /// Takes MCP content as one row, or the rows in its structured part if the tool's result does not have the shape of
    /// content.
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

    /// Returns whether the result of an MCP server is passed on unchanged: the result does not have to be parsed, and
    /// all of it may be seen.
    pub(crate) fn takes_unchanged(&self) -> bool {
        let is_restricted = self
            .audience
            .is_none_or(|audience| audience.is_restricted());
        !is_restricted
            && self.gate.is_none()
            && self.shape.shape == Shape::Content
            && self.shape.internal.is_empty()
    }

    /// Takes the result of an MCP server that is passed on unchanged.
    pub(crate) fn set_unchanged_result(
        &mut self,
        result: UnchangedResult,
    ) -> Result<(), ExecutorError> {
        if result.size() > self.caps.bytes {
            return Err(ExecutorError::TooLarge);
        }
        self.retained.unchanged = Some(result);
        Ok(())
    }

    /// Takes the rows of a result that was redacted earlier.
    pub(crate) fn set_released_rows(
        &mut self,
        rows: Redacted<Vec<Row>>,
        counts: RedactionCounts,
        truncated: bool,
    ) {
        self.retained.truncated = truncated;
        self.retained.released = Some((rows, counts));
    }

    /// Sends the progress of the run. The message is left out if the permit restricts what may be seen.
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

    /// Forwards a log message of the source, unless the permit restricts what may be seen.
    pub(crate) fn log(&mut self, message: LogMessage) {
        if let Some(audience) = self.audience.filter(Audience::may_read_texts) {
            audience.send_event(CallEvent::Log(client::LogMessage {
                level: message.level.as_str().to_owned(),
                logger: message.logger.filter(|logger| !logger.is_empty()),
                data_json: message.data.get().to_owned(),
            }));
        }
    }

    /// Forwards that an elicitation is complete, unless the permit restricts what may be seen.
    pub(crate) fn forward_completion(&mut self, elicitation: String) {
        if let Some(audience) = self.audience.filter(Audience::may_read_texts) {
            audience.send_event(CallEvent::Completed(elicitation));
        }
    }

    /// Forwards that the server closed the stream of the call, so that the rest has to be polled.
    pub(crate) fn stream_closed(&mut self) {
        if let Some(audience) = self.audience {
            audience.send_event(CallEvent::StreamClosed);
        }
    }

    /// Suspends the run until the client has answered.
    pub(crate) fn suspend_run(&mut self, suspended: SuspendedRound) {
        self.retained.suspended = Some(suspended);
    }

    /// Records the task that the run became or asked about.
    pub(crate) fn task(&mut self, task: FollowedTask) {
        self.retained.task = Some(task);
    }

    /// Returns the maximum size of a result, in bytes.
    pub(crate) fn max_bytes(&self) -> usize {
        self.caps.bytes
    }

    /// Prepares for another attempt of the run, of which nothing but the time spent on the row rule is kept.
    pub(crate) fn begin_attempt(&mut self) {
        self.retained = RetainedRows {
            row_rule_time: self.retained.row_rule_time,
            ..RetainedRows::default()
        };
    }

    /// Returns whether there is nothing to release yet, so that the run can be retried. An admitted row beyond the limits
    /// of the response is to be released, because it is stored. Withheld rows do not count, because the caller would
    /// otherwise see by a failure that there are some.
    pub(crate) fn is_untouched(&self) -> bool {
        let RetainedRows {
            rows,
            overflow,
            unchanged,
            truncated,
            ..
        } = &self.retained;
        rows.is_empty() && overflow.is_empty() && !truncated && unchanged.is_none()
    }

    pub(crate) fn into_retained(self) -> RetainedRows {
        self.retained
    }
}

impl RetainedRows {
    /// Retains an admitted row unless the result is full.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use serde_json::json;
    use wardgate_catalogue::{Catalogue, FileText};

    use super::*;

    #[test]
    fn each_attempt_leaves_out_the_same_rows() {
        let text = "tools: [{ name: a, input_schema: { type: object }, execute: { type: command, argv: [cat] } }]";
        let file = FileText {
            path: PathBuf::from("tools.yaml"),
            text: text.to_owned(),
        };
        let catalogue = Catalogue::parse(&[file], &BTreeMap::new()).unwrap();
        let caps = Caps {
            rows: 2,
            bytes: 1_000,
            overflow: Some(RetentionLimit {
                rows: 100,
                bytes: 1_000,
            }),
            stops: true,
        };
        let mut output = Output::new(catalogue.tools()[0].result(), None, caps, None);
        for _ in 0..2 {
            output.begin_attempt();
            output.limit_to(RowRange {
                skip: 2,
                take: Some(3),
            });
            let row = |id: u64| Row::new(vec![(Arc::from("id"), json!(id))]);
            let flows: Vec<_> = (0..5).map(|id| output.row(row(id))).collect();
            assert_eq!(flows[3], ControlFlow::Continue(()));
            assert_eq!(
                flows[4],
                ControlFlow::Break(()),
                "the third row is the last one"
            );
            let RetainedRows { rows, overflow, .. } = &output.retained;
            assert_eq!((rows.len(), overflow.len()), (2, 1));
            assert_eq!(rows[0].get("id"), Some(&json!(2)));
        }
    }
}
