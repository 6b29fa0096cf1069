//! A call that waits for its client, so kept that another gateway can go on with it when this one goes away.
//!
//! The tool's server waits for answers then, and runs nothing: going on is the same as going on here. It is decided
//! anew, with the token of whoever came for the rest, and is a call of its own on the record.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::Instrument;
use wardgate_domain::{CallFacts, CallId, Caller};
use wardgate_edge::CallerToken;
use wardgate_telemetry::names;

use super::pending::{Awaited, Resumed};
use super::{Asker, Story};
use crate::Gateway;
use crate::call_tool::ToolCall;
use crate::dialogue::{self, Asked, Terms};
use crate::scopes::Access;
use crate::streamable::Writer;
use crate::view::View;

/// What another gateway needs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Onward {
    /// As [`super::Work::pack`] gives it.
    pub(super) work: String,
    pub(super) asked: Asked,
    /// The tool-runner's, in base64.
    pub(super) state: String,
    pub(super) rounds: usize,
}

impl Onward {
    pub(super) fn new(work: String, asked: &Asked, state: &[u8], rounds: usize) -> Self {
        Self {
            work,
            asked: asked.clone(),
            state: URL_SAFE_NO_PAD.encode(state),
            rounds,
        }
    }
}

/// Who came for the rest of an answer, as what goes on needs to know.
#[derive(Clone)]
pub(crate) struct Comer {
    pub(crate) caller: Arc<Caller>,
    pub(crate) token: CallerToken,
    pub(crate) access: Access,
    pub(crate) client_ip: String,
    pub(crate) view: View,
}

/// Goes on with `kept`, which a gateway that is gone left in the stream of `writer`. False for what cannot go on.
pub(crate) fn go_on(
    gateway: &Arc<Gateway>,
    comer: &Comer,
    (writer, request): (Writer, Box<RawValue>),
    kept: &[u8],
) -> bool {
    let Ok(onward) = serde_json::from_slice::<Onward>(kept) else {
        return false;
    };
    let version = writer.version();
    let Comer {
        caller,
        token,
        access,
        client_ip,
        view,
    } = comer.clone();
    let Some(call) = ToolCall::unpack(&onward.work, token, version) else {
        return false;
    };
    let Ok(state) = URL_SAFE_NO_PAD.decode(&onward.state) else {
        return false;
    };
    let call_id = CallId::new(gateway.ambient());
    let span = tracing::info_span!(
        "tools/call",
        { names::CALL_ID } = %call_id,
        { names::CALLER } = caller.subject(),
        { names::TOOL } = tracing::field::Empty,
    );
    let (name, arguments) = (&call.name, &call.arguments);
    let facts = CallFacts::arriving(
        call_id,
        &caller,
        client_ip.clone(),
        version.as_str(),
        name,
        arguments,
    );
    let slot = Some(gateway.take_over(&caller));
    let mut story = Story {
        gateway: Arc::clone(gateway),
        dialogue: dialogue::go_on(Terms::of_stream(gateway, &caller, writer, &request)),
        asker: Asker {
            slot,
            id: request,
            version,
            caller,
            client_ip,
            view,
            access,
        },
        work: call,
        facts,
        intended: false,
        resumed: Resumed::awaiting(
            Awaited {
                asked: onward.asked,
                state: state.into(),
            },
            onward.rounds,
        ),
    };
    let story = async move {
        let answer = story.end().await;
        story.leave();
        story.dialogue.answer(answer).await;
    };
    gateway.stories.spawn(story.instrument(span));
    true
}
