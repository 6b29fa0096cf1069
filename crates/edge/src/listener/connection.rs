//! The state of an open connection.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Number of control frames that a request of a known caller allows: its header block may have the maximum size (32
/// KiB), and its body and its response need window updates.
const FRAMES_OF_A_KNOWN_CALLER: u32 = 1_100;

tokio::task_local! {
    /// The connection of the request that the current task handles.
    static CURRENT: Arc<ClientConnection>;
}

/// Credits the connection of the current request because the token of its caller was verified. Has no effect outside a
/// listener.
pub(crate) fn credit_known_caller() {
    let _ = CURRENT.try_with(|connection| {
        connection.has_known_caller.store(true, Ordering::Relaxed);
        connection
            .credit
            .fetch_add(FRAMES_OF_A_KNOWN_CALLER, Ordering::Relaxed);
    });
}

/// The network that counts as one client: an IPv4 address, or the /64 network of an IPv6 address, because a host can
/// usually choose any address in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ClientNetwork(IpAddr);

impl From<SocketAddr> for ClientNetwork {
    fn from(peer: SocketAddr) -> Self {
        Self(match peer.ip().to_canonical() {
            IpAddr::V6(ip) => {
                let network = ip.to_bits() & !u128::from(u64::MAX);
                Ipv6Addr::from_bits(network).into()
            }
            ip @ IpAddr::V4(_) => ip,
        })
    }
}

/// The state of one open connection, shared by its task, its requests and the table of all connections.
#[derive(Debug)]
pub(super) struct ClientConnection {
    pub(super) network: ClientNetwork,
    opened: Instant,
    requests_in_flight: AtomicUsize,
    /// Whether the connection has received a request.
    is_used: AtomicBool,
    /// The time from `opened` to the end of the last request, in milliseconds.
    idle_since: AtomicU64,
    has_known_caller: AtomicBool,
    /// Number of credited frames that have not been added to the budget yet.
    credit: AtomicU32,
    /// A token that is cancelled when the connection is replaced by another one.
    pub(super) replaced: CancellationToken,
}

impl ClientConnection {
    pub(super) fn new(network: ClientNetwork) -> Self {
        Self {
            network,
            opened: Instant::now(),
            requests_in_flight: AtomicUsize::new(0),
            is_used: AtomicBool::new(false),
            idle_since: AtomicU64::new(0),
            has_known_caller: AtomicBool::new(false),
            credit: AtomicU32::new(0),
            replaced: CancellationToken::new(),
        }
    }

    /// Counts a request as in flight until the returned guard is dropped.
    pub(super) fn begin_request(self: &Arc<Self>) -> RequestInFlight {
        self.is_used.store(true, Ordering::Relaxed);
        self.requests_in_flight.fetch_add(1, Ordering::AcqRel);
        RequestInFlight(Arc::clone(self))
    }

    /// Runs `work`, which handles one request of this connection.
    pub(super) async fn scope<T>(self: Arc<Self>, work: impl Future<Output = T>) -> T {
        CURRENT.scope(self, work).await
    }

    pub(super) fn opened_at(&self) -> Instant {
        self.opened
    }

    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    pub(super) fn has_known_caller(&self) -> bool {
        self.has_known_caller.load(Ordering::Relaxed)
    }

    /// Returns the time since which no request is in flight, or `None` if one is in flight.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        if self.requests_in_flight.load(Ordering::Acquire) > 0 {
            return None;
        }
        let since = Duration::from_millis(self.idle_since.load(Ordering::Acquire));
        Some(self.opened + since)
    }

    /// Returns the number of frames credited since the last call, and resets it.
    pub(super) fn take_credit(&self) -> u32 {
        self.credit.swap(0, Ordering::Relaxed)
    }
}

/// A guard of a request whose response has not been sent completely.
#[derive(Debug)]
pub(super) struct RequestInFlight(Arc<ClientConnection>);

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        let now = self.0.opened.elapsed().as_millis();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        self.0.idle_since.store(now, Ordering::Release);
        self.0.requests_in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The body of a response. Its request counts as in flight until the body is sent or dropped.
#[derive(Debug)]
pub(super) struct AnswerBody {
    pub(super) body: Body,
    pub(super) _request: RequestInFlight,
}

impl hyper::body::Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(address: &str) -> ClientNetwork {
        ClientNetwork::from(address.parse::<SocketAddr>().unwrap())
    }

    #[test]
    fn a_client_is_an_ipv4_address_or_a_64_bit_network() {
        assert_eq!(network("192.0.2.1:1"), network("192.0.2.1:2"));
        assert_eq!(network("192.0.2.1:1"), network("[::ffff:192.0.2.1]:1"));
        assert_ne!(network("192.0.2.1:1"), network("192.0.2.2:1"));
        assert_eq!(network("[2001:db8::1]:1"), network("[2001:db8::2:1]:1"));
        assert_ne!(network("[2001:db8::1]:1"), network("[2001:db8:0:1::1]:1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_from_the_end_of_its_last_request() {
        let connection = Arc::new(ClientConnection::new(network("192.0.2.1:1")));
        assert_eq!(connection.idle_since(), Some(connection.opened_at()));
        let (first, second) = (connection.begin_request(), connection.begin_request());
        tokio::time::advance(Duration::from_secs(5)).await;
        drop(first);
        assert_eq!(connection.idle_since(), None);
        tokio::time::advance(Duration::from_secs(5)).await;
        drop(second);
        let since = connection.opened_at() + Duration::from_secs(10);
        assert_eq!(connection.idle_since(), Some(since));
    }
}
