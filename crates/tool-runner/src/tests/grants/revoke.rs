//! Tests that the grants of a disconnected person are revoked at the server.

use super::*;

/// Returns the tokens that the server was told to revoke, in order.
fn taken_back(server: &Server) -> Vec<String> {
    let told = server.revoked.lock().unwrap();
    told.iter().map(|form| form["token"].clone()).collect()
}

fn names_its_endpoint(server: &Server) {
    server.metadata.lock().unwrap()["revocation_endpoint"] = server.at("/revoke").into();
}

#[tokio::test]
async fn what_was_granted_is_taken_back_at_the_server_that_gave_it() {
    let world = GrantWorld::new().await;
    let one = world.replica().await;
    one.connect("ann").await;
    // A server without a revocation endpoint receives no request.
    let grant = one.grants.grant(&person("ann")).await.unwrap();
    one.grants.revoke(grant).await;
    assert!(taken_back(&world.server).is_empty());
    names_its_endpoint(&world.server);
    let grant = one.grants.grant(&person("ann")).await.unwrap();
    one.grants.revoke(grant).await;
    let told = world.server.revoked.lock().unwrap().clone();
    let hints: Vec<_> = told.iter().map(|form| &*form["token_type_hint"]).collect();
    assert_eq!(hints, ["refresh_token", "access_token"]);
    assert!(told.iter().all(|form| form["client_id"] == "client-1"));
    let tokens = ["canary-refresh-0", "canary-access-0"];
    assert_eq!(taken_back(&world.server), tokens);
    assert!(one.grants.grant(&person("ben")).await.is_none());
}

#[tokio::test]
async fn what_was_refreshed_while_its_person_was_disconnected_is_taken_back_too() {
    let world = GrantWorld::new().await;
    let one = world.replica().await;
    one.connect("ann").await;
    names_its_endpoint(&world.server);
    one.clock.advance(Duration::from_secs(600));
    let blocked = world.server.slow.write().await;
    let grants = Arc::clone(&one.grants);
    let calling = tokio::spawn(authorization_of_ann(grants));
    while world.server.asked_to_refresh.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let removed = world.store().await.disconnect("ann", "", "crm").await;
    assert_eq!(removed.unwrap(), 1);
    drop(blocked);
    assert!(is_unconnected(&calling.await.unwrap().map(Option::unwrap)));
    let tokens = ["canary-refresh-1", "canary-access-1"];
    assert_eq!(taken_back(&world.server), tokens);
}
