use crate::change_counter::ChangeCounter;
use std::sync::Arc;
use std::time::Duration;

use axum::body::BodyDataStream;
use axum::response::IntoResponse;
use futures::StreamExt;
use tokio::time::{Instant, advance};
use wardgate_domain::{Ambient, Caller, CallerClaims};
use wardgate_edge::RevocationWatch;

use super::{KEEP_ALIVE, Listeners, PAUSE, SETTLE, StreamScript, next_settled_change};
use crate::discovery::OfferedContent;

const CHANGED: &str = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";
const ALIVE: &str = ":\n\n";

/// Creates listeners with a quota of one stream.
fn one_place(changes: ChangeCounter) -> Listeners {
    let revocations = RevocationWatch::default();
    Listeners::new(changes, None, 1, revocations, Ambient::system())
}

/// Opens a stream for a caller whose token lasts for `token`, and reads its first event.
async fn open(listeners: &Listeners, token: Duration) -> BodyDataStream {
    let ambient = Ambient::system();
    let caller = Arc::new(Caller::from_verified(CallerClaims {
        expires_at: ambient.now().plus(token),
        ..wardgate_testkit::claims("a", &[])
    }));
    let answer = listeners
        .open(&caller, StreamScript::of_get(None, OFFERED))
        .unwrap();
    let mut stream = answer.into_response().into_body().into_data_stream();
    assert_eq!(stream.next().await.unwrap().unwrap(), ALIVE);
    stream
}

const OFFERED: OfferedContent = OfferedContent {
    prompts: false,
    resources: false,
    conversations: true,
    skills: None,
};
const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(start_paused = true)]
async fn a_change_is_told_at_once_and_those_that_come_with_it_are_the_same_word() {
    let changes = ChangeCounter::default();
    let listeners = one_place(changes.clone());
    let mut stream = open(&listeners, HOUR).await;
    let began = Instant::now();
    for _ in 0..5 {
        changes.announce();
        advance(SETTLE / 10).await;
    }
    assert_eq!(stream.next().await.unwrap().unwrap(), CHANGED);
    assert!(began.elapsed() <= SETTLE * 2, "{:?}", began.elapsed());
    assert_eq!(stream.next().await.unwrap().unwrap(), ALIVE);
    changes.announce();
    assert_eq!(stream.next().await.unwrap().unwrap(), CHANGED);
}

#[tokio::test(start_paused = true)]
async fn changes_without_end_are_told_of_twice_a_second() {
    let changes = ChangeCounter::default();
    let listeners = one_place(changes.clone());
    let mut stream = open(&listeners, HOUR).await;
    tokio::spawn(async move {
        loop {
            changes.announce();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let began = Instant::now();
    for _ in 0..5 {
        assert_eq!(stream.next().await.unwrap().unwrap(), CHANGED);
    }
    assert_eq!(began.elapsed(), SETTLE + PAUSE * 4);
}

#[tokio::test(start_paused = true)]
async fn a_change_before_the_stream_is_none_for_it() {
    let changes = ChangeCounter::default();
    changes.announce();
    let listeners = one_place(changes);
    let mut stream = open(&listeners, HOUR).await;
    let began = Instant::now();
    for _ in 0..4 {
        assert_eq!(stream.next().await.unwrap().unwrap(), ALIVE);
    }
    assert_eq!(began.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_change_in_the_moment_of_a_sign_of_life_is_not_lost() {
    let changes = ChangeCounter::default();
    let listeners = one_place(changes.clone());
    let mut stream = open(&listeners, HOUR).await;
    let later = changes.clone();
    tokio::spawn(async move {
        tokio::time::sleep(KEEP_ALIVE.saturating_sub(SETTLE / 2)).await;
        later.announce();
    });
    assert_eq!(stream.next().await.unwrap().unwrap(), ALIVE);
    assert_eq!(stream.next().await.unwrap().unwrap(), CHANGED);
}

#[tokio::test(start_paused = true)]
async fn the_stream_ends_with_the_token_or_the_gateway_and_its_place_is_free() {
    let listeners = one_place(ChangeCounter::default());
    let mut stream = open(&listeners, Duration::from_secs(20)).await;
    assert_eq!(stream.next().await.unwrap().unwrap(), ALIVE);
    assert!(stream.next().await.is_none());
    drop(stream);
    let mut stream = open(&listeners, HOUR).await;
    listeners.drain();
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn whoever_has_much_else_to_say_says_this_no_later() {
    let changes = ChangeCounter::default();
    let (mut follows, mut due, began) = (changes.follow(), None, Instant::now());
    changes.announce();
    for _ in 0..2 {
        let waiting = next_settled_change(&mut follows, 0, &mut due, began);
        let early = tokio::time::timeout(SETTLE / 3, waiting).await;
        assert!(early.is_err());
    }
    let change = next_settled_change(&mut follows, 0, &mut due, began).await;
    assert_eq!(change, Some(1));
    assert_eq!(began.elapsed(), SETTLE);
}
