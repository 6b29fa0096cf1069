//! Maximum age of connections. Old connections are replaced, so that calls spread over replicas and no stream lasts forever.
//!
//! A connection that reaches its age gets GOAWAY: open calls continue, and new calls use a new connection. After a
//! grace period the old connection is closed with everything that is still open on it. Streams that last this long
//! are watches, which clients reopen.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use tonic::transport::server::{Connected, TcpConnectInfo};
use wardgate_domain::Ambient;

/// The maximum age of connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionAge {
    /// Time until the server sends GOAWAY.
    pub(crate) age: Duration,
    /// Time from then until the connection is closed.
    pub(crate) grace: Duration,
}

impl ConnectionAge {
    /// Returns an age of 30 minutes ± 10 %, so that servers that started together do not disconnect all their clients together,
    /// and a grace period of 15 minutes, which is longer than any call waits for a person.
    pub(crate) fn with_jitter(ambient: &Ambient) -> Self {
        let share = f64::from(u16::from_be_bytes(ambient.random())) / f64::from(u16::MAX);
        Self {
            age: Duration::from_mins(30).mul_f64(0.9 + 0.2 * share),
            grace: Duration::from_mins(15),
        }
    }

    /// Wraps a new connection, whose age begins now.
    pub(crate) fn begin(self, stream: TcpStream) -> AgedStream {
        AgedStream {
            stream,
            end: Box::pin(sleep(self.age + self.grace)),
        }
    }
}

/// A connection whose reads fail when its age and grace period are over.
#[derive(Debug)]
pub(crate) struct AgedStream {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
}

impl Connected for AgedStream {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for AgedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for AgedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
