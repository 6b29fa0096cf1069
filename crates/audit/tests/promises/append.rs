//! Tests of acknowledged appends.

use futures::future::join_all;
use futures::{StreamExt, stream};
use wardgate_audit::{CallingProcesses, Config, Error};
use wardgate_domain::{Ambient, CallFacts, Digest, Event, Receipt, Record, Status};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_store::{DatabaseSettings, MigrationError};

use crate::support::{TestStore, intent, json, keys, on_both_stores, outcome, refusals, subject};

on_both_stores! {
    the_sequence_is_dense_under_64_appenders_some_of_whom_fail
    two_services_share_one_sequence
    an_acknowledged_record_is_there_for_everyone
    a4_a_call_has_one_intent_and_one_outcome
    a4_a_thousand_duplicates_in_any_order_have_the_receipt_of_the_first
    one_bad_record_does_not_fail_its_batch
    a_retry_finds_the_earlier_record
    a_retry_beside_its_first_attempt_is_stored_once
    a_restart_continues_the_sequence
    hostile_texts_are_stored_as_they_came
    a_record_that_is_too_long_is_refused
    nobody_changes_or_removes_a_record
    a_newer_schema_is_refused
}

async fn the_sequence_is_dense_under_64_appenders_some_of_whom_fail(store: &TestStore) {
    let service = store.service().await;
    let taken = subject();
    service
        .audit
        .append(&outcome(&taken, Status::Ok), false)
        .await
        .unwrap();
    let appender = |number: usize| {
        let (audit, taken) = (service.audit.clone(), taken.clone());
        async move {
            let mut acknowledged = Vec::new();
            for round in 0..8 {
                let record = match (number + round) % 4 {
                    0 => outcome(&taken, Status::Error),
                    1 => refusals(u64::MAX),
                    _ => outcome(&subject(), Status::Ok),
                };
                if let Ok(receipt) = audit.append(&record, false).await {
                    acknowledged.push(receipt);
                }
            }
            acknowledged
        }
    };
    let acknowledged = join_all((0..64).map(|number| tokio::spawn(appender(number)))).await;
    let mut acknowledged: Vec<_> = acknowledged.into_iter().flat_map(Result::unwrap).collect();
    acknowledged.sort_by_key(Receipt::sequence);

    let stored = store.records().await;
    assert_eq!(stored.len(), 1 + 64 * 8 / 2);
    assert!(
        stored
            .iter()
            .map(|record| record.sequence)
            .eq(0..stored.len() as u64)
    );
    assert_eq!(acknowledged.len(), stored.len() - 1);
    for (receipt, record) in acknowledged.iter().zip(&stored[1..]) {
        assert_eq!(
            (receipt.sequence(), receipt.leaf_hash()),
            (record.sequence, record.leaf_hash)
        );
    }
}

async fn two_services_share_one_sequence(store: &TestStore) {
    let services: [_; 2] = tokio::join!(store.service(), store.service()).into();
    let appends = (0..40).map(|number: usize| {
        let audit = services[number % 2].audit.clone();
        async move {
            audit
                .append(&outcome(&subject(), Status::Ok), false)
                .await
                .unwrap()
                .sequence()
        }
    });
    let mut sequences: Vec<_> = stream::iter(appends).buffer_unordered(8).collect().await;
    sequences.sort_unstable();
    assert!(sequences.into_iter().eq(0..40));
    assert_eq!(store.records().await.len(), 40);
}

async fn an_acknowledged_record_is_there_for_everyone(store: &TestStore) {
    let service = store.service().await;
    for sequence in 0..20 {
        let receipt = service
            .audit
            .append(&outcome(&subject(), Status::Ok), false)
            .await
            .unwrap();
        assert_eq!(receipt.sequence(), sequence);
        // This read uses its own connection, so it sees only committed records.
        let stored = store.records().await.pop().unwrap();
        assert_eq!(stored.sequence, sequence);
        let leaf_hash = Digest::of_parts([[0].as_slice(), &stored.record]);
        assert_eq!(
            receipt.leaf_hash(),
            leaf_hash,
            "RFC 6962 over the stored bytes"
        );
        assert_eq!(stored.leaf_hash, leaf_hash);
    }
}

