//! The interface of every running system, whether it is one process or several.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{Client, ProcessExit, run, until};

/// A running system.
pub trait System {
    /// Returns the path of the binary from which the system was started.
    fn binary(&self) -> &Path;

    /// Returns the directory with the keys, the records and the database of the hospital.
    fn data_dir(&self) -> PathBuf;

    /// Returns the directory with the system's copy of the catalogue and policies, which it reloads when they change.
    fn example_dir(&self) -> PathBuf;

    /// Returns a client of the gateway.
    fn client(&self) -> &Client;

    /// Returns a client for the probes and metrics of the gateway.
    fn probes(&self) -> Client;

    /// Returns the metrics of the gateway so far, in the Prometheus text format.
    fn metrics(&self) -> impl Future<Output = String> {
        let probes = self.probes();
        async move { probes.get("/metrics").await.body }
    }

    /// Waits until `/ready` reports this readiness.
    fn until_ready(&self, ready: bool) -> impl Future<Output = ()> {
        let what = format!("/ready says {ready}");
        async move {
            until(&what, async || {
                let status = self.client().get("/ready").await.status;
                ((status == 200) == ready).then_some(())
            })
            .await;
        }
    }

    /// Waits until `/ready` of the gateway reports that this part is not ready.
    fn until_part_is_away(&self, part: &str) -> impl Future<Output = ()> {
        let what = format!("/ready says that {part} is not ready");
        async move {
            until(&what, async || {
                let ready = self.client().get("/ready").await.json();
                (ready["parts"][part] == "not ready").then_some(())
            })
            .await;
        }
    }

    /// Returns a token of the local issuer that expires after an hour.
    fn token(&self, subject: &str, role: &str, claims: &[(&str, &str)]) -> String {
        self.token_for("1h", subject, role, claims)
    }

    /// Returns a token of the local issuer that expires after `ttl`.
    fn token_for(&self, ttl: &str, subject: &str, role: &str, claims: &[(&str, &str)]) -> String {
        let mut command = Command::new(self.binary());
        command.args(["token", "--sub", subject, "--role", role, "--ttl", ttl]);
        command.arg("--data-dir").arg(self.data_dir());
        for (name, value) in claims {
            command.args(["--claim", &format!("{name}={value}")]);
        }
        ProcessExit::run(command).success().trim().to_owned()
    }

    /// Returns every record, oldest first, as `audit query -o jsonl` prints them.
    fn records(&self) -> Vec<Value> {
        self.records_with(&[])
    }

    /// Returns the records that `audit query` prints with further options.
    fn records_with(&self, options: &[&str]) -> Vec<Value> {
        let text = self.query(&[&["-o", "jsonl"], options].concat()).success();
        let record = |line| serde_json::from_str(line).expect("a record is JSON");
        text.lines().map(record).collect()
    }

    /// Runs `audit query` with these options on the store itself.
    fn query(&self, options: &[&str]) -> ProcessExit {
        self.audit(&[&["query", "--offline"], options].concat())
    }

    /// Runs `audit` with these arguments on the records of this system.
    fn audit(&self, arguments: &[&str]) -> ProcessExit {
        let dir = self.data_dir().display().to_string();
        let arguments = [&["audit"], arguments, &["--data-dir", &dir]].concat();
        run(self.binary(), &arguments, &[])
    }
}
