//! Tests of operators, who read the audit log with their token if the policy permits it, and whose access is recorded.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{join_all, select};
use futures::{StreamExt, TryStreamExt, pin_mut};
use serde_json::Value;
use sqlx::{Connection, SqliteConnection};
use wardgate_audit::{
    CallingProcesses, CheckpointKind, Config, ExportDirectory, ExportPart, RecordReader,
};
use wardgate_domain::{
    Ambient, BearerToken, CallFacts, OperatorAction, Record, Status, UNKNOWN_NAME,
};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{
    AuditFilter, CallError, DataSubjectFilter, ExportedPart, OperatorAuditClient, ProofSelector,
    QueriedRecord,
};
use wardgate_rpc::server::{BoundServer, ListenConfig};
use wardgate_rpc::{Peer, Shutdown, link};
use wardgate_store::DatabaseSettings;
use wardgate_testkit::{FakePolicy, PolicyAnswer, until, unverified_token};

use crate::support::{
    TestService, TestStore, intact, json as record_of, keys, on_both_stores, outcome, start,
    subject,
};

on_both_stores! {
    an_operator_whom_the_policy_lets_reads_the_record_and_that_is_on_record_first
    an_access_records_a_tool_only_if_records_that_the_operator_may_read_contain_it
    whom_no_policy_lets_read_is_refused_and_that_is_on_record
    without_a_token_that_the_policy_service_takes_nothing_is_read_nor_recorded
    an_operator_of_a_tenant_reads_what_that_tenant_did
    a_watch_gives_each_record_once_it_is_durable
    a_watch_ends_once_the_policy_no_longer_permits_it
    an_export_over_grpc_is_the_one_of_the_store
}

const LIMIT: Duration = Duration::from_secs(60);

/// Starts the service with a policy that permits `auditor.lee` to read.
async fn start_with_auditor(store: &TestStore) -> (TestService, Arc<FakePolicy>) {
    let policy = FakePolicy::new(Ambient::system());
    policy.lets_operate(OperatorAction::ReadRecord, "auditor.lee");
    let service = TestService::start_under(policy.client(Peer::Audit), &store.url).await;
    (service, policy)
}

async fn append(service: &TestService, calls: usize) {
    for _ in 0..calls {
        let record = outcome(&subject(), Status::Ok);
        service.audit.append(&record, false).await.unwrap();
    }
}

async fn read_sequences(
    operator: &OperatorAuditClient,
    filter: AuditFilter,
) -> Result<Vec<u64>, CallError> {
    let records = operator.read_records(filter).await?;
    records
        .map_ok(|found| intact(found).sequence)
        .try_collect()
        .await
}

fn all_records() -> AuditFilter {
    AuditFilter::default()
}

/// Returns the result of each way to read.
async fn every_answer(operator: &OperatorAuditClient) -> Vec<Option<CallError>> {
    vec![
        operator.read_records(all_records()).await.err(),
        operator.watch_records(all_records()).await.err(),
        operator.checkpoint(false, LIMIT).await.err(),
        operator
            .proof(ProofSelector::Sequence(0), false, LIMIT)
            .await
            .err(),
        operator.export(false).await.err(),
    ]
}

fn reasons(answers: Vec<Option<CallError>>) -> Vec<ErrorReason> {
    let answers = answers.into_iter();
    answers.map(|error| error.unwrap().reason()).collect()
}

