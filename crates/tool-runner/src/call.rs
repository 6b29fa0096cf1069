//! Runs one tool call, from its admission to its result.
//!
//! ```text
//!   admit:  tool ─▶ permit ─▶ AdmittedCall          refused: nothing ran
//!   run:    arguments ─▶ execute ⇄ row rule ─▶ redact ─▶ result
//!                          ├ the MCP server asks the client ─▶ the call waits for input
//!                          └ the MCP server continues on its own ─▶ a task, followed up by the same call
//! ```

mod idempotency;
mod task;
mod upstream_error;
mod waiting;

use std::sync::Arc;

use bytes::Bytes;
use metrics::counter;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};
use wardgate_arguments::{Arguments, InvalidArguments};
use wardgate_domain::{
    CallFacts, CallId, CallToRun, Caller, ColumnClass, DataSubjects, Digest, InvalidMessage,
    OfferKind, Permit, Reason, ResultOutline, SignedPermit, Status, Timestamp,
};
use wardgate_redact::{DropReason, DroppedColumns};
use wardgate_rpc::client::{CallEvent, InputRequired, ResultFacts, Task, ToolResult};
use wardgate_telemetry::{labels, names};

use crate::Error;
use crate::compiled_permit::CompiledPermit;
use crate::execution_log::execution_facts;
use crate::executor::{Audience, Executor, Invocation, Output, RetainedRows, WithheldRows};
use crate::executor_error::ExecutorError;
use crate::failure::{FailedCall, Failure, ToolEffect};
use crate::interaction::{Elicitation, Interaction, UncheckedInteraction};
use crate::large_results::{self, LargeResults};
use crate::loaded::{LoadedCatalogue, RunnableTool, SharedState};
use crate::result::UnchangedResult;
use crate::result::{self, Handle, ResultSummary, Stopwatch};
use crate::sorted_arguments::to_sorted_json;
use wardgate_mcp_client::TaskStatus;
use wardgate_resilience::{Attempt, FailedAttempt, GuardError, GuardedCall, next_step};

/// Column whose class governs the error messages of an upstream.
pub(crate) const ERROR: &str = "error";

/// Number of rows of a large result that the response shows.
const SAMPLE: usize = 20;

/// A request to call a tool, with its fields checked.
pub(crate) struct CallRequest {
    pub(crate) id: CallId,
    pub(crate) caller: Arc<Caller>,
    /// The canonical name of the tool.
    pub(crate) tool: String,
    /// The arguments as one JSON object, byte for byte what the policy service decided on.
    pub(crate) arguments: Bytes,
    pub(crate) permit: Option<SignedPermit>,
    /// The caller's bearer token, if the tool needs it. The token is never logged.
    pub(crate) caller_token: Option<String>,
    /// The idempotency key: a tool that writes never runs twice with the same key and arguments.
    pub(crate) idempotency_key: Option<String>,
    /// What the client can take part in. The field is read only if the tool's source may talk to the client.
    pub(crate) interaction: Option<UncheckedInteraction>,
}

/// A call that may run. Only [`admit`] creates one.
pub(crate) struct AdmittedCall {
    id: CallId,
    caller: Arc<Caller>,
    caller_token: Option<String>,
    idempotency_key: Option<String>,
    interaction: Option<Interaction>,
    loaded: Arc<LoadedCatalogue>,
    tool: Arc<RunnableTool>,
    arguments: Bytes,
    permit: Permit,
    compiled: Arc<CompiledPermit>,
    stopwatch: Stopwatch,
}

