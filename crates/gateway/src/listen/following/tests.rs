use wardgate_domain::{ChangedPart, ConversationChange, ConversationChanges};

use super::*;
use crate::listen::conversations::UpdateInboxes;

fn id(text: &str) -> ConversationId {
    text.parse().unwrap()
}

fn ada() -> Digest {
    Digest::compute(b"ada")
}

/// Creates the feed of a stream of Ada's that chose the conversations `a` and `b`.
fn create_feed(inboxes: &UpdateInboxes, list: bool) -> ConversationFeed {
    let chosen = ["a", "b"].map(|name| (id(name), format!("uri of {name}")));
    ConversationFeed::for_conversations(inboxes.open(ada()), list, chosen.to_vec())
}

fn deliver(inboxes: &UpdateInboxes, owner: Digest, what: ChangedPart) {
    inboxes.deliver(&ConversationChanges {
        unseen: false,
        changes: vec![ConversationChange { owner, what }],
    });
}

fn deliver_message(inboxes: &UpdateInboxes, name: &str) {
    deliver(inboxes, ada(), ChangedPart::Messages(id(name)));
}

fn words(list: bool, names: &[&str]) -> ResourceUpdates {
    let uris = names.iter().map(|name| format!("uri of {name}"));
    ResourceUpdates {
        list,
        uris: uris.collect(),
    }
}

/// Returns whether the feed has no updates for an hour.
async fn is_silent(following: &mut ConversationFeed) -> bool {
    let hour = Duration::from_hours(1);
    tokio::time::timeout(hour, following.next()).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn only_what_was_chosen_is_told_and_only_to_whom_it_belongs() {
    let inboxes = UpdateInboxes::default();
    let (mut without_list, mut with_list) =
        (create_feed(&inboxes, false), create_feed(&inboxes, true));
    deliver_message(&inboxes, "other");
    deliver(
        &inboxes,
        Digest::compute(b"mallory"),
        ChangedPart::Messages(id("a")),
    );
    deliver(&inboxes, Digest::compute(b"mallory"), ChangedPart::List);
    assert!(is_silent(&mut without_list).await);
    assert!(is_silent(&mut with_list).await);
    deliver(&inboxes, ada(), ChangedPart::List);
    assert_eq!(with_list.next().await, words(true, &[]));
    assert!(is_silent(&mut without_list).await);
    deliver_message(&inboxes, "b");
    assert_eq!(with_list.next().await, words(false, &["b"]));
    assert_eq!(without_list.next().await, words(false, &["b"]));
}

#[tokio::test(start_paused = true)]
async fn the_first_word_comes_at_once_and_the_next_no_sooner_than_a_second_later() {
    let inboxes = UpdateInboxes::default();
    let mut following = create_feed(&inboxes, false);
    let began = Instant::now();
    deliver_message(&inboxes, "a");
    assert_eq!(following.next().await, words(false, &["a"]));
    assert_eq!(began.elapsed(), Duration::ZERO);
    for _ in 0..5 {
        deliver_message(&inboxes, "a");
    }
    // The waiting future is dropped, and no update is lost.
    let early = tokio::time::timeout(Duration::from_millis(900), following.next());
    assert!(early.await.is_err());
    deliver_message(&inboxes, "b");
    assert_eq!(following.next().await, words(false, &["a", "b"]));
    assert_eq!(began.elapsed(), PAUSE);
    assert!(is_silent(&mut following).await);
}

#[tokio::test(start_paused = true)]
async fn what_went_unseen_counts_as_changed() {
    let inboxes = UpdateInboxes::default();
    let mut following = create_feed(&inboxes, true);
    inboxes.deliver(&ConversationChanges {
        unseen: true,
        changes: Vec::new(),
    });
    deliver_message(&inboxes, "a");
    assert_eq!(following.next().await, words(true, &["a", "b"]));
    assert!(is_silent(&mut following).await);
}

#[tokio::test(start_paused = true)]
async fn an_inbox_holds_only_so_much_and_ends_with_its_stream() {
    let inboxes = UpdateInboxes::default();
    let mut following = create_feed(&inboxes, false);
    for n in 0..2_000 {
        deliver_message(&inboxes, &format!("other{n}"));
    }
    assert_eq!(following.next().await, words(false, &["a", "b"]));
    drop(following);
    assert!(inboxes.is_empty());
}
