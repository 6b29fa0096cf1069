//! Tests of P1: the tool-runner refuses a call without a valid permit.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use serde_json::{Value, json};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use wardgate_domain::{
    Ambient, AttributeValue, BearerToken, CallId, Caller, CallerClaims, PermitSigner, PermitTerms,
    SignedPermit, ToolFacts, ToolName, Verdict,
};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::tool_runner_service_client::ToolRunnerServiceClient;
use wardgate_rpc::client::{
    CallError, CallEvent, CallTool, ConnectTarget, FinishConnection, Interaction, MemoryClient,
    OnBehalfOf, Person, PolicyClient, StartConnection, ToolResult, ToolRunnerClient,
};
use wardgate_rpc::link::{self, TlsFiles};
use wardgate_rpc::{Link, Peer};
use wardgate_testkit::{
    SeparateProcesses, System, TestKey, WardgateProcess, claims, permit_signer, run, until,
};

use super::super::extra_tools::LOG_RUNS;
use crate::{REPOSITORY, WARDGATE};

const LIMIT: Duration = Duration::from_secs(5);
const NUGWI: &[u8] = br#"{"patient_id":"NUGWI"}"#;

/// Clients of the policy service and the tool-runner, with the identity of the gateway.
struct Direct {
    policy: PolicyClient,
    runner: ToolRunnerClient,
    tools: Vec<ToolFacts>,
}

/// Returns the HTTPS URL of the address at which a process serves.
fn url(process: &WardgateProcess) -> String {
    format!(
        "https://{}",
        process.ready_line().rsplit(' ').next().unwrap()
    )
}

/// Returns the certificate of `peer` in the directory that `wardgate certs dev` created.
fn certificate(certs: &Path, peer: Peer) -> TlsFiles {
    TlsFiles {
        ca: certs.join("ca.pem"),
        cert: certs.join(format!("{}.pem", peer.as_str())),
        key: certs.join(format!("{}.key", peer.as_str())),
    }
}

fn runner(system: &SeparateProcesses, files: &TlsFiles) -> Link {
    let name = "wardgate.toolrunner.v1.ToolRunnerService";
    link::connect::<()>(
        &url(&system.tool_runner),
        Peer::ToolRunner,
        name,
        Some(files),
    )
    .unwrap()
    .link
    .transport
}

impl Direct {
    async fn connect(system: &SeparateProcesses) -> Self {
        let files = certificate(&system.data_dir().join("certs"), Peer::Gateway);
        let name = "wardgate.policy.v1.PolicyService";
        let policy = link::connect(&url(&system.policy), Peer::Policy, name, Some(&files)).unwrap();
        let runner = ToolRunnerClient::new(runner(system, &files), LIMIT);
        let tools = runner.list_tools().await.unwrap().tools;
        Self {
            policy: PolicyClient::new(policy.link, LIMIT),
            runner,
            tools: tools.into_iter().map(|tool| tool.facts).collect(),
        }
    }

    async fn permit(&self, caller: &Caller, tool: &str, arguments: &'static [u8]) -> SignedPermit {
        let facts = self
            .tools
            .iter()
            .find(|facts| facts.name.as_str() == tool)
            .unwrap();
        let decision = self
            .policy
            .authorize(caller, facts, &arguments.into(), "")
            .await
            .unwrap();
        match decision.verdict {
            Verdict::Allow(permit) => permit,
            Verdict::NeedsApproval { .. } | Verdict::NeedsIntent | Verdict::Deny { .. } => {
                panic!("{caller:?} may not call {tool}")
            }
        }
    }

    async fn run(
        &self,
        caller: &Caller,
        tool: &str,
        arguments: &'static [u8],
        permit: &SignedPermit,
    ) -> Result<ToolResult, CallError> {
        call(&self.runner, caller, tool, arguments, permit).await
    }
}

