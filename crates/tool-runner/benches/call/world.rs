//! A service over a database of known rows, and permits for its tools.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cedar_policy::Policy;
use futures::StreamExt;
use sqlx::{Connection, Executor, SqliteConnection};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tonic::Status;
use wardgate_domain::{
    Ambient, AttributeType, CallId, Caller, ColumnTier, DecisionId, Digest, PermitId, PermitSigner,
    PermitTerms, RowRule, SignedPermit, ToolFacts,
};
use wardgate_redact::PseudonymKey;
use wardgate_rpc::client::{AuditClient, CallEvent, CallTool, Interaction, ToolRunnerClient};
use wardgate_rpc::{Link, Peer, link};
use wardgate_testkit::{caller, permit_signer, permit_verifier};
use wardgate_tool_runner::{Config, Links, SealingKey, service};

/// Eight rows of ten, redacted: about 1 KiB.
pub(crate) const GOVERNED: &str = "governed_rows";
/// One row of one number: what is left are the way in and out, and SQLite.
pub(crate) const SMALLEST: &str = "one_number";

const ROWS: &str = "
    CREATE TABLE records (id INTEGER PRIMARY KEY, patient TEXT, born TEXT, doctor TEXT, note TEXT);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10)
    INSERT INTO records
    SELECT i, 'P-' || (1000 + i), '19' || (40 + i) || '-03-0' || (i % 9 + 1),
           CASE WHEN i % 5 = 0 THEN 'd2' ELSE 'd1' END,
           'Seen at the ward; pressure 120 over 80, to be looked at again.'
    FROM n;
";

const TOOLS: &str = r#"
sources:
  rows: { type: sqlite, url: "${URL}" }
tools:
  - name: governed_rows
    description: Rows that the policy governs.
    annotations: { readOnlyHint: true }
    input_schema:
      type: object
      properties:
        patient: { type: string, maxLength: 40, default: "" }
        from: { type: integer, minimum: 0, default: 0 }
    execute:
      type: sql
      source: rows
      statement: >
        SELECT id, patient, born, doctor, note FROM records r
        WHERE (:patient = '' OR patient = :patient) AND id > :from AND :row_rule
        ORDER BY id
    result:
      entity: Record
      key: id
      classes: { id: admin.id, patient: id.patient, born: date.birth, note: phi.text }
      internal: [doctor]
      row_rule: { doctor: doctor }
  - name: one_number
    description: One number.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: {} }
    execute: { type: sql, source: rows, statement: SELECT 1 AS one }
    result: { classes: { one: none } }
"#;

const RULE: &str = r#"permit(principal, action, resource) when { resource has doctor && resource.doctor == "d1" };"#;

const LIMIT: Duration = Duration::from_secs(10);

/// A running service.
pub(crate) struct World {
    runtime: Runtime,
    client: ToolRunnerClient,
    ambient: Ambient,
    signer: PermitSigner,
    caller: Arc<Caller>,
    call_id: CallId,
    facts: BTreeMap<String, ToolFacts>,
    _dir: TempDir,
}

/// The measured size and stages of a call.
pub(crate) struct CallMeasurement {
    /// The size of the structured content, in bytes.
    pub(crate) bytes: usize,
    pub(crate) stages: Vec<(String, Duration)>,
}

