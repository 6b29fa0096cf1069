//! A turn: from the user's message to the answer.
//!
//! ```text
//!   screen ─▶ conversation ─▶ ┌▶ ask the model ─▶ journal ─▶ run its calls ───────▶ journal ┐ ─▶ answer, turn complete
//!      │                      └──────────────────────────────────────────────────────────────┘       │
//!      └ refused: nothing is stored       waits for an approval: the turn stays open                  └▶ summary
//! ```
//!
//! Every step of a turn goes through its journal, and a turn that is started again takes the same steps: steps in the journal are
//! replayed, and the first missing step is executed. Starting, resuming and replaying therefore share one code path.

mod abandon_guard;
mod calls;
mod context;
mod failure;
mod journal;
mod limits;
mod message;
mod model_answer;
mod model_input;
mod offered_tools;
mod quoted_calls;
mod sink;
mod summary;
mod unreadable;

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout_at;
use wardgate_domain::{Ambient, Caller};

use crate::approval::{Approval, ApprovalKey, InvalidApproval};
use crate::assistant::{Assistant, Calls, CommandAnswer, MessageOpening, resolve_opening};
use crate::clients::{GatewayClient, ToolAnswer};
use crate::event::{AgentEvent, ErrorKind, FinishReason};
use crate::guardrail;
use crate::memory::{Conversation, storable};
use crate::model::{FinishReason as ModelFinish, FunctionCall, ModelError, TokenUsage};
use crate::request::{ApprovalDecision, ChatRequest, HistoryMessage};

use abandon_guard::AbandonGuard;
use calls::CallsOutcome;
use context::ConversationEntry;
pub(crate) use failure::TurnFailure;
use journal::{AnswerEnding, Journal, RecordedDecision, Round};
use limits::TurnBudget;
use model_answer::{CallSource, ModelCall, ReadOptions};
use model_input::ModelInput;
use quoted_calls::ToolData;
use sink::{EventSink, TurnEnd};

/// Maximum number of calls in one round.
const MAX_CALLS: usize = 64;

/// The assistant, the caller and the services of a turn.
pub(crate) struct TurnSetup {
    pub(crate) assistant: Arc<Assistant>,
    pub(crate) caller: Arc<Caller>,
    pub(crate) gateway: Arc<dyn GatewayClient>,
    pub(crate) key: ApprovalKey,
    pub(crate) ambient: Ambient,
    /// Limits the number of summaries that are written at the same time.
    pub(crate) summaries: Arc<Semaphore>,
}

/// The outcome of a turn that did not fail.
enum TurnOutcome {
    Answered {
        round: usize,
        ending: AnswerEnding,
    },
    /// A call needs the user's or an approver's approval.
    AwaitingApproval,
    /// The turn ended without storing anything in memory.
    Unrecorded(FinishReason),
}

struct Turn {
    setup: Arc<TurnSetup>,
    sink: EventSink,
    id: String,
    conversation_id: Option<String>,
    budget: TurnBudget,
    abandon_guard: AbandonGuard,
}

/// Processes a message to an assistant. All events are sent to `out`; the last is `done`.
pub(crate) async fn chat(setup: TurnSetup, request: ChatRequest, out: mpsc::Sender<AgentEvent>) {
    let turn_id = match &request.message_id {
        Some(id) => id.clone(),
        None => wardgate_domain::CallId::new(&setup.ambient).to_string(),
    };
    let sink = EventSink::new(out, setup.ambient.clone(), request.after);
    let mut turn = Turn::new(setup, sink, turn_id);
    let outcome = turn.run(request).await;
    turn.end(outcome).await;
}

/// Stores the decision on a pending call and continues its turn.
pub(crate) async fn decide(
    setup: TurnSetup,
    approval: Approval,
    decision: ApprovalDecision,
    out: mpsc::Sender<AgentEvent>,
) {
    let sink = EventSink::new_reply(out, setup.ambient.clone(), approval.event);
    let mut turn = Turn::new(setup, sink, approval.turn.clone());
    turn.conversation_id = Some(approval.conversation.clone());
    let outcome = turn.run_decided(&approval, decision).await;
    turn.end(outcome).await;
}

