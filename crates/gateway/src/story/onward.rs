//! A call that waits for its client, so kept that another gateway can go on with it when this one goes away.
//!
//! The server waits for answers then, and runs nothing: going on is the same as going on here. It is decided
//! anew, with the token of whoever came for the rest, and is a call of its own on the record.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::Instrument;
use wardgate_domain::Caller;

use super::pending::{Awaited, Resumed};
use super::work::{Packed, Work};
use super::{Asker, Story};
use crate::Gateway;
use crate::dialogue::{self, Asked, Terms};
use crate::scopes::Access;
use crate::streamable::Writer;
use crate::view::View;

/// What another gateway needs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Onward {
    pub(super) work: Packed,
    pub(super) asked: Asked,
    /// The tool-runner's, in base64.
    pub(super) state: String,
    pub(super) rounds: usize,
}

impl Onward {
    pub(super) fn new(work: Packed, asked: &Asked, state: &[u8], rounds: usize) -> Self {
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
    pub(crate) access: Access,
    pub(crate) client_ip: String,
    pub(crate) view: View,
}

/// Goes on with `kept`, which a gateway that is gone left in the stream of `writer`. False for what cannot go on.
pub(crate) fn go_on(
    gateway: &Arc<Gateway>,
    comer: &Comer,
    stream: (Writer, Box<RawValue>),
    kept: &[u8],
) -> bool {
    let Ok(onward) = serde_json::from_slice::<Onward>(kept) else {
        return false;
    };
    let Ok(state) = URL_SAFE_NO_PAD.decode(&onward.state) else {
        return false;
    };
    let awaited = Awaited {
        asked: onward.asked,
        state: state.into(),
    };
    let resumed = Resumed::awaiting(awaited, onward.rounds);
    let version = stream.0.version();
    match onward.work {
        Packed::Call(call) => {
            let call = call.unpack(version);
            tell_on(gateway, comer, stream, call, resumed);
        }
        Packed::Content(wish) => match wish.unpack(version) {
            Some(wish) => tell_on(gateway, comer, stream, wish, resumed),
            None => return false,
        },
    }
    true
}

/// Tells the rest of a story.
fn tell_on<W: Work>(
    gateway: &Arc<Gateway>,
    comer: &Comer,
    (writer, request): (Writer, Box<RawValue>),
    work: W,
    resumed: Resumed,
) {
    let Comer {
        caller,
        access,
        client_ip,
        view,
        ..
    } = comer.clone();
    let version = writer.version();
    let terms = Terms::of_stream(gateway, &caller, writer, &request);
    let asker = Asker {
        slot: Some(gateway.take_over(&caller)),
        id: request,
        version,
        caller,
        client_ip,
        view,
        access,
    };
    let (story, span) = Story::new(gateway, asker, work, dialogue::go_on(terms), resumed);
    gateway
        .stories
        .spawn(story.tell_to_its_end().instrument(span));
}