async fn call(
    runner: &ToolRunnerClient,
    caller: &Caller,
    tool: &str,
    arguments: &'static [u8],
    permit: &SignedPermit,
) -> Result<ToolResult, CallError> {
    let tool: ToolName = tool.parse().unwrap();
    let call_id = CallId::new(&Ambient::system());
    let arguments = arguments.into();
    let events = runner
        .call_tool(CallTool {
            call_id,
            caller: &Arc::new(caller.clone()),
            tool: &tool,
            arguments,
            permit,
            caller_token: None,
            idempotency_key: None,
            interaction: Interaction::default(),
            limit: LIMIT,
        })
        .await?;
    let mut events = pin!(events);
    match events.next().await {
        Some(Ok(CallEvent::Result(result))) => Ok(*result),
        Some(Err(error)) => Err(error),
        other => panic!("no result: {other:?}"),
    }
}

/// Returns a caller as the gateway knows them, with a token of the system's own issuer.
fn caller(
    system: &SeparateProcesses,
    subject: &str,
    role: &str,
    attribute: Option<(&str, &str)>,
) -> Caller {
    let claims: Vec<_> = attribute.into_iter().collect();
    let token = BearerToken::new(&system.token(subject, role, &claims));
    invented_caller(subject, role, attribute).with_token(token)
}

/// Returns a caller for whom no issuer issued a token.
fn invented_caller(subject: &str, role: &str, attribute: Option<(&str, &str)>) -> Caller {
    let attributes =
        attribute.map(|(name, value)| (name.to_owned(), AttributeValue::Text(value.to_owned())));
    Caller::from_verified(CallerClaims {
        issuer: "https://issuer.wardgate.internal".to_owned(),
        attributes: attributes.into_iter().collect(),
        expires_at: Ambient::system().now().plus(Duration::from_secs(3_600)),
        ..claims(subject, &[role])
    })
}

/// Returns a token of an untrusted issuer, with any claims.
fn forged_token(subject: &str, role: &str) -> BearerToken {
    let ends = Ambient::system().now().as_seconds() + 3_600;
    let header = json!({ "alg": "EdDSA", "typ": "at+jwt" });
    let claims = json!({
        "iss": "https://issuer.wardgate.internal", "aud": "wardgate", "sub": subject,
        "roles": [role], "exp": ends,
    });
    BearerToken::new(&TestKey::ed25519().token(header, claims))
}

/// An attacker with the gateway's key and certificate can send requests to every service as the gateway.
#[tokio::test]
async fn the_gateways_key_alone_invents_no_caller_and_runs_nothing_off_the_record() {
    let system = SeparateProcesses::start(WARDGATE, REPOSITORY.as_ref()).await;
    let direct = Direct::connect(&system).await;
    let records = "get_medical_records";
    let mut tools = direct.tools.iter();
    let facts = tools.find(|facts| facts.name.as_str() == records);
    let facts = facts.unwrap();

    // The caller is invented: without a token, with a token of an untrusted issuer, and with another person's token.
    let doctor = caller(&system, "dr.yenji", "Doctor", None);
    let nobody = invented_caller("dr.yenji", "Doctor", None);
    let forged = nobody
        .clone()
        .with_token(forged_token("dr.yenji", "Doctor"));
    let memory = memory(&system);
    for (what, caller, reason) in [
        ("no token", &nobody, ErrorReason::InvalidMessage),
        ("a forged token", &forged, ErrorReason::TokenRefused),
    ] {
        let decided = direct
            .policy
            .authorize(caller, facts, &NUGWI.into(), "")
            .await;
        assert_eq!(decided.unwrap_err().reason(), reason, "{what}");
        let listed = direct.policy.list_visible(caller, [facts]).await;
        assert_eq!(listed.unwrap_err().reason(), reason, "{what}");
        let of = OnBehalfOf {
            caller,
            client_ip: "",
        };
        let read = memory.list_conversations(of, 0, "").await;
        assert_eq!(read.unwrap_err().reason(), reason, "{what}");
    }
    let nurse = caller(&system, "nurse.joy", "Nurse", Some(("ward", "W2")));
    let of_nurse = direct.permit(&nurse, records, NUGWI).await;
    let as_doctor = direct.run(&doctor, records, NUGWI, &of_nurse).await;
    assert_eq!(as_doctor.unwrap_err().reason(), ErrorReason::PermitRefused);
    check_connections_are_refused(&direct.runner).await;
    assert_eq!(system.records(), Vec::<Value>::new(), "nothing ran so far");

    // With a token that it intercepted, the attacker can do what the caller may do. Every time this is on record,
    // although the gateway records nothing.
    let permit = direct.permit(&doctor, records, NUGWI).await;
    for times in 1..=2 {
        let ran = direct.run(&doctor, records, NUGWI, &permit).await.unwrap();
        assert_eq!(ran.facts.rows, 2);
        let recorded = system.records();
        assert_eq!(recorded.len(), times);
        let record = recorded.last().unwrap();
        assert_eq!(record["event"], "execution");
        assert_eq!(record["caller"]["subject"], "dr.yenji");
        assert_eq!(record["tool"], records);
        assert_eq!(
            record["permit_id"],
            permit.unverified_terms().unwrap().id.to_string()
        );
    }
}

