//! Discovery of the keys through the issuer's own metadata.

use std::collections::BTreeMap;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use super::*;

/// Starts an issuer on loopback that serves these documents. `ISSUER` in a text is replaced by the issuer's URL.
async fn issuer(path: &str, documents: &[(&str, Value)]) -> (TestKey, IssuerConfig, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let issuer = format!("{origin}{path}");
    let key = TestKey::ed25519();
    let mut texts: BTreeMap<String, String> = documents
        .iter()
        .map(|(path, document)| {
            let text = document.to_string();
            ((*path).to_owned(), text.replace("ISSUER", &issuer))
        })
        .collect();
    texts.insert(format!("{path}/keys"), key_set(&[key.jwk("k")]));
    let router = texts
        .into_iter()
        .fold(Router::new(), |router, (path, text)| {
            router.route(&path, get(|| async { text.into_response() }))
        });
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let mut config = IssuerConfig::new(issuer.clone(), AUDIENCE, JwksSource::Url(String::new()));
    config.jwks = None;
    (key, config, issuer)
}

/// Returns whether a token of such an issuer is accepted, or the reason for its refusal.
async fn verdict(path: &str, documents: &[(&str, Value)]) -> &'static str {
    let (key, config, issuer) = issuer(path, documents).await;
    let authenticator = authenticator(config, &TestClock::at(NOW)).await.unwrap();
    let token = key.token(header("EdDSA", "k"), claims_with("iss", issuer));
    let verified = authenticator.caller(&token).await;
    verified.map_or_else(|refusal| refusal.reason().as_str(), |_| "accepted")
}

fn metadata() -> Value {
    json!({ "issuer": "ISSUER", "jwks_uri": "ISSUER/keys" })
}

#[tokio::test]
async fn an_issuer_is_found_by_each_of_the_three_names_of_its_metadata() {
    for (path, document) in [
        ("", "/.well-known/oauth-authorization-server"),
        ("", "/.well-known/openid-configuration"),
        ("/tenant", "/.well-known/oauth-authorization-server/tenant"),
        ("/tenant", "/.well-known/openid-configuration/tenant"),
        ("/tenant", "/tenant/.well-known/openid-configuration"),
    ] {
        let found = verdict(path, &[(document, metadata())]).await;
        assert_eq!(found, "accepted", "{document}");
    }
}

#[tokio::test]
async fn a_page_that_is_no_metadata_hides_none_that_is() {
    let documents = [
        ("/.well-known/oauth-authorization-server", json!("a page")),
        ("/.well-known/openid-configuration", metadata()),
    ];
    assert_eq!(verdict("", &documents).await, "accepted");
}

#[tokio::test]
async fn metadata_of_another_issuer_or_that_leads_astray_is_not_believed() {
    for (member, value) in [
        ("issuer", "ISSUER/"),
        ("issuer", "https://issuer.example"),
        ("jwks_uri", "http://10.0.0.1/keys"),
        ("jwks_uri", "file:///keys"),
        ("jwks_uri", "/keys"),
    ] {
        let mut document = metadata();
        document[member] = value.into();
        let documents = [("/.well-known/oauth-authorization-server", document)];
        assert_eq!(verdict("", &documents).await, "keys_unavailable", "{value}");
    }
    assert_eq!(verdict("", &[]).await, "keys_unavailable");
}
