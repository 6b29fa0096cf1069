//! The audience of a token (the whole gateway by its name, or one resource by its URL) and its scopes.

use super::*;

const PUBLIC: &str = "https://mcp.example";

/// Creates an authenticator for resources below [`PUBLIC`], and an issuer of tokens for them.
async fn among_resources(
    change: impl FnOnce(&mut IssuerConfig),
) -> (
    TestKey,
    Result<Authenticator, Error>,
    tempfile::NamedTempFile,
) {
    let key = TestKey::ed25519();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, key_set(&[key.jwk("ed")])).unwrap();
    let mut issuer = file_issuer(file.path());
    change(&mut issuer);
    let config = AuthConfig::of_issuers(vec![issuer]);
    let ambient = TestClock::at(NOW).ambient();
    let authenticator = Authenticator::new(config, Some(PUBLIC), ambient).await;
    (key, authenticator, file)
}

fn token(key: &TestKey, name: &str, value: impl Into<Value>) -> String {
    key.token(header("EdDSA", "ed"), claims_with(name, value))
}

#[tokio::test]
async fn a_token_for_a_resource_is_good_there_and_nowhere_else() {
    let (key, authenticator, _file) = among_resources(|issuer| issuer.audience = None).await;
    let authenticator = authenticator.unwrap();
    let mcp = ["/mcp"].as_slice();
    let upstream = ["/mcp/upstream/one", "/mcp"].as_slice();
    for (audience, paths, good) in [
        (json!("https://mcp.example/mcp"), mcp, true),
        (json!("https://mcp.example/mcp"), upstream, true),
        (
            json!("https://mcp.example/mcp/upstream/one"),
            upstream,
            true,
        ),
        (json!("https://mcp.example/mcp/upstream/one"), mcp, false),
        (
            json!("https://mcp.example/mcp/upstream/on"),
            upstream,
            false,
        ),
        (
            json!("https://mcp.example/mcp/upstream/one/"),
            upstream,
            false,
        ),
        (
            json!(["https://other.example", "https://mcp.example/mcp"]),
            mcp,
            true,
        ),
        (json!("https://mcp.example"), mcp, false),
        (json!("https://mcp.example/mcp/"), mcp, false),
        (json!("https://MCP.example/mcp"), mcp, false),
        (json!("http://mcp.example/mcp"), mcp, false),
        (json!("https://mcp.example.evil/mcp"), mcp, false),
        (json!("/mcp"), mcp, false),
        (json!(AUDIENCE), mcp, false),
    ] {
        let token = token(&key, "aud", audience.clone());
        // The second time checks that a cached token is accepted for no more than its audience.
        for _ in 0..2 {
            let verified = authenticator.verify(&token, paths).await;
            let refused = verified.err();
            let expected = (!good).then_some(TokenRefusal::AudienceRefused);
            assert_eq!(refused, expected, "{audience} at {paths:?}");
        }
    }
}

#[tokio::test]
async fn an_audience_by_name_is_good_everywhere_beside_resources() {
    let (key, authenticator, _file) = among_resources(|_| {}).await;
    let authenticator = authenticator.unwrap();
    for audience in [AUDIENCE, "https://mcp.example/mcp"] {
        let token = token(&key, "aud", audience);
        authenticator.verify(&token, &["/mcp"]).await.unwrap();
    }
}

#[tokio::test]
async fn without_resources_an_issuer_needs_an_audience() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut issuer = file_issuer(file.path());
    issuer.audience = None;
    let refused = super::authenticator(issuer, &TestClock::at(NOW))
        .await
        .err();
    let told = refused.unwrap().to_string();
    assert!(
        told.starts_with("auth.issuers[0].audience is missing"),
        "{told}"
    );
}

#[tokio::test]
async fn scopes_are_read_in_either_spelling() {
    let (key, authenticator, _file) = among_resources(|_| {}).await;
    let authenticator = authenticator.unwrap();
    for (claim, value, expected) in [
        ("scope", json!("mcp records.read"), "mcp records.read"),
        ("scope", json!(" records.read  mcp mcp"), "mcp records.read"),
        ("scope", json!(""), ""),
        ("scp", json!(["mcp", "a"]), "a mcp"),
        ("scp", json!("mcp a"), "a mcp"),
        ("other", json!("mcp"), ""),
    ] {
        let token = token(&key, claim, value);
        let verified = authenticator.verify(&token, &[]).await.unwrap();
        assert_eq!(verified.scopes.to_string(), expected, "{claim}");
    }
    for value in [json!(1), json!([1]), json!(["a\n"]), json!({ "a": 1 })] {
        let token = token(&key, "scope", value);
        let refused = authenticator.verify(&token, &[]).await.unwrap_err();
        assert_eq!(refused, TokenRefusal::invalid_claim("scope"));
    }
}