/// Sends a stream that consists only of an error.
pub(crate) async fn fail(failure: TurnFailure, ambient: Ambient, out: mpsc::Sender<AgentEvent>) {
    let mut sink = EventSink::new(out, ambient, None);
    sink.error(failure.kind(), &failure.to_string()).await;
    sink.send_end(TurnEnd {
        reason: FinishReason::Error,
        conversation_id: None,
        turn_id: String::new(),
        message_id: None,
        cap: None,
    })
    .await;
}

impl Turn {
    fn new(setup: TurnSetup, sink: EventSink, id: String) -> Self {
        Self {
            budget: TurnBudget::new(setup.assistant.limits),
            setup: Arc::new(setup),
            sink,
            id,
            conversation_id: None,
            abandon_guard: AbandonGuard::default(),
        }
    }

    // === one turn, from start to end ===

    async fn run(&mut self, request: ChatRequest) -> Result<TurnOutcome, TurnFailure> {
        message::check(&request)?;
        if let Some(journal) = self.load_journal(&request).await? {
            return self.run_rounds(journal, Vec::new()).await;
        }
        let opening = self.resolve_opening(&request.message);
        self.has_model(&opening)?;
        if let MessageOpening::Usage(usage) = opening {
            self.sink.whole_text(0, &usage).await;
            return Ok(TurnOutcome::Unrecorded(FinishReason::Stop));
        }
        if let Some(ended) = self.screen(&request.message, &opening).await {
            return Ok(ended);
        }
        let gateway = Arc::clone(&self.setup.gateway);
        let id = request.conversation_id.as_deref();
        let conversation = Conversation::get_or_create(gateway, id).await?;
        self.conversation_id = Some(conversation.id().to_owned());
        if request.message_id.is_none() || id.is_none() {
            // No client can name the turn to resume it.
            self.abandon_guard = AbandonGuard::new(&conversation, &self.id);
        }
        let author = &self.setup.assistant.name;
        let journal = Journal::new(conversation, &self.id, author, &request.message);
        let mut history = request.history;
        // The history must not be a way around the input checks.
        let input = &self.setup.assistant.input;
        history.retain(|it| id.is_none() && guardrail::find_refusal(input, &it.text).is_none());
        self.run_rounds(journal, history).await
    }

    async fn run_decided(
        &mut self,
        approval: &Approval,
        decision: ApprovalDecision,
    ) -> Result<TurnOutcome, TurnFailure> {
        let gateway = Arc::clone(&self.setup.gateway);
        let conversation = Conversation::with_id(gateway, &approval.conversation);
        let author = &self.setup.assistant.name;
        let journal = Journal::load(conversation, &approval.turn, author).await?;
        let mut journal = journal.ok_or(InvalidApproval::Unknown)?;
        let round = journal.rounds().len().saturating_sub(1);
        let requested = journal.rounds().last().map(|round| round.calls.clone());
        let mut requested = requested.into_iter().flatten().enumerate();
        let waiting = requested.find(|(_, call)| call.id == approval.call_id);
        let (index, call) = waiting.ok_or(InvalidApproval::Used)?;
        let is_decided = journal.decision(&call).is_some() || journal.answer(&call).is_some();
        if is_decided || !journal.is_open() {
            return Err(InvalidApproval::Used.into());
        }
        let nonce = self.setup.ambient.random();
        let decision = RecordedDecision::new(decision, &call, &approval.terms, nonce);
        journal
            .add_decision(round, index, decision)
            .await
            .map_err(|failure| match failure {
                TurnFailure::Conflict(_) => InvalidApproval::Used.into(),
                failure => failure,
            })?;
        self.run_rounds(journal, Vec::new()).await
    }

