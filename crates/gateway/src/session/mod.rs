//! The sessions of clients before 2026-07-28: those of Streamable HTTP, which are sealed in their ids, and those of HTTP+SSE,
//! each at the replica that serves its stream.

mod sse;
mod streamable;

pub(crate) use self::sse::{OpenStream, SseSession, SseStreams, sse_digest};
pub(crate) use self::streamable::{StreamableSession, StreamableSessions};