async fn an_operator_whom_the_policy_lets_reads_the_record_and_that_is_on_record_first(
    store: &TestStore,
) {
    let (service, _policy) = start_with_auditor(store).await;
    append(&service, 3).await;
    let operator = service.operator(&unverified_token("auditor.lee", ""));
    let records = operator.read_records(all_records()).await.unwrap();
    // Access is recorded before the first record is read.
    let on_record = record_of(&store.records().await[3]);
    assert_eq!(on_record["event"], "admin_change");
    assert_eq!(on_record["action"], "audit.query");
    assert_eq!(on_record["actor"], "auditor.lee");
    assert_eq!(on_record["caller"]["issuer"], "https://issuer.example");
    assert_eq!(on_record["caller"]["subject"], "auditor.lee");
    assert_eq!(on_record["target"], "all");
    assert!(on_record["decision"]["id"].is_string());
    assert!(on_record["decision"]["policy_hash"].is_string());
    assert_eq!(on_record.get("status"), None);
    // The stream contains the records before this access. The access itself appears in the next one.
    let read_now: Vec<u64> = records
        .map_ok(|found| intact(found).sequence)
        .try_collect()
        .await
        .unwrap();
    assert_eq!(read_now, [0, 1, 2]);
    let newest = AuditFilter {
        newest_first: true,
        limit: Some(2),
        ..all_records()
    };
    assert_eq!(read_sequences(&operator, newest).await.unwrap(), [3, 2]);

    // Text that a person typed appears in the record only as keyed digests.
    let typed = AuditFilter {
        subject: Some("dr.yenji".to_owned()),
        tool: Some("Nugwi Smith's file".to_owned()),
        status: Some(Status::Denied),
        since: Some(start()),
        data_subject: Some(DataSubjectFilter {
            tenant: String::new(),
            key: "NUGWI".to_owned(),
        }),
        limit: Some(7),
        ..all_records()
    };
    read_sequences(&operator, typed).await.unwrap();
    let on_record = record_of(&store.records().await[5]);
    let target = on_record["target"].as_str().unwrap();
    let mut words: BTreeMap<_, _> = target
        .split(' ')
        .filter_map(|it| it.split_once('='))
        .collect();
    for keyed in ["user", "subject"] {
        let digest = words.remove(keyed).unwrap().strip_prefix("hmac:").unwrap();
        assert_eq!(digest.len(), 64, "{target}");
    }
    assert_eq!(words["status"], "denied");
    assert_eq!(words["since"], start().to_string());
    assert_eq!(words["limit"], "7");
    assert!(target.contains(&format!("tool={UNKNOWN_NAME}")), "{target}");
    let everything_stored = store.every_byte().await;
    let holds = |word: &[u8]| everything_stored.windows(word.len()).any(|it| it == word);
    assert!(!holds(b"Nugwi Smith") && !holds(b"NUGWI"));
}

async fn an_access_records_a_tool_only_if_records_that_the_operator_may_read_contain_it(
    store: &TestStore,
) {
    let (service, _policy) = start_with_auditor(store).await;
    // The call is of the tenant `north`.
    append(&service, 1).await;
    let called = "get_medical_records";
    for (operator, tenant, tool, recorded) in [
        ("auditor.lee", "", called, called),
        ("auditor.lee", "north", called, called),
        ("auditor.lee", "south", called, UNKNOWN_NAME),
        ("auditor.lee", "", "NUGWI", UNKNOWN_NAME),
        ("mallory", "", called, UNKNOWN_NAME),
    ] {
        let filter = AuditFilter {
            tool: Some(tool.to_owned()),
            ..all_records()
        };
        let client = service.operator(&unverified_token(operator, tenant));
        let found = read_sequences(&client, filter).await;
        assert_eq!(found.is_ok(), operator == "auditor.lee");
        let access = record_of(&store.records().await.pop().unwrap());
        assert_eq!(access["actor"], operator);
        assert_eq!(access["target"], format!("tool={recorded}"), "{tenant}");
    }
    let everything_stored = store.every_byte().await;
    assert!(!everything_stored.windows(5).any(|it| it == b"NUGWI"));
}

async fn whom_no_policy_lets_read_is_refused_and_that_is_on_record(store: &TestStore) {
    let (service, _policy) = start_with_auditor(store).await;
    append(&service, 1).await;
    let mallory = service.operator(&unverified_token("mallory", ""));
    let answers = every_answer(&mallory).await;
    let message = answers[0].as_ref().unwrap().to_string();
    assert!(
        message.starts_with("no policy permits `mallory` to read the record"),
        "{message}"
    );
    assert_eq!(reasons(answers), [ErrorReason::Denied; 5]);
    let records = store.records().await;
    let tried: Vec<Value> = records[1..].iter().map(record_of).collect();
    let actions = ["query", "watch", "checkpoint", "proof", "export"];
    assert_eq!(tried.len(), actions.len());
    for (tried, action) in tried.iter().zip(actions) {
        assert_eq!(tried["action"], format!("audit.{action}"));
        assert_eq!(tried["actor"], "mallory");
        assert_eq!(tried["status"], "denied");
    }
    // Like every refusal, these are found by their status.
    let denied = AuditFilter {
        status: Some(Status::Denied),
        ..all_records()
    };
    let operator = service.operator(&unverified_token("auditor.lee", ""));
    assert_eq!(
        read_sequences(&operator, denied).await.unwrap(),
        [1, 2, 3, 4, 5]
    );
}

