//! One answer while it comes in, the same for every wire: what is in it goes in at one end, events come out
//! at the other, in the order and with the promises of [`ModelEvent`].

use std::collections::VecDeque;

use super::calls::{ArgumentsPiece, CallIds, CallPiece, Calls};
use crate::model::{FinishReason, ModelError, ModelEvent, TokenUsage};

/// What a call costs of the room besides its texts.
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
    /// Bytes that may still come.
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

    /// The next event that came out.
    pub(super) fn event(&mut self) -> Option<ModelEvent> {
        self.events.pop_front()
    }

    // === what the wires put in ===

    pub(super) fn text(&mut self, text: &str) -> Result<(), ModelError> {
        if !text.is_empty() {
            self.take(text.len())?;
            self.events.push_back(ModelEvent::Text(text.to_owned()));
        }
        Ok(())
    }

    pub(super) fn reasoning(&mut self, text: &str) -> Result<(), ModelError> {
        if !text.is_empty() {
            self.take(text.len())?;
            self.events
                .push_back(ModelEvent::Reasoning(text.to_owned()));
        }
        Ok(())
    }

    /// Calls come out at the end: only then is it sure that none was cut.
    pub(super) fn call(&mut self, piece: &CallPiece<'_>) -> Result<(), ModelError> {
        let arguments = match piece.arguments {
            Some(ArgumentsPiece::More(text)) => text.len(),
            Some(ArgumentsPiece::Whole(value)) => value.to_string().len(),
            None => 0,
        };
        let texts = piece.id.map_or(0, str::len) + piece.name.map_or(0, str::len);
        self.take(arguments + texts + CALL_BYTES)?;
        self.calls.push(piece);
        Ok(())
    }

    /// The last count of each kind is the one that holds.
    pub(super) fn usage(&mut self, input: Option<u64>, output: Option<u64>) {
        if input.is_none() && output.is_none() {
            return;
        }
        let usage = self.usage.get_or_insert_default();
        usage.input = input.unwrap_or(usage.input);
        usage.output = output.unwrap_or(usage.output);
    }

    /// The model stopped; counts may follow.
    pub(super) fn stopped(&mut self, reason: FinishReason) {
        self.stopped = Some(reason);
    }

    /// The provider's last word was said.
    pub(super) fn over(&mut self) {
        self.is_over = true;
    }

    fn take(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.room = self.room.checked_sub(bytes).ok_or(ModelError::TooLarge)?;
        Ok(())
    }

    // === its end ===

    /// Whether nothing more is needed, though something may still come.
    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Lets the last events out. An answer that ends without saying why was cut.
    pub(super) fn end(&mut self) -> Result<(), ModelError> {
        let calls = std::mem::take(&mut self.calls);
        let (calls, reason) = match self.stopped.take() {
            Some(FinishReason::Stop | FinishReason::Calls) => {
                (calls.ended(&mut self.ids), FinishReason::Stop)
            }
            Some(reason) => (calls.whole(&mut self.ids).0, reason),
            // Some servers say only that there is no more.
            None if self.is_over => {
                let (calls, all) = calls.whole(&mut self.ids);
                all.map_err(|_| ModelError::Cut)?;
                (calls, FinishReason::Stop)
            }
            None => return Err(ModelError::Cut),
        };
        // Many servers say `stop` after calls, some say `tool_calls` without any.
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
