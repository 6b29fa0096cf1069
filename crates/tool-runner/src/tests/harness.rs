//! A running service, a database with known rows, and a signer whose permits the service accepts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cedar_policy::Policy;
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::{Code, Status};
use wardgate_domain::{
    Ambient, AttributeType, AttributeValue, CallId, Caller, CallerClaims, ColumnTier, DecisionId,
    Digest, OperatorAction, PermitId, PermitSigner, PermitTerms, RowRule, SignedPermit,
    SwitchAction, SwitchChange, SwitchKind, SwitchScope, SwitchTarget, ToolFacts,
};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::tool_runner_service_client::ToolRunnerServiceClient;
use wardgate_proto::toolrunner::v1::tool_runner_service_server::ToolRunnerServiceServer;
use wardgate_redact::PseudonymKey;
use wardgate_rpc::client::OperatorRights;
use wardgate_rpc::{Peer, link};
use wardgate_testkit::{
    FakeAudit, FakePolicy, TestClock, TestDatabase, claims, permit_signer, permit_verifier, until,
    unverified_token,
};

use super::stores;
use crate::Config;
use crate::execution_log::ExecutionLog;
use crate::imported::Importer;
use crate::loaded::{Keys, SharedState};
use crate::replicas::{Dial, Replicas};
use crate::service::{Runner, start};
use crate::switchboard::Switchboard;
use crate::tests::database;

/// Tools over these rows. The harness fills in `${…}`.
const TOOLS: &str = r#"
sources:
  rows: { type: "${TYPE}", url: "${URL}", max_connections: 4 }
tools:
  - name: governed_rows
    aliases: [rows_by_rule]
    description: Rows that the policy governs.
    annotations: { readOnlyHint: true }
    input_schema:
      type: object
      properties: { patient: { type: string, default: "" } }
    execute:
      type: sql
      source: rows
      statement: >
        SELECT r.note, r.id, r.patient, r.doctor, r.ward, r.sealed, r.level
        FROM records r
        WHERE (:patient = '' OR r.patient = :patient) AND :row_rule ORDER BY r.id
    result:
      entity: Record
      key: id
      classes: { id: admin.id, patient: id.patient, note: phi.text, ward: place.ward, doctor: staff.id, level: admin.level }
      internal: [doctor, sealed]
      row_rule: { doctor: r.doctor, ward: r.ward, sealed: r.sealed, level: r.level }
      empty: { error: "Invalid patient: {patient}" }
  - name: plain_rows
    description: Rows that nothing governs.
    annotations: { readOnlyHint: true }
    input_schema:
      type: object
      properties: { from: { type: integer, default: 0 } }
    execute:
      type: sql
      source: rows
      statement: SELECT id, patient, note FROM records WHERE id > :from ORDER BY id
    result: { classes: { patient: id.patient, note: phi.text } }
  - name: echo
    description: Gives its arguments back.
    annotations: { readOnlyHint: true }
    input_schema:
      type: object
      properties:
        text: { type: [string, "null"], maxLength: 400 }
        whole: { type: integer, minimum: -9223372036854775808 }
        number: { type: number }
        truth: { type: boolean }
        either: { type: [integer, string] }
        list: { type: array, items: { type: object } }
        day: { type: string, format: date }
    execute:
      type: sql
      source: rows
      statement: >
        SELECT :text AS text, :whole AS whole, :number AS number, :truth AS truth, :day AS day,
               'a '':text'' b' AS fixed
  - name: series
    description: The whole numbers up to a limit.
    annotations: { readOnlyHint: true }
    input_schema:
      type: object
      properties: { last: { type: integer } }
      required: [last]
    execute:
      type: sql
      source: rows
      statement: >
        WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < :last)
        SELECT value FROM n
    result: { max_rows: 5 }
  - name: append
    description: Writes a line.
    input_schema:
      type: object
      properties: { line: { type: string } }
      required: [line]
    execute:
      type: sql
      source: rows
      statement: INSERT INTO written VALUES (:line)
  - name: sneaky_append
    description: Says it only reads, and writes.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: {} }
    execute:
      type: sql
      source: rows
      statement: INSERT INTO written VALUES ('sneaked')
  - name: endless_append
    description: Writes for ever.
    time_limit: 300ms
    input_schema: { type: object, properties: {} }
    execute:
      type: sql
      source: rows
      statement: >
        WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n)
        INSERT INTO written SELECT 'x' || max(value) FROM n
