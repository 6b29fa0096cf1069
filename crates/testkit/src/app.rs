//! A running `wardgate up` with a temporary directory.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::{Client, System, WardgateProcess};

/// One process that runs all services, with the hospital demo or with another example.
#[derive(Debug)]
pub struct TestApp {
    binary: PathBuf,
    dir: TempDir,
    /// The name of the example, which is also its directory below `dir`.
    example: &'static str,
    environment: Vec<(String, String)>,
    /// The running process.
    pub process: WardgateProcess,
    client: Client,
}

impl TestApp {
    /// Starts `wardgate up` with the hospital demo.
    pub fn start(binary: &str) -> Self {
        Self::start_with(binary, &[])
    }

    /// Starts `wardgate up` with the hospital demo and these environment variables.
    pub fn start_with(binary: &str, environment: &[(&str, &str)]) -> Self {
        Self::start_in(
            tempfile::tempdir().expect("a directory"),
            DEMO,
            binary,
            environment,
        )
    }

    /// Starts `wardgate up` with the configuration of another example, of which `from` is copied.
    pub fn start_example(
        binary: &str,
        from: &Path,
        example: &'static str,
        environment: &[(&str, &str)],
    ) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        copy(from, &dir.path().join(example));
        Self::start_in(dir, example, binary, environment)
    }

    /// Starts another instance with the same keys and environment, in a directory of its own.
    #[must_use]
    pub fn replica(&self) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        copy(&self.data_dir().join("keys"), &dir.path().join("keys"));
        if self.example != DEMO {
            copy(&self.example_dir(), &dir.path().join(self.example));
        }
        let environment = self.environment();
        Self::start_in(dir, self.example, &self.binary, &environment)
    }

    fn environment(&self) -> Vec<(&str, &str)> {
        let each = self.environment.iter();
        each.map(|(name, value)| (name.as_str(), value.as_str()))
            .collect()
    }

    fn start_in(
        dir: TempDir,
        example: &'static str,
        binary: impl AsRef<Path>,
        environment: &[(&str, &str)],
    ) -> Self {
        let process = up(binary.as_ref(), dir.path(), example, environment);
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            binary: binary.as_ref().to_owned(),
            dir,
            example,
            environment: environment.iter().map(own).collect(),
            client: Client::new(&base_url(&process)),
            process,
        }
    }

    /// Starts the process again in the same directory, after it ended or was killed.
    pub fn restart(&mut self) {
        let environment = self.environment();
        self.process = up(&self.binary, self.dir.path(), self.example, &environment);
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
        self.dir.path().join(self.example)
    }

    fn client(&self) -> &Client {
        &self.client
    }

    fn probes(&self) -> Client {
        Client::new(&probes_url(&self.process))
    }
}

/// The example that `wardgate up` runs when no configuration is given.
const DEMO: &str = "hospital";

fn up(binary: &Path, dir: &Path, example: &str, environment: &[(&str, &str)]) -> WardgateProcess {
    let config = dir
        .join(example)
        .join("wardgate.yaml")
        .display()
        .to_string();
    let dir = dir.display().to_string();
    let mut arguments = vec!["up", "--data-dir", &dir, "--listen", "127.0.0.1:0"];
    if example != DEMO {
        arguments.extend(["--config", &config]);
    }
    WardgateProcess::start(binary, &arguments, environment)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// Returns the base URL of `…/metrics` in the `ready` line.
pub(crate) fn probes_url(process: &WardgateProcess) -> String {
    let mut words = process.ready_line().split_whitespace();
    let url = words.find_map(|word| word.trim_end_matches([')', ';']).strip_suffix("/metrics"));
    url.unwrap_or_else(|| panic!("no URL of metrics in {:?}", process.ready_line()))
        .to_owned()
}

/// Returns the base URL of `ready http://host:port/mcp …`.
pub(crate) fn base_url(process: &WardgateProcess) -> String {
    let url = process.ready_line().split_whitespace().nth(1);
    url.and_then(|url| url.strip_suffix("/mcp"))
        .unwrap_or_else(|| panic!("no URL in {:?}", process.ready_line()))
        .to_owned()
}
