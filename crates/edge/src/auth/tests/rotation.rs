//! Keys that are added, removed or not available.

use super::*;

#[tokio::test]
async fn a_new_key_is_read_with_its_first_token() {
    let (old, new) = (TestKey::ed25519(), TestKey::ed25519());
    let (server, authenticator) = start_key_server(&[old.jwk("old")]).await;
    server.answer_with(StatusCode::OK, key_set(&[old.jwk("old"), new.jwk("new")]));
    authenticator.caller(&good(&new, "new")).await.unwrap();
    authenticator.caller(&good(&old, "old")).await.unwrap();
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn unknown_keys_cause_at_most_one_reading_in_ten_seconds() {
    let key = TestKey::ed25519();
    let server = KeyServer::start(StatusCode::OK, key_set(&[key.jwk("k")])).await;
    let clock = TestClock::at(NOW);
    let authenticator = authenticator(url_issuer(&server), &clock).await.unwrap();
    let mut now = NOW;
    for (later, requests) in [
        (0, 2),
        (0, 2),
        (9, 2),
        (1, 3),
        (9, 3),
        (1, 4),
        (-3600, 5),
        (0, 5),
    ] {
        now += later;
        clock.set(now);
        let unknown = authenticator
            .caller(&good(&key, "unknown"))
            .await
            .unwrap_err();
        assert_eq!(unknown, TokenRefusal::KeyUnknown);
        assert_eq!(server.requests(), requests, "{later} s later");
    }
    let oversized = good(&key, &"k".repeat(257));
    clock.advance(Duration::from_secs(60));
    assert_eq!(
        authenticator.caller(&oversized).await.unwrap_err(),
        TokenRefusal::KeyUnknown
    );
    assert_eq!(server.requests(), 5, "no issuer has such a key id");
}

#[tokio::test]
async fn many_unknown_keys_at_once_share_one_reading() {
    let (old, new) = (TestKey::ed25519(), TestKey::ed25519());
    let (server, authenticator) = start_key_server(&[old.jwk("old")]).await;
    server.answer_with(StatusCode::OK, key_set(&[new.jwk("new")]));
    server.hold_responses();
    let callers: Vec<_> = (0..50)
        .map(|number| {
            let authenticator = Arc::clone(&authenticator);
            let token = new.token(
                header("EdDSA", "new"),
                claims_with("jti", number.to_string()),
            );
            tokio::spawn(async move { authenticator.caller(&token).await })
        })
        .collect();
    server.requests_reach(2).await;
    server.release();
    for caller in callers {
        caller.await.unwrap().unwrap();
    }
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn a_client_that_hangs_up_does_not_end_the_reading() {
    let (old, new) = (TestKey::ed25519(), TestKey::ed25519());
    let (server, authenticator) = start_key_server(&[old.jwk("old")]).await;
    server.answer_with(StatusCode::OK, key_set(&[new.jwk("new")]));
    server.hold_responses();
    let (first, token) = (Arc::clone(&authenticator), good(&new, "new"));
    let hanging = tokio::spawn(async move { first.caller(&token).await });
    server.requests_reach(2).await;
    hanging.abort();
    assert!(hanging.await.unwrap_err().is_cancelled());
    server.release();
    authenticator.caller(&good(&new, "new")).await.unwrap();
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn the_last_good_keys_serve_until_their_time_to_live() {
    let key = TestKey::ed25519();
    let server = KeyServer::start(StatusCode::OK, key_set(&[key.jwk("k")])).await;
    let clock = TestClock::at(NOW);
    let mut config = url_issuer(&server);
    config.key_ttl_seconds = 300;
    let authenticator = authenticator(config, &clock).await.unwrap();
    let token = good(&key, "k");
    authenticator.caller(&token).await.unwrap();

    for (status, body) in [
        (StatusCode::SERVICE_UNAVAILABLE, String::new()),
        (StatusCode::OK, "<html>".to_owned()),
        (
            StatusCode::OK,
            key_set(&[json!({ "kty": "oct", "k": "c2VjcmV0" })]),
        ),
    ] {
        server.answer_with(status, body);
        authenticator.keys.refresh(0).await.unwrap_err();
        authenticator.caller(&token).await.unwrap();
        assert!(authenticator.readiness().borrow().is_ready());
    }
    clock.advance(Duration::from_secs(300));
    authenticator.caller(&token).await.unwrap();
    clock.advance(Duration::from_secs(1));
    assert_eq!(
        authenticator.caller(&token).await.unwrap_err(),
        TokenRefusal::KeysUnavailable,
        "cached or not"
    );
    let not_ready = Readiness::NotReady(format!("no usable key set of the issuer {ISSUER}"));
    assert_eq!(*authenticator.readiness().borrow(), not_ready);

    server.answer_with(StatusCode::OK, key_set(&[key.jwk("k")]));
    clock.advance(Duration::from_secs(10));
    authenticator.caller(&token).await.unwrap();
    assert!(authenticator.readiness().borrow().is_ready());
}

#[tokio::test]
async fn an_issuer_that_withdraws_its_only_key_is_believed() {
    let key = TestKey::ed25519();
    let server = KeyServer::start(StatusCode::OK, key_set(&[key.jwk("k")])).await;
    let clock = TestClock::at(NOW);
    let authenticator = authenticator(url_issuer(&server), &clock).await.unwrap();
    let token = good(&key, "k");
    authenticator.caller(&token).await.unwrap();
    server.answer_with(StatusCode::OK, key_set(&[]));
    authenticator.keys.refresh(0).await.unwrap_err();
    assert_eq!(
        authenticator.caller(&token).await.unwrap_err(),
        TokenRefusal::KeysUnavailable
    );
    assert!(!authenticator.readiness().borrow().is_ready());
}

#[tokio::test]
async fn a_url_that_is_down_at_start_is_tried_again() {
    let key = TestKey::ed25519();
    let server = KeyServer::start(StatusCode::SERVICE_UNAVAILABLE, "").await;
    let authenticator = authenticator(url_issuer(&server), &TestClock::at(NOW))
        .await
        .unwrap();
    let mut readiness = authenticator.readiness();
    assert!(!readiness.borrow().is_ready());
    server.answer_with(StatusCode::OK, key_set(&[key.jwk("k")]));
    let ready = readiness.wait_for(Readiness::is_ready);
    tokio::time::timeout(Duration::from_mins(1), ready)
        .await
        .unwrap()
        .unwrap();
    authenticator.caller(&good(&key, "k")).await.unwrap();
    assert_eq!(server.requests(), 2, "the second was the background's");
}

#[tokio::test]
async fn a_removed_key_is_refused_after_the_next_poll() {
    let (old, new) = (TestKey::ed25519(), TestKey::ed25519());
    let server = KeyServer::start(StatusCode::OK, key_set(&[old.jwk("old"), new.jwk("new")])).await;
    let mut config = url_issuer(&server);
    config.refresh_seconds = 1;
    let authenticator = authenticator(config, &TestClock::at(NOW)).await.unwrap();
    let token = good(&old, "old");
    authenticator.caller(&token).await.unwrap();
    server.answer_with(StatusCode::OK, key_set(&[new.jwk("new")]));
    // When the third read begins, the result of the second, which is the first with the new set, is in use.
    server.requests_reach(server.requests() + 2).await;
    assert_eq!(
        authenticator.caller(&token).await.unwrap_err(),
        TokenRefusal::KeyUnknown
    );
}

#[tokio::test]
async fn a_changed_file_is_read_again() {
    let (old, new) = (TestKey::ed25519(), TestKey::ed25519());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, key_set(&[old.jwk("old")])).unwrap();
    let authenticator = authenticator(file_issuer(file.path()), &TestClock::at(NOW))
        .await
        .unwrap();
    let by_old = good(&old, "old");
    authenticator.caller(&by_old).await.unwrap();
    std::fs::write(&file, key_set(&[new.jwk("new")])).unwrap();
    authenticator.caller(&good(&new, "new")).await.unwrap();
    assert_eq!(
        authenticator.caller(&by_old).await.unwrap_err(),
        TokenRefusal::KeyUnknown
    );
}
