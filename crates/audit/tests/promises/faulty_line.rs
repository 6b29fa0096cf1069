//! A TCP line to a server, which can be cut or become silent.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// Bytes are passed in both directions.
    Whole,
    /// Connections are closed, and new ones are closed at once, as if the server were down.
    Cut,
    /// Connections stay open, but no bytes are passed, as if the network were down.
    Silent,
    /// Bytes of the client are passed, but not those of the server.
    Unanswered,
}

impl Line {
    fn passes_requests(self) -> bool {
        matches!(self, Self::Whole | Self::Unanswered)
    }

    fn passes_answers(self) -> bool {
        self == Self::Whole
    }
}

/// A listener that passes bytes to and from `server` according to the state of the line.
pub(crate) struct FaultyLine {
    pub(crate) address: SocketAddr,
    line: watch::Sender<Line>,
}

impl FaultyLine {
    pub(crate) async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (line, state) = watch::channel(Line::Whole);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *state.borrow() != Line::Cut {
                    tokio::spawn(pass(client, server.clone(), state.clone()));
                }
            }
        });
        Self { address, line }
    }

    pub(crate) fn set(&self, line: Line) {
        self.line.send_replace(line);
    }
}

async fn pass(client: TcpStream, server: String, state: watch::Receiver<Line>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut cut = state.clone();
    tokio::select! {
        () = copy(from_client, to_server, state.clone(), Line::passes_requests) => {}
        () = copy(from_server, to_client, state, Line::passes_answers) => {}
        _ = cut.wait_for(|line| *line == Line::Cut) => {}
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<Line>,
    passes: fn(Line) -> bool,
) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let passed = state.wait_for(|line| passes(*line)).await.is_ok();
        if !passed || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
