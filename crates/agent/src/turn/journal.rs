//! The journal of a turn in the conversation's memory, from which any replica can resume the turn.
//!
//! ```text
//!   message                      id                    when it is added
//!   the user's message           TURN                  with the first round
//!   a round of the model         TURN/ROUND            before its calls run; a round without calls is the
//!                                TURN/ROUND-ENDING     answer and completes the turn
//!   the result of a tool         TURN/ROUND.CALL       before its event is sent
//!   a decision on a call         TURN/ROUND.CALL/approval
//! ```
//!
//! A call that did not reach a tool (because of an unknown name, invalid arguments or a denial) has no message. It had no
//! effects, so it is evaluated again.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use wardgate_mcp::error_code::INVALID_PARAMS;

use crate::approval::InvalidApproval;
use crate::clients::{GatewayFailure, ToolAnswer};
use crate::event::{Cap, FinishReason};
use crate::memory::{
    AnsweredCall, Conversation, MessageSource, NewMessage, Role, StoredMessage, TurnState,
};
use crate::model::FunctionCall;
use crate::request::ApprovalDecision;

use super::context::readable_text;
use super::failure::TurnFailure;

/// The reasons with which memory rejects a tool result whose reader has lost the right to call the tool.
const RIGHTS_ENDED: [&str; 2] = ["denied", "unknown_tool"];

/// The position of a call in its turn.
#[derive(Clone, Copy)]
pub(super) struct CallPosition {
    pub(super) round: usize,
    /// The index of the call in the round.
    pub(super) index: usize,
}

/// The journal of one turn.
pub(super) struct Journal {
    conversation: Conversation,
    turn: String,
    /// The name of the assistant, which is the author of the model's messages.
    author: String,
    question: String,
    /// Whether memory contains any message of the turn.
    is_begun: bool,
    is_over: bool,
    rounds: Vec<Round>,
    answers: HashMap<String, ToolAnswer>,
    decisions: HashMap<String, RecordedDecision>,
}

/// An answer of the model: its text and its calls.
#[derive(Clone)]
pub(super) struct Round {
    pub(super) text: String,
    pub(super) calls: Vec<FunctionCall>,
    /// How the answer ended. Meaningless for a round with calls.
    pub(super) ending: AnswerEnding,
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerEnding {
    Stop,
    Length,
    Filtered,
    Capped(Cap),
}

impl AnswerEnding {
    const ALL: [Self; 8] = [
        Self::Stop,
        Self::Length,
        Self::Filtered,
        Self::Capped(Cap::Turns),
        Self::Capped(Cap::Tokens),
        Self::Capped(Cap::Cost),
        Self::Capped(Cap::Seconds),
        Self::Capped(Cap::IdenticalCalls),
    ];

    /// Returns the suffix of a round's message id.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "",
            Self::Length => "-length",
            Self::Filtered => "-filtered",
            Self::Capped(Cap::Turns) => "-turns",
            Self::Capped(Cap::Tokens) => "-tokens",
            Self::Capped(Cap::Cost) => "-cost",
            Self::Capped(Cap::Seconds) => "-seconds",
            Self::Capped(Cap::IdenticalCalls) => "-identical-calls",
        }
    }

    pub(super) fn reason(self) -> FinishReason {
        match self {
            Self::Stop | Self::Capped(_) => FinishReason::Stop,
            Self::Length => FinishReason::Length,
            Self::Filtered => FinishReason::ContentFilter,
        }
    }

    pub(super) fn cap(self) -> Option<Cap> {
        match self {
            Self::Capped(cap) => Some(cap),
            _ => None,
        }
    }
}

/// A user's decision on a call, as stored in the journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RecordedDecision {
    pub(super) approved: bool,
    pub(super) call_id: String,
    /// The model's name of the tool.
    pub(super) tool: String,
    /// Digest of the tool and of the exact arguments of the call.
    pub(super) terms: String,
    /// A random value that makes every decision a different message, so that memory accepts only the first.
    nonce: String,
}

impl RecordedDecision {
    pub(super) fn new(
        decision: ApprovalDecision,
        call: &FunctionCall,
        terms: &str,
        nonce: [u8; 16],
    ) -> Self {
        Self {
            approved: decision == ApprovalDecision::Approve,
            call_id: call.id.clone(),
            tool: call.name.clone(),
            terms: terms.to_owned(),
            nonce: u128::from_be_bytes(nonce).to_string(),
        }
    }
}

