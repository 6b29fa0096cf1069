//! Tests of details of calls: they are found and opened with the master key, and erased with the key of a data subject.

use futures::TryStreamExt;
use wardgate_audit::{
    AuditKeys, CallingProcesses, CheckpointKind, Config, DetailsKey, RecordReader, record_line,
};
use wardgate_domain::{
    Ambient, ArgumentOutline, CallDetails, ColumnTier, DataSubjects, Digest, Event, Outcome,
    OutlinedArgument, Record, ResultColumn, ResultOutline, Status,
};
use wardgate_rpc::client::{AuditFilter, DataSubjectFilter, QueriedRecord, RecordDetails};
use wardgate_store::DatabaseSettings;

use crate::support::{
    TestService, TestStore, intact, keys, on_both_stores, outcome, start, subject,
};

on_both_stores! {
    a11_details_are_sealed_and_data_subjects_are_found_by_a_keyed_digest
    a11_destroying_the_key_of_a_data_subject_erases_the_details_and_every_proof_stays_valid
    a_repeated_outcome_with_details_is_the_same_record
    the_service_refuses_a_key_that_its_data_subjects_are_not_under
}

fn details_of(patients: &[(&str, u64)]) -> CallDetails {
    let mut subjects = DataSubjects::default();
    for (patient, rows) in patients {
        subjects.add(&(*patient).into(), *rows);
    }
    CallDetails {
        caller_digest: Digest::compute(b"rights"),
        client: "chat-app".to_owned(),
        actors: vec!["agent-7".to_owned()],
        arguments: ArgumentOutline {
            declared: vec![OutlinedArgument {
                name: "patient_id".to_owned(),
                kind: "string".to_owned(),
                size: 5,
                value: String::new(),
            }],
            undeclared: 0,
        },
        result: ResultOutline {
            columns: vec![ResultColumn {
                name: "diagnosis_text".to_owned(),
                class: "phi.text".parse().unwrap(),
                tier: ColumnTier::Partial,
                kind: "string".to_owned(),
            }],
            subjects,
            rows_undecided: 3,
        },
        columns_unclassified: 1,
        columns_not_permitted: 2,
        stages: vec![("execute".to_owned(), std::time::Duration::from_micros(42))],
        trace_id: String::new(),
    }
}

/// Returns an outcome that released rows of `patients`.
pub(crate) fn outcome_about(patients: &[(&str, u64)]) -> Record {
    let Event::Outcome(ended) = outcome(&subject(), Status::Ok).event else {
        unreachable!("it is an outcome")
    };
    let event = Event::Outcome(Outcome {
        details: Some(Box::new(details_of(patients))),
        ..ended
    });
    Record {
        time: start(),
        event,
    }
}

/// Returns the filter of the calls about a data subject, with their details.
pub(crate) fn about(tenant: &str, key: &str) -> AuditFilter {
    AuditFilter {
        data_subject: Some(DataSubjectFilter {
            tenant: tenant.to_owned(),
            key: key.to_owned(),
        }),
        with_details: true,
        ..AuditFilter::default()
    }
}

async fn read_with_details(store: &TestStore, filter: AuditFilter) -> Vec<QueriedRecord> {
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let reader = reader.with_details_keys(keys().details).await.unwrap();
    reader.query(filter).unwrap().try_collect().await.unwrap()
}

async fn a11_details_are_sealed_and_data_subjects_are_found_by_a_keyed_digest(store: &TestStore) {
    let service = store.service().await;
    for patients in [&[("NUGWI", 3)][..], &[("DOSRO", 1), ("NUGWI", 2)], &[]] {
        let record = outcome_about(patients);
        service.audit.append(&record, false).await.unwrap();
    }
    let found = service
        .console
        .query(about("north", "NUGWI"))
        .await
        .unwrap();
    let found: Vec<_> = found.try_collect::<Vec<_>>().await.unwrap();
    let found: Vec<_> = found.into_iter().map(intact).collect();
    assert_eq!(found.len(), 2);
    let line = record_line(&found[0]).unwrap();
    assert_eq!(line["data_subjects"][0]["rows"], 3);
    let details = &line["details"];
    assert_eq!(details["actors"][0], "agent-7");
    assert_eq!(details["columns"][0]["name"], "diagnosis_text");
    assert_eq!(details["columns"][0]["tier"], "partial");
    assert_eq!(details["data_subjects"][0]["key"], "NUGWI");
    assert_eq!(details["rows_undecided"], 3);
    assert_eq!(details["stages_us"][0][1], 42);
    assert_eq!(details["arguments"][0]["size"], 5);
    // A reader without the service finds the same records, also by time, and none for another tenant or another key.
    assert_eq!(
        read_with_details(store, about("north", "DOSRO"))
            .await
            .len(),
        1
    );
    let by_time = AuditFilter {
        since: Some(start()),
        newest_first: true,
        ..about("north", "NUGWI")
    };
    assert_eq!(read_with_details(store, by_time).await.len(), 2);
    let later = AuditFilter {
        since: Some(start().plus(std::time::Duration::from_secs(1))),
        ..about("north", "NUGWI")
    };
    assert_eq!(read_with_details(store, later).await.len(), 0);
    assert_eq!(
        read_with_details(store, about("south", "NUGWI"))
            .await
            .len(),
        0
    );
    assert_eq!(
        read_with_details(store, about("north", "NUGW")).await.len(),
        0
    );
    let keyless = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    assert!(keyless.query(about("north", "NUGWI")).is_err());

    let stored = store.every_byte().await;
    let holds = |needle: &str| {
        let needle = needle.as_bytes();
        stored.windows(needle.len()).any(|window| window == needle)
    };
    assert!(holds("dr.yenji"), "the search finds what is there");
    for canary in ["NUGWI", "DOSRO", "diagnosis_text", "agent-7", "chat-app"] {
        assert!(!holds(canary), "{canary}");
        assert!(!holds(&Digest::compute(canary.as_bytes()).to_string()));
    }
}

