//! Reading the record.

use std::time::Duration;

use futures::TryStreamExt;
use futures::future::join_all;
use tonic::Code;
use wardgate_audit::{Error, Reader};
use wardgate_domain::{Ambient, CallFacts, ConversationKey, Status};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::audit_service_client::AuditServiceClient;
use wardgate_rpc::client::AuditFilter;

use crate::support::{
    TestService, TestStore, admin_change, intent, memory_access, on_both_stores, outcome, refusals,
    start, subject,
};

on_both_stores! {
    every_filter_selects_what_it_says
    pages_give_every_record_once_in_either_order
    an_operators_change_is_found_by_operator_target_and_failure
    a_use_of_the_memory_is_found_by_caller_conversation_and_status
    a_query_that_means_nothing_is_refused
    a_reader_needs_no_service_and_disturbs_none
}

async fn sequences(service: &TestService, filter: AuditFilter) -> Vec<u64> {
    let records = service.operator.query(filter).await.unwrap();
    records
        .map_ok(|record| record.sequence)
        .try_collect()
        .await
        .unwrap()
}

/// Five records, a second apart; returns the call of the first two.
async fn append_five(service: &TestService) -> String {
    let doctor = subject();
    let nurse = CallFacts {
        subject: "nurse.okafor".to_owned(),
        ..subject()
    };
    let unknown_tool = CallFacts {
        tool: None,
        requested_tool: "get_all".to_owned(),
        ..subject()
    };
    let records = [
        intent(&doctor),
        outcome(&doctor, Status::Ok),
        outcome(&nurse, Status::Denied),
        outcome(&unknown_tool, Status::UnknownTool),
        refusals(9),
    ];
    for (mut record, seconds) in records.into_iter().zip(0..) {
        record.time = start().plus(Duration::from_secs(seconds));
        service.audit.append(&record, false).await.unwrap();
    }
    doctor.call_id.to_string()
}

async fn every_filter_selects_what_it_says(store: &TestStore) {
    let service = store.service().await;
    let call_id = append_five(&service).await;
    let selects = async |set: &dyn Fn(&mut AuditFilter), expected: &[u64]| {
        let mut filter = AuditFilter::default();
        set(&mut filter);
        let shown = format!("{filter:?}");
        assert_eq!(sequences(&service, filter).await, expected, "{shown}");
    };
    let at = |seconds| Some(start().plus(Duration::from_secs(seconds)));

    selects(&|_| {}, &[0, 1, 2, 3, 4]).await;
    selects(
        &|filter| filter.subject = Some("dr.yenji".to_owned()),
        &[0, 1, 3],
    )
    .await;
    selects(
        &|filter| filter.subject = Some("dr.yenji' OR TRUE --".to_owned()),
        &[],
    )
    .await;
    selects(
        &|filter| filter.tool = Some("get_medical_records".to_owned()),
        &[0, 1, 2],
    )
    .await;
    selects(&|filter| filter.tool = Some("get_all".to_owned()), &[3]).await;
    selects(&|filter| filter.call_id = Some(call_id.clone()), &[0, 1]).await;
    selects(
        &|filter| filter.call_id = Some(call_id.to_uppercase()),
        &[0, 1],
    )
    .await;
    selects(&|filter| filter.status = Some(Status::Denied), &[2]).await;
    selects(&|filter| filter.since = at(2), &[2, 3, 4]).await;
    selects(&|filter| filter.until = at(2), &[0, 1]).await;
    selects(
        &|filter| (filter.since, filter.until) = (at(1), at(3)),
        &[1, 2],
    )
    .await;
    selects(&|filter| filter.limit = Some(2), &[0, 1]).await;
    selects(
        &|filter| (filter.limit, filter.newest_first) = (Some(2), true),
        &[4, 3],
    )
    .await;
    selects(&|filter| filter.before_sequence = Some(2), &[0, 1]).await;
    selects(
        &|filter| {
            (filter.from_sequence, filter.before_sequence) = (1, Some(99));
            filter.newest_first = true;
        },
        &[4, 3, 2, 1],
    )
    .await;
    let together = |filter: &mut AuditFilter| {
        filter.subject = Some("dr.yenji".to_owned());
        filter.status = Some(Status::Ok);
        filter.since = at(0);
    };
    selects(&together, &[1]).await;
}

async fn pages_give_every_record_once_in_either_order(store: &TestStore) {
    let service = store.service().await;
    let odd = CallFacts {
        subject: "odd".to_owned(),
        ..subject()
    };
    // More than two pages, and not a whole number of them.
    let appends = (0..600).map(|number| {
        let subject = if number % 2 == 1 {
            odd.subject.clone()
        } else {
            "even".to_owned()
        };
        let record = outcome(
            &CallFacts {
                subject,
                ..self::subject()
            },
            Status::Ok,
        );
        let audit = service.audit.clone();
        async move { audit.append(&record, false).await.unwrap() }
    });
    join_all(appends).await;

    let oldest_first: Vec<_> = (0..600).collect();
    let newest_first: Vec<_> = (0..600).rev().collect();
    let all = AuditFilter::default();
    assert_eq!(sequences(&service, all.clone()).await, oldest_first);
    let newest = AuditFilter {
        newest_first: true,
        ..all.clone()
    };
    assert_eq!(sequences(&service, newest.clone()).await, newest_first);
    let limited = AuditFilter {
        limit: Some(512),
        ..newest
    };
    assert_eq!(sequences(&service, limited).await, newest_first[..512]);
    let of_odd = AuditFilter {
        subject: Some("odd".to_owned()),
        ..all
    };
    assert_eq!(sequences(&service, of_odd).await.len(), 300);

    let mut operator = AuditServiceClient::new(service.operator_link.clone());
    let from = pb::QueryRequest {
        from_sequence: 597,
        ..pb::QueryRequest::default()
    };
    let records: Vec<_> = operator
        .query(from)
        .await
        .unwrap()
        .into_inner()
        .try_collect()
        .await
        .unwrap();
    let sequences: Vec<_> = records.iter().map(|record| record.sequence).collect();
    assert_eq!(sequences, [597, 598, 599]);
}

