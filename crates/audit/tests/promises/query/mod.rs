//! Tests of queries.

mod corrupt_stores;
mod filters;
mod pages;
mod readers;

use futures::TryStreamExt;
use wardgate_rpc::client::{AuditFilter, QueriedRecord};

use crate::support::{TestService, intact};

async fn sequences(service: &TestService, filter: AuditFilter) -> Vec<u64> {
    let records = service.console.query(filter).await.unwrap();
    records
        .map_ok(|found| intact(found).sequence)
        .try_collect()
        .await
        .unwrap()
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