/// Finds the tool and verifies the signed permit, which allows one run of the tool.
pub(crate) fn admit(
    call: CallRequest,
    loaded: &Arc<LoadedCatalogue>,
    now: Timestamp,
) -> Result<AdmittedCall, Error> {
    let mut stopwatch = Stopwatch::start();
    let tool = loaded.tool(&call.tool).ok_or(Error::UnknownTool)?;
    let signed = call.permit.ok_or(Error::NoPermit)?;
    let facts = tool.tool.facts();
    let to_run = CallToRun {
        caller: &call.caller,
        tool: &facts.name,
        definition_digest: facts.definition_digest,
        arguments: &call.arguments,
    };
    let (permit, compiled) = loaded
        .compiled_permits()
        .admit(signed, to_run, Some(tool), now)?;
    let interaction = match call.interaction {
        Some(interaction) if tool.tool.plan().may_request_input() => Some(interaction.try_into()?),
        Some(interaction) if interaction.resumption.is_some() => {
            let why = "belongs to a tool that requests no input from its clients";
            return Err(InvalidMessage::field("interaction.resumption", why).into());
        }
        _ => None,
    };
    stopwatch.lap("permit");
    Ok(AdmittedCall {
        interaction,
        id: call.id,
        caller: call.caller,
        caller_token: call.caller_token,
        idempotency_key: call.idempotency_key,
        loaded: Arc::clone(loaded),
        tool: Arc::clone(tool),
        arguments: call.arguments,
        permit,
        compiled,
        stopwatch,
    })
}

impl AdmittedCall {
    /// Returns the canonical name of the tool.
    pub(crate) fn tool(&self) -> &str {
        self.tool.tool.facts().name.as_str()
    }

    /// Returns whether the tool may change something.
    pub(crate) fn may_write(&self) -> bool {
        !self.tool.tool.facts().read_only
    }

    /// Returns the facts of this call for its audit record.
    pub(crate) fn execution(&self) -> CallFacts {
        execution_facts(
            self.id,
            &self.caller,
            OfferKind::Tool,
            &self.arguments,
            &self.permit,
        )
    }

    /// Runs the tool and sends its progress and messages to `listener`. Dropping the future stops the work in the
    /// source.
    ///
    /// A tool with a `time_step` ends at a multiple of it, or at its time limit, so that the time of its answer does not tell how
    /// many rows are withheld.
    pub(crate) async fn run(
        self,
        shared: &SharedState,
        listener: &mpsc::Sender<CallEvent>,
    ) -> CallEnd {
        let Some(step) = self.tool.tool.result().time_step() else {
            return self.run_tool(shared, listener).await;
        };
        let started = Instant::now();
        let time_limit = self.tool.time_limit;
        let end = Box::pin(self.run_tool(shared, listener)).await;
        let time = next_step(started.elapsed(), step).min(time_limit);
        sleep_until(started + time).await;
        end
    }

    /// Runs the tool and returns as soon as it has ended.
    async fn run_tool(
        mut self,
        shared: &SharedState,
        listener: &mpsc::Sender<CallEvent>,
    ) -> CallEnd {
        // The call is logged at debug level because the gateway writes the one log line per call when the call ends.
        debug!(
            { names::CALL_ID } = %self.id,
            { names::TOOL } = self.tool(),
            "Executing MCP tool"
        );
        let tool = &self.tool.tool;
        if self.compiled.may_withhold
            && (tool.plan().combines_rows() || tool.result().requires_pushdown())
        {
            return self.refuse_late_row_rule().end;
        }
        let arguments = self.arguments();
        self.stopwatch.lap("validate");
        let arguments = match arguments {
            Ok(arguments) => arguments,
            Err(invalid) => {
                let failure = Failure::invalid(invalid.to_string());
                return self.fail_without_rows(&failure).end;
            }
        };
        let deadline = Instant::now() + self.tool.time_limit;
        // A result that depends on the client's input is not shared.
        let is_shared = self.interaction.as_ref().is_none_or(Interaction::is_idle);
        let kept_for = self.tool.tool.cache().filter(|_| is_shared);
        let key = self.idempotency_key.take();
        match (key.filter(|_| !self.is_task_request()), kept_for) {
            // Only a tool that writes needs the key: a second run of a tool that reads does no harm.
            (Some(key), _) if !self.tool.tool.facts().read_only => {
                Box::pin(self.run_once(&key, &arguments, deadline, shared, listener)).await
            }
            (_, Some(kept_for)) => {
                let key = self.cache_key(&arguments);
                let run = async {
                    let performing = self.perform(&arguments, None, deadline, shared, listener);
                    match performing.await.end {
                        // Neither failures nor unfinished calls are cached.
                        CallEnd::Result(result) if !result.is_error => Ok(result),
                        other => Err(other),
                    }
                };
                let result = Box::pin(shared.results.get_or_run(key, kept_for, run)).await;
                result.map_or_else(|other| other, CallEnd::Result)
            }
            (_, None) => {
                self.perform(&arguments, None, deadline, shared, listener)
                    .await
                    .end
            }
        }
    }

