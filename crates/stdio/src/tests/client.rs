//! A client with its two pipes.

use std::io::{BufRead, BufReader, PipeWriter, Write};
use std::time::Duration;

use reqwest::Url;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{Error, Settings, TokenSource, run};

/// Timeout that is longer than any operation takes on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Client {
    input: Option<PipeWriter>,
    lines: mpsc::UnboundedReceiver<String>,
    pub(super) stop: CancellationToken,
    bridge: JoinHandle<Result<(), Error>>,
}

impl Client {
    pub(super) fn start(url: &str, token: TokenSource) -> Self {
        let (input_reader, input) = std::io::pipe().unwrap();
        let (output_reader, output) = std::io::pipe().unwrap();
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output_reader).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let settings = Settings {
            url: Url::parse(url).unwrap(),
            token,
        };
        Self {
            input: Some(input),
            lines,
            stop,
            bridge: tokio::spawn(run(settings, input_reader, output, stopped)),
        }
    }

    pub(super) fn send_line(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }

    /// Returns the next line.
    pub(super) async fn read_message(&mut self) -> Value {
        let line = tokio::time::timeout(PATIENCE, self.lines.recv()).await;
        let line = line.expect("a line").expect("the bridge still talks");
        serde_json::from_str(&line).unwrap()
    }

    /// Sends a request and returns the next line.
    pub(super) async fn send_request(&mut self, line: &str) -> Value {
        self.send_line(line);
        self.read_message().await
    }

    /// Sends a request and returns the message of the error that follows.
    pub(super) async fn fault(&mut self, line: &str) -> String {
        let answer = self.send_request(line).await;
        let message = answer["error"]["message"].as_str();
        message.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    pub(super) fn close_input(&mut self) {
        self.input = None;
    }

    /// Waits for the end of the bridge. Returns its result and the remaining output.
    pub(super) async fn end(&mut self) -> (Result<(), Error>, Vec<Value>) {
        let ended = tokio::time::timeout(PATIENCE, &mut self.bridge).await;
        let ended = ended.expect("the bridge ends").unwrap();
        let mut rest = Vec::new();
        while let Some(line) = self.lines.recv().await {
            rest.push(serde_json::from_str(&line).unwrap());
        }
        (ended, rest)
    }
}

pub(super) fn modern(id: u32, method: &str, members: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{members}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    )
}

pub(super) fn legacy(id: u32, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#)
}

pub(super) fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}
