//! The sessions of clients before 2026-07-28: of Streamable HTTP, sealed in their ids, and of HTTP+SSE, each at the replica
//! that has its stream.

mod sse;
mod streamable;

pub(crate) use self::sse::{OpenStream, SseSession, SseStreams, sse_digest};
pub(crate) use self::streamable::{StreamableSession, StreamableSessions};
