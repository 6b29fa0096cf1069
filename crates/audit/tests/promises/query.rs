//! Tests of queries.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use sqlx::{Connection, PgConnection};
use tonic::Code;
use wardgate_audit::{Error, RecordReader, StoreRoom};
use wardgate_domain::{
    Ambient, CallFacts, ConversationKey, DecisionId, Event, Record, Status, Timestamp,
};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::audit_service_client::AuditServiceClient;
use wardgate_rpc::client::{AuditFilter, ContentFilter, QueriedRecord};
use wardgate_store::DatabaseSettings;

use crate::support::{
    SAME_TIME, TestService, TestStore, admin_change, intact, intent, json, memory_access,
    on_both_stores, outcome, refusals, start, subject,
};

on_both_stores! {
    every_filter_selects_what_it_says
    pages_give_every_record_once_in_either_order
    an_operators_change_is_found_by_operator_target_and_failure
    a_use_of_the_memory_is_found_by_caller_conversation_and_status
    records_by_time_come_in_the_order_of_their_time_page_after_page
    what_was_changed_or_removed_in_the_store_is_named_by_its_sequence
    a_query_that_means_nothing_is_refused
    a_reader_needs_no_service_and_disturbs_none
    the_size_the_pace_and_the_room_of_the_record_are_measured
}

async fn the_size_the_pace_and_the_room_of_the_record_are_measured(store: &TestStore) {
    let service = store.service().await;
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let capacity = &StoreRoom {
        capacity: Some(1 << 30),
        second_copy: None,
    };
    let now = || Ambient::system().now();
    let before = reader.growth(capacity, now()).await.unwrap();
    assert_eq!(before.days_left(), Some(f64::INFINITY), "{before:?}");
    for _ in 0..50 {
        let record = Record {
            time: now(),
            ..outcome(&subject(), Status::Ok)
        };
        service.audit.append(&record, false).await.unwrap();
    }
    let after = reader.growth(capacity, now()).await.unwrap();
    assert!(after.bytes > before.bytes, "{before:?} {after:?}");
    assert_eq!(after.free, Some((1 << 30) - after.bytes));
    assert!(after.days_left().unwrap() < 10_000.0, "{after:?}");
    let unknown = reader.growth(&StoreRoom::default(), now()).await.unwrap();
    assert_eq!(unknown.free.is_some(), store.is_sqlite(), "{unknown:?}");
    let later = now().plus(Duration::from_hours(25));
    let still = reader.growth(capacity, later).await.unwrap();
    assert_eq!(still.days_left(), Some(f64::INFINITY), "{still:?}");
}

