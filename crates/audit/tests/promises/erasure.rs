//! Tests of the erasure of data subjects, and of legal holds on them.

use futures::TryStreamExt;
use tempfile::TempDir;
use wardgate_audit::CheckpointKind;
use wardgate_domain::Event;
use wardgate_rpc::client::{
    AuditFilter, DataSubjectFilter, HoldScope, QueriedRecord, RecordDetails,
};
use wardgate_transparency::{TrustPolicy, leaf_hash};

use crate::details::outcome_about;
use crate::retention::{
    LIMIT, ada, append, append_young, apply, key, reader, save_checkpoint, start,
};
use crate::support::{TestStore, intact, intent, json, keys, on_both_stores, subject};

on_both_stores! {
    a12_to_erase_a_data_subject_is_refused_under_a_hold_and_leaves_every_proof
    a12_to_erase_a_data_subject_is_refused_where_a_hold_keeps_details_of_a_call_about_both
    a12_a_hold_on_a_data_subject_keeps_the_intent_of_its_first_call
}

fn patient(key: &str) -> DataSubjectFilter {
    DataSubjectFilter {
        tenant: "north".to_owned(),
        key: key.to_owned(),
    }
}

async fn a12_to_erase_a_data_subject_is_refused_where_a_hold_keeps_details_of_a_call_about_both(
    store: &TestStore,
) {
    let service = start(store, 30, Vec::new()).await;
    let calls: [&[(&str, u64)]; 3] = [
        &[("NUGWI", 1), ("DOSRO", 1)],
        &[("DOSRO", 2)],
        &[("YANTE", 1)],
    ];
    for patients in calls {
        let record = outcome_about(patients);
        service.audit.append(&record, false).await.unwrap();
    }
    let operator = ada(&service);
    let scope = HoldScope::DataSubject(patient("NUGWI"));
    operator.set_hold("case-7", scope, LIMIT).await.unwrap();
    let held = operator.erase(patient("DOSRO"), LIMIT).await.unwrap_err();
    assert!(
        held.to_string().contains("the legal hold `case-7`"),
        "{held}"
    );
    assert!(operator.erase(patient("YANTE"), LIMIT).await.unwrap());
    for (sequence, is_erased) in [(0, false), (1, false), (2, true)] {
        let details = details_of(store, sequence).await;
        assert_eq!(
            matches!(details, Some(RecordDetails::Erased)),
            is_erased,
            "{sequence}"
        );
    }
    operator.lift_hold("case-7", LIMIT).await.unwrap();
    assert!(operator.erase(patient("DOSRO"), LIMIT).await.unwrap());
    service.closer.close().await;
}