"#;

/// The operator who is allowed to manage tools.
pub(super) const OPERATOR: &str = "ada";

/// Validity of the harness's permits.
pub(super) const VALIDITY: Duration = Duration::from_mins(1);

/// The service, and the operations that tests perform on it.
pub(super) struct Harness {
    pub(super) client: ToolRunnerServiceClient<ToolRunnerServiceServer<Runner>>,
    pub(super) signer: PermitSigner,
    pub(super) caller: Caller,
    pub(super) ambient: Ambient,
    pub(super) file: PathBuf,
    pub(super) runner: Arc<Runner>,
    /// The audit log, which receives changes of switches.
    pub(super) audit: Arc<FakeAudit>,
    clock: TestClock,
    _dir: TempDir,
}

impl Harness {
    pub(super) async fn start(database: &TestDatabase) -> Self {
        Self::with(database, TOOLS, |_| ()).await
    }

    pub(super) async fn with(
        database: &TestDatabase,
        tools: &str,
        configure: impl FnOnce(&mut Config),
    ) -> Self {
        Self::build(database, tools, configure, false).await
    }

    /// Starts the service as a separate process would run it, with a record of every execution.
    pub(super) async fn start_recording(database: &TestDatabase) -> Self {
        Self::build(database, TOOLS, |_| (), true).await
    }

    async fn build(
        database: &TestDatabase,
        tools: &str,
        configure: impl FnOnce(&mut Config),
        is_recording: bool,
    ) -> Self {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("tools.yaml");
        std::fs::write(&file, database::translate_tools(database, tools)).unwrap();
        let mut config = Config {
            catalogue: file.clone(),
            variables: BTreeMap::from([
                ("TYPE".to_owned(), database.kind().to_owned()),
                ("URL".to_owned(), database.url()),
            ]),
            reload_interval: Duration::from_millis(10),
            ..Config::default()
        };
        configure(&mut config);
        let signer = permit_signer();
        let keys = Keys {
            permits: permit_verifier(&signer),
            pseudonyms: Arc::new(PseudonymKey::new([7; 32])),
        };
        let clock = TestClock::at(1_000);
        let ambient = clock.ambient();
        // The store is always SQLite, regardless of the tools' database, because the store has its own tests on both
        // databases.
        let store = format!("sqlite:{}", dir.path().join("store.sqlite").display());
        let store = stores::store(&store, ambient.clone()).unwrap();
        let audit = FakeAudit::new(Peer::ToolRunner);
        let switchboard = Switchboard::open(store, audit.client(), ambient.clone())
            .await
            .unwrap();
        let importer = Importer::new(&config.catalogue, audit.client(), ambient.clone());
        let dial: Dial = Arc::new(|url| {
            let name = "wardgate.toolrunner.v1.ToolRunnerService";
            link::connect(url, Peer::ToolRunner, name, None)
        });
        let log = ExecutionLog::new(audit.client(), ambient.clone());
        let shared = SharedState {
            executions: is_recording.then_some(log),
            replicas: Arc::new(Replicas::new(config.advertise.clone(), Some(dial))),
            ..SharedState::new(&config, switchboard.store().clone(), ambient.clone())
        };
        let policy = FakePolicy::new(ambient.clone());
        policy.lets_operate(OperatorAction::ManageTools, OPERATOR);
        let operators = OperatorRights::new(
            Some(policy.client(Peer::ToolRunner)),
            "tool_runner.links.policy",
        );
        let runner = start(config, keys, switchboard, operators, importer, shared).unwrap();
        Self {
            client: ToolRunnerServiceClient::new(ToolRunnerServiceServer::from_arc(Arc::clone(
                &runner,
            ))),
            runner,
            audit,
            signer,
            caller: caller("d1"),
            ambient,
            file,
            clock,
            _dir: dir,
        }
    }

