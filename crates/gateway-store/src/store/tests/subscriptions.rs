//! Tests of subscriptions.

use super::*;
use crate::store::SubscriptionsId;

fn id() -> SubscriptionsId {
    SubscriptionsId(Digest::compute(b"session"))
}

async fn write(store: &Store, text: &[u8], before: Option<i64>) -> Option<i64> {
    let written = store.write_subscriptions(id(), owner(), text.to_vec(), before);
    written.await.unwrap()
}

#[tokio::test]
async fn subscriptions_take_the_place_of_those_that_were_read_and_of_no_others() {
    for two in each().await {
        assert_eq!(two.one.read_subscriptions(id()).await.unwrap(), None);
        let first = write(&two.one, b"first", None).await.unwrap();
        assert_eq!(write(&two.other, b"also first", None).await, None);
        let read = two.other.read_subscriptions(id()).await.unwrap();
        assert_eq!(read, Some((b"first".to_vec(), first)));
        // The clock stands still here, and may even go back in production.
        let second = write(&two.other, b"second", Some(first)).await.unwrap();
        assert!(second > first);
        assert_eq!(write(&two.one, b"lost", Some(first)).await, None);
        let read = two.one.read_subscriptions(id()).await.unwrap();
        assert_eq!(read, Some((b"second".to_vec(), second)));
        let recent = two.one.subscriptions_since(Duration::from_secs(10)).await;
        assert_eq!(recent.unwrap(), [(id(), second)]);
        two.clock.advance(Duration::from_mins(1));
        let recent = two.one.subscriptions_since(Duration::from_secs(10)).await;
        assert_eq!(recent.unwrap(), []);
    }
}

#[tokio::test]
async fn subscriptions_end_unwritten_for_a_day_and_a_caller_has_so_many() {
    for two in each().await {
        write(&two.one, b"first", None).await.unwrap();
        two.clock.advance(Duration::from_hours(25));
        assert_eq!(two.one.read_subscriptions(id()).await.unwrap(), None);
        write(&two.one, b"again", None).await.unwrap();
        for number in 0..100_u8 {
            two.clock.advance(Duration::from_millis(1));
            let other = SubscriptionsId(Digest::compute(&[number]));
            let written = two
                .other
                .write_subscriptions(other, owner(), Vec::new(), None);
            assert!(written.await.unwrap().is_some());
        }
        assert_eq!(two.one.read_subscriptions(id()).await.unwrap(), None);
        let kept = two
            .database
            .number("SELECT count(*) FROM gateway.subscriptions");
        assert_eq!(kept.await, 100);
    }
}