async fn a12_a_hold_on_a_data_subject_keeps_the_intent_of_its_first_call(store: &TestStore) {
    let service = start(store, 30, Vec::new()).await;
    append(&service, 255).await;
    let call = subject();
    service.audit.append(&intent(&call), false).await.unwrap();
    let mut record = outcome_about(&[("NUGWI", 1)]);
    if let Event::Outcome(outcome) = &mut record.event {
        outcome.call = call;
    }
    service.audit.append(&record, false).await.unwrap();
    append(&service, 300).await;
    append_young(&service).await;
    let files = TempDir::new().unwrap();
    save_checkpoint(store, 558, files.path()).await;
    service.closer.close().await;

    let service = start(store, 30, Vec::new()).await;
    let operator = ada(&service);
    let status = operator.retention(LIMIT).await.unwrap();
    assert_eq!(status.removable_below, 512, "{}", status.kept_by);
    let scope = HoldScope::DataSubject(patient("NUGWI"));
    operator.set_hold("nugwi", scope, LIMIT).await.unwrap();
    let status = operator.retention(LIMIT).await.unwrap();
    assert_eq!(
        (status.removable_below, status.kept_by.as_str()),
        (0, "hold:nugwi")
    );
    assert_eq!(apply(&operator).await, 0);
    service.closer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a12_an_erased_key_is_in_no_file_of_sqlite() {
    let store = TestStore::sqlite();
    let service = start(&store, 30, Vec::new()).await;
    let record = outcome_about(&[("NUGWI", 1)]);
    service.audit.append(&record, false).await.unwrap();
    let wrapped = store.newest_subject_key().await;
    let holds_key = |bytes: Vec<u8>| bytes.windows(wrapped.len()).any(|part| part == wrapped);
    assert!(holds_key(store.every_byte().await));
    let operator = ada(&service);
    assert!(operator.erase(patient("NUGWI"), LIMIT).await.unwrap());
    assert!(!holds_key(store.every_byte().await));
    service.closer.close().await;
}

async fn details_of(store: &TestStore, sequence: usize) -> Option<RecordDetails> {
    let reader = reader(store).await.with_details_keys(keys().details);
    let reader = reader.await.unwrap();
    let filter = AuditFilter {
        with_details: true,
        ..AuditFilter::default()
    };
    let records: Vec<QueriedRecord> = reader.query(filter).unwrap().try_collect().await.unwrap();
    intact(records[sequence].clone()).details
}

async fn a12_to_erase_a_data_subject_is_refused_under_a_hold_and_leaves_every_proof(
    store: &TestStore,
) {
    let service = start(store, 30, Vec::new()).await;
    for patients in [&[("NUGWI", 3)][..], &[("DOSRO", 1)]] {
        let record = outcome_about(patients);
        service.audit.append(&record, false).await.unwrap();
    }
    let operator = ada(&service);
    let nugwi = || DataSubjectFilter {
        tenant: "north".to_owned(),
        key: "NUGWI".to_owned(),
    };
    for scope in [
        HoldScope::Whole,
        HoldScope::Tenant("north".to_owned()),
        HoldScope::DataSubject(nugwi()),
    ] {
        operator.set_hold("case-7", scope, LIMIT).await.unwrap();
        let held = operator.erase(nugwi(), LIMIT).await.unwrap_err();
        assert!(
            held.to_string().contains("the legal hold `case-7`"),
            "{held}"
        );
        let refused = json(store.records().await.last().unwrap());
        assert_eq!(
            (&refused["action"], &refused["status"]),
            (&"audit.erase".into(), &"error".into())
        );
        operator.lift_hold("case-7", LIMIT).await.unwrap();
    }
    assert!(matches!(
        details_of(store, 0).await,
        Some(RecordDetails::Open(_))
    ));
    // The hold of another tenant has no effect.
    operator
        .set_hold("south", HoldScope::Tenant("south".to_owned()), LIMIT)
        .await
        .unwrap();
    assert!(operator.erase(nugwi(), LIMIT).await.unwrap());
    assert!(
        !operator.erase(nugwi(), LIMIT).await.unwrap(),
        "there is no key any more"
    );
    for (sequence, is_erased) in [(0, true), (1, false)] {
        let details = details_of(store, sequence).await;
        assert_eq!(
            matches!(details, Some(RecordDetails::Erased)),
            is_erased,
            "{sequence}"
        );
    }
    // The service itself reports the erasure too, and later records use a new key.
    let record = outcome_about(&[("NUGWI", 1)]);
    service.audit.append(&record, false).await.unwrap();
    let last = store.records().await.len() - 1;
    assert!(matches!(
        details_of(store, last).await,
        Some(RecordDetails::Open(_))
    ));
    assert!(matches!(
        details_of(store, 0).await,
        Some(RecordDetails::Erased)
    ));
    let erased = store
        .records()
        .await
        .into_iter()
        .map(|stored| json(&stored));
    let erased: Vec<_> = erased
        .filter(|record| record["action"] == "audit.erase")
        .collect();
    let target = erased[0]["target"].as_str().unwrap();
    assert!(
        target.starts_with("subject=hmac:") && !target.contains("NUGWI"),
        "{target}"
    );
    let files = TempDir::new().unwrap();
    save_checkpoint(store, last as u64 + 1, files.path()).await;
    let proof = reader(store)
        .await
        .prove(0, CheckpointKind::Signed)
        .await
        .unwrap();
    let leaf = leaf_hash(proof.extra.as_deref().unwrap());
    proof.verify(&leaf, &TrustPolicy::of_log(key())).unwrap();
    service.closer.close().await;
}