impl World {
    pub(crate) fn start() -> Self {
        // One thread: nothing is measured but work, and SQLite has one of its own.
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let dir = TempDir::new().unwrap();
        let file = |name: &str| dir.path().join(name);
        let url = |name| format!("sqlite:{}", file(name).display());
        std::fs::write(file("tools.yaml"), TOOLS).unwrap();
        let config = Config {
            catalogue: file("tools.yaml"),
            variables: BTreeMap::from([("URL".to_owned(), url("rows.sqlite"))]),
            store: url("store.sqlite"),
            // The rule is to be decided here, row by row.
            pushdown: false,
            reload_interval: Duration::from_hours(1),
            ..Config::default()
        };
        let ambient = Ambient::system();
        let signer = permit_signer();
        let verifier = permit_verifier(&signer);
        let (client, facts) = runtime.block_on(async {
            let rows = format!("{}?mode=rwc", url("rows.sqlite"));
            let mut rows = SqliteConnection::connect(&rows).await.unwrap();
            rows.execute(ROWS).await.unwrap();
            rows.close().await.unwrap();
            let service = service(
                config,
                verifier,
                PseudonymKey::new([7; 32]),
                SealingKey::derive(&[7; 32]),
                Links {
                    audit: AuditClient::new(nobody(), LIMIT),
                    record_executions: false,
                    policy: None,
                    memory: None,
                    replicas: None,
                },
                ambient.clone(),
            );
            let (service, _closing) = service.await.unwrap();
            let service = link::local(service, Peer::Gateway);
            let client = ToolRunnerClient::new(service.link, LIMIT);
            let listed = client.list_tools().await.unwrap();
            let facts = listed.tools.into_iter().map(|tool| tool.facts);
            let facts = facts.map(|facts| (facts.name.to_string(), facts)).collect();
            (client, facts)
        });
        Self {
            caller: Arc::new(caller("d1", &["Doctor"])),
            call_id: CallId::new(&ambient),
            _dir: dir,
            runtime,
            client,
            ambient,
            signer,
            facts,
        }
    }

    /// A permit for the tool, as the policy service gives one.
    pub(crate) fn permit(&self, tool: &str) -> SignedPermit {
        let facts = &self.facts[tool];
        let now = self.ambient.now();
        let tiers = facts.classes.iter().map(|class| {
            let tier = match class.to_string().as_str() {
                "id.patient" => ColumnTier::Pseudonym,
                "date.birth" => ColumnTier::Generalised,
                _ => ColumnTier::Clear,
            };
            (class.clone(), tier)
        });
        self.signer.sign(&PermitTerms {
            id: PermitId::new(&self.ambient),
            decision_id: DecisionId::new(&self.ambient),
            caller_digest: self.caller.digest(),
            tool: facts.name.clone(),
            definition_digest: facts.definition_digest,
            arguments_digest: None,
            policy_hash: Digest::compute(b"policies"),
            bundle: None,
            not_before: now,
            expires_at: now.plus(Duration::from_hours(1)),
            row_rule: facts.entity.clone().map(rule),
            column_tiers: tiers.collect(),
        })
    }

    /// Calls the tool once.
    pub(crate) fn call(&self, tool: &str, permit: &SignedPermit) -> CallMeasurement {
        let arguments: &'static [u8] = match tool {
            GOVERNED => br#"{"patient":"","from":0}"#,
            _ => b"{}",
        };
        let call = CallTool {
            call_id: self.call_id,
            caller: &self.caller,
            tool: &self.facts[tool].name,
            arguments: Bytes::from_static(arguments),
            permit,
            caller_token: None,
            idempotency_key: None,
            interaction: Interaction::default(),
            limit: LIMIT,
        };
        let result = self.runtime.block_on(async {
            let mut events = pin!(self.client.call_tool(call).await.unwrap());
            match events.next().await {
                Some(Ok(CallEvent::Result(result))) => result,
                other => unreachable!("the tool says and asks nothing: {other:?}"),
            }
        });
        assert!(!result.is_error, "{:?}", result.content);
        CallMeasurement {
            bytes: result.structured_content.len(),
            stages: result.facts.stages,
        }
    }
}

fn rule(entity: String) -> RowRule {
    RowRule {
        entity,
        policies_json: vec![
            Policy::parse(None, RULE)
                .unwrap()
                .to_json()
                .unwrap()
                .to_string(),
        ],
        all: false,
        attributes: BTreeMap::from([("doctor".to_owned(), AttributeType::Text)]),
    }
}

/// An audit service that is away: nothing here is recorded.
fn nobody() -> Link {
    let away = |_| async { Ok(Status::unavailable("nobody is there").into_http()) };
    Link::new(tower::service_fn(away))
}
