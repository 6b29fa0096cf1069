//! A wrapper of a client connection that charges for HTTP/2 frames and checks the framing of HTTP/1 messages before
//! hyper reads the bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tokio_util::io::poll_read_buf;

use super::http1::MessageFollower;
use super::http2::{EMPTY_SETTINGS, FrameBudget, FrameFollower, PREFACE, goaway};
use super::slots::{ConnectionSlot, SlotUse};
use super::token_bucket::BudgetExceeded;

/// Time for which a connection that was ended for its frames stays open without being read, so that its client receives
/// GOAWAY before the connection is closed, and cannot send more.
const LINGER: Duration = Duration::from_secs(1);
/// Cost of the frames in one read, in control frames, after which the task yields to other connections.
const FRAMES_OF_A_TURN: u64 = 64;
/// Number of bytes that are read at once into the buffer of held bytes.
const READ: usize = 8 * 1024;

/// A stream whose bytes are checked.
pub(super) struct WatchedStream<S> {
    stream: S,
    protocol: Protocol,
    /// The bytes that were read and not yet passed on.
    held: BytesMut,
    /// The number of held bytes that may be passed on.
    released: usize,
    slot: ConnectionSlot,
    control_frames: u32,
}

enum Protocol {
    /// Too few bytes have arrived to determine the protocol.
    Unknown,
    /// HTTP/2, which is not read before this time.
    Waiting(Pin<Box<Sleep>>),
    Http2(Box<Http2>),
    Http1(MessageFollower),
    /// A message was refused, and it is the last one. Further bytes are read, so that the client does not lose the
    /// response, and discarded.
    Discarding,
    /// The client has sent everything.
    Ended,
    /// The connection was ended for its frames. Whatever hyper still writes is discarded.
    Lingering(Pin<Box<Sleep>>),
}

struct Http2 {
    budget: FrameBudget,
    /// The frames that are sent to the client. GOAWAY can only be inserted between two frames.
    outgoing: FrameFollower,
    /// The number of bytes sent since frames were last charged.
    sent: u64,
    /// Whether the task yields before the next read, because the last read had many frames.
    yields: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WatchedStream<S> {
    pub(super) fn new(stream: S, slot: ConnectionSlot, control_frames: u32) -> Self {
        Self {
            stream,
            protocol: Protocol::Unknown,
            held: BytesMut::new(),
            released: 0,
            slot,
            control_frames,
        }
    }

    /// Copies released bytes into `buffer`. Returns whether there were any.
    fn read_released(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let length = self.released.min(buffer.remaining());
        if length == 0 {
            return false;
        }
        if let Some(bytes) = self.held.get(..length) {
            buffer.put_slice(bytes);
        }
        self.held.advance(length);
        self.released -= length;
        if self.held.is_empty() {
            self.held = BytesMut::new();
        }
        true
    }

    /// Reads more bytes into `held`. Returns 0 at the end of the stream.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.held.reserve(READ);
        poll_read_buf(Pin::new(&mut self.stream), context, &mut self.held)
    }

