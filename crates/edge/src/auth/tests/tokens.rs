//! Valid tokens: the facts that they state, and the header from which they are read.

use super::*;

#[tokio::test]
async fn a_good_token_of_every_kind_of_key_makes_a_caller() {
    let issuer = Issuer::new().await;
    let pss = TestKey::rsa_pss();
    for (key, algorithm, id) in [
        (&issuer.ed, "EdDSA", "ed"),
        (&issuer.ec, "ES256", "ec"),
        (&issuer.rsa, "RS256", "rsa"),
        (&pss, "PS256", "pss"),
    ] {
        let token = key.token(header(algorithm, id), claims());
        let caller = issuer.authenticator.caller(&token).await.unwrap();
        assert_eq!(caller.issuer(), ISSUER, "{algorithm}");
        assert_eq!(caller.subject(), "dr.yenji");
        assert_eq!(caller.roles(), ["Doctor"]);
        assert_eq!(caller.tenant(), "");
        assert_eq!(caller.token_id(), "t-1");
        // The value of `exp` plus the leeway.
        assert_eq!(caller.expires_at().as_seconds(), NOW + 610);
    }
}

#[tokio::test]
async fn what_the_standards_leave_open_is_accepted() {
    let issuer = Issuer::new().await;
    for header in [
        json!({ "alg": "EdDSA", "kid": "ed" }),
        header_with("typ", "at+jwt"),
        header_with("typ", "AT+JWT"),
        header_with("typ", "application/at+jwt"),
        header_with("typ", "jwt"),
        header_with("x5t", "aGFzaA"),
        header_with("issuer_extension", json!({ "any": ["thing"] })),
    ] {
        let token = issuer.ed.token(&header, claims());
        assert_eq!(issuer.reason(&token).await, "accepted", "{header}");
    }
    for claims in [
        claims_with("aud", json!(["other", AUDIENCE])),
        claims_with("iat", NOW + 10),
        claims_with("nbf", NOW + 10),
        claims_with("exp", NOW - 9),
        claims_with("exp", 253_402_300_799_i64),
        claims_without("nbf"),
        claims_without("iat"),
        claims_without("jti"),
        claims_without("roles"),
        claims_with("roles", "Doctor"),
        claims_with("unknown", json!({ "any": [1, 2.5, null] })),
        claims_with("sub", "ü".repeat(256)),
    ] {
        assert_eq!(
            issuer.reason(&issuer.token(&claims)).await,
            "accepted",
            "{claims}"
        );
    }
}

#[tokio::test]
async fn an_access_token_can_be_insisted_on() {
    let issuer = Issuer::with_rules(|rules| rules.token_type = Some(TokenType::AccessToken)).await;
    let access = issuer.ed.token(header_with("typ", "at+jwt"), claims());
    assert_eq!(issuer.reason(&access).await, "accepted");
    assert_eq!(issuer.reason(&issuer.token(claims())).await, "type_refused");
    let untyped = issuer
        .ed
        .token(json!({ "alg": "EdDSA", "kid": "ed" }), claims());
    assert_eq!(issuer.reason(&untyped).await, "type_refused");
}

#[tokio::test]
async fn the_leeway_is_the_configured_one() {
    let issuer = Issuer::with_rules(|rules| rules.leeway_seconds = 0).await;
    assert_eq!(
        issuer.reason(&issuer.token(claims_with("exp", NOW))).await,
        "token_expired"
    );
    assert_eq!(
        issuer
            .reason(&issuer.token(claims_with("exp", NOW + 1)))
            .await,
        "accepted"
    );
    assert_eq!(
        issuer
            .reason(&issuer.token(claims_with("nbf", NOW + 1)))
            .await,
        "token_not_yet_valid"
    );
}

#[tokio::test]
async fn roles_tenant_and_attributes_come_from_the_configured_claims() {
    let issuer = Issuer::with_rules(|rules| {
        rules.roles_claim = "realm_access.roles".to_owned();
        rules.tenant_claim = Some("https://hospital.example/tenant".to_owned());
        rules.attributes = [
            ("ward", "org.ward"),
            ("level", "level"),
            ("staff", "staff"),
            ("teams", "teams"),
            ("desk", "desk"),
        ]
        .map(|(name, claim)| (name.to_owned(), claim.to_owned()))
        .into();
    })
    .await;
    let mut full = claims();
    full["realm_access"] = json!({ "roles": ["Nurse", "Doctor", "Nurse"] });
    full["https://hospital.example/tenant"] = "north".into();
    full["org"] = json!({ "ward": "W2" });
    full["level"] = (-3).into();
    full["staff"] = true.into();
    full["teams"] = json!(["red", "blue"]);
    full["desk"] = Value::Null;
    let caller = issuer.caller_of(&full).await.unwrap();
    assert_eq!(caller.roles(), ["Doctor", "Nurse"]);
    assert_eq!(caller.tenant(), "north");
    let expected = [
        ("level", AttributeValue::Integer(-3)),
        ("staff", AttributeValue::Boolean(true)),
        (
            "teams",
            AttributeValue::List(vec!["red".to_owned(), "blue".to_owned()]),
        ),
        ("ward", AttributeValue::Text("W2".to_owned())),
    ];
    assert_eq!(
        *caller.attributes(),
        expected
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    );

    let mut without_tenant = full.clone();
    without_tenant["https://hospital.example/tenant"] = Value::Null;
    let missing = TokenRefusal::ClaimMissing("https://hospital.example/tenant".to_owned());
    assert_eq!(
        issuer.caller_of(&without_tenant).await.unwrap_err(),
        missing
    );
    for unusable in [
        json!(2.5),
        json!({}),
        json!(["a", 1]),
        json!("l".repeat(1025)),
        json!("a\u{1}"),
        json!(u64::MAX),
    ] {
        let mut bad = full.clone();
        bad["level"] = unusable;
        let invalid = TokenRefusal::ClaimInvalid("level".to_owned());
        assert_eq!(issuer.caller_of(&bad).await.unwrap_err(), invalid, "{bad}");
    }
}