async fn an_operators_change_is_found_by_operator_target_and_failure(store: &TestStore) {
    let service = store.service().await;
    for record in [admin_change("ada", false), admin_change("ada", true)] {
        service.audit.append(&record, false).await.unwrap();
        // An answer that was lost on its way adds no second record.
        service.audit.append(&record, true).await.unwrap();
    }
    let found = async |set: &dyn Fn(&mut AuditFilter)| {
        let mut filter = AuditFilter::default();
        set(&mut filter);
        sequences(&service, filter).await
    };
    assert_eq!(
        found(&|filter| filter.subject = Some("ada".into())).await,
        [0, 1]
    );
    assert_eq!(
        found(&|filter| filter.tool = Some("get_shifts".into())).await,
        [0, 1]
    );
    assert_eq!(
        found(&|filter| filter.status = Some(Status::Error)).await,
        [1]
    );
}

async fn a_use_of_the_memory_is_found_by_caller_conversation_and_status(store: &TestStore) {
    let service = store.service().await;
    let key = ConversationKey::new(&Ambient::system());
    for status in [Status::Ok, Status::Denied] {
        let record = memory_access(key, status);
        service.audit.append(&record, false).await.unwrap();
        // An answer that was lost on its way adds no second record.
        service.audit.append(&record, true).await.unwrap();
    }
    let other = memory_access(ConversationKey::new(&Ambient::system()), Status::Ok);
    service.audit.append(&other, false).await.unwrap();
    let found = async |set: &dyn Fn(&mut AuditFilter)| {
        let mut filter = AuditFilter::default();
        set(&mut filter);
        sequences(&service, filter).await
    };
    assert_eq!(
        found(&|filter| filter.subject = Some("dr.yenji".into())).await,
        [0, 1, 2]
    );
    assert_eq!(
        found(&|filter| filter.tool = Some(key.to_string())).await,
        [0, 1]
    );
    assert_eq!(
        found(&|filter| filter.status = Some(Status::Denied)).await,
        [1]
    );
}

async fn a_query_that_means_nothing_is_refused(store: &TestStore) {
    let service = store.service().await;
    let mut operator = AuditServiceClient::new(service.operator_link.clone());
    let bad = [
        pb::QueryRequest {
            call_id: "not-a-uuid".to_owned(),
            ..pb::QueryRequest::default()
        },
        pb::QueryRequest {
            status: 99,
            ..pb::QueryRequest::default()
        },
    ];
    for request in bad {
        assert_eq!(
            operator.query(request).await.unwrap_err().code(),
            Code::InvalidArgument
        );
    }
    let mut gateway = AuditServiceClient::new(service.gateway_link.clone());
    let empty = [
        pb::AppendRequest::default(),
        pb::AppendRequest {
            record: Some(pb::Record::default()),
            retry: false,
        },
    ];
    for request in empty {
        assert_eq!(
            gateway.append(request).await.unwrap_err().code(),
            Code::InvalidArgument
        );
    }
}

async fn a_reader_needs_no_service_and_disturbs_none(store: &TestStore) {
    assert!(
        matches!(
            Reader::open(&store.url).await.err(),
            Some(Error::Open { .. })
        ),
        "nothing there"
    );
    let service = store.service().await;
    service
        .audit
        .append(&outcome(&subject(), Status::Ok), false)
        .await
        .unwrap();
    let reader = Reader::open(&store.url).await.unwrap();
    let count = async || {
        let records = reader.query(AuditFilter::default()).unwrap();
        records.try_collect::<Vec<_>>().await.unwrap().len()
    };
    assert_eq!(count().await, 1);
    service
        .audit
        .append(&outcome(&subject(), Status::Ok), false)
        .await
        .unwrap();
    assert_eq!(count().await, 2);
    drop(service);
    assert_eq!(count().await, 2);
    assert_eq!(store.records().await.len(), 2);
}

#[tokio::test]
async fn a_store_that_is_none_is_refused() {
    for store in [
        "",
        "audit.sqlite",
        "sqlite:",
        "sqlite::memory:",
        "mysql://localhost/audit",
        "postgres://[",
    ] {
        assert!(
            matches!(Reader::open(store).await.err(), Some(Error::UnknownStore)),
            "{store}"
        );
    }
    let error = Reader::open("postgres://u:hunter2@127.0.0.1:1/audit")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:1/audit"), "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}
