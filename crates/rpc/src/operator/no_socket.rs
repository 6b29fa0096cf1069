//! The socket on systems without Unix sockets: it cannot be bound or connected to.

use std::convert::Infallible;
use std::path::Path;

use super::{Error, OperatorServices};
use crate::link::Link;

/// A bound socket, of which none exists.
#[derive(Debug)]
pub struct OperatorSocket(Infallible);

impl OperatorSocket {
    /// Fails.
    pub fn bind(_path: &Path) -> Result<Self, Error> {
        Err(Error::Unsupported)
    }

    /// Is never called.
    pub async fn serve(self, _operator_services: OperatorServices) -> Result<(), Error> {
        match self.0 {}
    }
}

/// Fails.
pub fn connect(_path: &Path) -> Result<Link, Error> {
    Err(Error::Unsupported)
}