    /// Refuses the call because the database would use rows that the row rule withholds, which the statement or the tool does not
    /// allow. This depends on the tool and the rule, and not on any row.
    fn refuse_late_row_rule(self) -> EndedRun {
        warn!(
            { names::CALL_ID } = %self.id,
            { names::TOOL } = self.tool(),
            "a call was refused: its statement combines rows or the tool has `require_pushdown`, and the database does not apply \
             the whole row rule; write `:row_rule` as a condition of WHERE in the query that reads the governed rows, map every \
             attribute of the rule in `result.row_rule`, use only conditions that can be written as SQL, test attributes that can be \
             NULL with `has`, and do not switch `tool_runner.pushdown` off"
        );
        self.fail_without_rows(&Failure::late_row_rule())
    }

    fn arguments(&self) -> Result<Map<String, Value>, InvalidArguments> {
        let tool = &self.tool.tool;
        let is_decided_on = self.permit.terms().arguments_digest.is_some();
        let read = if is_decided_on {
            Arguments::parse_as_decided
        } else {
            Arguments::parse
        };
        let mut arguments = read(tool.input(), &self.arguments)?.into_values();
        tool.derive()
            .extend(&self.caller, &mut arguments)
            .map_err(|unfit| InvalidArguments::because(unfit.to_string()))?;
        Ok(arguments)
    }

    /// Returns the cache key, which covers everything that the result depends on. Callers share an entry only if
    /// neither the row rule nor the source distinguishes between them.
    fn cache_key(&self, arguments: &Map<String, Value>) -> Digest {
        let terms = self.permit.terms();
        let is_personal = terms.row_rule.as_ref().is_some_and(|rule| !rule.all)
            || self.tool.tool.plan().stands_for_caller();
        let who = if is_personal {
            terms.caller_digest.to_string()
        } else {
            self.caller.tenant().to_owned()
        };
        let [definition, policy, shown] = self.terms();
        Digest::of_texts(&[
            &definition,
            &policy,
            &shown,
            &to_sorted_json(arguments),
            &who,
        ])
    }

    /// Returns what decides how much of a result may be seen: the definition, the policies, the row rule and the
    /// columns.
    fn terms(&self) -> [String; 3] {
        let terms = self.permit.terms();
        [
            terms.definition_digest.to_string(),
            terms.policy_hash.to_string(),
            format!("{:?} {:?}", terms.row_rule, terms.column_tiers),
        ]
    }

