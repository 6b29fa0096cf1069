//! A configured tool for the tests of executors, created from YAML.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;
use wardgate_domain::{Ambient, Digest, PermitVerifier};
use wardgate_redact::{PseudonymKey, Redactor};

use super::{Caps, Invocation, Output};
use crate::Config;
use crate::executor_error::ExecutorError;
use crate::large_results::LargeResults;
use crate::loaded::{Keys, LoadedCatalogue, RunnableTool, SharedState};
use crate::tests::stores;
use wardgate_catalogue::{Catalogue, FileText};

/// The result of a run.
#[derive(Debug)]
pub(super) struct RunResult {
    /// The rows as JSON objects.
    pub(super) rows: Vec<Value>,
    pub(super) is_error: bool,
}

/// The properties of every test tool's input schema. They accept values of any type.
const PROPERTIES: &str =
    "id: {}, n: {}, list: {}, text: {}, query: {}, tags: {}, absent: {}, 'null': {}";

/// A tool that can be run.
pub(super) struct TestTool {
    loaded: LoadedCatalogue,
    shared: SharedState,
    redactor: Redactor,
    /// The directory of the store.
    _directory: TempDir,
}

impl TestTool {
    /// Creates a tool. `sources`, `execute` and `result` are YAML on one line each.
    pub(super) fn new(sources: &str, execute: &str, result: &str) -> Self {
        let catalogue = parse(sources, execute, result).unwrap_or_else(|faults| panic!("{faults}"));
        let directory = TempDir::new().unwrap();
        let url = format!("sqlite:{}/store.db", directory.path().display());
        let ambient = Ambient::system();
        let store = stores::store(&url, ambient.clone()).unwrap();
        let config = Config::default();
        let shared = SharedState::new(&config, store, ambient);
        let pseudonyms = PseudonymKey::new([7; 32]);
        let redactor = Redactor::new(&pseudonyms, "");
        let keys = Keys {
            permits: PermitVerifier::new([]),
            pseudonyms: Arc::new(pseudonyms),
        };
        Self {
            loaded: LoadedCatalogue::new(catalogue, &config, &keys, &shared, None).unwrap(),
            shared,
            redactor,
            _directory: directory,
        }
    }

    /// Returns the faults of such a file.
    pub(super) fn faults(sources: &str, execute: &str) -> String {
        parse(sources, execute, "{}").err().unwrap_or_default()
    }

    pub(super) fn needs_caller_token(&self) -> bool {
        self.tool().tool.plan().needs_caller_token()
    }

    fn tool(&self) -> &RunnableTool {
        self.loaded.tool("tool").unwrap()
    }

    /// Runs the tool with `arguments`, which are not validated.
    pub(super) async fn run(&self, arguments: Value) -> Result<RunResult, ExecutorError> {
        let Value::Object(arguments) = arguments else {
            panic!("arguments are an object");
        };
        let invocation = Invocation {
            caller: &wardgate_testkit::caller("ann", &[]),
            caller_token: None,
            raw_arguments: &Bytes::from(Value::Object(arguments.clone()).to_string()),
            arguments: &arguments,
            deadline: Instant::now() + Duration::from_secs(30),
            read_only: true,
            pushed: None,
            may_withhold: false,
            large_results: LargeResults {
                store: &self.shared.store,
                tools: self.loaded.definitions(),
                redactor: &self.redactor,
                policy_hash: Digest::compute(b""),
                now: self.shared.ambient.now(),
            },
            elicitation: None,
        };
        let caps = Caps {
            rows: 1_000,
            bytes: 1 << 20,
            stops: true,
            overflow: None,
        };
        let tool = self.tool();
        let mut output = Output::new(tool.tool.result(), None, caps, None);
        tool.executor.run(&invocation, &mut output).await?;
        let retained = output.into_retained();
        let rows = retained.rows.into_iter().map(|row| {
            let fields = row.into_fields().into_iter();
            fields
                .map(|(name, value)| (name.to_string(), value))
                .collect()
        });
        Ok(RunResult {
            rows: rows.collect(),
            is_error: retained.is_error,
        })
    }
}

fn parse(sources: &str, execute: &str, result: &str) -> Result<Catalogue, String> {
    let text = format!(
        "sources: {sources}\n\
         tools:\n  \
         - name: tool\n    \
           description: A tool.\n    \
           annotations: {{ readOnlyHint: true }}\n    \
           input_schema: {{ type: object, properties: {{ {PROPERTIES} }} }}\n    \
           execute: {execute}\n    \
           result: {result}\n"
    );
    let path = PathBuf::from("tools.yaml");
    Catalogue::parse(&[FileText { path, text }], &BTreeMap::new()).map_err(|faults| {
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        faults.join("\n")
    })
}

/// Returns the text of a refusal that the caller reads.
pub(super) fn refusal_text(error: ExecutorError) -> String {
    match error {
        ExecutorError::Refused { text, .. } | ExecutorError::Unavailable { text, .. } => text,
        other => panic!("{other}"),
    }
}
