//! Helpers that check the responses to refused requests, and their records.

use std::collections::BTreeMap;

use wardgate_testkit::{Reply, System, TestApp, until};

/// Checks that a reply does not reveal how the product is implemented or where it runs.
pub(super) fn assert_says_nothing_internal(reply: &Reply) {
    for internal in [
        "panic", ".rs", "/tmp", "/work", "sqlx", "SELECT", "sqlite", "tokio", "cedar", "tonic",
    ] {
        let body = reply.body.to_lowercase();
        assert!(
            !body.contains(&internal.to_lowercase()),
            "{internal}: {}",
            reply.body
        );
    }
}

/// Returns the reason and the message of a request that was refused before its body was read.
pub(super) fn refusal(reply: &Reply) -> (String, String) {
    let answer = reply.json();
    assert_eq!(answer["jsonrpc"], "2.0", "{answer}");
    let (code, message) = reply.error();
    assert_eq!(code, -32600, "{answer}");
    (
        answer["error"]["data"]["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        message,
    )
}

/// Returns the number of refusals of each kind on record.
pub(super) fn refusals(app: &TestApp) -> BTreeMap<String, u64> {
    let mut counted = BTreeMap::new();
    for record in app.records() {
        for count in record["counts"].as_array().into_iter().flatten() {
            let reason = count["reason"].as_str().unwrap().to_owned();
            *counted.entry(reason).or_default() += count["count"].as_u64().unwrap();
        }
    }
    counted
}

/// Waits until exactly these numbers of refusals are on record. They are recorded once a second.
pub(super) async fn wait_for_refusals(app: &TestApp, expected: &BTreeMap<String, u64>) {
    let total = expected.values().sum::<u64>();
    let seen = until("the refusals are on record", async || {
        let seen = refusals(app);
        (seen.values().sum::<u64>() >= total).then_some(seen)
    })
    .await;
    assert_eq!(&seen, expected);
}