    /// Runs the tool within its limits and the circuit breaker of its source, and turns the outcome into a result.
    async fn perform(
        mut self,
        arguments: &Map<String, Value>,
        key: Option<&str>,
        deadline: Instant,
        shared: &SharedState,
        listener: &mpsc::Sender<CallEvent>,
    ) -> EndedRun {
        let tool = Arc::clone(&self.tool);
        let compiled = Arc::clone(&self.compiled);
        let gate = compiled.gate.as_ref();
        let audience = Audience {
            listener,
            permit: &self.permit,
            compiled: &compiled,
            classes: &tool.tool.facts().classes,
        };
        let elicitation = self.elicitation(arguments, key, shared);
        if let Some(elicitation) = elicitation
            .as_ref()
            .filter(|elicitation| elicitation.resumes())
            && audience.is_restricted()
        {
            elicitation.give_up();
            return self.fail_without_rows(&Failure::not_waiting());
        }
        let elicitation = elicitation.filter(|_| !audience.is_restricted());
        let mut output = Output::new(tool.tool.result(), gate, tool.caps(), Some(audience))
            .with_page(tool.page(arguments));
        // A request about a task is not counted as a call of its tool.
        let guard = if self.is_task_request() {
            tool.guard().without_limits()
        } else {
            tool.guard()
        };
        let call = GuardedCall {
            caller: &self.caller,
            // The client's answers are used only once, so an attempt that uses them is not repeated.
            repeatable: tool.tool.is_repeatable()
                && !elicitation.as_ref().is_some_and(Elicitation::resumes),
            deadline,
        };
        let mut attempts = 0;
        let attempt = Execution {
            attempts: &mut attempts,
            executor: tool.executor.as_ref(),
            invocation: Invocation {
                elicitation: elicitation.as_ref(),
                ..self.invocation(arguments, deadline, shared)
            },
            output: &mut output,
        };
        let outcome = guard.run(&call, attempt).await;
        let mut retained = output.into_retained();
        self.stopwatch
            .lap_with("execute", retained.row_rule_time, Some("row_rule"));
        self.report_undecided_rows(&retained);
        if let (Ok(()), Some(round)) = (&outcome, retained.suspended.take()) {
            return self.suspend(round);
        }
        if outcome.is_ok()
            && let Some(task) = retained.task.take()
        {
            return match &task.status {
                Some(TaskStatus::Completed(_)) => {
                    let ended = self.conclude(Ok(()), retained, attempts, arguments, shared);
                    ended.await.of_task(task)
                }
                _ => self.end_with_status(task),
            };
        }
        self.conclude(outcome, retained, attempts, arguments, shared)
            .await
    }

    /// Logs and counts the rows that were withheld because the row rule cannot be evaluated for them. The caller does not
    /// see them, so this is how an operator learns of a statement or a policy schema that does not fit.
    fn report_undecided_rows(&self, retained: &RetainedRows) {
        let Some(why) = &retained.undecided else {
            return;
        };
        let rows = retained.withheld.undecided;
        counter!(names::ROWS_UNDECIDED, "tool" => labels::TOOLS.label(self.tool())).increment(rows);
        warn!(
            { names::CALL_ID } = %self.id,
            { names::TOOL } = self.tool(),
            rows,
            %why,
            "rows were withheld because the row rule cannot be evaluated for them"
        );
    }

    /// Turns the outcome of the run into a result.
    async fn conclude(
        self,
        outcome: Result<(), GuardError<ExecutorError>>,
        mut retained: RetainedRows,
        attempts: u32,
        arguments: &Map<String, Value>,
        shared: &SharedState,
    ) -> EndedRun {
        let failure = match outcome {
            Ok(()) if let Some(unchanged) = retained.unchanged.take() => {
                let subjects = self.tool.tool.result().data_subjects([], arguments);
                return self.release_unchanged(unchanged, subjects);
            }
            Ok(()) if retained.truncated && retained.rows.is_empty() => Failure::too_large(),
            Ok(()) => {
                // The data subjects are those of all rows, because the rows beyond the response can be requested by its
                // handle.
                let rows = retained.rows.iter().chain(&retained.overflow);
                let subjects = self.tool.tool.result().data_subjects(rows, arguments);
                let handle = Box::pin(self.store_large_result(&mut retained, shared)).await;
                return self.release(retained, handle, arguments, subjects);
            }
            Err(GuardError::Failed(ExecutorError::Reported(words))) => self.reported_failure(words),
            Err(GuardError::Failed(ExecutorError::Protocol(error))) => {
                return self.protocol_error(error);
            }
            Err(GuardError::Failed(ExecutorError::NotConnected { scope })) => {
                return self.connect(scope, shared);
            }
            Err(error) => {
                if let GuardError::Failed(error) = &error {
                    // The error contains no value of a row or an argument.
                    warn!({ names::CALL_ID } = %self.id, %error, "a tool call failed in its source");
                }
                let call = FailedCall {
                    limit: self.tool.time_limit,
                    source: self.tool.tool.source(),
                    attempts,
                };
                Failure::from_guard_error(&error, &call)
            }
        };
        self.fail(&failure, retained.withheld)
    }