    pub(super) fn advance(&self, time: Duration) {
        self.clock.advance(time);
    }

    pub(super) async fn tools(&self) -> pb::ListToolsResponse {
        let client = &self.client;
        until("the tools are listed", async || {
            match client.clone().list_tools(pb::ListToolsRequest {}).await {
                Ok(listed) => Some(listed.into_inner()),
                // A busy machine may ask to try again later, so the call is repeated.
                Err(status) if status.code() == Code::Unavailable => None,
                Err(status) => panic!("{status}"),
            }
        })
        .await
    }

    pub(super) async fn facts(&self, tool: &str) -> ToolFacts {
        let tools = self.tools().await.tools;
        let facts = tools
            .into_iter()
            .filter_map(|tool| tool.facts)
            .find(|facts| facts.name == tool);
        facts.unwrap().try_into().unwrap()
    }

    /// Returns terms that let this caller call the tool with any arguments and see everything.
    pub(super) async fn terms(&self, tool: &str) -> PermitTerms {
        let facts = self.facts(tool).await;
        let row_rule = facts.entity.clone().map(|entity| RowRule {
            entity,
            policies_json: Vec::new(),
            all: true,
            attributes: BTreeMap::new(),
        });
        PermitTerms {
            row_rule,
            ..self.terms_of(facts, ColumnTier::Clear)
        }
    }

    /// Returns terms that let this caller do anything with the tool or offer of these facts. All columns have the tier
    /// `tier`.
    pub(super) fn terms_of(&self, facts: ToolFacts, tier: ColumnTier) -> PermitTerms {
        let now = self.ambient.now();
        PermitTerms {
            id: PermitId::new(&self.ambient),
            decision_id: DecisionId::new(&self.ambient),
            caller_digest: self.caller.digest(),
            tool: facts.name,
            definition_digest: facts.definition_digest,
            arguments_digest: None,
            policy_hash: Digest::compute(b"policies"),
            bundle: None,
            not_before: now,
            expires_at: now.plus(VALIDITY),
            row_rule: None,
            column_tiers: facts
                .classes
                .into_iter()
                .map(|class| (class, tier))
                .collect(),
        }
    }

    /// Sets a switch as the operator who is allowed to.
    pub(super) async fn set_switch(&self, change: &SwitchChange) -> Result<(), Status> {
        let request = pb::SetSwitchRequest {
            caller_token: unverified_token(OPERATOR, ""),
            ..change.into()
        };
        self.client.clone().set_switch(request).await.map(drop)
    }

    /// Turns a source off for everyone.
    pub(super) async fn switch_off(&self, source: &str) {
        let change = SwitchChange {
            target: SwitchTarget {
                kind: SwitchKind::Upstream,
                name: source.to_owned(),
            },
            scope: SwitchScope::Everyone,
            action: SwitchAction::Disable,
        };
        self.set_switch(&change).await.unwrap();
    }

    pub(super) fn request(
        &self,
        tool: &str,
        arguments: &[u8],
        permit: Option<&SignedPermit>,
    ) -> pb::CallToolRequest {
        pb::CallToolRequest {
            call_id: CallId::new(&self.ambient).to_string(),
            caller: Some((&self.caller).into()),
            tool: tool.to_owned(),
            arguments_json: arguments.to_vec().into(),
            permit: permit.map(Into::into),
            caller_token: String::new(),
            idempotency_key: String::new(),
            interaction: None,
        }
    }

    pub(super) async fn send(&self, request: pb::CallToolRequest) -> Result<Answer, Status> {
        let mut client = self.client.clone();
        let mut events = client.call_tool(request).await?.into_inner();
        let event = events.message().await?.unwrap().event.unwrap();
        assert!(events.message().await?.is_none(), "exactly one result");
        match event {
            pb::call_tool_response::Event::Result(result) => Ok(Answer(result)),
            other => panic!("nothing but a result is sent: {other:?}"),
        }
    }

