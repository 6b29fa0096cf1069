//! The operator's socket of a single-process deployment: a Unix socket that only its owner and root can use.
//!
//! A process that connects is [`Peer::Operator`](crate::Peer::Operator), and may call what the table of methods allows an
//! operator. Split services have no such socket; there, the operator needs a certificate.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;

use http::{Request, Response};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tower::Service as TowerService;

use crate::access::Trust;
use crate::readiness::Service;
use crate::stack::Stack;

#[cfg(not(unix))]
mod no_socket;
#[cfg(unix)]
mod unix_socket;

#[cfg(not(unix))]
pub use no_socket::{OperatorSocket, connect};
#[cfg(unix)]
pub use unix_socket::{OperatorSocket, connect};

/// Maximum length of the path in bytes: with its closing NUL, it must fit into `sockaddr_un`.
const MAX_PATH: usize = 107;

/// An error of the operator's socket.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path is longer than the system allows for a socket.
    #[error("{} is longer than the {MAX_PATH} bytes of a socket's path; use a directory with a shorter one", .0.display())]
    TooLong(PathBuf),
    /// Another process serves the socket.
    #[error("another process serves {}", .0.display())]
    Taken(PathBuf),
    /// The path exists and is not a socket.
    #[error("{} exists and is not a socket; remove it", .0.display())]
    NoSocket(PathBuf),
    /// The socket or its file cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The path of the socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// This system has no Unix sockets for servers.
    #[error("services run only on Linux and macOS; use this program as a client")]
    Unsupported,
    /// The transport failed.
    #[error("the operator's socket failed: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// The services that an operator can call.
#[derive(Debug, Default, Clone)]
pub struct OperatorServices(Routes);

impl OperatorServices {
    /// Adds a service.
    #[must_use]
    pub fn with<S, L>(self, service: Service<S, L>) -> Self
    where
        S: TowerService<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        let stack = Stack::new(service.server, Trust::Operator);
        Self(self.0.add_service(stack))
    }
}
