//! Tests of queries of stores that are corrupt or were changed outside the service.

use std::cmp::Reverse;
use std::time::Duration;

use futures::TryStreamExt;
use wardgate_domain::Status;
use wardgate_rpc::client::{AuditFilter, ContentFilter, QueriedRecord};

use super::{in_order, partition};
use crate::support::{SAME_TIME, TestStore, on_both_stores, outcome, start, subject};

/// Number of records in a store of which one page is corrupt.
const RECORDS: usize = 400;

on_both_stores! {
    what_was_changed_or_removed_in_the_store_is_named_by_its_sequence
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
    let all = store.read_records(AuditFilter::default()).await;
    assert_eq!((named(&all), all.len()), (expected.clone(), 5 + 6));
    let from_the_service = service.console.query(AuditFilter::default()).await.unwrap();
    let from_the_service: Vec<_> = from_the_service.try_collect().await.unwrap();
    assert_eq!(named(&from_the_service), expected);
    let newest_first = AuditFilter {
        newest_first: true,
        ..AuditFilter::default()
    };
    expected.reverse();
    assert_eq!(named(&store.read_records(newest_first).await), expected);
    // A filter selects some records, but records that are missing are reported nevertheless.
    let of_nobody = AuditFilter {
        subject: Some("nobody".to_owned()),
        ..AuditFilter::default()
    };
    let [first, others] = removed;
    assert_eq!(
        named(&store.read_records(of_nobody).await),
        [first, others, columns(2)]
    );
}

/// Asserts that `found` is the report that a query continues without an index.
fn assert_is_without_index(found: &QueriedRecord) {
    let QueriedRecord::Damaged(damage) = found else {
        panic!("{found:?}");
    };
    let is_of_index = damage
        .problem
        .starts_with("an index of the database is corrupt");
    assert!(is_of_index && damage.is_warning, "{damage}");
    assert_eq!(damage.sequence, None);
}

