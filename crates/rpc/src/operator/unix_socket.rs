//! The socket on Unix.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use futures::StreamExt;
use futures::future::ready;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Endpoint, Server};
use tower::util::BoxCloneSyncService;

use super::{Error, MAX_PATH, OperatorServices};
use crate::link::Link;

/// A bound socket that does not serve yet. The file is removed when this, or the future that serves it, is dropped.
#[derive(Debug)]
pub struct OperatorSocket {
    listener: UnixListener,
    file: SocketFile,
}

/// A socket file that is removed on drop.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may have been removed already.
        let _ = fs::remove_file(&self.0);
    }
}

impl OperatorSocket {
    /// Binds the socket. Replaces a socket file that a terminated process left behind, but not the socket of a running process.
    pub fn bind(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        if path.as_os_str().len() > MAX_PATH {
            return Err(Error::TooLong(path.to_owned()));
        }
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(Error::NoSocket(path.to_owned()));
            }
            Ok(_) if UnixStream::connect(path).is_ok() => {
                return Err(Error::Taken(path.to_owned()));
            }
            Ok(_) => fs::remove_file(path).map_err(failed)?,
            Err(_) => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let file = SocketFile(path.to_owned());
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Self { listener, file })
    }

    /// Serves until the future is dropped.
    pub async fn serve(self, operator_services: OperatorServices) -> Result<(), Error> {
        let Self { listener, file } = self;
        let owner = fs::metadata(&file.0).map(|file| file.uid());
        let owner = owner.map_err(|source| Error::Io {
            path: file.0.clone(),
            source,
        })?;
        // The user of each connection is checked as well, because the mode was set after the socket was created, and
        // some systems ignore it.
        let own = UnixListenerStream::new(listener).filter(move |connection| {
            let may = match connection {
                Ok(stream) => stream
                    .peer_cred()
                    .is_ok_and(|peer| peer.uid() == owner || peer.uid() == 0),
                Err(_) => true,
            };
            ready(may)
        });
        Server::builder()
            .max_concurrent_streams(64)
            .add_routes(operator_services.0)
            .serve_with_incoming(own)
            .await?;
        Ok(())
    }
}

/// Creates a link to the process that serves the socket. The link connects on first use.
pub fn connect(path: &Path) -> Result<Link, Error> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", path.display()))?;
    Ok(BoxCloneSyncService::new(endpoint.connect_lazy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_owner_can_open_it_and_it_goes_with_its_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("operator.sock");
        let socket = OperatorSocket::bind(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(socket.serve(OperatorServices::default()));
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("operator.sock");
        // As after a kill: the file exists and nothing listens on it.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let living = OperatorSocket::bind(&path).unwrap();
        let taken = OperatorSocket::bind(&path).unwrap_err();
        assert!(matches!(taken, Error::Taken(_)), "{taken}");
        assert!(path.exists());
        drop(living);
    }

    #[tokio::test]
    async fn what_is_no_socket_is_left_alone_and_a_long_path_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("operator.sock");
        fs::write(&file, "notes").unwrap();
        let refused = OperatorSocket::bind(&file).unwrap_err();
        assert!(matches!(refused, Error::NoSocket(_)), "{refused}");
        assert_eq!(fs::read(&file).unwrap(), b"notes");
        let long = dir.path().join("x".repeat(MAX_PATH));
        let refused = OperatorSocket::bind(&long).unwrap_err();
        assert!(matches!(refused, Error::TooLong(_)), "{refused}");
    }
}
