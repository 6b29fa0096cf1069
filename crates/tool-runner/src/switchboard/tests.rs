use wardgate_domain::{SwitchAction, SwitchScope};
use wardgate_rpc::Peer;
use wardgate_testkit::{FakeAudit, TestDatabase, until, until_true};

use super::*;
use crate::tests::database;
use crate::tests::stores;

fn store(database: &TestDatabase) -> ToolRunnerStore {
    stores::store(&database.url(), Ambient::system()).unwrap()
}

async fn board(database: &TestDatabase, audit: &Arc<FakeAudit>) -> Arc<Switchboard> {
    let board = Switchboard::open(store(database), audit.client(), Ambient::system())
        .await
        .unwrap();
    // On a busy machine the store may be prepared later.
    let mut read = board.subscribe();
    read.wait_for(Option::is_some).await.unwrap();
    board
}

/// Returns the audit record of a change by `ada`.
fn record_of(change: &SwitchChange) -> AdminChange {
    AdminChange {
        actor: "ada".to_owned(),
        action: format!("{}.{}", change.target.kind.as_str(), change.action.as_str()),
        target: change.target.name.clone(),
        scope: change.scope.to_string(),
        ..AdminChange::default()
    }
}

/// Sets a switch. A busy machine may ask to try again later, so the call is repeated.
async fn set(board: &Arc<Switchboard>, change: SwitchChange) {
    until("the switch is set", async || {
        match board.set(change.clone(), record_of(&change)).await {
            Ok(()) => Some(()),
            Err(Error::Store(StoreError::Late | StoreError::Database(_))) => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
}

fn change(kind: SwitchKind, name: &str, action: SwitchAction) -> SwitchChange {
    SwitchChange {
        target: SwitchTarget {
            kind,
            name: name.to_owned(),
        },
        scope: SwitchScope::Everyone,
        action,
    }
}

/// Returns whether tool `t` of toolset `s` and upstream `u` is on for everyone.
fn is_on(board: &Switchboard) -> bool {
    let switches = board.current().unwrap().of_tool("t", ["s"], Some("u"));
    switches.iter().all(|(_, enabled)| enabled)
}

#[tokio::test]
async fn a_switch_is_recorded_and_in_force_at_once_and_elsewhere_within_a_second() {
    for database in database::each_store().await {
        let audit = FakeAudit::new(Peer::ToolRunner);
        let (here, there) = (
            board(&database, &audit).await,
            board(&database, &audit).await,
        );
        assert!(here.current().is_some());
        let targets = [
            (SwitchKind::Upstream, "u"),
            (SwitchKind::Toolset, "s"),
            (SwitchKind::Tool, "t"),
        ];
        for (kind, name) in targets {
            set(&here, change(kind, name, SwitchAction::Disable)).await;
            assert!(!is_on(&here), "{kind:?}");
            until_true("off there too", async || !is_on(&there)).await;
            set(&here, change(kind, name, SwitchAction::Reset)).await;
            assert!(is_on(&here));
            until_true("on there too", async || is_on(&there)).await;
        }
        let made = audit.actions().into_iter().filter(|(_, failed)| !failed);
        let mut actions: Vec<_> = made.map(|(action, _)| action).collect();
        actions.dedup();
        let each = ["upstream", "toolset", "tool"];
        let both = each.map(|kind| [format!("{kind}.disable"), format!("{kind}.reset")]);
        assert_eq!(actions, both.concat());
    }
}

#[tokio::test]
async fn a_change_that_cannot_be_recorded_is_not_made() {
    let database = database::sqlite().await;
    let audit = FakeAudit::new(Peer::ToolRunner);
    let board = board(&database, &audit).await;
    audit.fails();
    let disable = change(SwitchKind::Tool, "t", SwitchAction::Disable);
    let refused = board
        .set(disable.clone(), record_of(&disable))
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::NotRecorded(_)), "{refused}");
    assert!(board.list().await.unwrap().is_empty());
    assert!(is_on(&board));
}

#[tokio::test]
async fn a_change_that_was_recorded_and_cannot_be_made_is_recorded_as_failed() {
    let database = database::sqlite().await;
    let audit = FakeAudit::new(Peer::ToolRunner);
    let board = board(&database, &audit).await;
    let disable = change(SwitchKind::Tool, "t", SwitchAction::Disable);
    set(&board, disable).await;
    database
        .execute("ALTER TABLE switch_version RENAME TO gone")
        .await;
    let enable = change(SwitchKind::Tool, "t", SwitchAction::Enable);
    let refused = board
        .set(enable.clone(), record_of(&enable))
        .await
        .unwrap_err();
    assert!(
        matches!(refused, Error::Store(StoreError::Database(_))),
        "{refused}"
    );
    let recorded = [
        ("tool.disable", false),
        ("tool.enable", false),
        ("tool.enable", true),
    ];
    assert_eq!(
        audit.actions(),
        recorded.map(|(action, failed)| (action.to_owned(), failed))
    );
    // The store is unavailable, and the tool that was off stays off.
    assert!(!is_on(&board));
    database
        .execute("ALTER TABLE gone RENAME TO switch_version")
        .await;
    let enable = change(SwitchKind::Tool, "t", SwitchAction::Enable);
    set(&board, enable).await;
    assert!(is_on(&board));
}

#[tokio::test]
async fn a_server_that_is_away_at_the_start_is_waited_for() {
    // A port on which no server listens.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://u@{}/d", free.local_addr().unwrap());
    drop(free);
    let away = stores::store(&url, Ambient::system()).unwrap();
    let board = Switchboard::open(
        away,
        FakeAudit::new(Peer::ToolRunner).client(),
        Ambient::system(),
    )
    .await
    .unwrap();
    assert!(board.current().is_none());
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_told_at_the_start() {
    let url = "sqlite:/no/such/directory/store.sqlite";
    let store = stores::store(url, Ambient::system()).unwrap();
    let opened = Switchboard::open(
        store,
        FakeAudit::new(Peer::ToolRunner).client(),
        Ambient::system(),
    )
    .await;
    let told = opened.err().unwrap().to_string();
    assert!(
        told.contains("sqlite:/no/such/directory/store.sqlite"),
        "{told}"
    );
}