    fn invocation<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        deadline: Instant,
        shared: &'a SharedState,
    ) -> Invocation<'a> {
        Invocation {
            caller: &self.caller,
            caller_token: self.caller_token.as_deref(),
            arguments,
            raw_arguments: &self.arguments,
            deadline,
            read_only: self.tool.tool.facts().read_only,
            pushed: self.compiled.pushed.as_ref(),
            may_withhold: self.compiled.may_withhold,
            large_results: LargeResults {
                store: &shared.store,
                tools: self.loaded.definitions(),
                redactor: &self.compiled.redactor,
                policy_hash: self.permit.terms().policy_hash,
                now: shared.ambient.now(),
            },
            elicitation: None,
        }
    }

    /// Stores a result that is too large for a response, and keeps a sample of its rows. If the result cannot be
    /// stored, it is truncated and the response says that it is.
    async fn store_large_result(
        &self,
        retained: &mut RetainedRows,
        shared: &SharedState,
    ) -> Option<Handle> {
        if retained.overflow.is_empty() {
            return None;
        }
        let whole = !retained.truncated;
        retained.truncated = true;
        let rows = retained.rows.iter().chain(&retained.overflow);
        let total = retained.rows.len() + retained.overflow.len();
        let expires_at = shared.ambient.now().plus(shared.kept_for);
        let terms = self.permit.terms();
        match large_results::store_rows(&shared.store, &self.caller, terms, rows, expires_at).await
        {
            Ok(handle) => {
                retained.rows.truncate(SAMPLE);
                Some(Handle {
                    text: handle,
                    rows: total,
                    complete: whole,
                    columns: Vec::new(),
                    expires_at: expires_at.to_string(),
                })
            }
            Err(error) => {
                warn!({ names::CALL_ID } = %self.id, %error, "a large result cannot be stored, so it is truncated");
                None
            }
        }
    }

    /// Creates the result from an upstream result that is released unchanged.
    fn release_unchanged(mut self, unchanged: UnchangedResult, subjects: DataSubjects) -> EndedRun {
        self.stopwatch.lap("redact");
        let (status, kind) = status_of(unchanged.is_error);
        let classes = &self.tool.tool.facts().classes;
        let facts = ResultFacts {
            rows: 1,
            phi: classes.iter().any(ColumnClass::is_phi),
            outline: Some(Box::new(ResultOutline {
                subjects,
                ..ResultOutline::default()
            })),
            ..result::facts(status, kind, self.stopwatch.into_stages())
        };
        EndedRun {
            end: CallEnd::Result(result::from_unchanged(unchanged, facts)),
            effect: ToolEffect::Done,
        }
    }

    /// Redacts the retained rows and creates the result from them.
    fn release(
        mut self,
        retained: RetainedRows,
        handle: Option<Handle>,
        arguments: &Map<String, Value>,
        subjects: DataSubjects,
    ) -> EndedRun {
        let tool = Arc::clone(&self.tool);
        let shape = tool.tool.result();
        if retained.rows.is_empty()
            && retained.released.is_none()
            && let Some(template) = &shape.empty_error
        {
            // A text placeholder of a message accepts any value.
            let text = template.fill_plain(arguments).unwrap_or_default();
            return self.fail(&Failure::new(Reason::NO_ROWS, text), retained.withheld);
        }
        let (rows, counts) = retained.released.unwrap_or_else(|| {
            let rows = retained.rows.into_iter();
            let rows = rows.map(|row| tool.tool.result().without_internal(row));
            self.compiled.redactor.rows(rows, shape.forms(), |column| {
                let class = tool.tool.result().class(column);
                (class, self.permit.tier(class))
            })
        });
        self.stopwatch.lap("redact");
        self.log_dropped_columns(&counts.dropped);
        let (status, kind) = status_of(retained.is_error);
        let facts = ResultFacts {
            status,
            rows: rows.get().len() as u64,
            rows_withheld: retained.withheld.total,
            fields_redacted: counts.fields_redacted,
            phi: counts.phi,
            error_kind: kind.to_owned(),
            stages: self.stopwatch.into_stages(),
            retry_after: None,
            dropped_columns: result::dropped_columns(&counts.dropped),
            outline: Some(Box::new(ResultOutline {
                columns: shape.outline(&rows, |class| self.permit.tier(class)),
                subjects,
                rows_undecided: retained.withheld.undecided,
            })),
        };
        let whole = ResultSummary {
            truncated: retained.truncated,
            handle: handle.map(|handle| handle.with_columns(rows.get())),
            single: retained.single,
            is_error: retained.is_error,
        };
        EndedRun {
            end: CallEnd::Result(result::from_released_rows(shape, &rows, &whole, facts)),
            effect: ToolEffect::Done,
        }
    }

    /// Logs how many columns were left out and why. The first time for each tool of a catalogue, also logs which of
    /// those columns have no class and where to give them one.
    fn log_dropped_columns(&self, dropped: &DroppedColumns) {
        if dropped.is_empty() {
            return;
        }
        let unclassified = dropped.count(DropReason::Unclassified);
        let not_permitted = dropped.count(DropReason::NotPermitted);
        info!(
            { names::CALL_ID } = %self.id,
            { names::TOOL } = self.tool(),
            unclassified,
            not_permitted,
            "columns were removed from a result"
        );
        if unclassified > 0 && self.tool.warns_of_unclassified_columns() {
            let columns = dropped.names(DropReason::Unclassified).map(str::to_owned);
            let warning = self.tool.tool.without_class(columns.collect());
            if let Some(warning) = warning {
                warn!({ names::CALL_ID } = %self.id, "{warning}");
            }
        }
    }

    /// Ends the call with a failure for which no row was checked.
    fn fail_without_rows(self, failure: &Failure) -> EndedRun {
        self.fail(failure, WithheldRows::default())
    }

    fn fail(self, failure: &Failure, withheld: WithheldRows) -> EndedRun {
        let outline = ResultOutline {
            rows_undecided: withheld.undecided,
            ..ResultOutline::default()
        };
        let facts = ResultFacts {
            rows_withheld: withheld.total,
            retry_after: failure.retry_after,
            outline: (withheld.undecided > 0).then(|| Box::new(outline)),
            ..result::facts(
                failure.status,
                failure.kind.as_str(),
                self.stopwatch.into_stages(),
            )
        };
        EndedRun {
            end: CallEnd::Result(result::error(&failure.text, facts)),
            effect: failure.effect,
        }
    }
}