impl Journal {
    /// Creates the journal of a turn that has not begun.
    pub(super) fn new(
        conversation: Conversation,
        turn: &str,
        author: &str,
        question: &str,
    ) -> Self {
        Self {
            conversation,
            turn: turn.to_owned(),
            author: author.to_owned(),
            question: question.to_owned(),
            is_begun: false,
            is_over: false,
            rounds: Vec::new(),
            answers: HashMap::new(),
            decisions: HashMap::new(),
        }
    }

    /// Loads the journal of a turn, or returns `None` if the turn has not begun.
    pub(super) async fn load(
        conversation: Conversation,
        turn: &str,
        author: &str,
    ) -> Result<Option<Self>, TurnFailure> {
        let stored = conversation.turn(turn).await?;
        match stored.state {
            TurnState::None => return Ok(None),
            TurnState::Abandoned => {
                let problem = "this turn was abandoned; send the message with another message_id";
                return Err(TurnFailure::Conflict(problem.to_owned()));
            }
            TurnState::Open | TurnState::Complete => {}
        }
        let is_others = |it: &StoredMessage| it.role == Role::Assistant && it.author != author;
        if stored.messages.iter().any(is_others) {
            let problem = "this turn belongs to another assistant; send the message to that assistant, or with another message_id";
            return Err(TurnFailure::Conflict(problem.to_owned()));
        }
        // A withheld round reveals neither its calls nor whether it was the last round, so the turn cannot be resumed.
        let is_lost = |it: &StoredMessage| it.withheld && it.role != Role::Tool;
        if stored.state == TurnState::Open && stored.messages.iter().any(is_lost) {
            let problem = "messages of this turn may no longer be read; send the message with another message_id";
            return Err(TurnFailure::Conflict(problem.to_owned()));
        }
        let mut journal = Self::new(conversation, turn, author, "");
        journal.is_begun = true;
        journal.is_over = stored.state == TurnState::Complete;
        for message in stored.messages {
            journal.replay(message);
        }
        Ok(Some(journal))
    }

    fn replay(&mut self, message: StoredMessage) {
        match (message.role, message.source) {
            (_, Some(MessageSource::Approval)) => {
                if let Ok(decision) = serde_json::from_str::<RecordedDecision>(&message.content) {
                    self.decisions.insert(decision.call_id.clone(), decision);
                }
            }
            (Role::User, _) => self.question = message.content,
            (Role::Assistant, _) => {
                let ending = AnswerEnding::ALL
                    .into_iter()
                    .rev()
                    .find(|ending| message.id.ends_with(ending.as_str()))
                    .unwrap_or(AnswerEnding::Stop);
                self.rounds.push(Round {
                    text: readable_text(&message),
                    calls: message.tool_calls.into_iter().map(Into::into).collect(),
                    ending,
                });
            }
            (Role::Tool, _) => {
                let answer = ToolAnswer {
                    text: readable_text(&message),
                    is_error: message.is_error || message.withheld,
                };
                self.answers.insert(message.tool_call_id, answer);
            }
            (Role::System, _) => {}
        }
    }

    pub(super) fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    pub(super) fn turn(&self) -> &str {
        &self.turn
    }

    pub(super) fn question(&self) -> &str {
        &self.question
    }

    /// Returns whether memory contains messages of the turn and the turn is not complete.
    pub(super) fn is_open(&self) -> bool {
        self.is_begun && !self.is_over
    }

    /// Returns whether `round` is the latest round of an incomplete turn, so that some of its calls may not have run.
    pub(super) fn stops_at(&self, round: usize) -> bool {
        !self.is_over && self.rounds.len() == round + 1
    }

    pub(super) fn rounds(&self) -> &[Round] {
        &self.rounds
    }

    /// Returns the result of `call`, if it is known.
    pub(super) fn answer(&self, call: &FunctionCall) -> Option<&ToolAnswer> {
        self.answers.get(&call.id)
    }

    pub(super) fn decision(&self, call: &FunctionCall) -> Option<&RecordedDecision> {
        self.decisions.get(&call.id)
    }