/// Tries to connect a source for a person who made no call.
async fn check_connections_are_refused(runner: &ToolRunnerClient) {
    let person = Person {
        tenant: String::new(),
        issuer: "https://issuer.wardgate.internal".to_owned(),
        subject: "dr.yenji".to_owned(),
    };
    let connect = ConnectTarget {
        source: "hospital".to_owned(),
        scope: None,
        caller_proof: "invented".into(),
    };
    let described = runner.describe_connection(&person, &connect).await;
    let start = StartConnection {
        person: &person,
        connect: &connect,
        redirect_uri: "https://attacker.example/",
        state: "state",
        client_metadata_url: None,
    };
    let started = runner.start_connection(start).await;
    let finish = FinishConnection {
        person: &person,
        connect: &connect,
        pending: "invented".into(),
        code: "code",
        issuer: None,
    };
    let finished = runner.finish_connection(finish).await;
    for refused in [described.map(drop), started.map(drop), finished] {
        assert_eq!(refused.unwrap_err().reason(), ErrorReason::PermitRefused);
    }
}

/// Returns a client of the memory service with the gateway's key.
fn memory(system: &SeparateProcesses) -> MemoryClient {
    let files = certificate(&system.data_dir().join("certs"), Peer::Gateway);
    let name = "wardgate.memory.v1.MemoryService";
    let memory = link::connect(&url(&system.memory), Peer::Memory, name, Some(&files)).unwrap();
    MemoryClient::new(memory.link, LIMIT)
}

/// Returns the key of the policy service, which only that service should have.
fn real_signer(system: &SeparateProcesses) -> PermitSigner {
    let pem = std::fs::read_to_string(system.data_dir().join("keys/permit.pem")).unwrap();
    let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    PermitSigner::from_pkcs8(&STANDARD.decode(body).unwrap()).unwrap()
}

fn executions(system: &SeparateProcesses) -> usize {
    system
        .tool_runner
        .log()
        .matches("Executing MCP tool")
        .count()
}

/// A call that is refused, because its permit does not cover it.
struct RefusedCall<'a> {
    what: &'static str,
    caller: &'a Caller,
    arguments: &'static [u8],
    permit: SignedPermit,
}

