//! The streams that answer POSTs in a session, stored event by event, so that a client can resume them at any replica.

mod events;
mod heartbeat;
mod writer;

pub(crate) use self::events::{
    EventPosition, open_event, open_replay_grant, open_request, open_suspended_call, primer,
    seal_event,
};
pub(crate) use self::heartbeat::{Heartbeat, HeartbeatGuard};
pub(crate) use self::writer::StreamWriter;