async fn without_a_token_that_the_policy_service_takes_nothing_is_read_nor_recorded(
    store: &TestStore,
) {
    let (service, policy) = start_with_auditor(store).await;
    append(&service, 1).await;
    // A client certificate does not identify a person.
    let nobody = service.operator("");
    assert_eq!(
        reasons(every_answer(&nobody).await),
        [ErrorReason::TokenRefused; 5]
    );
    let operator = service.operator(&unverified_token("auditor.lee", ""));
    for (answer, reason) in [
        (ErrorReason::TokenRefused, ErrorReason::TokenRefused),
        (ErrorReason::Unavailable, ErrorReason::Unavailable),
        (ErrorReason::Internal, ErrorReason::Unavailable),
    ] {
        policy.says(PolicyAnswer::Fail(answer));
        assert_eq!(reasons(every_answer(&operator).await), [reason; 5]);
    }
    assert_eq!(store.records().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_policy_service_no_operator_reads() {
    let store = TestStore::sqlite();
    let service = store.service().await;
    append(&service, 1).await;
    let operator = service.operator(&unverified_token("auditor.lee", ""));
    let answers = every_answer(&operator).await;
    let message = answers[0].as_ref().unwrap().to_string();
    assert!(message.contains("audit.links.policy"), "{message}");
    assert_eq!(reasons(answers), [ErrorReason::Unavailable; 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_reads_by_no_operators_token_and_an_operator_by_no_services_right() {
    let store = TestStore::sqlite();
    let (service, _policy) = start_with_auditor(&store).await;
    append(&service, 1).await;
    let token = BearerToken::new(&unverified_token("auditor.lee", ""));
    for link in [&service.gateway_link, &service.console_link] {
        let as_operator = OperatorAuditClient::new(link.clone(), token.clone());
        assert_eq!(
            reasons(every_answer(&as_operator).await),
            [ErrorReason::PeerRefused; 5]
        );
    }
    let as_service = wardgate_rpc::client::AuditClient::new(service.operator_link.clone(), LIMIT);
    for refused in [
        as_service.query(all_records()).await.err(),
        as_service.checkpoint(LIMIT).await.err(),
        as_service.proof(0, LIMIT).await.err(),
        as_service
            .append(&outcome(&subject(), Status::Ok), false)
            .await
            .err(),
    ] {
        assert_eq!(refused.unwrap().reason(), ErrorReason::PeerRefused);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_nothing_of_the_record_is_released_while_it_takes_no_record() {
    let store = TestStore::sqlite();
    let (mut service, _policy) = start_with_auditor(&store).await;
    append(&service, 1).await;
    let operator = service.operator(&unverified_token("auditor.lee", ""));
    let mut other = SqliteConnection::connect(&store.url).await.unwrap();
    let lock = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    assert_eq!(
        reasons(every_answer(&operator).await),
        [ErrorReason::NotDurable; 5]
    );
    lock.rollback().await.unwrap();
    service.ready().await;
    let read_now = read_sequences(&operator, all_records()).await.unwrap();
    assert_eq!(read_now.first(), Some(&0));
}

/// Appends one outcome of a caller of each of these tenants.
async fn append_of(service: &TestService, tenants: &[&str]) {
    for tenant in tenants {
        let call = CallFacts {
            tenant: (*tenant).to_owned(),
            ..subject()
        };
        let record = outcome(&call, Status::Ok);
        service.audit.append(&record, false).await.unwrap();
    }
}

async fn an_operator_of_a_tenant_reads_what_that_tenant_did(store: &TestStore) {
    let (service, _policy) = start_with_auditor(store).await;
    append_of(&service, &["north", "south", "north", "south", "", "north"]).await;
    let north = service.operator(&unverified_token("auditor.lee", "north"));
    assert_eq!(
        read_sequences(&north, all_records()).await.unwrap(),
        [0, 2, 5]
    );
    let newest = AuditFilter {
        newest_first: true,
        limit: Some(3),
        ..all_records()
    };
    // The access of the operator belongs to the tenant and is included. Records of other tenants do not count towards the
    // limit.
    assert_eq!(read_sequences(&north, newest).await.unwrap(), [6, 5, 2]);
    until("a checkpoint covers them", async || {
        let theirs = north.proof(ProofSelector::Sequence(5), false, LIMIT).await;
        theirs.ok().map(|proof| assert_eq!(proof.index, 5))
    })
    .await;
    let not_theirs = north.proof(ProofSelector::Sequence(1), false, LIMIT).await;
    let there_is_none = north
        .proof(ProofSelector::Sequence(1_000_000), false, LIMIT)
        .await;
    let [not_theirs, there_is_none] = [not_theirs, there_is_none].map(Result::unwrap_err);
    assert_eq!(not_theirs.reason(), there_is_none.reason());
    let export = north.export(false).await.err().unwrap();
    assert_eq!(export.reason(), ErrorReason::Denied);
    let last = store.records().await.pop().unwrap();
    assert_eq!(record_of(&last)["action"], "audit.export");
    assert_eq!(record_of(&last)["status"], "denied");
}

/// Returns the damage that a query of `operator` reports, and the number of records.
async fn read_damage_reports(
    operator: &OperatorAuditClient,
    filter: AuditFilter,
) -> (Vec<String>, usize) {
    let found = operator.read_records(filter).await.unwrap();
    let found: Vec<_> = found.try_collect().await.unwrap();
    let reports: Vec<_> = found
        .iter()
        .filter_map(|found| match found {
            QueriedRecord::Intact(_) => None,
            QueriedRecord::Damaged(damage) => Some(damage.to_string()),
        })
        .collect();
    let records = found.len() - reports.len();
    (reports, records)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_of_a_tenant_learns_that_records_may_be_missing_but_not_whose() {
    const NOTICE: &str =
        "records cannot be read, because the database is corrupt; some of them may be missing here";
    let store = TestStore::sqlite();
    let of_south = CallFacts {
        subject: "dr.south".to_owned(),
        tenant: "south".to_owned(),
        ..subject()
    };
    let TestService { audit, closer, .. } = store.service().await;
    for number in 0..40 {
        let call = if number == 20 {
            of_south.clone()
        } else {
            subject()
        };
        let record = outcome(&call, Status::Ok);
        audit.append(&record, false).await.unwrap();
    }
    drop(audit);
    closer.close().await;
    store
        .corrupt_pages_of(std::slice::from_ref(&of_south))
        .await;
    let (service, _policy) = start_with_auditor(&store).await;
    let of_all = service.operator(&unverified_token("auditor.lee", ""));
    let north = service.operator(&unverified_token("auditor.lee", "north"));

    let (reports, _) = read_damage_reports(&of_all, all_records()).await;
    let [report] = &reports[..] else {
        panic!("{reports:?}")
    };
    assert!(report.starts_with("record "), "{report}");
    let (reports, records) = read_damage_reports(&north, all_records()).await;
    assert_eq!(reports, [NOTICE]);
    assert!((1..40).contains(&records), "{records}");
    // The answer does not depend on whether the filter selects the record of another tenant.
    let by_user = |user: &str| AuditFilter {
        subject: Some(user.to_owned()),
        ..all_records()
    };
    let by_call = |call: &CallFacts| AuditFilter {
        call_id: Some(call.call_id.to_string()),
        ..all_records()
    };
    for filter in [
        by_user("dr.south"),
        by_user("nobody"),
        by_call(&of_south),
        by_call(&subject()),
    ] {
        let shown = format!("{filter:?}");
        let answer = read_damage_reports(&north, filter).await;
        assert_eq!(answer, (vec![NOTICE.to_owned()], 0), "{shown}");
    }
    let proof_of = async |operator: &OperatorAuditClient, call: &CallFacts| {
        let call_id = call.call_id.to_string();
        let selector = ProofSelector::Call {
            call_id: call_id.clone(),
            leaf_hash: None,
        };
        let error = operator.proof(selector, false, LIMIT).await.unwrap_err();
        (error.reason(), error.to_string().replace(&call_id, "ID"))
    };
    let unknown = proof_of(&north, &subject()).await;
    assert_eq!(proof_of(&north, &of_south).await, unknown);
    assert_ne!(proof_of(&of_all, &of_south).await, unknown);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_of_a_tenant_gets_no_notice_if_only_an_index_is_corrupt() {
    let store = TestStore::sqlite();
    let TestService { audit, closer, .. } = store.service().await;
    for _ in 0..5 {
        let record = outcome(&subject(), Status::Denied);
        audit.append(&record, false).await.unwrap();
    }
    drop(audit);
    closer.close().await;
    // The records of accesses have the status `ok`, which this index does not contain, so they can be appended.
    store.corrupt_index("record_failure_time").await;
    let (service, _policy) = start_with_auditor(&store).await;
    let denied = AuditFilter {
        status: Some(Status::Denied),
        ..all_records()
    };
    let of_all = service.operator(&unverified_token("auditor.lee", ""));
    let (reports, records) = read_damage_reports(&of_all, denied.clone()).await;
    let [report] = &reports[..] else {
        panic!("{reports:?}")
    };
    let is_of_index = report.starts_with("an index of the database is corrupt");
    assert!(is_of_index && records == 5, "{report}: {records}");
    let north = service.operator(&unverified_token("auditor.lee", "north"));
    assert_eq!(read_damage_reports(&north, denied).await, (Vec::new(), 5));
}

async fn a_watch_gives_each_record_once_it_is_durable(store: &TestStore) {
    let (service, _policy) = start_with_auditor(store).await;
    append(&service, 2).await;
    let operator = service.operator(&unverified_token("auditor.lee", ""));
    let of_doctor = AuditFilter {
        subject: Some("dr.yenji".to_owned()),
        ..all_records()
    };
    let from_now = operator.watch_records(of_doctor.clone()).await.unwrap();
    let mut from_now = from_now.boxed();
    let with_earlier = AuditFilter {
        since: Some(start()),
        ..of_doctor
    };
    let with_earlier = operator.watch_records(with_earlier).await.unwrap();
    let mut with_earlier = with_earlier.boxed();
    for earlier in [0, 1] {
        let found = with_earlier.next().await.unwrap().unwrap();
        assert_eq!(intact(found).sequence, earlier);
    }
    // The records of the two watch requests come in between, and do not match the filter.
    for _ in 0..3 {
        let record = outcome(&subject(), Status::Ok);
        let receipt = service.audit.append(&record, false).await.unwrap();
        let begun = Instant::now();
        for watch in [&mut from_now, &mut with_earlier] {
            let found = watch.next().await.unwrap().unwrap();
            assert_eq!(intact(found).sequence, receipt.sequence());
        }
        // The watch is notified, and does not depend on polling.
        assert!(
            begun.elapsed() < Duration::from_secs(3),
            "{:?}",
            begun.elapsed()
        );
    }
    for bounded in [
        AuditFilter {
            limit: Some(1),
            ..all_records()
        },
        AuditFilter {
            newest_first: true,
            ..all_records()
        },
        AuditFilter {
            until: Some(start()),
            ..all_records()
        },
        AuditFilter {
            before_sequence: Some(1),
            ..all_records()
        },
        AuditFilter {
            from_sequence: 1,
            ..all_records()
        },
    ] {
        let refused = operator.watch_records(bounded).await.err().unwrap();
        assert_eq!(refused.reason(), ErrorReason::InvalidMessage);
    }
}

async fn a_watch_ends_once_the_policy_no_longer_permits_it(store: &TestStore) {
    let (service, policy) = start_with_auditor(store).await;
    let operator = service.operator(&unverified_token("auditor.lee", ""));
    let watch = operator.watch_records(all_records()).await.unwrap();
    pin_mut!(watch);
    append(&service, 1).await;
    let found = watch.next().await.unwrap().unwrap();
    assert_eq!(intact(found).sequence, 1);
    policy.lets_nobody_operate();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    append(&service, 1).await;
    let ended = watch.next().await.unwrap().unwrap_err();
    assert_eq!(ended.reason(), ErrorReason::Denied);
    assert!(watch.next().await.is_none());
}

/// Returns every file below `directory` with its contents.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().display().to_string();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

async fn an_export_over_grpc_is_the_one_of_the_store(store: &TestStore) {
    let (service, _policy) = start_with_auditor(store).await;
    let records: Vec<Record> = (0..600).map(|_| outcome(&subject(), Status::Ok)).collect();
    let appended = records
        .iter()
        .map(|record| service.audit.append(record, false));
    for appended in join_all(appended).await {
        appended.unwrap();
    }
    let operator = service.operator(&unverified_token("auditor.lee", ""));
    let call = ProofSelector::Call {
        call_id: record_of(&store.records().await[512])["call_id"]
            .as_str()
            .unwrap()
            .to_owned(),
        leaf_hash: None,
    };
    let proof = until("a checkpoint covers them", async || {
        operator.proof(call.clone(), false, LIMIT).await.ok()
    })
    .await;
    assert_eq!(proof.index, 512);
    let [ours, theirs] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    // Each access is recorded, so another checkpoint may be signed between the two exports.
    until("both are of one checkpoint", async || {
        let [ours, theirs] = [&ours, &theirs].map(|directory| directory.path().join("export"));
        for directory in [&ours, &theirs] {
            let _ = std::fs::remove_dir_all(directory);
        }
        let exported = operator.export(false).await.unwrap();
        let records = exported.parts.map(|part| match part? {
            ExportedPart::Record(found) => Ok(ExportPart::Record(intact(found))),
            ExportedPart::PrunedTile(_) => panic!("nothing was removed"),
        });
        let directory = ExportDirectory::create(&ours).unwrap();
        let mut told = 0;
        let written = directory.write(&exported.checkpoint, records, |done, _| told = done);
        let written = written
            .await
            .map_err(|error: Box<dyn std::error::Error>| error);
        assert_eq!(written.unwrap().head.size, told);
        let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
            .await
            .unwrap();
        let kind = CheckpointKind::Signed;
        reader.export(&theirs, kind, |_, _| ()).await.unwrap();
        let [ours, theirs] = [&ours, &theirs].map(|directory| files(directory));
        (ours["checkpoint"] == theirs["checkpoint"]).then(|| {
            assert_eq!(
                ours.keys().collect::<Vec<_>>(),
                theirs.keys().collect::<Vec<_>>()
            );
            assert!(ours == theirs);
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_reading_stops_the_scan() {
    const RECORDS: usize = 12_000;
    let store = TestStore::sqlite();
    let policy = FakePolicy::new(Ambient::system());
    policy.lets_operate(OperatorAction::ReadRecord, "auditor.lee");
    let (service, closer) = wardgate_audit::service(
        Config::for_store(&store.url),
        keys(),
        CallingProcesses::OtherProcesses,
        Some(policy.client(Peer::Audit)),
        Ambient::system(),
    )
    .await
    .unwrap();
    let gateway = link::local(service.clone(), Peer::Gateway).link;
    let gateway = wardgate_rpc::client::AuditClient::new(gateway, LIMIT);
    let records: Vec<Record> = (0..RECORDS)
        .map(|_| outcome(&subject(), Status::Ok))
        .collect();
    for some in records.chunks(1_000) {
        for appended in join_all(some.iter().map(|record| gateway.append(record, false))).await {
            appended.unwrap();
        }
    }
    // Over a socket, a stream that is not read fills its window and waits.
    let listen = ListenConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        tls: None,
        plaintext: true,
    };
    let bound = BoundServer::bind(&listen).await.unwrap();
    let url = format!("http://{}", bound.address().unwrap());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopping = Shutdown::when(async { drop(stopped.await) });
    let serving = tokio::spawn(bound.serve(service, stopping));
    let name = "wardgate.audit.v1.AuditService";
    let link = link::connect::<()>(&url, Peer::Audit, name, None)
        .unwrap()
        .link;
    let token = BearerToken::new(&unverified_token("auditor.lee", ""));
    let operator = OperatorAuditClient::new(link.transport, token);
    let mut reading = operator.read_records(all_records()).await.unwrap().boxed();
    assert_eq!(intact(reading.next().await.unwrap().unwrap()).sequence, 0);
    // The server shuts down once no request is in flight, but this stream is.
    stop.send(()).unwrap();
    let waiting = Box::pin(tokio::time::sleep(Duration::from_millis(500)));
    let futures::future::Either::Left(((), serving)) = select(waiting, serving).await else {
        panic!("the reading was over before it was cancelled")
    };
    drop(reading);
    let ended = tokio::time::timeout(Duration::from_secs(5), serving).await;
    ended.expect("the scan stops").unwrap().unwrap();
    closer.close().await;
}