    /// Processes the turn round by round: replays the rounds of the journal and executes the missing ones.
    async fn run_rounds(
        &mut self,
        mut journal: Journal,
        history: Vec<HistoryMessage>,
    ) -> Result<TurnOutcome, TurnFailure> {
        let mut model_input = None;
        let mut history = Some(history);
        let mut entries = Vec::new();
        for round in 0.. {
            let known = journal.rounds().get(round).cloned();
            if model_input.is_none() && (known.is_none() || journal.stops_at(round)) {
                let history = history.take().unwrap_or_default();
                model_input = Some(ModelInput::fetch(&self.setup, &journal, history).await?);
            }
            let step = if let Some(step) = known {
                self.sink.whole_text(round, &step.text).await;
                step
            } else {
                let model_input = model_input.as_ref();
                self.next_round(round, &mut journal, model_input, &entries)
                    .await?
            };
            if step.calls.is_empty() {
                self.summarise(&journal, model_input.as_ref());
                let ending = step.ending;
                return Ok(TurnOutcome::Answered { round, ending });
            }
            let answers = if journal.stops_at(round) {
                let model_input = model_input.as_ref();
                match self
                    .run_calls(round, &mut journal, model_input, &step)
                    .await?
                {
                    (CallsOutcome::Answered, answers) => answers,
                    (CallsOutcome::AwaitingApproval, _) => {
                        return Ok(TurnOutcome::AwaitingApproval);
                    }
                }
            } else {
                for call in &step.calls {
                    self.budget.may_call(call);
                }
                calls::replay(&journal, round, &step.calls, &mut self.sink).await
            };
            entries.push(ConversationEntry::Model {
                text: step.text,
                calls: step.calls.into_iter().zip(answers).collect(),
            });
        }
        Err(TurnFailure::Empty)
    }

    async fn end(mut self, outcome: Result<TurnOutcome, TurnFailure>) {
        self.abandon_guard.disarm();
        let usage = self.budget.usage();
        let (reason, message_id, cap) = match outcome {
            Ok(TurnOutcome::Answered { round, ending }) => {
                self.sink.mark_answer_complete(round);
                let id = format!("{}/{round}{}", self.id, ending.as_str());
                (ending.reason(), Some(id), ending.cap())
            }
            Ok(TurnOutcome::AwaitingApproval) => (FinishReason::ApprovalRequired, None, None),
            Ok(TurnOutcome::Unrecorded(reason)) => (reason, None, None),
            Err(failure) => {
                tracing::warn!(
                    assistant = self.setup.assistant.name,
                    cause = %failure.kind().as_str(),
                    "a turn ended without an answer"
                );
                self.sink.error(failure.kind(), &failure.to_string()).await;
                (FinishReason::Error, None, failure.cap())
            }
        };
        metrics::counter!(wardgate_telemetry::names::AGENT_TURNS, "finish" => reason.as_str())
            .increment(1);
        self.sink.usage(usage.input, usage.output).await;
        self.sink
            .send_end(TurnEnd {
                reason,
                conversation_id: self.conversation_id,
                turn_id: self.id,
                message_id,
                cap,
            })
            .await;
    }

    // === parts of a turn ===

    /// Loads the journal of the turn if the turn has already begun.
    async fn load_journal(
        &mut self,
        request: &ChatRequest,
    ) -> Result<Option<Journal>, TurnFailure> {
        let (Some(conversation), Some(message_id)) =
            (&request.conversation_id, &request.message_id)
        else {
            return Ok(None);
        };
        let gateway = Arc::clone(&self.setup.gateway);
        let conversation = Conversation::with_id(gateway, conversation);
        let author = &self.setup.assistant.name;
        let journal = Journal::load(conversation, message_id, author).await?;
        if let Some(journal) = &journal {
            self.conversation_id.clone_from(&request.conversation_id);
            if journal.question() != request.message {
                let problem =
                    "this message_id belongs to another message; send this message with its own";
                return Err(TurnFailure::Conflict(problem.to_owned()));
            }
        }
        Ok(journal)
    }

