//! Tests of switches through the service.

use tonic::{Code, Status};
use wardgate_domain::{Caller, SwitchAction, SwitchChange, SwitchKind, SwitchScope, SwitchTarget};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_rpc::reason_of;

use super::harness::{Harness, OPERATOR, caller, tools};
use crate::tests::database;
use wardgate_testkit::{TestDatabase, unverified_token};

const TOOLSETS: &str = "
toolsets:
  some: { tools: [plain_rows] }
";

async fn harness() -> (TestDatabase, Harness) {
    let database = database::sqlite().await;
    let tools = format!("{}{TOOLSETS}", tools());
    let harness = Harness::with(&database, &tools, |_| ()).await;
    (database, harness)
}

async fn set(
    harness: &Harness,
    action: SwitchAction,
    kind: SwitchKind,
    name: &str,
    scope: SwitchScope,
) -> Result<(), Status> {
    let change = SwitchChange {
        target: SwitchTarget {
            kind,
            name: name.to_owned(),
        },
        scope,
        action,
    };
    harness.set_switch(&change).await
}

fn disable_plain_rows() -> SwitchChange {
    SwitchChange {
        target: SwitchTarget {
            kind: SwitchKind::Tool,
            name: "plain_rows".to_owned(),
        },
        scope: SwitchScope::Everyone,
        action: SwitchAction::Disable,
    }
}

fn list_request(subject: &str, tenant: &str) -> pb::ListSwitchesRequest {
    pb::ListSwitchesRequest {
        caller_token: unverified_token(subject, tenant),
    }
}

/// Calls `plain_rows` as `caller` with a permit that allows everything.
async fn call(harness: &mut Harness, caller: Caller) -> Result<(), Status> {
    harness.caller = caller;
    let terms = harness.terms("plain_rows").await;
    harness.call_with(&terms, "{}").await.map(drop)
}

/// Returns whether the list of tools says that `plain_rows` is on for `caller`.
async fn is_listed_for(harness: &Harness, caller: &Caller) -> bool {
    let tools = harness.tools().await.tools;
    let tool = tools
        .into_iter()
        .find(|tool| tool.facts.as_ref().unwrap().name == "plain_rows");
    let switches: wardgate_domain::ToolSwitches = tool.unwrap().switches.try_into().unwrap();
    switches.allow(caller)
}

#[tokio::test]
async fn a_tool_that_is_off_is_answered_like_one_that_does_not_exist() {
    let (_database, mut harness) = harness().await;
    for (kind, name) in [
        (SwitchKind::Tool, "plain_rows"),
        (SwitchKind::Toolset, "some"),
        (SwitchKind::Upstream, "rows"),
    ] {
        call(&mut harness, caller("d1")).await.unwrap();
        set(
            &harness,
            SwitchAction::Disable,
            kind,
            name,
            SwitchScope::Everyone,
        )
        .await
        .unwrap();
        assert!(!is_listed_for(&harness, &caller("d1")).await);
        let refused = call(&mut harness, caller("d1")).await.unwrap_err();
        let unknown = harness.request("no_such_tool", b"{}", None);
        let unknown = harness.send(unknown).await.unwrap_err();
        assert_eq!(
            reason_of(&refused),
            ErrorReason::UnknownTool,
            "{kind:?} {name}"
        );
        assert_eq!(refused.message(), unknown.message());
        assert_eq!(refused.code(), unknown.code());
        set(
            &harness,
            SwitchAction::Reset,
            kind,
            name,
            SwitchScope::Everyone,
        )
        .await
        .unwrap();
        assert!(is_listed_for(&harness, &caller("d1")).await);
    }
    assert_eq!(harness.audit.actions().len(), 6, "each change is on record");
}

#[tokio::test]
async fn a_tool_can_be_off_for_a_role_and_on_for_one_of_them() {
    let (_database, mut harness) = harness().await;
    let (kind, name) = (SwitchKind::Tool, "plain_rows");
    // A role and a user that the harness's callers have.
    let doctors = SwitchScope::Role("Doctor".to_owned());
    let one = SwitchScope::User {
        subject: "d1".to_owned(),
        issuer: None,
    };
    set(&harness, SwitchAction::Disable, kind, name, doctors)
        .await
        .unwrap();
    set(&harness, SwitchAction::Enable, kind, name, one)
        .await
        .unwrap();
    call(&mut harness, caller("d1")).await.unwrap();
    let refused = call(&mut harness, caller("d2")).await.unwrap_err();
    assert_eq!(reason_of(&refused), ErrorReason::UnknownTool);
}