    /// Determines the protocol from the bytes held so far. It stays unknown while they are a prefix of the HTTP/2
    /// preface.
    fn decide(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let length = self.held.len().min(PREFACE.len());
        if self.held.get(..length) != PREFACE.get(..length) {
            self.protocol = Protocol::Http1(MessageFollower::default());
            self.follow_http1();
            return Ok(());
        }
        if length < PREFACE.len() {
            return Ok(());
        }
        if self.slot.use_for == SlotUse::Probes {
            let mut frames = EMPTY_SETTINGS.to_vec();
            frames.extend(goaway(0, b"too many connections"));
            self.try_write(context, &frames);
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if let Some(end) = self.slot.penalty() {
            self.protocol = Protocol::Waiting(Box::pin(tokio::time::sleep_until(end)));
            return Ok(());
        }
        self.begin_http2(context, FrameBudget::new(self.control_frames));
        Ok(())
    }

    fn begin_http2(&mut self, context: &mut Context<'_>, budget: FrameBudget) {
        let mut http2 = Http2 {
            budget,
            outgoing: FrameFollower::default(),
            sent: 0,
            yields: false,
        };
        let frames = self.held.get(PREFACE.len()..).unwrap_or_default();
        let cost = http2.budget.charge(frames, 0, 0);
        http2.yields = cost.is_ok_and(|cost| cost >= FRAMES_OF_A_TURN);
        self.released = self.held.len();
        self.protocol = Protocol::Http2(Box::new(http2));
        if !self.is_within(cost) {
            self.end_for_frames(context);
        }
    }

    /// Returns whether frames with this cost are within the budget of the connection and, if it has no known caller,
    /// within that of all connections of its client.
    fn is_within(&self, cost: Result<u64, BudgetExceeded>) -> bool {
        let of_client = |cost| self.slot.charge_client(cost);
        cost.and_then(of_client).is_ok()
    }

    fn follow_http1(&mut self) {
        let Protocol::Http1(follower) = &mut self.protocol else {
            return;
        };
        let new = self.held.get(self.released..).unwrap_or_default();
        match follower.follow(new) {
            Ok(length) => self.released += length,
            Err(refused) => {
                self.held.truncate(self.released + refused.at);
                self.held
                    .extend_from_slice(refused.fault.substitute_head().as_bytes());
                self.released = self.held.len();
                self.protocol = Protocol::Discarding;
            }
        }
    }

    /// Reads HTTP/2 bytes directly into `buffer`, and charges for them. Returns whether that ended the connection.
    fn poll_http2(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        if let Protocol::Http2(http2) = &mut self.protocol
            && std::mem::take(&mut http2.yields)
        {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let new = buffer.filled().get(before..).unwrap_or_default();
        let Protocol::Http2(http2) = &mut self.protocol else {
            return Poll::Ready(Ok(false));
        };
        let sent = std::mem::take(&mut http2.sent);
        let credit = self.slot.connection.take_credit();
        let cost = http2.budget.charge(new, sent, credit);
        http2.yields = cost.is_ok_and(|cost| cost >= FRAMES_OF_A_TURN);
        let is_exceeded = !self.is_within(cost);
        if is_exceeded {
            buffer.set_filled(before);
            self.end_for_frames(context);
        }
        Poll::Ready(Ok(is_exceeded))
    }

    fn end_for_frames(&mut self, context: &mut Context<'_>) {
        let Protocol::Http2(http2) = &self.protocol else {
            return;
        };
        tracing::debug!("a connection sent too many control frames");
        let mut frames = Vec::new();
        if http2.outgoing.is_between_frames() {
            frames = http2.budget.goaway();
        }
        self.held.clear();
        self.released = 0;
        self.slot.penalise("control_frames");
        self.try_write(context, &frames);
        self.protocol = Protocol::Lingering(Box::pin(tokio::time::sleep(LINGER)));
    }

    /// Writes the last bytes to the client, if the socket accepts them immediately, and shuts down the write side.
    fn try_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) {
        let mut stream = Pin::new(&mut self.stream);
        let _ = stream.as_mut().poll_write(context, bytes);
        let _ = stream.poll_shutdown(context);
    }

    /// Accounts for bytes that hyper sent.
    fn note_sent(&mut self, bytes: &[u8]) {
        if let Protocol::Http2(http2) = &mut self.protocol {
            http2.sent += bytes.len() as u64;
            http2.outgoing.skip(bytes);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.read_released(buffer) {
                return Poll::Ready(Ok(()));
            }
            match &mut this.protocol {
                Protocol::Unknown => {
                    if ready!(this.poll_more(context))? == 0 {
                        // The stream ended, so the held bytes are passed on whatever they are.
                        this.released = this.held.len();
                        this.protocol = Protocol::Ended;
                    } else {
                        this.decide(context)?;
                    }
                }
                Protocol::Waiting(wait) => {
                    ready!(wait.as_mut().poll(context));
                    let budget = FrameBudget::after_a_flood(this.control_frames);
                    this.begin_http2(context, budget);
                }
                Protocol::Http2(_) => {
                    if !ready!(this.poll_http2(context, buffer))? {
                        return Poll::Ready(Ok(()));
                    }
                }
                Protocol::Http1(_) => {
                    if ready!(this.poll_more(context))? == 0 {
                        this.released = this.held.len();
                        this.protocol = Protocol::Ended;
                    } else {
                        this.follow_http1();
                    }
                }
                Protocol::Discarding => {
                    if ready!(this.poll_more(context))? == 0 {
                        this.protocol = Protocol::Ended;
                    }
                    this.held.clear();
                }
                Protocol::Ended => return Poll::Ready(Ok(())),
                Protocol::Lingering(wait) => {
                    ready!(wait.as_mut().poll(context));
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if matches!(this.protocol, Protocol::Lingering(_)) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let length = ready!(Pin::new(&mut this.stream).poll_write(context, bytes))?;
        this.note_sent(bytes.get(..length).unwrap_or_default());
        Poll::Ready(Ok(length))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if matches!(this.protocol, Protocol::Lingering(_)) {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        let length = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, slices))?;
        let mut left = length;
        for slice in slices {
            let sent = left.min(slice.len());
            this.note_sent(slice.get(..sent).unwrap_or_default());
            left -= sent;
        }
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::slots::ConnectionSlots;
    use super::*;

    #[tokio::test]
    async fn after_a_read_of_many_control_frames_others_have_their_turn() {
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        let slot = ConnectionSlots::new(1, 1, 1_000).admit(([192, 0, 2, 1], 1).into());
        let mut stream = WatchedStream::new(server, slot.unwrap(), 1_000);
        let many = EMPTY_SETTINGS.repeat(100);
        client.write_all(&[PREFACE, &many].concat()).await.unwrap();
        let mut first = vec![0; PREFACE.len() + many.len()];
        stream.read_exact(&mut first).await.unwrap();
        client.write_all(&many).await.unwrap();
        let mut bytes = [0; 1_024];
        assert!(poll!(Box::pin(stream.read(&mut bytes))).is_pending());
        assert_eq!(stream.read(&mut bytes).await.unwrap(), many.len());
        client.write_all(&EMPTY_SETTINGS).await.unwrap();
        assert!(poll!(Box::pin(stream.read(&mut bytes))).is_pending());
        assert!(poll!(Box::pin(stream.read(&mut bytes))).is_ready());
        client.write_all(&EMPTY_SETTINGS).await.unwrap();
        assert!(poll!(Box::pin(stream.read(&mut bytes))).is_ready());
    }
}
