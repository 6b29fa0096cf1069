//! Tests of the pages of queries, and of the order of their records.

use std::time::Duration;

use futures::TryStreamExt;
use futures::future::join_all;
use wardgate_domain::{CallFacts, Status, Timestamp};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::audit_service_client::AuditServiceClient;
use wardgate_rpc::client::{AuditFilter, QueriedRecord};

use super::sequences;
use crate::support::{TestStore, intact, json, on_both_stores, outcome, start, subject};

on_both_stores! {
    pages_give_every_record_once_in_either_order
    records_by_time_come_in_the_order_of_their_time_page_after_page
}

async fn pages_give_every_record_once_in_either_order(store: &TestStore) {
    let service = store.service().await;
    let odd = CallFacts {
        subject: "odd".to_owned(),
        ..subject()
    };
    // The records fill more than two pages, the last one only in part.
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

    let mut console = AuditServiceClient::new(service.console_link.clone());
    let from = pb::QueryRequest {
        from_sequence: 597,
        ..pb::QueryRequest::default()
    };
    let records: Vec<_> = console
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

async fn records_by_time_come_in_the_order_of_their_time_page_after_page(store: &TestStore) {
    let service = store.service().await;
    // The records fill more than two pages, with seven records of each time, appended in another order.
    let times: Vec<u64> = (0..602).map(|number| (number * 5) % 86).collect();
    for chunk in times.chunks(64) {
        let appends = chunk.iter().map(|seconds| {
            let mut record = outcome(&subject(), Status::Ok);
            record.time = start().plus(Duration::from_secs(*seconds));
            let audit = service.audit.clone();
            async move { (audit.append(&record, false).await.unwrap(), record.time) }
        });
        join_all(appends).await;
    }
    let since = start().plus(Duration::from_secs(1));
    let by_time = AuditFilter {
        since: Some(since),
        newest_first: true,
        ..AuditFilter::default()
    };
    let newest: Vec<_> = store.read_records(by_time.clone()).await;
    let position = |found: &QueriedRecord| {
        let record = json(&intact(found.clone()));
        let time: Timestamp = record["time"].as_str().unwrap().parse().unwrap();
        (time, intact(found.clone()).sequence)
    };
    let positions: Vec<_> = newest.iter().map(position).collect();
    let mut sorted = positions.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), 595, "each once");
    assert!(positions.iter().rev().eq(&sorted));
    let oldest = store.read_records(AuditFilter {
        newest_first: false,
        subject: Some("dr.yenji".to_owned()),
        ..by_time.clone()
    });
    let oldest: Vec<_> = oldest.await.iter().map(position).collect();
    assert_eq!(oldest, sorted);

    // A client that requests the pages one by one misses no record either.
    let mut turned = Vec::new();
    loop {
        let (before_time, before_sequence) = turned.last().copied().unzip();
        let page = store.read_records(AuditFilter {
            limit: Some(100),
            before_time,
            before_sequence,
            ..by_time.clone()
        });
        let page: Vec<_> = page.await.iter().map(position).collect();
        if page.is_empty() {
            break;
        }
        turned.extend(page);
    }
    assert_eq!(turned, positions);
}
