use wardgate_domain::Digest;
use wardgate_rpc::client::ConversationSubscriber;

use super::*;

const DAY: Duration = Duration::from_hours(24);

fn session<'a>(caller: &'a Caller, name: &str) -> ConversationSubscriber<'a> {
    ConversationSubscriber {
        caller,
        session: (!name.is_empty()).then(|| Digest::compute(name.as_bytes())),
    }
}

async fn subscribe(
    setup: &Setup,
    of: ConversationSubscriber<'_>,
    conversation: &str,
) -> Result<(), CallError> {
    setup.memory.subscribe(of, &id(conversation)).await
}

async fn unsubscribe(setup: &Setup, of: ConversationSubscriber<'_>, conversation: &str) {
    let ended = setup.memory.unsubscribe(of, &id(conversation)).await;
    ended.unwrap();
}

async fn list_subscriptions(setup: &Setup, of: ConversationSubscriber<'_>) -> Vec<String> {
    let ids = setup.memory.list_subscriptions(of).await.unwrap();
    ids.iter().map(|id| id.as_str().to_owned()).collect()
}

#[tokio::test]
async fn a_session_has_its_own_subscriptions_and_every_replica_knows_them() {
    for setup in Setup::each().await {
        let (joy, other) = (joy(), caller("nurse.joy", "north"));
        for (of, conversation) in [
            (session(&joy, ""), "b"),
            (session(&joy, ""), "a"),
            (session(&joy, ""), "a"),
            (session(&joy, "one"), "c"),
            (session(&other, ""), "nobody's"),
        ] {
            subscribe(&setup, of, conversation).await.unwrap();
        }
        let replica = setup.replica().await;
        assert_eq!(
            list_subscriptions(&replica, session(&joy, "")).await,
            ["a", "b"]
        );
        assert_eq!(
            list_subscriptions(&replica, session(&joy, "one")).await,
            ["c"]
        );
        assert!(
            list_subscriptions(&replica, session(&joy, "two"))
                .await
                .is_empty()
        );
        assert_eq!(
            list_subscriptions(&replica, session(&other, "")).await,
            ["nobody's"]
        );

        for conversation in ["a", "c", "never"] {
            unsubscribe(&replica, session(&joy, ""), conversation).await;
        }
        assert_eq!(list_subscriptions(&setup, session(&joy, "")).await, ["b"]);
        assert_eq!(
            list_subscriptions(&setup, session(&joy, "one")).await,
            ["c"]
        );
    }
}

#[tokio::test]
async fn a_subscription_ends_a_day_after_it_was_made_or_last_listed() {
    for setup in Setup::each().await {
        let joy = joy();
        for name in ["followed", "left"] {
            subscribe(&setup, session(&joy, name), "chat")
                .await
                .unwrap();
        }
        setup.pass(DAY * 3 / 4);
        assert_eq!(
            list_subscriptions(&setup, session(&joy, "followed")).await,
            ["chat"]
        );
        setup.pass(DAY / 2);
        assert_eq!(
            list_subscriptions(&setup, session(&joy, "followed")).await,
            ["chat"]
        );
        assert!(
            list_subscriptions(&setup, session(&joy, "left"))
                .await
                .is_empty()
        );
        setup.maintenance.sweep().await;
        let left = "SELECT count(*) FROM memory.subscription";
        assert_eq!(setup.database.number(left).await, 1);
    }
}

#[tokio::test]
async fn an_owner_has_so_many_subscriptions_and_may_repeat_them() {
    for setup in Setup::each().await {
        let joy = joy();
        let (one, two) = (session(&joy, "one"), session(&joy, "two"));
        for n in 0..1_000 {
            subscribe(&setup, one, &n.to_string()).await.unwrap();
        }
        subscribe(&setup, one, "7").await.unwrap();
        let refused = subscribe(&setup, two, "7").await;
        assert_eq!(reason(refused), ErrorReason::Conflict);
        unsubscribe(&setup, one, "8").await;
        subscribe(&setup, two, "7").await.unwrap();
    }
}
