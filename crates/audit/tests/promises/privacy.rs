//! Tests of the values that are never stored in a record.

use wardgate_domain::{Digest, Event, Record, Status};

use crate::support::{TestStore, intent, on_both_stores, outcome, subject};

on_both_stores! { p4_nothing_raw_is_stored }

/// The domain types contain digests instead of values. Even these digests are stored only in keyed form, because the digest of
/// a five-letter code can be guessed as easily as the code.
async fn p4_nothing_raw_is_stored(store: &TestStore) {
    let canaries = ["NUGWI", "Hypertension, Lisinopril 10mg daily"];
    let service = store.service().await;
    let mut call = subject();
    call.arguments_digest = Digest::compute(canaries[0].as_bytes());
    service.audit.append(&intent(&call), false).await.unwrap();
    let Record {
        event: Event::Outcome(mut ended),
        time,
    } = outcome(&call, Status::Ok)
    else {
        unreachable!("it is an outcome")
    };
    ended.result_digest = Some(Digest::compute(canaries[1].as_bytes()));
    let record = Record {
        time,
        event: Event::Outcome(ended),
    };
    service.audit.append(&record, false).await.unwrap();

    let stored = store.every_byte().await;
    let holds = |needle: &[u8]| stored.windows(needle.len()).any(|window| window == needle);
    assert!(holds(b"dr.yenji"), "the search finds what is there");
    for canary in canaries {
        let digest = Digest::compute(canary.as_bytes());
        assert!(!holds(canary.as_bytes()));
        assert!(!holds(digest.as_bytes()));
        assert!(!holds(digest.to_string().as_bytes()));
    }
}
