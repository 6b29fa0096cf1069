//! `wardgate up` on a directory of its own.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::{Client, System, WardgateProcess};

/// One process with everything: the hospital demo, or another example.
#[derive(Debug)]
pub struct TestApp {
    binary: PathBuf,
    dir: TempDir,
    /// What it runs, below `dir`.
    example: &'static str,
    environment: Vec<(String, String)>,
    /// The process.
    pub process: WardgateProcess,
    client: Client,
}

impl TestApp {
    /// `wardgate up` with the hospital demo.
    pub fn start(binary: &str) -> Self {
        Self::start_with(binary, &[])
    }

    /// The same, with environment variables.
    pub fn start_with(binary: &str, environment: &[(&str, &str)]) -> Self {
        Self::start_in(
            tempfile::tempdir().expect("a directory"),
            DEMO,
            binary,
            environment,
        )
    }

    /// `wardgate up` with the configuration of another example, a copy of the directory `from`.
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

    /// Another one, with the same keys and environment, on a directory of its own.
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

    /// Starts it again on the same directory, after it ended or was killed.
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

/// What runs where no configuration is given.
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

/// Where `…/metrics` of the `ready` line is.
pub(crate) fn probes_url(process: &WardgateProcess) -> String {
    let mut words = process.ready_line().split_whitespace();
    let url = words.find_map(|word| word.trim_end_matches([')', ';']).strip_suffix("/metrics"));
    url.unwrap_or_else(|| panic!("no URL of metrics in {:?}", process.ready_line()))
        .to_owned()
}

/// The URL in `ready http://host:port/mcp …`.
pub(crate) fn base_url(process: &WardgateProcess) -> String {
    let url = process.ready_line().split_whitespace().nth(1);
    url.and_then(|url| url.strip_suffix("/mcp"))
        .unwrap_or_else(|| panic!("no URL in {:?}", process.ready_line()))
        .to_owned()
}
