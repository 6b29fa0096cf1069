//! What every running system offers, however many processes it is.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{Client, ProcessExit, run, until};

/// A running system.
pub trait System {
    /// The binary it was started from.
    fn binary(&self) -> &Path;

    /// Keys, the record and the hospital's database.
    fn data_dir(&self) -> PathBuf;

    /// The hospital's catalogue and policies, a copy of its own that it reads again when it changes.
    fn example_dir(&self) -> PathBuf;

    /// A client of its gateway.
    fn client(&self) -> &Client;

    /// A client of the address where probes and metrics of its gateway are.
    fn probes(&self) -> Client;

    /// What its gateway has measured so far, as Prometheus reads it.
    fn metrics(&self) -> impl Future<Output = String> {
        let probes = self.probes();
        async move { probes.get("/metrics").await.body }
    }

    /// Waits until `/ready` says so, or says no longer so.
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

    /// Until the gateway itself knows that this part of `/ready` is away.
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

    /// A token of its local issuer, good for an hour.
    fn token(&self, subject: &str, role: &str, claims: &[(&str, &str)]) -> String {
        self.token_for("1h", subject, role, claims)
    }

    /// A token that lives as long as `ttl` says.
    fn token_for(&self, ttl: &str, subject: &str, role: &str, claims: &[(&str, &str)]) -> String {
        let mut command = Command::new(self.binary());
        command.args(["token", "--sub", subject, "--role", role, "--ttl", ttl]);
        command.arg("--data-dir").arg(self.data_dir());
        for (name, value) in claims {
            command.args(["--claim", &format!("{name}={value}")]);
        }
        ProcessExit::of(command).success().trim().to_owned()
    }

    /// Every record, oldest first, as `audit query -o jsonl` prints them.
    fn records(&self) -> Vec<Value> {
        self.records_with(&[])
    }

    /// The records that further options of `audit query` leave.
    fn records_with(&self, options: &[&str]) -> Vec<Value> {
        let text = self.query(&[&["-o", "jsonl"], options].concat()).success();
        let record = |line| serde_json::from_str(line).expect("a record is JSON");
        text.lines().map(record).collect()
    }

    /// `audit query` with these options.
    fn query(&self, options: &[&str]) -> ProcessExit {
        self.audit(&[&["query"], options].concat())
    }

    /// `audit` with these arguments, on the record of this system.
    fn audit(&self, arguments: &[&str]) -> ProcessExit {
        let dir = self.data_dir().display().to_string();
        let arguments = [&["audit"], arguments, &["--data-dir", &dir]].concat();
        run(self.binary(), &arguments, &[])
    }
}