    fn resolve_opening(&self, message: &str) -> MessageOpening {
        let assistant = &self.setup.assistant;
        resolve_opening(message, &assistant.commands, assistant.opening.as_ref())
    }

    /// Checks that the assistant has a model, unless a command that only shows a result makes it unnecessary.
    fn has_model(&self, opening: &MessageOpening) -> Result<(), TurnFailure> {
        let needs_none = matches!(
            opening,
            MessageOpening::Usage(_)
                | MessageOpening::Call {
                    answer: CommandAnswer::Result,
                    ..
                }
        );
        match &self.setup.assistant.model.client {
            Err(missing) if !needs_none => Err(TurnFailure::NotConfigured(
                self.setup.assistant.name.clone(),
                missing.clone(),
            )),
            _ => Ok(()),
        }
    }

    /// Refuses a message that must not be answered, and returns the outcome in this case.
    async fn screen(&mut self, message: &str, opening: &MessageOpening) -> Option<TurnOutcome> {
        let assistant = &self.setup.assistant;
        let language = assistant.language(message);
        let is_command = matches!(
            opening,
            MessageOpening::Call {
                is_command: true,
                ..
            }
        );
        let refusal = guardrail::refusal(assistant, message, language, is_command).await?;
        if refusal.because_it_failed {
            let kind = ErrorKind::GuardrailFailed;
            self.sink
                .error(
                    kind,
                    "the guardrail could not decide, so the message is refused",
                )
                .await;
        }
        self.sink.whole_text(0, &refusal.text).await;
        Some(TurnOutcome::Unrecorded(FinishReason::Refused))
    }

    /// Returns the next round: a configured opening call, the result of a command, or an answer of the model.
    async fn next_round(
        &mut self,
        round: usize,
        journal: &mut Journal,
        model_input: Option<&ModelInput>,
        entries: &[ConversationEntry],
    ) -> Result<Round, TurnFailure> {
        let step = match (round, self.resolve_opening(journal.question())) {
            (
                0,
                MessageOpening::Call {
                    tool, arguments, ..
                },
            ) => Round {
                text: String::new(),
                calls: vec![FunctionCall {
                    id: format!("call_{round}_0"),
                    name: tool,
                    arguments,
                }],
                ending: AnswerEnding::Stop,
            },
            (
                1,
                MessageOpening::Call {
                    answer: CommandAnswer::Result,
                    ..
                },
            ) => {
                let text = result_of(entries).unwrap_or_default();
                self.sink.whole_text(round, &text).await;
                Round {
                    text,
                    calls: Vec::new(),
                    ending: AnswerEnding::Stop,
                }
            }
            _ => match model_input {
                Some(model_input) => self.ask_model(round, journal, model_input, entries).await?,
                None => return Err(TurnFailure::Empty),
            },
        };
        journal.add_round(step.clone()).await?;
        self.abandon_guard.arm(journal.is_open());
        Ok(step)
    }

