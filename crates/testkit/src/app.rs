//! `wardgate up` on a directory of its own.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::{Client, Process, System};

/// The hospital demo, running in one process.
#[derive(Debug)]
pub struct TestApp {
    binary: PathBuf,
    dir: TempDir,
    environment: Vec<(String, String)>,
    /// The process.
    pub process: Process,
    client: Client,
}

impl TestApp {
    /// `wardgate up` with the hospital demo.
    pub fn start(binary: &str) -> Self {
        Self::start_with(binary, &[])
    }

    /// The same, with environment variables.
    pub fn start_with(binary: &str, environment: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let process = up(Path::new(binary), dir.path(), environment);
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            binary: binary.into(),
            dir,
            environment: environment.iter().map(own).collect(),
            client: Client::new(&base_url(&process)),
            process,
        }
    }

    /// Starts it again on the same directory, after it ended or was killed.
    pub fn restart(&mut self) {
        let environment: Vec<(&str, &str)> = self
            .environment
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        self.process = up(&self.binary, self.dir.path(), &environment);
        self.client = Client::new(&base_url(&self.process));
    }
}

impl System for TestApp {
    fn binary(&self) -> &Path {
        &self.binary
    }

    fn data_dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    fn example_dir(&self) -> PathBuf {
        self.dir.path().join("hospital")
    }

    fn client(&self) -> &Client {
        &self.client
    }
}

fn up(binary: &Path, dir: &Path, environment: &[(&str, &str)]) -> Process {
    let dir = dir.display().to_string();
    let arguments = ["up", "--data-dir", &dir, "--listen", "127.0.0.1:0"];
    Process::start(binary, &arguments, environment)
}

/// The URL in `ready http://host:port/mcp …`.
pub(crate) fn base_url(process: &Process) -> String {
    let url = process.ready_line().split_whitespace().nth(1);
    url.and_then(|url| url.strip_suffix("/mcp"))
        .unwrap_or_else(|| panic!("no URL in {:?}", process.ready_line()))
        .to_owned()
}
