//! The keys that may sign a token, and the sources from which they are read.

use super::*;
use crate::error::KeySetError;

#[tokio::test]
async fn a_token_is_good_only_for_the_keys_of_its_own_issuer() {
    let (one, other) = (TestKey::ed25519(), TestKey::ed25519());
    let directory = tempfile::tempdir().unwrap();
    let issuers = [("one", &one), ("other", &other)].map(|(name, key)| {
        let path = directory.path().join(name);
        std::fs::write(&path, key_set(&[key.jwk("ed")])).unwrap();
        let mut issuer = IssuerConfig::new(
            format!("https://{name}.example"),
            AUDIENCE,
            JwksSource::File(path),
        );
        issuer.roles = Some(["Nurse".to_owned()].into());
        issuer.subject_prefix = Some(String::new());
        issuer
    });
    let config = AuthConfig::of_issuers(issuers.into());
    let authenticator = Authenticator::new(config, None, TestClock::at(NOW).ambient())
        .await
        .unwrap();
    let of_one = claims_with("iss", "https://one.example");
    let caller = authenticator
        .caller(&one.token(header("EdDSA", "ed"), &of_one))
        .await
        .unwrap();
    assert_eq!(caller.issuer(), "https://one.example");
    assert!(
        caller.roles().is_empty(),
        "this issuer may not give the role Doctor"
    );
    let forged = other.token(header("EdDSA", "ed"), &of_one);
    assert_eq!(
        authenticator.caller(&forged).await.unwrap_err(),
        TokenRefusal::SignatureInvalid
    );
}

#[tokio::test]
async fn a_token_without_kid_finds_the_only_key() {
    let key = TestKey::ed25519();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, key_set(&[key.jwk("any")])).unwrap();
    let authenticator = authenticator(file_issuer(file.path()), &TestClock::at(NOW))
        .await
        .unwrap();
    authenticator
        .caller(&key.token(json!({ "alg": "EdDSA" }), claims()))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_file_that_cannot_be_used_stops_the_start_with_its_name() {
    let clock = TestClock::at(NOW);
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display().to_string();
    let symmetric = key_set(&[json!({ "kty": "oct", "k": "c2VjcmV0" })]);
    let huge = " ".repeat(1024 * 1024 + 1);
    for (content, problem) in [
        (symmetric.as_str(), "it contains a symmetric key"),
        ("", "it is not a JSON Web Key Set"),
        (r#"{"keys": []}"#, "it contains no usable signature key"),
        (huge.as_str(), "it is larger than 1 MiB"),
    ] {
        std::fs::write(&file, content).unwrap();
        let message = authenticator(file_issuer(file.path()), &clock)
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(
            message.contains(&path) && message.contains(problem),
            "{message}"
        );
    }
    let absent = authenticator(file_issuer(Path::new("/nonexistent/keys.json")), &clock)
        .await
        .err()
        .unwrap();
    assert!(
        absent.to_string().contains("/nonexistent/keys.json"),
        "{absent}"
    );
}

#[tokio::test]
async fn a_check_of_the_files_fails_as_the_start_does_and_requests_no_key_set() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let key = TestKey::ed25519();
    let set = key_set(&[key.jwk("k")]);
    let server = KeyServer::start(StatusCode::OK, set.clone()).await;
    let issuers = vec![url_issuer(&server), file_issuer(file.path())];
    let config = AuthConfig::of_issuers(issuers);
    let checked = Authenticator::check_files(&config).await.unwrap_err();
    let started = authenticator(file_issuer(file.path()), &TestClock::at(NOW)).await;
    assert_eq!(checked.to_string(), started.err().unwrap().to_string());
    std::fs::write(&file, set).unwrap();
    Authenticator::check_files(&config).await.unwrap();
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn an_answer_that_is_too_large_or_points_elsewhere_is_not_a_key_set() {
    let key = TestKey::ed25519();
    let set = key_set(&[key.jwk("k")]);
    let padded = |length: usize| format!("{set}{}", " ".repeat(length - set.len()));
    let server = KeyServer::start(StatusCode::OK, padded(1024 * 1024)).await;
    let authenticator = authenticator(url_issuer(&server), &TestClock::at(NOW))
        .await
        .unwrap();
    authenticator.caller(&good(&key, "k")).await.unwrap();

    server.answer_with(StatusCode::OK, padded(1024 * 1024 + 1));
    let error = authenticator.keys.refresh(0).await.unwrap_err();
    assert!(matches!(error, KeySetError::TooLarge), "{error}");

    server.answer_with(StatusCode::FOUND, set);
    let before = server.requests();
    let error = authenticator.keys.refresh(0).await.unwrap_err();
    assert!(matches!(error, KeySetError::Status(302)), "{error}");
    assert_eq!(
        server.requests(),
        before + 1,
        "the redirect is not followed"
    );
}