#[tokio::test]
async fn a_token_without_an_id_is_named_by_its_digest() {
    let issuer = Issuer::new().await;
    let token = issuer.token(claims_without("jti"));
    let caller = issuer.authenticator.caller(&token).await.unwrap();
    assert_eq!(
        caller.token_id(),
        &Digest::compute(token.as_bytes()).to_string()[..32]
    );
}

#[tokio::test]
async fn the_token_comes_from_the_one_authorization_header() {
    let issuer = Issuer::new().await;
    let mut headers = HeaderMap::new();
    let missing = issuer
        .authenticator
        .verify_request(&headers, &[])
        .await
        .unwrap_err();
    assert_eq!(missing, TokenRefusal::TokenMissing);
    let value = HeaderValue::from_str(&format!("Bearer {}", issuer.token(claims()))).unwrap();
    headers.insert(AUTHORIZATION, value.clone());
    assert_eq!(
        issuer
            .authenticator
            .verify_request(&headers, &[])
            .await
            .unwrap()
            .caller
            .subject(),
        "dr.yenji"
    );
    headers.append(AUTHORIZATION, value);
    let repeated = issuer
        .authenticator
        .verify_request(&headers, &[])
        .await
        .unwrap_err();
    assert_eq!(repeated, TokenRefusal::AuthorizationRepeated);
}

#[test]
fn each_refusal_has_its_status_and_challenge() {
    let cases = [
        (TokenRefusal::TokenMissing, StatusCode::UNAUTHORIZED, None),
        (TokenRefusal::SchemeRefused, StatusCode::UNAUTHORIZED, None),
        (
            TokenRefusal::AuthorizationRepeated,
            StatusCode::BAD_REQUEST,
            Some("invalid_request"),
        ),
        (
            TokenRefusal::KeysUnavailable,
            StatusCode::SERVICE_UNAVAILABLE,
            None,
        ),
        (
            TokenRefusal::TokenExpired,
            StatusCode::UNAUTHORIZED,
            Some("invalid_token"),
        ),
        (
            TokenRefusal::KeyUnknown,
            StatusCode::UNAUTHORIZED,
            Some("invalid_token"),
        ),
    ];
    for (refusal, status, challenge) in cases {
        assert_eq!(
            (refusal.status(), refusal.challenge_error()),
            (status, challenge),
            "{refusal:?}"
        );
    }
}

#[tokio::test]
async fn the_client_of_a_token_and_who_acts_for_its_caller_are_told() {
    let issuer = Issuer::new().await;
    let caller = issuer.caller_of(claims()).await.unwrap();
    assert_eq!(caller.delegation(), None);
    let act = json!({ "sub": "agent-7", "act": { "sub": "orchestrator", "iss": "https://i" } });
    let mut delegated = claims_with("act", act);
    delegated["azp"] = "chat-app".into();
    let caller = issuer.caller_of(delegated).await.unwrap();
    let delegation = caller.delegation().unwrap();
    assert_eq!(delegation.client, "chat-app");
    assert_eq!(delegation.actors, ["agent-7", "orchestrator"]);
    let deep = (0..9).fold(
        json!({ "sub": "a" }),
        |act, _| json!({ "sub": "a", "act": act }),
    );
    for unreadable in [json!("agent-7"), json!({}), json!({ "sub": 7 }), deep] {
        let refused = issuer.caller_of(claims_with("act", unreadable)).await;
        assert_eq!(refused.unwrap_err(), TokenRefusal::invalid_claim("act"));
    }
}

#[tokio::test]
async fn no_issuer_names_a_person_of_another_one() {
    let key = TestKey::ed25519();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, key_set(&[key.jwk("ed")])).unwrap();
    let of = |issuer: &str, prefix: Option<&str>| IssuerConfig {
        issuer: issuer.to_owned(),
        roles: Some(["Doctor".to_owned()].into()),
        subject_prefix: prefix.map(ToOwned::to_owned),
        ..file_issuer(file.path())
    };
    let partner = "https://partner.example";
    let trusted = AuthConfig::of_issuers(vec![of(ISSUER, None), of(partner, Some("partner:"))]);
    let clock = TestClock::at(NOW);
    let authenticator = Authenticator::new(trusted, None, clock.ambient());
    let authenticator = authenticator.await.unwrap();
    let subject = async |issuer: &str, name: &str| {
        let mut claims = claims();
        (claims["iss"], claims["sub"]) = (issuer.into(), name.into());
        let token = key.token(header("EdDSA", "ed"), claims);
        let caller = authenticator.caller(&token).await?;
        Ok::<_, TokenRefusal>(caller.subject().to_owned())
    };

    assert_eq!(subject(ISSUER, "ada").await.unwrap(), "ada");
    assert_eq!(subject(partner, "ada").await.unwrap(), "partner:ada");
    let refusal = subject(ISSUER, "partner:ada").await.unwrap_err();
    assert_eq!(refusal, TokenRefusal::invalid_claim("sub"));
}
