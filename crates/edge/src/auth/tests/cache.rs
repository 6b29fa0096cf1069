//! The cache of verified tokens.

use super::*;

#[tokio::test]
async fn a_verified_token_is_not_verified_again() {
    let issuer = Issuer::new().await;
    let first = issuer.caller_of(claims()).await.unwrap();
    let token = issuer.token(claims());
    let second = issuer.authenticator.caller(&token).await.unwrap();
    assert!(
        Arc::ptr_eq(&first, &second),
        "the very caller of the first time"
    );
}

#[tokio::test]
async fn a_cached_token_ends_when_it_expires() {
    let issuer = Issuer::new().await;
    let token = issuer.token(claims());
    let first = issuer.authenticator.caller(&token).await.unwrap();
    issuer.clock.advance(Duration::from_secs(609));
    let within_leeway = issuer.authenticator.caller(&token).await.unwrap();
    assert!(Arc::ptr_eq(&first, &within_leeway));
    issuer.clock.advance(Duration::from_secs(1));
    assert_eq!(issuer.reason(&token).await, "token_expired");
}

#[tokio::test]
async fn a_cached_token_is_not_valid_before_its_time_when_the_clock_is_set_back() {
    for claim in ["nbf", "iat"] {
        let issuer = Issuer::new().await;
        let token = issuer.token(claims_with(claim, NOW));
        assert_eq!(issuer.reason(&token).await, "accepted");
        issuer.clock.set(NOW - 60);
        assert_eq!(issuer.reason(&token).await, "token_not_yet_valid");
        issuer.clock.set(NOW);
        assert_eq!(issuer.reason(&token).await, "accepted");
    }
}

#[tokio::test]
async fn a_refusal_is_not_cached() {
    let issuer = Issuer::new().await;
    let token = issuer.token(claims_with("nbf", NOW + 60));
    assert_eq!(issuer.reason(&token).await, "token_not_yet_valid");
    issuer.clock.advance(Duration::from_secs(60));
    assert_eq!(issuer.reason(&token).await, "accepted");
}

#[tokio::test]
async fn a_cached_token_goes_with_its_key() {
    let (old, new) = (TestKey::ed25519(), TestKey::ed25519());
    let (server, authenticator) = start_key_server(&[old.jwk("old"), new.jwk("new")]).await;
    let (by_old, by_new) = (good(&old, "old"), good(&new, "new"));
    authenticator.caller(&by_old).await.unwrap();
    authenticator.caller(&by_new).await.unwrap();

    server.answer_with(StatusCode::OK, key_set(&[new.jwk("new")]));
    authenticator.keys.refresh(0).await.unwrap();
    assert_eq!(
        authenticator.caller(&by_old).await.unwrap_err(),
        TokenRefusal::KeyUnknown
    );
    authenticator.caller(&by_new).await.unwrap();
}

#[tokio::test]
async fn a_key_replaced_under_the_same_id_ends_its_tokens() {
    let (old, new) = (TestKey::ed25519(), TestKey::ed25519());
    let (server, authenticator) = start_key_server(&[old.jwk("k")]).await;
    let token = good(&old, "k");
    authenticator.caller(&token).await.unwrap();
    server.answer_with(StatusCode::OK, key_set(&[new.jwk("k")]));
    authenticator.keys.refresh(0).await.unwrap();
    assert_eq!(
        authenticator.caller(&token).await.unwrap_err(),
        TokenRefusal::SignatureInvalid
    );
}