#[tokio::test]
async fn whoever_watches_the_catalogue_hears_of_a_switch() {
    let (_database, harness) = harness().await;
    let mut client = harness.client.clone();
    let watch = client.watch_catalogue(pb::WatchCatalogueRequest {}).await;
    let mut versions = watch.unwrap().into_inner();
    let before = versions.message().await.unwrap().unwrap();
    assert_eq!(
        before.catalogue_version,
        harness.tools().await.catalogue_version
    );
    let (kind, name) = (SwitchKind::Tool, "plain_rows");
    set(
        &harness,
        SwitchAction::Disable,
        kind,
        name,
        SwitchScope::Everyone,
    )
    .await
    .unwrap();
    let after = versions.message().await.unwrap().unwrap();
    assert_ne!(before, after);
    assert_eq!(
        after.catalogue_version,
        harness.tools().await.catalogue_version
    );
}

#[tokio::test]
async fn a_switch_for_what_does_not_exist_is_refused_and_a_left_over_one_can_go() {
    let (_database, harness) = harness().await;
    for (kind, word) in [
        (SwitchKind::Tool, "tool"),
        (SwitchKind::Toolset, "toolset"),
        (SwitchKind::Upstream, "upstream"),
    ] {
        let name = "rows_by_rule";
        let refused = set(
            &harness,
            SwitchAction::Disable,
            kind,
            name,
            SwitchScope::Everyone,
        )
        .await
        .unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(
            refused
                .message()
                .contains(&format!("the {word} `rows_by_rule` does not exist"))
        );
        set(
            &harness,
            SwitchAction::Reset,
            kind,
            name,
            SwitchScope::Everyone,
        )
        .await
        .unwrap();
    }
    let mut client = harness.client.clone();
    let listed = client.list_switches(list_request(OPERATOR, "")).await;
    assert!(listed.unwrap().into_inner().switches.is_empty());
}

#[tokio::test]
async fn a_change_that_means_nothing_is_refused() {
    let (_database, harness) = harness().await;
    let good = pb::SetSwitchRequest {
        caller_token: unverified_token(OPERATOR, ""),
        ..(&disable_plain_rows()).into()
    };
    let empty_role = pb::switch_scope::Scope::Role(String::new());
    for (field, bad) in [
        (
            "target",
            pb::SetSwitchRequest {
                target: None,
                ..good.clone()
            },
        ),
        (
            "scope",
            pb::SetSwitchRequest {
                scope: None,
                ..good.clone()
            },
        ),
        (
            "scope.role",
            pb::SetSwitchRequest {
                scope: Some(pb::SwitchScope {
                    scope: Some(empty_role),
                }),
                ..good.clone()
            },
        ),
        (
            "action",
            pb::SetSwitchRequest {
                action: 0,
                ..good.clone()
            },
        ),
    ] {
        let refused = harness.client.clone().set_switch(bad).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(
            refused.message().contains(&format!("`{field}`")),
            "{}",
            refused.message()
        );
    }
    assert!(harness.audit.actions().is_empty());
}

#[tokio::test]
async fn whom_no_policy_lets_manage_tools_changes_and_lists_nothing_and_that_is_on_record() {
    let (_database, mut harness) = harness().await;
    // An operator without the right to manage tools, and one with the right who belongs to a tenant.
    for (subject, tenant) in [("mallory", ""), (OPERATOR, "north")] {
        let caller_token = unverified_token(subject, tenant);
        let set = pb::SetSwitchRequest {
            caller_token: caller_token.clone(),
            ..(&disable_plain_rows()).into()
        };
        let remove = pb::RemoveConnectionsRequest {
            caller_token: caller_token.clone(),
            subject: "dr.yenji".to_owned(),
            ..Default::default()
        };
        let connections = pb::ListConnectionsRequest { caller_token };
        let mut client = harness.client.clone();
        let refused = [
            client.set_switch(set).await.map(drop),
            client.remove_connections(remove).await.map(drop),
            client
                .list_switches(list_request(subject, tenant))
                .await
                .map(drop),
            client.list_connections(connections).await.map(drop),
        ];
        for refused in refused {
            assert_eq!(reason_of(&refused.unwrap_err()), ErrorReason::Denied);
        }
        let tried = harness.audit.changes.entries();
        let tried: Vec<_> = tried.iter().rev().take(4).rev().collect();
        let actions = tried.iter().map(|one| one.action.as_str());
        let expected = [
            "tool.disable",
            "connection.remove",
            "switch.list",
            "connection.list",
        ];
        assert_eq!(actions.collect::<Vec<_>>(), expected);
        assert!(tried.iter().all(|one| one.actor == subject));
        assert!(tried.iter().all(|one| !one.is_allowed()));
    }
    let no_token = pb::SetSwitchRequest::from(&disable_plain_rows());
    let refused = harness.client.clone().set_switch(no_token).await;
    assert_eq!(reason_of(&refused.unwrap_err()), ErrorReason::TokenRefused);
    call(&mut harness, caller("d1")).await.unwrap();
}