    /// Calls a tool under `terms`.
    pub(super) async fn call_with(
        &self,
        terms: &PermitTerms,
        arguments: &str,
    ) -> Result<Answer, Status> {
        let permit = self.signer.sign(terms);
        self.send(self.request(terms.tool.as_str(), arguments.as_bytes(), Some(&permit)))
            .await
    }

    /// Calls a tool under a permit for everything.
    pub(super) async fn call(&self, tool: &str, arguments: &str) -> Answer {
        let terms = self.terms(tool).await;
        self.call_with(&terms, arguments).await.unwrap()
    }
}

/// A tool result with access to its parsed parts.
#[derive(Debug)]
pub(super) struct Answer(pub(super) pb::ToolResult);

impl Answer {
    pub(super) fn facts(&self) -> &pb::ResultFacts {
        self.0.facts.as_ref().unwrap()
    }

    /// Returns the text of the only content block.
    pub(super) fn text(&self) -> String {
        let content: Value = serde_json::from_slice(&self.0.content_json).unwrap();
        assert_eq!(content[0]["type"], "text");
        assert_eq!(content.as_array().unwrap().len(), 1);
        content[0]["text"].as_str().unwrap().to_owned()
    }

    pub(super) fn structured_content(&self) -> Value {
        assert!(!self.0.is_error, "{}", self.text());
        serde_json::from_slice(&self.0.structured_content_json).unwrap()
    }

    pub(super) fn rows(&self) -> Vec<Value> {
        self.structured_content()["data"]
            .as_array()
            .unwrap()
            .clone()
    }

    /// Returns the integers of one column.
    pub(super) fn column(&self, name: &str) -> Vec<i64> {
        self.rows()
            .iter()
            .map(|row| row[name].as_i64().unwrap())
            .collect()
    }
}

pub(super) fn tools() -> &'static str {
    TOOLS
}

/// Returns a catalogue with one tool, `one`, that runs `statement`.
pub(super) fn one_statement(statement: &str) -> String {
    format!(
        r#"
sources: {{ rows: {{ type: "${{TYPE}}", url: "${{URL}}" }} }}
tools:
  - name: one
    description: One statement.
    annotations: {{ readOnlyHint: true }}
    input_schema: {{ type: object }}
    execute: {{ type: sql, source: rows, statement: {} }}
"#,
        json!(statement)
    )
}

pub(super) fn caller(subject: &str) -> Caller {
    Caller::from_verified(CallerClaims {
        attributes: BTreeMap::from([("ward".to_owned(), AttributeValue::Text("W1".to_owned()))]),
        ..claims(subject, &["Doctor"])
    })
}

/// Policy that admits the rows 1, 4 and 7.
pub(super) const DOCTOR_ONE: &str = r#"permit(principal, action, resource) when { resource has doctor && resource.doctor == "d1" };"#;

/// Attributes of a record, as a schema would declare them.
const ATTRIBUTES: [(&str, AttributeType); 7] = [
    ("id", AttributeType::Integer),
    ("patient", AttributeType::Text),
    ("doctor", AttributeType::Text),
    ("ward", AttributeType::Text),
    ("sealed", AttributeType::Boolean),
    ("level", AttributeType::Integer),
    ("note", AttributeType::Text),
];

/// Returns a row rule with these Cedar policies.
pub(super) fn rule(policies: &[&str]) -> RowRule {
    let json = |text: &&str| {
        Policy::parse(None, text)
            .unwrap()
            .to_json()
            .unwrap()
            .to_string()
    };
    RowRule {
        entity: "Record".to_owned(),
        policies_json: policies.iter().map(json).collect(),
        all: false,
        attributes: ATTRIBUTES
            .into_iter()
            .filter(|(name, _)| {
                let mention = format!("resource.{name}");
                let guard = format!("resource has {name}");
                policies
                    .iter()
                    .any(|text| text.contains(&mention) || text.contains(&guard))
            })
            .map(|(name, kind)| (name.to_owned(), kind))
            .collect(),
    }
}