/// Returns modified copies of `genuine`, signed with the key of the policy service.
fn changed_permits<'a>(
    system: &SeparateProcesses,
    genuine: &SignedPermit,
    caller: &'a Caller,
) -> Vec<RefusedCall<'a>> {
    let terms = genuine.unverified_terms().unwrap();
    let real = real_signer(system);
    let stranger = permit_signer();
    let (now, second) = (Ambient::system().now(), Duration::from_secs(1));
    let signed = |change: &dyn Fn(&mut PermitTerms)| {
        let mut terms = terms.clone();
        change(&mut terms);
        real.sign(&terms)
    };
    [
        ("signed by a stranger", stranger.sign(&terms)),
        (
            "of the past",
            signed(&|terms| terms.expires_at = now.minus(second)),
        ),
        (
            "of the future",
            signed(&|terms| terms.not_before = now.plus(60 * second)),
        ),
        (
            "of another definition",
            signed(&|terms| terms.definition_digest = terms.policy_hash),
        ),
        (
            "without its row rule",
            signed(&|terms| terms.row_rule = None),
        ),
    ]
    .map(|(what, permit)| RefusedCall {
        what,
        caller,
        arguments: NUGWI,
        permit,
    })
    .into()
}

#[tokio::test]
async fn p1_no_permit_no_run() {
    let system = SeparateProcesses::start_with(WARDGATE, REPOSITORY.as_ref(), &[LOG_RUNS]).await;
    let direct = Direct::connect(&system).await;
    let (records, overview) = ("get_medical_records", "get_patient_overview");
    let doctor = caller(&system, "dr.yenji", "Doctor", None);
    let nurse = caller(&system, "nurse.joy", "Nurse", Some(("ward", "W2")));
    let demoted = invented_caller("dr.yenji", "Nurse", None);
    let patient = caller(
        &system,
        "patient.nugwi",
        "Patient",
        Some(("patient_id", "NUGWI")),
    );
    let genuine = direct.permit(&doctor, records, NUGWI).await;
    let ran = direct.run(&doctor, records, NUGWI, &genuine).await.unwrap();
    assert_eq!(ran.facts.rows, 2, "the permit itself is good");

    let bound = direct.permit(&patient, records, NUGWI).await;
    let of_overview = direct.permit(&doctor, overview, NUGWI).await;
    let (dosro, spaced) = (br#"{"patient_id":"DOSRO"}"#, br#"{ "patient_id":"NUGWI"}"#);
    let others = [
        ("of another tool", &doctor, NUGWI, of_overview),
        ("of another caller", &nurse, NUGWI, genuine.clone()),
        (
            "of the same caller with other rights",
            &demoted,
            NUGWI,
            genuine.clone(),
        ),
        ("for other arguments", &patient, dosro, bound.clone()),
        (
            "for the same arguments in other bytes",
            &patient,
            spaced,
            bound,
        ),
    ]
    .map(|(what, caller, arguments, permit)| RefusedCall {
        what,
        caller,
        arguments,
        permit,
    });
    for RefusedCall {
        what,
        caller,
        arguments,
        permit,
    } in changed_permits(&system, &genuine, &doctor)
        .into_iter()
        .chain(others)
    {
        let error = direct
            .run(caller, records, arguments, &permit)
            .await
            .unwrap_err();
        assert_eq!(
            error.reason(),
            ErrorReason::PermitRefused,
            "a permit {what}: {error}"
        );
    }
    no_permit_at_all(&system, &doctor, &genuine).await;

    // A call by an alias is refused too, because a permit names the tool.
    let error = direct
        .run(&doctor, "get_patient_records", NUGWI, &genuine)
        .await
        .unwrap_err();
    assert_eq!(error.reason(), ErrorReason::UnknownTool);

    assert_eq!(
        direct
            .run(&doctor, records, NUGWI, &genuine)
            .await
            .unwrap()
            .facts
            .rows,
        2
    );
    until("the last call is logged", async || {
        (executions(&system) >= 2).then_some(())
    })
    .await;
    assert_eq!(executions(&system), 2, "only the two with their permit ran");
}

/// Sends malformed permits, which is possible only in a raw message.
async fn no_permit_at_all(system: &SeparateProcesses, caller: &Caller, genuine: &SignedPermit) {
    let files = certificate(&system.data_dir().join("certs"), Peer::Gateway);
    let mut client = ToolRunnerServiceClient::new(runner(system, &files));
    let genuine = wardgate_proto::policy::v1::SignedPermit::from(genuine);
    let altered = |at: usize| {
        let mut permit = genuine.clone();
        let mut bytes = permit.permit.to_vec();
        bytes[at] ^= 1;
        permit.permit = bytes.into();
        permit
    };
    let mut cases = vec![
        None,
        Some(wardgate_proto::policy::v1::SignedPermit::default()),
        Some(wardgate_proto::policy::v1::SignedPermit {
            signature: "".into(),
            ..genuine.clone()
        }),
        Some(wardgate_proto::policy::v1::SignedPermit {
            permit: "".into(),
            ..genuine.clone()
        }),
    ];
    cases.extend(
        (0..genuine.permit.len())
            .step_by(17)
            .map(|at| Some(altered(at))),
    );
    for permit in cases {
        let shown = format!("{permit:?}");
        let request = pb::CallToolRequest {
            call_id: CallId::new(&Ambient::system()).to_string(),
            caller: Some(caller.into()),
            tool: "get_medical_records".to_owned(),
            arguments_json: NUGWI.into(),
            permit,
            caller_token: String::new(),
            idempotency_key: String::new(),
            interaction: None,
        };
        let status = client.call_tool(request).await.unwrap_err();
        assert_eq!(
            wardgate_rpc::reason_of(&status),
            ErrorReason::PermitRefused,
            "{shown}: {status}"
        );
    }
}

#[tokio::test]
async fn p1_only_the_gateway_and_replicas_reach_the_tool_runner() {
    let system = SeparateProcesses::start(WARDGATE, REPOSITORY.as_ref()).await;
    let direct = Direct::connect(&system).await;
    let doctor = caller(&system, "dr.yenji", "Doctor", None);
    let genuine = direct.permit(&doctor, "get_medical_records", NUGWI).await;
    let call_as = async |files: &TlsFiles| {
        let client = ToolRunnerClient::new(runner(&system, files), LIMIT);
        call(&client, &doctor, "get_medical_records", NUGWI, &genuine)
            .await
            .map(|result| result.facts.rows)
    };
    let certs = system.data_dir().join("certs");
    for peer in Peer::ALL {
        let ran = call_as(&certificate(&certs, peer)).await;
        match peer {
            // A replica forwards a call that is to wait at another replica, together with its permit.
            Peer::Gateway | Peer::ToolRunner => assert_eq!(ran.unwrap(), 2),
            _ => assert_eq!(
                ran.unwrap_err().reason(),
                ErrorReason::PeerRefused,
                "{peer:?}"
            ),
        }
    }
    // A gateway's certificate of another authority, and a connection without one, are refused before any message.
    let elsewhere = tempfile::tempdir().unwrap();
    let dir = elsewhere.path().display().to_string();
    run(
        Path::new(WARDGATE),
        &["certs", "dev", "--data-dir", &dir],
        &[],
    )
    .success();
    let foreign = certificate(&elsewhere.path().join("certs"), Peer::Gateway);
    let foreign = TlsFiles {
        ca: certs.join("ca.pem"),
        ..foreign
    };
    assert_eq!(
        call_as(&foreign).await.unwrap_err().reason(),
        ErrorReason::Unavailable
    );
    let authority = Certificate::from_pem(std::fs::read(certs.join("ca.pem")).unwrap());
    let nobody = ClientTlsConfig::new()
        .ca_certificate(authority)
        .domain_name("tool-runner");
    let nobody = Endpoint::from_shared(url(&system.tool_runner))
        .unwrap()
        .tls_config(nobody)
        .unwrap();
    let mut client = ToolRunnerServiceClient::new(nobody.connect_lazy());
    let status = client
        .list_tools(pb::ListToolsRequest {})
        .await
        .unwrap_err();
    assert_eq!(
        wardgate_rpc::reason_of(&status),
        ErrorReason::Unavailable,
        "{status}"
    );
}