async fn a4_a_call_has_one_intent_and_one_outcome(store: &TestStore) {
    let service = store.service().await;
    let call = subject();
    let first = service.audit.append(&intent(&call), false).await.unwrap();
    let last = service
        .audit
        .append(&outcome(&call, Status::Ok), false)
        .await
        .unwrap();

    // A repeated record adds no second one, and a different record of the same call is refused.
    assert_eq!(
        service.audit.append(&intent(&call), false).await.unwrap(),
        first
    );
    assert_eq!(
        service
            .audit
            .append(&outcome(&call, Status::Ok), false)
            .await
            .unwrap(),
        last
    );
    for retry in [false, true] {
        let other = outcome(&call, Status::Error);
        let error = service.audit.append(&other, retry).await.unwrap_err();
        assert_eq!(error.reason(), ErrorReason::InvalidMessage);
    }
    assert_eq!(store.records().await.len(), 2);
}

async fn a4_a_thousand_duplicates_in_any_order_have_the_receipt_of_the_first(store: &TestStore) {
    const RECORDS: usize = 50;
    let service = store.service().await;
    // Each intent and each outcome is sent twenty times, as retries and as first attempts, and outcomes do not wait for
    // intents.
    let records: Vec<_> = (0..RECORDS / 2)
        .map(|_| subject())
        .flat_map(|call| [intent(&call), outcome(&call, Status::Ok)])
        .collect();
    let mut order: Vec<_> = (0..20)
        .flat_map(|round| (0..RECORDS).map(move |at| (at, round % 2 == 1)))
        .collect();
    let ambient = Ambient::system();
    for end in (1..order.len()).rev() {
        order.swap(end, usize::from_le_bytes(ambient.random()) % (end + 1));
    }
    let appends = order.iter().map(|&(at, retry)| {
        let (audit, record) = (service.audit.clone(), records[at].clone());
        async move { (at, audit.append(&record, retry).await.unwrap()) }
    });
    // The appends are spread over one or several batches, in parallel and in sequence.
    let receipts: Vec<_> = stream::iter(appends).buffer_unordered(64).collect().await;

    assert_eq!(receipts.len(), 1_000);
    let stored = store.records().await;
    assert_eq!(stored.len(), RECORDS, "one record each");
    let mut found = vec![None; RECORDS];
    for (at, receipt) in receipts {
        let first = found[at].get_or_insert(receipt);
        assert_eq!(*first, receipt, "record {at}, sent in the order {order:?}");
        let record = &stored[usize::try_from(receipt.sequence()).unwrap()];
        assert_eq!(record.leaf_hash, receipt.leaf_hash());
    }
    let mut sequences: Vec<_> = found
        .into_iter()
        .map(|receipt| receipt.unwrap().sequence())
        .collect();
    sequences.sort_unstable();
    assert!(sequences.into_iter().eq(0..RECORDS as u64));
}

async fn one_bad_record_does_not_fail_its_batch(store: &TestStore) {
    let service = store.service().await;
    let taken = subject();
    service
        .audit
        .append(&outcome(&taken, Status::Ok), false)
        .await
        .unwrap();
    let records = (0..64).map(|number| match number % 8 {
        0 => (outcome(&taken, Status::Error), false),
        _ => (outcome(&subject(), Status::Ok), true),
    });
    let appended = join_all(records.map(|(record, good)| {
        let audit = service.audit.clone();
        async move { (audit.append(&record, false).await.is_ok(), good) }
    }));
    for (stored, good) in appended.await {
        assert_eq!(stored, good);
    }
    assert!(
        service.readiness.borrow().is_ready(),
        "the store did nothing wrong"
    );
}

async fn a_retry_finds_the_earlier_record(store: &TestStore) {
    let service = store.service().await;
    for record in [
        intent(&subject()),
        outcome(&subject(), Status::Ok),
        refusals(3),
    ] {
        let first = service.audit.append(&record, false).await.unwrap();
        assert_eq!(service.audit.append(&record, true).await.unwrap(), first);
    }
    // A retry appends the record if it is not stored yet.
    let appended = service.audit.append(&refusals(4), true).await.unwrap();
    assert_eq!(appended.sequence(), 3);
    // Two gateways may count the same refusals, so without `retry` these are two records.
    let appended = service.audit.append(&refusals(4), false).await.unwrap();
    assert_eq!(appended.sequence(), 4);
}