async fn a11_destroying_the_key_of_a_data_subject_erases_the_details_and_every_proof_stays_valid(
    store: &TestStore,
) {
    let service = store.service().await;
    for patients in [&[("NUGWI", 3)][..], &[]] {
        let record = outcome_about(patients);
        service.audit.append(&record, false).await.unwrap();
    }
    service.closer.close().await;
    let details = |found: &[QueriedRecord]| -> Vec<bool> {
        let erased = found.iter().map(|found| match found {
            QueriedRecord::Intact(stored) => stored.details == Some(RecordDetails::Erased),
            QueriedRecord::Damaged(damage) => panic!("{damage}"),
        });
        erased.collect()
    };
    let all = AuditFilter {
        with_details: true,
        ..AuditFilter::default()
    };
    assert_eq!(
        details(&read_with_details(store, all.clone()).await),
        [false, false]
    );
    store
        .execute("DELETE FROM data_subject_key WHERE tag IN (SELECT tag FROM data_subject)")
        .await
        .unwrap();
    assert_eq!(details(&read_with_details(store, all).await), [true, false]);
    // The record of the access remains.
    assert_eq!(
        read_with_details(store, about("north", "NUGWI"))
            .await
            .len(),
        1
    );
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let exported = reader
        .export(directory.path(), CheckpointKind::Signed, |_, _| {})
        .await
        .unwrap();
    let log =
        wardgate_transparency::Signer::from_pkcs8(&exported.origin, &crate::support::log_key(1));
    let key = log.unwrap().verifier_key().clone();
    let verified = super::export::verify(directory.path(), &key).unwrap();
    assert_eq!(verified.head.size, 2);
}

async fn a_repeated_outcome_with_details_is_the_same_record(store: &TestStore) {
    let service = store.service().await;
    let record = outcome_about(&[("NUGWI", 3)]);
    let first = service.audit.append(&record, false).await.unwrap();
    let again = service.audit.append(&record, true).await.unwrap();
    assert_eq!(first, again);
    assert_eq!(
        read_with_details(store, about("north", "NUGWI"))
            .await
            .len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn details_that_were_changed_in_the_store_are_named() {
    let (store, forged) = (TestStore::sqlite(), TestStore::sqlite());
    let record = outcome_about(&[("NUGWI", 3)]);
    let service = store.service().await;
    service.audit.append(&record, false).await.unwrap();
    service.closer.close().await;
    // An attacker with the database and the master key seals other details of the same call elsewhere, and moves them here.
    let Event::Outcome(mut ended) = record.event.clone() else {
        unreachable!("it is an outcome")
    };
    ended.details.as_mut().unwrap().actors.clear();
    let event = Event::Outcome(ended);
    let service = forged.service().await;
    service
        .audit
        .append(&Record { event, ..record }, false)
        .await
        .unwrap();
    service.closer.close().await;
    let path = forged.url.strip_prefix("sqlite:").unwrap();
    store
        .execute(&format!(
            "ATTACH '{path}' AS forged;
             DROP TRIGGER record_is_not_changed;
             UPDATE record SET details = (SELECT details FROM forged.record);
             UPDATE data_subject_key SET wrapped =
                 (SELECT wrapped FROM forged.data_subject_key AS other WHERE other.tag = data_subject_key.tag)"
        ))
        .await
        .unwrap();
    let found = read_with_details(&store, about("north", "NUGWI")).await;
    let QueriedRecord::Damaged(damage) = &found[0] else {
        panic!("the details are not those of the record")
    };
    assert_eq!(damage.problem, "its details were modified");
}

async fn the_service_refuses_a_key_that_its_data_subjects_are_not_under(store: &TestStore) {
    let service: TestService = store.service().await;
    service.closer.close().await;
    let other = AuditKeys {
        details: DetailsKey::from_bytes(&[1; 32]).into(),
        ..keys()
    };
    let config = Config::for_store(&store.url);
    let callers = CallingProcesses::OtherProcesses;
    let started = wardgate_audit::service(config, other, callers, None, Ambient::system()).await;
    let refused = started.err().map(|error| error.to_string());
    assert_eq!(
        refused.as_deref(),
        Some(
            "audit.details_key_file: the keys of data subjects in the store are encrypted with another key; configure the previous key, \
             and, to replace it, configure it in audit.former_details_key_files until `wardgate audit rekey` has ended"
        )
    );
}
