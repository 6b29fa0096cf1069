use futures::StreamExt;
use futures::stream::BoxStream;
use sqlx::{Connection, PgConnection};
use tokio::time::Instant;
use wardgate_domain::{ChangedPart, ConversationChanges};

use super::*;

const PATIENCE: Duration = Duration::from_mins(1);

/// A watcher of changes.
struct ChangeWatcher(BoxStream<'static, Result<ConversationChanges, CallError>>);

impl ChangeWatcher {
    /// Creates a watcher and checks that its first event is `unseen`.
    async fn on(setup: &Setup) -> Self {
        let watch = setup.memory.watch_conversations().await.unwrap();
        let mut watch = Self(watch.boxed());
        let first = watch.receive().await;
        assert_eq!((first.unseen, first.changes.len()), (true, 0));
        watch
    }

    async fn receive(&mut self) -> ConversationChanges {
        let received = tokio::time::timeout(PATIENCE, self.0.next()).await;
        received.unwrap().unwrap().unwrap()
    }

    /// Receives the next changes, all of one owner.
    async fn receive_of(&mut self, owner: &Caller, count: usize) -> Vec<ChangedPart> {
        let mut changes = Vec::new();
        while changes.len() < count {
            let received = self.receive().await;
            assert!(!received.unseen);
            for change in received.changes {
                assert_eq!(change.owner, owner.person());
                changes.push(change.what);
            }
        }
        changes
    }
}

#[tokio::test]
async fn whoever_watches_hears_of_each_change_whose_it_is_and_of_nothing_else() {
    for setup in Setup::each().await {
        let joy = joy();
        setup.create_conversation(&joy, "before").await;
        setup.change_feed.poll(Instant::now()).await;
        let mut watch = ChangeWatcher::on(&setup).await;
        let mine = setup.create_conversation(&joy, "chat").await;
        setup.create_conversation(&joy, "chat").await;
        assert_eq!(watch.receive_of(&joy, 1).await, [ChangedPart::List]);
        let changed = || ChangedPart::Messages(mine.clone());

        let messages = || vec![with_id("m", person("hello"))];
        setup.add(&joy, &mine, messages()).await.unwrap();
        setup.add(&joy, &mine, messages()).await.unwrap();
        assert_eq!(watch.receive_of(&joy, 1).await, [changed()]);

        // Messages of an open turn are not readable yet.
        for state in [TurnState::Open, TurnState::Complete] {
            let messages = vec![person("and?")];
            let added = setup.add_to_turn(&joy, &mine, "t", state, messages);
            added.await.unwrap();
        }
        let given_up = setup.add_to_turn(&joy, &mine, "u", TurnState::Abandoned, vec![person("x")]);
        given_up.await.unwrap();
        setup.memory.clear(on_behalf_of(&joy), &mine).await.unwrap();
        setup
            .memory
            .delete(on_behalf_of(&joy), &mine)
            .await
            .unwrap();
        // A conversation that is erased before its change is read has no id any more.
        let mut received = Vec::new();
        while received.last() != Some(&ChangedPart::List) {
            received.extend(watch.receive_of(&joy, 1).await);
        }
        assert!(received.len() <= 3, "{received:?}");

        let (lee, other) = (caller("dr.lee", "north"), caller("dr.lee", "south"));
        assert_ne!(lee.person(), other.person());
        setup.create_conversation(&lee, "chat").await;
        assert_eq!(watch.receive_of(&lee, 1).await, [ChangedPart::List]);
    }
}

#[tokio::test]
async fn what_another_replica_changes_is_heard_at_its_next_reading() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        let other = setup.replica().await;
        other.change_feed.poll(Instant::now()).await;
        let mut watch = ChangeWatcher::on(&other).await;
        setup.add(&joy, &mine, vec![person("hello")]).await.unwrap();
        let received = watch.receive_of(&joy, 1).await;
        assert_eq!(received, [ChangedPart::Messages(mine)]);
    }
}

#[tokio::test]
async fn a_change_that_is_committed_after_a_later_one_is_heard_too() {
    for setup in Setup::each().await {
        if setup.database.is_sqlite() {
            continue; // It has one writer at a time.
        }
        let joy = joy();
        setup.create_conversation(&joy, "chat").await;
        setup.change_feed.poll(Instant::now()).await;
        let mut watch = ChangeWatcher::on(&setup).await;
        let mut slow = PgConnection::connect(&setup.database.url()).await.unwrap();
        let mut slow = slow.begin().await.unwrap();
        let note =
            "INSERT INTO memory.change (owner, kind) SELECT owner, 2 FROM memory.conversation";
        sqlx::query(note).execute(&mut *slow).await.unwrap();
        setup.create_conversation(&joy, "other").await;
        assert_eq!(watch.receive_of(&joy, 1).await, [ChangedPart::List]);
        slow.commit().await.unwrap();
        assert_eq!(
            watch.receive_of(&joy, 1).await,
            [ChangedPart::Subscriptions]
        );
    }
}

#[tokio::test]
async fn a_watcher_that_is_too_slow_or_a_replica_that_was_away_is_told_so() {
    for setup in Setup::each().await {
        let joy = joy();
        setup.change_feed.poll(Instant::now()).await;
        let mut slow = ChangeWatcher::on(&setup).await;
        for n in 0..100 {
            setup.create_conversation(&joy, &format!("chat{n}")).await;
            setup.change_feed.poll(Instant::now()).await;
        }
        let mut received = 0;
        loop {
            let changes = slow.receive().await;
            received += changes.changes.len();
            if changes.unseen {
                break;
            }
        }
        assert!(received < 100);
        let mut present = ChangeWatcher::on(&setup).await;
        setup
            .change_feed
            .poll(Instant::now() + Duration::from_secs(31))
            .await;
        assert!(present.receive().await.unseen);
        setup.create_conversation(&joy, "at last").await;
        assert_eq!(present.receive_of(&joy, 1).await, [ChangedPart::List]);
    }
}

#[tokio::test]
async fn what_everyone_has_read_is_forgotten() {
    for setup in Setup::each().await {
        let joy = joy();
        for minute in 0..3 {
            setup
                .create_conversation(&joy, &format!("chat{minute}"))
                .await;
            // Polls in between, so that the feed does not start over after a gap.
            for seconds in [0, 20, 40] {
                let now = Instant::now() + Duration::from_secs(minute * 61 + seconds);
                setup.change_feed.poll(now).await;
            }
        }
        let left = "SELECT count(*) FROM memory.change";
        assert!(setup.database.number(left).await < 3);
    }
}

#[tokio::test]
async fn there_are_no_more_watchers_than_there_can_be_gateways() {
    let setup = Setup::each().await.remove(0);
    let mut watches = Vec::new();
    for _ in 0..256 {
        watches.push(setup.memory.watch_conversations().await.unwrap());
    }
    let refused = setup.memory.watch_conversations().await.map(drop);
    assert_eq!(reason(refused), ErrorReason::Conflict);
    watches.pop();
    assert!(setup.memory.watch_conversations().await.is_ok());
}