async fn a_retry_beside_its_first_attempt_is_stored_once(store: &TestStore) {
    let service = store.service().await;
    for sequence in 0..10 {
        let record = refusals(sequence);
        let appends = [false, true, true].map(|retry| service.audit.append(&record, retry));
        for receipt in join_all(appends).await {
            assert_eq!(receipt.unwrap().sequence(), sequence);
        }
    }
}

async fn a_restart_continues_the_sequence(store: &TestStore) {
    for sequence in 0..3 {
        let service = store.service().await;
        let receipt = service
            .audit
            .append(&outcome(&subject(), Status::Ok), false)
            .await
            .unwrap();
        assert_eq!(receipt.sequence(), sequence);
    }
}

async fn hostile_texts_are_stored_as_they_came(store: &TestStore) {
    let service = store.service().await;
    let texts = [
        "nul \0 byte".to_owned(),
        "line\nbreak \r\n and \u{2028}".to_owned(),
        r#"quote " backslash \ brace }"#.to_owned(),
        "'; DROP TABLE record; --".to_owned(),
        "long ".repeat(4_000),
    ];
    for text in texts {
        let hostile = CallFacts {
            subject: text.clone(),
            requested_tool: text.clone(),
            tool: None,
            ..subject()
        };
        let receipt = service
            .audit
            .append(&outcome(&hostile, Status::Denied), false)
            .await
            .unwrap();
        let stored = store.records().await.pop().unwrap();
        assert_eq!(stored.sequence, receipt.sequence());
        assert_eq!(json(&stored)["caller"]["subject"], text);
        assert_eq!(json(&stored)["requested_tool"], text);
    }
}

async fn a_record_that_is_too_long_is_refused(store: &TestStore) {
    let service = store.service().await;
    let long = CallFacts {
        token_id: "x".repeat(70_000),
        ..subject()
    };
    let error = service
        .audit
        .append(&outcome(&long, Status::Ok), false)
        .await
        .unwrap_err();
    assert_eq!(error.reason(), ErrorReason::InvalidMessage);
    // The longest records that fit are stored, with any number of them in a batch.
    let Record {
        event: Event::Outcome(mut longest),
        time,
    } = outcome(&subject(), Status::Ok)
    else {
        unreachable!("it is an outcome")
    };
    longest.reason = "x".repeat(64_000);
    let appends = (0..32).map(|_| {
        longest.call = subject();
        let record = Record {
            time,
            event: Event::Outcome(longest.clone()),
        };
        let audit = service.audit.clone();
        async move { audit.append(&record, false).await.unwrap() }
    });
    assert_eq!(join_all(appends).await.len(), 32);
}

async fn nobody_changes_or_removes_a_record(store: &TestStore) {
    let service = store.service().await;
    service
        .audit
        .append(&outcome(&subject(), Status::Denied), false)
        .await
        .unwrap();
    for statement in ["UPDATE record SET status = 'ok'", "DELETE FROM record"] {
        let error = store.execute(statement).await.unwrap_err();
        assert!(error.to_string().contains("never"), "{error}");
    }
    assert_eq!(store.records().await.len(), 1);
}

async fn a_newer_schema_is_refused(store: &TestStore) {
    drop(store.service().await);
    // Each store accepts one of the two statements.
    let raised = [
        store.execute("PRAGMA user_version = 99").await,
        store
            .execute("UPDATE schema_version SET version = 99")
            .await,
    ];
    assert!(raised.iter().any(Result::is_ok));
    let config = Config::for_store(&store.url);
    let callers = CallingProcesses::OtherProcesses;
    let refused = wardgate_audit::service(config, keys(), callers, None, Ambient::system()).await;
    assert!(matches!(
        refused.err(),
        Some(Error::Schema(MigrationError::Newer { found: 99, .. }))
    ));
    let refused =
        wardgate_audit::RecordReader::open(&store.url, &DatabaseSettings::default()).await;
    assert!(matches!(
        refused.err(),
        Some(Error::Schema(MigrationError::Newer { found: 99, .. }))
    ));
}
