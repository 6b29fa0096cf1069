//! Stored streams: the answers to POSTs in a session, stored event by event, so that a client can resume them at any replica.

mod heartbeat;
mod session_streams;
mod writer;

pub(crate) use self::heartbeat::HeartbeatGuard;
pub(crate) use self::session_streams::{EventPosition, SessionStreams, StreamStore, primer};
pub(crate) use self::writer::StreamWriter;