async fn sequences(service: &TestService, filter: AuditFilter) -> Vec<u64> {
    let records = service.console.query(filter).await.unwrap();
    records
        .map_ok(|found| intact(found).sequence)
        .try_collect()
        .await
        .unwrap()
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
    let newest: Vec<_> = store.read(by_time.clone()).await;
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
    let oldest = store.read(AuditFilter {
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
        let page = store.read(AuditFilter {
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

async fn what_was_changed_or_removed_in_the_store_is_named_by_its_sequence(store: &TestStore) {
    let service = store.service().await;
    for _ in 0..12 {
        let record = outcome(&subject(), Status::Ok);
        service.audit.append(&record, false).await.unwrap();
    }
    // Each store accepts one of the two statements.
    for unlock in [
        "DROP TRIGGER record_is_not_changed; DROP TRIGGER record_is_not_removed",
        "ALTER TABLE record DISABLE TRIGGER ALL",
    ] {
        let _ = store.execute(unlock).await;
    }
    let of_another = |column: &str| {
        format!("{column} = (SELECT other.{column} FROM record AS other WHERE other.sequence = 6)")
    };
    let (bytes, hash) = (of_another("canonical"), of_another("leaf_hash"));
    for change in [
        // One record has other bytes, one has another subject in its column, and one has another hash.
        format!("UPDATE record SET {bytes} WHERE sequence = 1"),
        "UPDATE record SET subject = 'nobody' WHERE sequence = 2".to_owned(),
        format!("UPDATE record SET {hash} WHERE sequence = 3"),
        // One record is replaced by another one.
        format!("UPDATE record SET {bytes}, {hash} WHERE sequence = 4"),
        "DELETE FROM record WHERE sequence IN (0, 8, 9)".to_owned(),
    ] {
        store.execute(&change).await.unwrap();
    }

    let named = |found: &[QueriedRecord]| -> Vec<String> {
        let damage = found.iter().filter_map(|found| match found {
            QueriedRecord::Intact(_) => None,
            QueriedRecord::Damaged(damage) => Some(damage.to_string()),
        });
        damage.collect()
    };
    let bytes =
        |sequence| format!("record {sequence}: was changed: its bytes do not match its leaf hash");
    let columns =
        |sequence| format!("record {sequence}: was changed: its columns do not match its bytes");
    let removed = [
        "record 0: is missing".to_owned(),
        "record 8: and all records up to 9 are missing".to_owned(),
    ];
    let [first, others] = removed.clone();
    let mut expected = vec![first, bytes(1), columns(2), bytes(3), columns(4), others];
    let all = store.read(AuditFilter::default()).await;
    assert_eq!((named(&all), all.len()), (expected.clone(), 5 + 6));
    let from_the_service = service.console.query(AuditFilter::default()).await.unwrap();
    let from_the_service: Vec<_> = from_the_service.try_collect().await.unwrap();
    assert_eq!(named(&from_the_service), expected);
    let newest_first = AuditFilter {
        newest_first: true,
        ..AuditFilter::default()
    };
    expected.reverse();
    assert_eq!(named(&store.read(newest_first).await), expected);
    // A filter selects some records, but records that are missing are reported nevertheless.
    let of_nobody = AuditFilter {
        subject: Some("nobody".to_owned()),
        ..AuditFilter::default()
    };
    let [first, others] = removed;
    assert_eq!(
        named(&store.read(of_nobody).await),
        [first, others, columns(2)]
    );
}

/// Returns the sequence numbers of the intact records, and of those that are reported as unreadable.
fn partition(found: &[QueriedRecord]) -> (Vec<u64>, Vec<u64>) {
    let (mut intact, mut unreadable) = (Vec::new(), Vec::new());
    for found in found {
        match found {
            QueriedRecord::Intact(stored) => intact.push(stored.sequence),
            QueriedRecord::Damaged(damage) => {
                let problem = &damage.problem;
                assert!(problem.contains("cannot be read"), "{damage}");
                let last = problem.strip_prefix("and all records up to ");
                let last = last.and_then(|rest| rest.split(' ').next());
                let first = damage.sequence.unwrap();
                let last = last.map_or(first, |last| last.parse().unwrap());
                unreadable.extend(first..=last);
            }
        }
    }
    (intact, unreadable)
}

/// Returns the sequence numbers of the records and of those in reports. Those in one report are in the order of `expected`.
fn in_order(found: &[QueriedRecord], expected: &[u64]) -> Vec<u64> {
    let each = found.iter().flat_map(|found| {
        let (intact, unreadable) = partition(std::slice::from_ref(found));
        let mut sequences = [intact, unreadable].concat();
        sequences.sort_by_key(|sequence| expected.iter().position(|it| it == sequence));
        sequences
    });
    each.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn records_on_a_corrupt_page_of_the_database_are_named_and_the_others_are_returned() {
    const RECORDS: u64 = 400;
    let store = TestStore::sqlite();
    let calls = store.append_calls(400).await;
    store.corrupt_pages_of(&calls[300..301]).await;
    let by_caller = AuditFilter {
        subject: Some("dr.yenji".to_owned()),
        ..AuditFilter::default()
    };
    let by_time = AuditFilter {
        since: Some(start().minus(Duration::from_hours(1))),
        status: Some(Status::Ok),
        ..AuditFilter::default()
    };
    let by_content = AuditFilter {
        content: ContentFilter {
            phi: true,
            ..ContentFilter::default()
        },
        ..AuditFilter::default()
    };
    for (filter, is_by_time) in [
        (AuditFilter::default(), false),
        (by_caller, true),
        (by_time, true),
        (by_content, false),
    ] {
        for newest_first in [false, true] {
            let filter = AuditFilter {
                newest_first,
                ..filter.clone()
            };
            let shown = format!("{filter:?}");
            let found = store.read(filter).await;
            let (intact, unreadable) = partition(&found);
            assert!(unreadable.contains(&300), "{shown}: {unreadable:?}");
            assert!(unreadable.len() < 100, "{shown}: {unreadable:?}");
            // Adjacent records are reported together.
            let reports = found.len() - intact.len();
            assert!(is_by_time || reports == 1, "{shown}: {reports}");
            let mut expected: Vec<u64> = (0..RECORDS).collect();
            if is_by_time {
                expected.sort_by_key(|sequence| (Reverse(sequence / SAME_TIME as u64), *sequence));
            }
            if newest_first {
                expected.reverse();
            }
            assert_eq!(in_order(&found, &expected), expected, "{shown}");
        }
    }

    let of_call = async |at: usize| {
        let found = store.read(AuditFilter {
            call_id: Some(calls[at].call_id.to_string()),
            ..AuditFilter::default()
        });
        partition(&found.await)
    };
    assert_eq!(of_call(300).await, (vec![], vec![300]));
    assert_eq!(of_call(199).await, (vec![199], vec![]));
    let newest = AuditFilter {
        newest_first: true,
        limit: Some(3),
        ..AuditFilter::default()
    };
    let newest = partition(&store.read(newest).await);
    assert_eq!(newest, (vec![399, 398, 397], vec![]));

    let service = store.service().await;
    let all = service.console.query(AuditFilter::default()).await.unwrap();
    let all: Vec<_> = all.try_collect().await.unwrap();
    assert_eq!(
        partition(&all),
        partition(&store.read(AuditFilter::default()).await)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_records_before_a_corrupt_last_page_of_the_database_are_returned() {
    let store = TestStore::sqlite();
    let calls = store.append_calls(40).await;
    store.corrupt_pages_of(&calls[39..]).await;
    let by_caller = AuditFilter {
        subject: Some("dr.yenji".to_owned()),
        ..AuditFilter::default()
    };
    for filter in [AuditFilter::default(), by_caller] {
        for newest_first in [false, true] {
            let filter = AuditFilter {
                newest_first,
                ..filter.clone()
            };
            let shown = format!("{filter:?}");
            let (mut intact, unreadable) = partition(&store.read(filter).await);
            assert!(unreadable.contains(&39), "{shown}: {unreadable:?}");
            intact.sort_unstable();
            let first_unreadable = unreadable.iter().min().unwrap();
            assert_eq!(intact, (0..*first_unreadable).collect::<Vec<_>>());
            assert_eq!(intact.len() + unreadable.len(), 40, "{shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_with_a_value_of_another_type_is_named_and_the_others_are_returned() {
    let store = TestStore::sqlite();
    let calls = store.append_calls(40).await;
    store.corrupt_time_of(&calls[20]).await;
    for newest_first in [false, true] {
        let found = store.read(AuditFilter {
            newest_first,
            ..AuditFilter::default()
        });
        let (mut intact, unreadable) = partition(&found.await);
        assert_eq!(unreadable, [20]);
        intact.sort_unstable();
        let others = (0..40).filter(|sequence| *sequence != 20);
        assert_eq!(intact, others.collect::<Vec<u64>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_of_unreadable_records_is_at_their_position_and_does_not_count_towards_the_limit()
{
    let store = TestStore::sqlite();
    let calls = store.append_calls(60).await;
    store.corrupt_pages_of(&calls[20..21]).await;
    let by_content = ContentFilter {
        phi: true,
        ..ContentFilter::default()
    };
    for content in [by_content, ContentFilter::default()] {
        let found = store.read(AuditFilter {
            from_sequence: 10,
            limit: Some(25),
            content,
            ..AuditFilter::default()
        });
        let found = found.await;
        let (intact, unreadable) = partition(&found);
        assert_eq!((intact.len(), found.len()), (25, 26), "{unreadable:?}");
        assert!(unreadable.contains(&20), "{unreadable:?}");
        let report = found
            .iter()
            .position(|found| matches!(found, QueriedRecord::Damaged(_)))
            .unwrap();
        let before = intact.iter().filter(|sequence| **sequence < 20).count();
        assert_eq!(report, before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_records_are_named_although_the_database_has_a_corrupt_page() {
    let store = TestStore::sqlite();
    let calls = store.append_calls(40).await;
    let remove = "DROP TRIGGER record_is_not_removed; DELETE FROM record WHERE sequence = 5";
    store.execute(remove).await.unwrap();
    store.corrupt_pages_of(&calls[20..21]).await;
    let by_caller = AuditFilter {
        subject: Some("dr.yenji".to_owned()),
        ..AuditFilter::default()
    };
    let found = store.read(by_caller).await;
    let (first, others) = found.split_first().unwrap();
    assert!(
        matches!(first, QueriedRecord::Damaged(damage) if damage.to_string() == "record 5: is missing"),
        "{first:?}"
    );
    let (intact, unreadable) = partition(others);
    assert!(unreadable.contains(&20), "{unreadable:?}");
    let mut all = [intact, unreadable].concat();
    all.sort_unstable();
    let kept = (0..40).filter(|sequence| *sequence != 5);
    assert_eq!(all, kept.collect::<Vec<u64>>());
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
            RecordReader::open(&store.url, &DatabaseSettings::default())
                .await
                .err(),
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
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
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
            matches!(
                RecordReader::open(store, &DatabaseSettings::default())
                    .await
                    .err(),
                Some(Error::UnknownStore)
            ),
            "{store}"
        );
    }
    let error = RecordReader::open(
        "postgres://u:hunter2@127.0.0.1:1/audit",
        &DatabaseSettings::default(),
    )
    .await
    .unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:1/audit"), "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reading_that_nobody_waits_for_any_more_stops_at_the_server() {
    let Some(store) = TestStore::postgres().await else {
        return;
    };
    let service = store.service().await;
    let record = outcome(&subject(), Status::Ok);
    service.audit.append(&record, false).await.unwrap();
    let filter = || AuditFilter {
        tool: Some("nothing".to_owned()),
        ..AuditFilter::default()
    };
    let (console, reader) = (
        service.console.clone(),
        RecordReader::open(&store.url, &DatabaseSettings::default())
            .await
            .unwrap(),
    );
    // After a first query, neither reader counts the records again.
    let by_console = console.query(filter()).await.unwrap();
    assert_eq!(by_console.count().await, 0);
    assert_eq!(reader.query(filter()).unwrap().count().await, 0);
    // From now on, no query ends by itself.
    let mut other = PgConnection::connect(&store.url).await.unwrap();
    let mut lock = other.begin().await.unwrap();
    sqlx::query("LOCK TABLE audit.record IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *lock)
        .await
        .unwrap();
    // Waits until this number of statements that filter by tool is running.
    let mut looking = PgConnection::connect(&store.url).await.unwrap();
    let mut reaches = async |readings: i64| {
        let begun = Instant::now();
        loop {
            let found: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                 AND application_name = 'wardgate audit reader' AND state = 'active' AND query LIKE '% AND tool = %'",
            )
            .fetch_one(&mut looking)
            .await
            .unwrap();
            if found == readings {
                return;
            }
            // This is well before the server cancels a statement that takes too long.
            assert!(begun.elapsed() < Duration::from_secs(15), "{found} read");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };

    let readings = [
        tokio::spawn({
            let reading = filter();
            async move { console.query(reading).await.unwrap().count().await }
        }),
        tokio::spawn(reader.query(filter()).unwrap().count()),
    ];
    reaches(2).await;
    for reading in readings {
        reading.abort();
    }
    reaches(0).await;
    lock.rollback().await.unwrap();
}