/// Returns the status and error kind that are recorded for a result, which may itself report a failure.
fn status_of(is_error: bool) -> (Status, &'static str) {
    if is_error {
        (Status::Error, Reason::TOOL_ERROR.as_str())
    } else {
        (Status::Ok, "")
    }
}

/// The outcome of a call.
pub(crate) enum CallEnd {
    Result(ToolResult),
    /// The call waits for input from its client.
    InputRequired(InputRequired),
    /// The call goes on as a task, or was a request about a task.
    Task(Box<Task>),
}

/// The outcome of a run, and whether the run had an effect.
struct EndedRun {
    end: CallEnd,
    effect: ToolEffect,
}

/// The attempt that a guard makes once or several times.
struct Execution<'a, 'o> {
    /// The number of attempts made so far.
    attempts: &'a mut u32,
    executor: &'a dyn Executor,
    invocation: Invocation<'a>,
    output: &'a mut Output<'o>,
}

impl Attempt for Execution<'_, '_> {
    type Success = ();
    type Error = ExecutorError;

    async fn run_once(&mut self) -> Result<(), FailedAttempt<ExecutorError>> {
        *self.attempts += 1;
        self.output.begin_attempt();
        let run = self.executor.run(&self.invocation, self.output).await;
        run.map_err(|error| FailedAttempt {
            health: error.health(),
            partial: !self.output.is_untouched(),
            error,
        })
    }
}