    /// Returns whether a call of an earlier round has the id `id`.
    pub(super) fn knows_call(&self, id: &str) -> bool {
        self.rounds
            .iter()
            .flat_map(|round| &round.calls)
            .any(|call| call.id == id)
    }

    /// Returns the id of a round's message.
    pub(super) fn round_id(&self, round: usize, ending: AnswerEnding) -> String {
        format!("{}/{round}{}", self.turn, ending.as_str())
    }

    /// Stores a round before any of its calls runs. A round without calls is the answer and completes the turn.
    pub(super) async fn add_round(&mut self, round: Round) -> Result<(), TurnFailure> {
        let id = self.round_id(self.rounds.len(), round.ending);
        let mut messages = Vec::new();
        if !self.is_begun {
            messages.push(NewMessage::text(
                &self.turn,
                Role::User,
                MessageSource::Person,
                &self.question,
            ));
        }
        messages.push(NewMessage {
            author: self.author.clone(),
            tool_calls: round.calls.iter().map(Into::into).collect(),
            ..NewMessage::text(&id, Role::Assistant, MessageSource::Model, &round.text)
        });
        let is_answer = round.calls.is_empty();
        let state = if is_answer {
            TurnState::Complete
        } else {
            TurnState::Open
        };
        self.add(&messages, state).await?;
        self.is_begun = true;
        self.is_over = is_answer;
        self.rounds.push(round);
        Ok(())
    }

    /// Stores a tool result before its event is sent. Returns `false` if the result was not stored because the caller has lost
    /// the right to call the tool.
    pub(super) async fn store_answer(
        &self,
        position: CallPosition,
        call: &FunctionCall,
        tool: &str,
        arguments: &Map<String, Value>,
        answer: &ToolAnswer,
    ) -> Result<bool, TurnFailure> {
        let CallPosition { round, index } = position;
        let id = format!("{}/{round}.{index}", self.turn);
        let message = NewMessage {
            tool: Some(AnsweredCall {
                call_id: call.id.clone(),
                name: tool.to_owned(),
                arguments: arguments.clone(),
                is_error: answer.is_error,
            }),
            ..NewMessage::text(&id, Role::Tool, MessageSource::Tool, &answer.text)
        };
        let added = self
            .conversation
            .add(&[message], &self.turn, TurnState::Open)
            .await;
        match added {
            Ok(()) => Ok(true),
            Err(GatewayFailure::Refused {
                reason: Some(reason),
                ..
            }) if RIGHTS_ENDED.contains(&reason.as_str()) => Ok(false),
            // The tool ran but its result is not stored, so the turn must not continue as if it had not run.
            Err(failure) => Err(not_taken(failure)),
        }
    }

    /// Keeps an answer that [`Self::store_answer`] has stored.
    pub(super) fn keep_answer(&mut self, call: &FunctionCall, answer: ToolAnswer) {
        self.answers.insert(call.id.clone(), answer);
    }

    /// Stores a decision. Memory accepts only the first decision on a call.
    pub(super) async fn add_decision(
        &mut self,
        round: usize,
        index: usize,
        decision: RecordedDecision,
    ) -> Result<(), TurnFailure> {
        let id = format!("{}/{round}.{index}/approval", self.turn);
        let content = serde_json::to_string(&decision).map_err(|_| InvalidApproval::Unknown)?;
        let message = NewMessage::text(&id, Role::User, MessageSource::Approval, &content);
        self.add(&[message], TurnState::Open).await?;
        self.decisions.insert(decision.call_id.clone(), decision);
        Ok(())
    }

    /// Appends messages. Fails with a conflict if another request has stored different messages under the same ids.
    async fn add(&self, messages: &[NewMessage], state: TurnState) -> Result<(), TurnFailure> {
        let added = self.conversation.add(messages, &self.turn, state).await;
        added.map_err(not_taken)
    }
}

fn not_taken(failure: GatewayFailure) -> TurnFailure {
    match failure {
        GatewayFailure::Refused {
            code: INVALID_PARAMS,
            message,
            ..
        } => TurnFailure::Conflict(format!(
            "the conversation does not accept this step, possibly because another request continues the same turn: {message}"
        )),
        failure => failure.into(),
    }
}
