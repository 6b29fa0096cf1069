//! Assembles an answer from the pieces of a provider's stream, independent of the provider's API. The resulting events have the
//! order and the guarantees of [`ModelEvent`].

use std::collections::VecDeque;

use super::calls::{ArgumentsPiece, CallIds, CallPiece, Calls};
use crate::model::{FinishReason, ModelError, ModelEvent, TokenUsage};

/// Number of bytes that a piece of a call counts for in addition to its texts.
const CALL_BYTES: usize = 64;

/// The assembly of one answer from the pieces of a provider's stream.
#[derive(Debug)]
pub(super) struct AnswerAssembly {
    events: VecDeque<ModelEvent>,
    calls: Calls,
    ids: CallIds,
    usage: Option<TokenUsage>,
    stopped: Option<FinishReason>,
    is_over: bool,
    /// Number of bytes that the answer may still grow by.
    room: usize,
}

impl AnswerAssembly {
    pub(super) fn new(max_bytes: usize, ids: CallIds) -> Self {
        Self {
            events: VecDeque::new(),
            calls: Calls::default(),
            ids,
            usage: None,
            stopped: None,
            is_over: false,
            room: max_bytes,
        }
    }

    /// Returns the next assembled event.
    pub(super) fn event(&mut self) -> Option<ModelEvent> {
        self.events.pop_front()
    }

    // === input from the API of the provider ===

    pub(super) fn push_text(&mut self, text: &str) -> Result<(), ModelError> {
        if !text.is_empty() {
            self.reserve_bytes(text.len())?;
            self.events.push_back(ModelEvent::Text(text.to_owned()));
        }
        Ok(())
    }

    pub(super) fn push_reasoning(&mut self, text: &str) -> Result<(), ModelError> {
        if !text.is_empty() {
            self.reserve_bytes(text.len())?;
            self.events
                .push_back(ModelEvent::Reasoning(text.to_owned()));
        }
        Ok(())
    }

    /// Adds a piece of a call. Calls are emitted at the end of the answer, because only then it is certain that none was cut off.
    pub(super) fn push_call_piece(&mut self, piece: &CallPiece<'_>) -> Result<(), ModelError> {
        let arguments = match piece.arguments {
            Some(ArgumentsPiece::More(text)) => text.len(),
            Some(ArgumentsPiece::Whole(value)) => value.to_string().len(),
            None => 0,
        };
        let texts = piece.id.map_or(0, str::len) + piece.name.map_or(0, str::len);
        self.reserve_bytes(arguments + texts + CALL_BYTES)?;
        self.calls.push(piece);
        Ok(())
    }

    /// Records token counts. The last count of each kind is valid.
    pub(super) fn record_usage(&mut self, input: Option<u64>, output: Option<u64>) {
        if input.is_none() && output.is_none() {
            return;
        }
        let usage = self.usage.get_or_insert_default();
        usage.input = input.unwrap_or(usage.input);
        usage.output = output.unwrap_or(usage.output);
    }

    /// Records that the model stopped. Token counts may still follow.
    pub(super) fn record_finish_reason(&mut self, reason: FinishReason) {
        self.stopped = Some(reason);
    }

    /// Records that the provider ended its stream.
    pub(super) fn record_stream_end(&mut self) {
        self.is_over = true;
    }

    fn reserve_bytes(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.room = self.room.checked_sub(bytes).ok_or(ModelError::TooLarge)?;
        Ok(())
    }

    // === end of the answer ===

    /// Returns whether the answer is complete, although token counts may still follow.
    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Emits the last events. An answer that ends without a reason was cut off.
    pub(super) fn end(&mut self) -> Result<(), ModelError> {
        let calls = std::mem::take(&mut self.calls);
        let (calls, reason) = match self.stopped.take() {
            Some(FinishReason::Stop | FinishReason::Calls) => {
                (calls.into_calls(&mut self.ids), FinishReason::Stop)
            }
            Some(reason) => (calls.whole(&mut self.ids).0, reason),
            // Some servers only mark the end of the stream and send no reason.
            None if self.is_over => {
                let (calls, all) = calls.whole(&mut self.ids);
                all.map_err(|_| ModelError::Cut)?;
                (calls, FinishReason::Stop)
            }
            None => return Err(ModelError::Cut),
        };
        // Many servers send `stop` after calls, and some send `tool_calls` without calls.
        let reason = match reason {
            FinishReason::Stop if !calls.is_empty() => FinishReason::Calls,
            reason => reason,
        };
        self.events.extend(calls.into_iter().map(ModelEvent::Call));
        self.events.extend(self.usage.take().map(ModelEvent::Usage));
        self.events.push_back(ModelEvent::Finished(reason));
        Ok(())
    }
}
