//! Tests of the filters of queries.

use std::time::Duration;

use futures::{TryStreamExt, stream};
use tonic::Code;
use wardgate_domain::{Ambient, CallFacts, ConversationKey, DecisionId, Event, Status};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::append_result;
use wardgate_proto::audit::v1::audit_service_client::AuditServiceClient;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::AuditFilter;

use super::sequences;
use crate::support::{
    TestService, TestStore, admin_change, intent, memory_access, on_both_stores, outcome, refusals,
    start, subject,
};

on_both_stores! {
    every_filter_selects_what_it_says
    an_operators_change_is_found_by_operator_target_and_failure
    a_use_of_the_memory_is_found_by_caller_conversation_and_status
    a_query_that_means_nothing_is_refused
    a_service_of_an_earlier_release_can_append
}

/// The id of the decision about the third of the five records below.
fn decision_id() -> DecisionId {
    "01a21d31-c794-7d35-94c7-e8dc9983a5d7".parse().unwrap()
}

/// Appends five records, one second apart. Returns the id of the call of the first two.
async fn append_five(service: &TestService) -> String {
    let doctor = subject();
    let nurse = CallFacts {
        subject: "nurse.okafor".to_owned(),
        decision_id: Some(decision_id()),
        policies: vec!["no-nurses".to_owned()],
        ..subject()
    };
    let unknown_tool = CallFacts {
        tool: None,
        requested_tool: "get_all".to_owned(),
        ..subject()
    };
    let mut with_withheld_rows = outcome(&unknown_tool, Status::UnknownTool);
    if let Event::Outcome(outcome) = &mut with_withheld_rows.event {
        outcome.rows_withheld = 2;
    }
    let records = [
        intent(&doctor),
        outcome(&doctor, Status::Ok),
        outcome(&nurse, Status::Denied),
        with_withheld_rows,
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
    selects(
        &|filter| filter.content.event = Some("outcome".to_owned()),
        &[1, 2, 3],
    )
    .await;
    selects(
        &|filter| filter.content.reason = Some("token_expired".to_owned()),
        &[4],
    )
    .await;
    selects(&|filter| filter.content.phi = true, &[1, 2, 3]).await;
    selects(&|filter| filter.content.withheld = true, &[3]).await;
    for decided_by in [decision_id().to_string(), "no-nurses".to_owned()] {
        selects(
            &|filter| filter.content.decision = Some(decided_by.clone()),
            &[2],
        )
        .await;
    }
    // Records that do not match do not count towards the limit.
    selects(
        &|filter| (filter.content.phi, filter.limit, filter.newest_first) = (true, Some(2), true),
        &[3, 2],
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

async fn an_operators_change_is_found_by_operator_target_and_failure(store: &TestStore) {
    let service = store.service().await;
    for record in [admin_change("ada", false), admin_change("ada", true)] {
        service.audit.append(&record, false).await.unwrap();
        // A retry after a lost response adds no second record.
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
        // A retry after a lost response adds no second record.
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
    let mut console = AuditServiceClient::new(service.console_link.clone());
    let bad = [
        pb::QueryRequest {
            before_time: Some(start().into()),
            ..pb::QueryRequest::default()
        },
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
            console.query(request).await.unwrap_err().code(),
            Code::InvalidArgument
        );
    }
    // A record that cannot be converted does not affect the others of the call.
    let mut gateway = AuditServiceClient::new(service.gateway_link.clone());
    let (none, empty, good) = (
        None,
        Some(pb::Record::default()),
        outcome(&subject(), Status::Ok),
    );
    let good = Some(pb::Record::from(&good));
    let records = (0..).zip([none, empty, good]);
    let request = pb::AppendRequest {
        records: records
            .map(|(id, record)| pb::NewRecord {
                id,
                record: record.map(Box::new),
                ..pb::NewRecord::default()
            })
            .collect(),
        ..pb::AppendRequest::default()
    };
    let responses = gateway.append(stream::iter([request])).await.unwrap();
    let responses: Vec<_> = responses.into_inner().try_collect().await.unwrap();
    let results = responses.into_iter().flat_map(|response| response.results);
    let mut results: Vec<_> = results.collect();
    results.sort_by_key(|result| result.id);
    let [none, empty, good] = results.try_into().unwrap();
    for refused in [none, empty] {
        let Some(append_result::Result::Error(error)) = refused.result else {
            panic!("{refused:?}");
        };
        assert_eq!(error.reason(), ErrorReason::InvalidMessage);
    }
    assert!(matches!(
        good.result,
        Some(append_result::Result::Receipt(_))
    ));
}

/// Such a service makes a call for each record.
async fn a_service_of_an_earlier_release_can_append(store: &TestStore) {
    let service = store.service().await;
    let mut gateway = AuditServiceClient::new(service.gateway_link.clone());
    let record = outcome(&subject(), Status::Ok);
    let request = |record: Option<pb::Record>| pb::AppendRequest {
        record,
        retry: true,
        ..pb::AppendRequest::default()
    };
    for _ in 0..2 {
        let request = request(Some((&record).into()));
        let responses = gateway.append(stream::iter([request])).await.unwrap();
        let responses: Vec<_> = responses.into_inner().try_collect().await.unwrap();
        let [response] = responses.try_into().unwrap();
        assert_eq!(response.receipt.unwrap().sequence, 0);
    }
    let request = request(Some(pb::Record::default()));
    let responses = gateway.append(stream::iter([request])).await.unwrap();
    let error = responses.into_inner().try_collect::<Vec<_>>().await;
    assert_eq!(error.unwrap_err().code(), Code::InvalidArgument);
}