/// Reads all records of `store`, which has the records of [`TestStore::append_calls`] and cannot read the one at sequence number
/// 300, with several filters that match every record and in both orders.
async fn assert_each_record_is_returned_or_named(store: &TestStore) {
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
            let found = store.read_records(filter).await;
            let (intact, unreadable) = partition(&found);
            assert!(unreadable.contains(&300), "{shown}: {unreadable:?}");
            assert!(unreadable.len() < 100, "{shown}: {unreadable:?}");
            // Adjacent records are reported together.
            let reports = found.len() - intact.len();
            assert!(is_by_time || reports == 1, "{shown}: {reports}");
            let mut expected: Vec<u64> = (0..RECORDS as u64).collect();
            if is_by_time {
                expected.sort_by_key(|sequence| (Reverse(sequence / SAME_TIME as u64), *sequence));
            }
            if newest_first {
                expected.reverse();
            }
            assert_eq!(in_order(&found, &expected), expected, "{shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_on_a_corrupt_page_of_the_database_are_named_and_the_others_are_returned() {
    let store = TestStore::sqlite();
    let calls = store.append_calls(RECORDS).await;
    store.corrupt_pages_of(&calls[300..301]).await;
    assert_each_record_is_returned_or_named(&store).await;

    let of_call = async |at: usize| {
        let found = store.read_records(AuditFilter {
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
    let newest = partition(&store.read_records(newest).await);
    assert_eq!(newest, (vec![399, 398, 397], vec![]));

    let service = store.service().await;
    let all = service.console.query(AuditFilter::default()).await.unwrap();
    let all: Vec<_> = all.try_collect().await.unwrap();
    assert_eq!(
        partition(&all),
        partition(&store.read_records(AuditFilter::default()).await)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn records_on_a_corrupt_page_of_a_database_server_are_named_and_the_others_are_returned() {
    let Some(original) = TestStore::postgres().await else {
        return;
    };
    let calls = original.append_calls(RECORDS).await;
    let store = original.copy_with_corrupt_page_of(300).await;
    assert_each_record_is_returned_or_named(&store).await;

    let of_call = |at: usize| {
        store.read_records(AuditFilter {
            call_id: Some(calls[at].call_id.to_string()),
            ..AuditFilter::default()
        })
    };
    // The server cannot tell which calls the other records on the page belong to, so they are reported as well.
    let found = of_call(300).await;
    let (first, others) = found.split_first().unwrap();
    assert_is_without_index(first);
    let (intact, unreadable) = partition(others);
    assert!(unreadable.contains(&300), "{unreadable:?}");
    assert_eq!((intact, others.len()), (vec![], 1));
    // The server may also read so small a table without the index, and meets the page then.
    let found = of_call(199).await;
    let intact = found.iter().filter_map(|found| match found {
        QueriedRecord::Intact(stored) => Some(stored.sequence),
        QueriedRecord::Damaged(_) => None,
    });
    assert_eq!(intact.collect::<Vec<_>>(), [199]);
    let newest = AuditFilter {
        newest_first: true,
        limit: Some(3),
        ..AuditFilter::default()
    };
    let newest = partition(&store.read_records(newest).await);
    assert_eq!(newest, (vec![399, 398, 397], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_by_call_continues_without_a_corrupt_index_of_a_database_server() {
    let Some(original) = TestStore::postgres().await else {
        return;
    };
    let calls = original.append_calls(RECORDS).await;
    let store = original.copy_with_empty_index("audit.record_call").await;
    let found = store.read_records(AuditFilter {
        call_id: Some(calls[300].call_id.to_string()),
        ..AuditFilter::default()
    });
    let found = found.await;
    let is_report = |found: &&QueriedRecord| matches!(found, QueriedRecord::Damaged(_));
    let reports: Vec<_> = found.iter().filter(is_report).collect();
    let [report] = reports[..] else {
        panic!("{reports:?}");
    };
    assert_is_without_index(report);
    let others = found.iter().filter(|found| !is_report(found)).cloned();
    let others: Vec<_> = others.collect();
    assert_eq!(partition(&others), (vec![300], vec![]));
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
            let (mut intact, unreadable) = partition(&store.read_records(filter).await);
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
        let found = store.read_records(AuditFilter {
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
        let found = store.read_records(AuditFilter {
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
    let found = store.read_records(by_caller).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_query_whose_index_is_corrupt_names_that_once_and_returns_every_record() {
    let store = TestStore::sqlite();
    let calls = store.append_calls(RECORDS).await;
    let by_sequence: Vec<u64> = (0..RECORDS as u64).collect();
    let mut by_time = by_sequence.clone();
    by_time.sort_by_key(|sequence| (Reverse(sequence / SAME_TIME as u64), *sequence));
    let of_caller = AuditFilter {
        subject: Some("dr.yenji".to_owned()),
        ..AuditFilter::default()
    };
    let of_caller_by_sequence = AuditFilter {
        from_sequence: 10,
        ..of_caller.clone()
    };
    let of_tool = AuditFilter {
        tool: Some("get_medical_records".to_owned()),
        ..AuditFilter::default()
    };
    let since = AuditFilter {
        since: Some(start().minus(Duration::from_hours(1))),
        ..AuditFilter::default()
    };
    let of_call = AuditFilter {
        call_id: Some(calls[300].call_id.to_string()),
        ..AuditFilter::default()
    };
    for (index, filter, mut expected) in [
        ("record_caller_time", of_caller, by_time.clone()),
        (
            "record_caller_time",
            of_caller_by_sequence,
            by_sequence[10..].to_vec(),
        ),
        ("record_tool_time", of_tool, by_time.clone()),
        ("record_call", of_call, vec![300]),
        ("record_time", since, by_time),
    ] {
        store.corrupt_index(index).await;
        for newest_first in [false, true] {
            let filter = AuditFilter {
                newest_first,
                ..filter.clone()
            };
            let shown = format!("{filter:?}");
            let found = store.read_records(filter).await;
            let (first, others) = found.split_first().unwrap();
            assert_is_without_index(first);
            if newest_first {
                expected.reverse();
            }
            let (intact, unreadable) = partition(others);
            assert_eq!((intact, unreadable), (expected.clone(), vec![]), "{shown}");
        }
    }
}
