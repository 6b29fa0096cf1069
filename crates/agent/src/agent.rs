//! The service: assistants in force, and what can be asked of them.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use wardgate_domain::{Ambient, Caller};

use crate::approval::ApprovalKey;
use crate::event::{AgentEvent, ErrorKind, EventBody, FinishReason};
use crate::gateway::Gateway;
use crate::request::{ApprovalDecision, BearerToken, ChatRequest, Model};
use crate::{Config, Error};

/// The events of one request. The last is always `done`; dropping the stream ends the work.
pub type EventStream = BoxStream<'static, AgentEvent>;

/// Assistants, ready to be talked to. Cheap to clone.
#[derive(Clone)]
pub struct Agent {
    ambient: Ambient,
}

impl Agent {
    /// Reads the assistants. Providers are not tried: one that is down, or not configured, shows when it is asked.
    #[expect(clippy::unused_async, reason = "its body is the next commit")]
    pub async fn open(
        _config: &Config,
        _gateway: Gateway,
        _key: ApprovalKey,
        ambient: Ambient,
    ) -> Result<Self, Error> {
        Ok(Self { ambient })
    }

    /// Says something to an assistant, and tells what comes of it.
    pub fn chat(
        &self,
        _caller: Arc<Caller>,
        _token: BearerToken,
        _request: ChatRequest,
    ) -> EventStream {
        self.nothing_yet()
    }

    /// Decides about a call that waits, and goes on with its turn.
    pub fn decide_approval(
        &self,
        _caller: Arc<Caller>,
        _token: BearerToken,
        _approval_id: &str,
        _decision: ApprovalDecision,
    ) -> EventStream {
        self.nothing_yet()
    }

    /// The assistants, in the order of their file.
    pub fn models(&self, _caller: &Caller) -> Vec<Model> {
        Vec::new()
    }

    fn nothing_yet(&self) -> EventStream {
        let timestamp = self.ambient.now();
        stream::iter([
            EventBody::Error {
                kind: ErrorKind::UnknownModel,
                message: "there is no assistant".to_owned(),
            },
            EventBody::Done {
                finish_reason: FinishReason::Error,
                conversation_id: None,
                turn_id: String::new(),
                message_id: None,
                cap: None,
            },
        ])
        .enumerate()
        .map(move |(id, body)| AgentEvent {
            id: id as u64,
            body,
            timestamp,
        })
        .boxed()
    }
}
