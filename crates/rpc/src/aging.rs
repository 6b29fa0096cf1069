//! Connections that grow old are made anew, so that they spread over replicas and no stream holds one for ever.
//!
//! At its age the server says that it goes away: what is open goes on, what is new comes by a new connection. After a grace
//! the old one is closed, whatever is still open on it: streams as long as that are watches, which are opened anew.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use tonic::transport::server::{Connected, TcpConnectInfo};
use wardgate_domain::Ambient;

/// The age that connections reach.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionAge {
    /// Until the server says that it goes away.
    pub(crate) age: Duration,
    /// From then until the connection is closed.
    pub(crate) grace: Duration,
}

impl ConnectionAge {
    /// Half an hour, give or take a tenth, so that servers started together do not turn all their clients away together;
    /// and a quarter, which is longer than any call waits for a person.
    pub(crate) fn with_jitter(ambient: &Ambient) -> Self {
        let share = f64::from(u16::from_be_bytes(ambient.random())) / f64::from(u16::MAX);
        Self {
            age: Duration::from_mins(30).mul_f64(0.9 + 0.2 * share),
            grace: Duration::from_mins(15),
        }
    }

    pub(crate) fn begin(self, stream: TcpStream) -> AgedStream {
        AgedStream {
            stream,
            end: Box::pin(sleep(self.age + self.grace)),
        }
    }
}

/// A connection that ends when it is too old.
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