    /// Requests an answer of the model. Once a limit is reached, the model must answer with text.
    async fn ask_model(
        &mut self,
        round: usize,
        journal: &Journal,
        model_input: &ModelInput,
        entries: &[ConversationEntry],
    ) -> Result<Round, TurnFailure> {
        let setup = Arc::clone(&self.setup);
        let assistant = &setup.assistant;
        let client = match &assistant.model.client {
            Ok(client) => client,
            Err(missing) => {
                return Err(TurnFailure::NotConfigured(
                    assistant.name.clone(),
                    missing.clone(),
                ));
            }
        };
        let cap = self.budget.cap(round);
        let request = model_input.request(&assistant.model, entries, cap);
        let input_characters = model_input::characters(&request);
        self.sink.restart_round(round);
        let until = self.budget.last_deadline();
        let stream = timeout_at(until, client.stream(request))
            .await
            .map_err(|_| ModelError::Late)??;
        let is_checked = !assistant.output.is_empty();
        let options = ReadOptions {
            functions: &model_input.functions,
            syntax: &assistant.syntax,
            data: ToolData {
                before: &model_input.before,
                entries,
            },
            takes_mentions: assistant.calls == Calls::Text,
            is_held: is_checked,
            round,
            until,
        };
        let model_answer = model_answer::read_answer(&options, stream, &mut self.sink).await?;
        self.budget.add(model_answer.usage.unwrap_or(TokenUsage {
            input: limits::estimate(input_characters),
            output: limits::estimate(model_answer.characters),
        }));
        let mut step = Round {
            ending: match (cap, &model_answer.finish) {
                (Some(cap), _) => AnswerEnding::Capped(cap),
                (None, ModelFinish::Length) => AnswerEnding::Length,
                (None, ModelFinish::Filtered) => AnswerEnding::Filtered,
                (None, _) => AnswerEnding::Stop,
            },
            text: model_answer.text,
            calls: if cap.is_some() {
                Vec::new()
            } else {
                assign_call_ids(model_answer.calls, round, journal)
            },
        };
        if let Some(refusal) = guardrail::find_refusal(&assistant.output, &step.text) {
            step = Round {
                text: refusal.to_owned(),
                calls: Vec::new(),
                ending: AnswerEnding::Filtered,
            };
        }
        if is_checked {
            self.sink.whole_text(round, &step.text).await;
        }
        if !step.calls.is_empty() {
            step.ending = AnswerEnding::Stop;
        } else if step.text.trim().is_empty() {
            return Err(cap.map_or(TurnFailure::Empty, TurnFailure::Capped));
        }
        Ok(step)
    }

    async fn run_calls(
        &mut self,
        round: usize,
        journal: &mut Journal,
        model_input: Option<&ModelInput>,
        step: &Round,
    ) -> Result<(CallsOutcome, Vec<ToolAnswer>), TurnFailure> {
        let model_input = model_input.ok_or(TurnFailure::Empty)?;
        let mut calls = Vec::new();
        for call in &step.calls {
            calls.push((call.clone(), self.budget.may_call(call)));
        }
        let (setup, offered_tools) = (&self.setup, &model_input.offered_tools);
        let sink = &mut self.sink;
        calls::run_calls(
            setup,
            offered_tools,
            journal,
            &self.budget,
            round,
            &calls,
            sink,
        )
        .await
    }

    fn summarise(&self, journal: &Journal, model_input: Option<&ModelInput>) {
        let uncovered = model_input.map_or(0, |model_input| model_input.uncovered);
        if self.setup.assistant.context.summarise && uncovered > 0 {
            summary::write(&self.setup, journal.conversation());
        }
    }
}

/// Assigns ids to the calls that are unique in the turn and are stored unchanged by memory, because an approval identifies a call
/// by its id.
fn assign_call_ids(calls: Vec<ModelCall>, round: usize, journal: &Journal) -> Vec<FunctionCall> {
    let mut named: Vec<FunctionCall> = Vec::new();
    for (index, ModelCall { call, source }) in calls.into_iter().take(MAX_CALLS).enumerate() {
        let id = storable(&call.id);
        let own = (index..).map(|number| match source {
            CallSource::Model => format!("call_{round}_{number}"),
            CallSource::Data => quoted_calls::id(round, number),
            CallSource::Unreadable => unreadable::id(round, number),
        });
        let is_free = |id: &String| {
            quoted_calls::is_id(id) == (source == CallSource::Data)
                && unreadable::is_id(id) == (source == CallSource::Unreadable)
                && !id.is_empty()
                && !journal.knows_call(id)
                && named.iter().all(|it| it.id != *id)
        };
        let id = std::iter::once(id).chain(own).find(is_free);
        named.push(FunctionCall {
            id: id.unwrap_or_default(),
            ..call
        });
    }
    named
}

/// Returns the result text of the last call.
fn result_of(entries: &[ConversationEntry]) -> Option<String> {
    match entries.last()? {
        ConversationEntry::Model { calls, .. } => {
            calls.last().map(|(_, answer)| answer.text.clone())
        }
        ConversationEntry::Person(_) => None,
    }
}

#[cfg(test)]
mod tests;
