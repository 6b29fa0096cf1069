//! Abandons a turn whose client has disconnected.
//!
//! A turn that its client can name stays open, because sending the same message id again resumes it. Other turns are abandoned.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::memory::{Conversation, TurnState};

/// Timeout for abandoning a turn.
const LIMIT: Duration = Duration::from_secs(5);

/// Abandons a turn when it is dropped while armed.
#[derive(Default)]
pub(super) struct AbandonGuard {
    turn: Option<(Conversation, String)>,
    is_armed: bool,
}

impl AbandonGuard {
    pub(super) fn new(conversation: &Conversation, turn: &str) -> Self {
        Self {
            turn: Some((conversation.clone(), turn.to_owned())),
            is_armed: false,
        }
    }

    /// Arms the guard if the turn is open. Only a turn that is in memory and not complete has to be abandoned.
    pub(super) fn arm(&mut self, is_open: bool) {
        self.is_armed = is_open;
    }

    /// Disarms the guard, because the stream ends regularly.
    pub(super) fn disarm(&mut self) {
        self.is_armed = false;
    }
}

impl Drop for AbandonGuard {
    fn drop(&mut self) {
        let Some((conversation, turn)) = self.turn.take().filter(|_| self.is_armed) else {
            return;
        };
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            let given_up = conversation.add(&[], &turn, TurnState::Abandoned);
            if !matches!(tokio::time::timeout(LIMIT, given_up).await, Ok(Ok(()))) {
                tracing::warn!(
                    "a turn whose client disconnected could not be abandoned now; the memory service will abandon it later"
                );
            }
        });
    }
}
