//! Tests of `private_key_jwt`, with the verification of an authorization server.

use std::collections::BTreeSet;

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use wardgate_testkit::TestKey;

use super::*;

fn create_key_client(world: &World, pair: &TestKey, audience: Option<&str>) -> OAuthClient {
    let pem = Secret::from(pair.private_pem());
    OAuthClient {
        client_id: "runner".to_owned(),
        proof: ClientProof::Key {
            key: ClientKey::from_pem(pem, Some("key-1".to_owned())).unwrap(),
            audience: audience.map(ToOwned::to_owned),
        },
        ..world.oauth()
    }
}

/// Returns the claims of the assertion in `form` after its signature, algorithm, times and audience were verified.
fn verify_assertion(
    form: &BTreeMap<String, String>,
    algorithm: Algorithm,
    pair: &TestKey,
    audience: &str,
) -> Value {
    let public = pair.public_pem();
    let key = match algorithm {
        Algorithm::ES256 => DecodingKey::from_ec_pem(public.as_bytes()),
        Algorithm::RS256 => DecodingKey::from_rsa_pem(public.as_bytes()),
        _ => DecodingKey::from_ed_pem(public.as_bytes()),
    };
    let mut rules = Validation::new(algorithm);
    rules.set_audience(&[audience]);
    rules.set_issuer(&["runner"]);
    // The test has its own clock.
    rules.validate_exp = false;
    let assertion = &form["client_assertion"];
    let token = jsonwebtoken::decode::<Value>(assertion, &key.unwrap(), &rules).unwrap();
    assert_eq!(token.header.kid.as_deref(), Some("key-1"));
    token.claims
}

fn pairs() -> [(Algorithm, TestKey); 3] {
    [
        (Algorithm::ES256, TestKey::p256()),
        (Algorithm::RS256, TestKey::rsa()),
        (Algorithm::EdDSA, TestKey::ed25519()),
    ]
}

#[tokio::test]
async fn a_client_with_a_key_signs_a_short_assertion_for_the_token_endpoint() {
    for (algorithm, pair) in pairs() {
        let world = World::start().await;
        let client = world.client(AuthSettings::ClientCredentials(create_key_client(
            &world, &pair, None,
        )));
        world.call(&client, None).await.unwrap();
        let asked = world.asked.lock().unwrap();
        let form = &asked[0].form;
        // There is neither a secret nor another authentication: RFC 6749 §2.3.
        assert_eq!(asked[0].authorization, "");
        assert!(!form.contains_key("client_secret"));
        assert_eq!(form["client_id"], "runner");
        assert_eq!(
            form["client_assertion_type"],
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        );
        let endpoint = world.token_url().to_string();
        let claims = verify_assertion(form, algorithm, &pair, &endpoint);
        assert_eq!(claims["sub"], "runner");
        assert_eq!(claims["iat"], START);
        assert_eq!(claims["exp"], START + 60);
        assert!(claims["jti"].as_str().unwrap().len() >= 20);
    }
}

#[tokio::test]
async fn each_request_has_an_assertion_of_its_own_and_the_audience_that_is_configured() {
    let world = World::start().await;
    let (algorithm, pair) = &pairs()[0];
    let issuer = "https://id.example.com";
    let auth = AuthSettings::TokenExchange(create_key_client(&world, pair, Some(issuer)));
    let client = world.client(auth);
    for caller in ["ann", "ben"] {
        let call = world.call(&client, Some(token(caller, 600)));
        call.await.unwrap();
    }
    let asked = world.asked.lock().unwrap();
    let ids: BTreeSet<_> = asked
        .iter()
        .map(|asked| verify_assertion(&asked.form, *algorithm, pair, issuer)["jti"].to_string())
        .collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(asked[0].form["subject_token"], "ann");
}

#[test]
fn what_cannot_sign_is_refused_before_it_is_needed() {
    let pair = TestKey::p384();
    let public = TestKey::ed25519().public_pem();
    for pem in [
        pair.private_pem(),
        public,
        "canary".to_owned(),
        String::new(),
    ] {
        let refused = ClientKey::from_pem(Secret::from(pem), None).unwrap_err();
        assert!(!refused.to_string().contains("canary"));
    }
}
