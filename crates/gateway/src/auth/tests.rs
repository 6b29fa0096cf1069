use std::path::Path;
use std::time::Duration;

use aws_lc_rs::hmac;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header::AUTHORIZATION};
use serde_json::{Value, json};
use wardgate_domain::AttributeValue;

use super::testing::{FakeClock, KeyServer, NOW, TestKey, encode, key_set, message};
use super::*;

const ISSUER: &str = "https://issuer.example";
const AUDIENCE: &str = "wardgate";

fn claims() -> Value {
    json!({
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "dr.yenji",
        "iat": NOW - 60,
        "nbf": NOW - 60,
        "exp": NOW + 600,
        "jti": "t-1",
        "roles": ["Doctor"],
    })
}

fn claims_with(name: &str, value: impl Into<Value>) -> Value {
    let mut claims = claims();
    claims[name] = value.into();
    claims
}

fn claims_without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

fn header(algorithm: &str, key: &str) -> Value {
    json!({ "alg": algorithm, "typ": "JWT", "kid": key })
}

fn header_with(name: &str, value: impl Into<Value>) -> Value {
    let mut header = header("EdDSA", "ed");
    header[name] = value.into();
    header
}

/// An issuer with a key of each kind, in a file.
struct Issuer {
    ed: TestKey,
    ec: TestKey,
    rsa: TestKey,
    clock: Arc<FakeClock>,
    authenticator: Authenticator,
    _keys: tempfile::NamedTempFile,
}

impl Issuer {
    async fn new() -> Self {
        Self::with_rules(|_| ()).await
    }

    async fn with_rules(change: impl FnOnce(&mut IssuerConfig)) -> Self {
        let (ed, ec, rsa) = (TestKey::ed25519(), TestKey::p256(), TestKey::rsa());
        let mut pss = rsa.jwk("pss");
        pss["alg"] = "PS256".into();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            &file,
            key_set(&[ed.jwk("ed"), ec.jwk("ec"), rsa.jwk("rsa"), pss]),
        )
        .unwrap();
        let mut config = file_issuer(file.path());
        change(&mut config);
        let clock = FakeClock::at(NOW);
        let authenticator = authenticator(config, &clock).await.unwrap();
        Self {
            ed,
            ec,
            rsa,
            clock,
            authenticator,
            _keys: file,
        }
    }

    fn token(&self, claims: impl ToString) -> String {
        self.ed.token(header("EdDSA", "ed"), claims)
    }

    async fn caller_of(&self, claims: impl ToString) -> Result<Arc<Caller>, TokenRefusal> {
        self.authenticator.caller(&self.token(claims)).await
    }

    async fn reason(&self, token: &str) -> &'static str {
        self.authenticator
            .caller(token)
            .await
            .map_or_else(|refusal| refusal.reason(), |_| "accepted")
    }
}

fn file_issuer(path: &Path) -> IssuerConfig {
    IssuerConfig::new(ISSUER, AUDIENCE, JwksSource::File(path.to_owned()))
}

fn url_issuer(server: &KeyServer) -> IssuerConfig {
    IssuerConfig::new(ISSUER, AUDIENCE, JwksSource::Url(server.url.clone()))
}

async fn authenticator(
    config: IssuerConfig,
    clock: &Arc<FakeClock>,
) -> Result<Authenticator, Error> {
    Authenticator::new(
        AuthConfig {
            issuers: vec![config],
        },
        clock.ambient(),
    )
    .await
}

/// A good token by `key`.
fn good(key: &TestKey, id: &str) -> String {
    key.token(header("EdDSA", id), claims())
}

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
        // `exp` and the leeway.
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
#[expect(clippy::too_many_lines, reason = "a table reads best in one piece")]
async fn every_bad_token_is_refused_with_its_reason() {
    let issuer = Issuer::new().await;
    let (ed, ec, rsa) = (&issuer.ed, &issuer.ec, &issuer.rsa);
    let good = issuer.token(claims());
    let parts: Vec<_> = good.split('.').collect();
    let (head, body, signature) = (parts[0], parts[1], parts[2]);
    let hs256 = |header: Value, secret: &[u8]| {
        let message = message(&header, &claims());
        let tag = hmac::sign(
            &hmac::Key::new(hmac::HMAC_SHA256, secret),
            message.as_bytes(),
        );
        format!("{message}.{}", encode(tag.as_ref()))
    };
    let signed_by = |key: &TestKey, header: Value| key.token(header, claims());
    let ed_header = |name: &str, value: Value| ed.token(header_with(name, value), claims());
    let claim = |name: &str, value: Value| issuer.token(claims_with(name, value));
    let missing = |name: &str| issuer.token(claims_without(name));
    let raw = |payload: &str| issuer.token(payload);
    let duplicated = |first: &str| {
        claims()
            .to_string()
            .replacen('{', &format!("{{{first},"), 1)
    };

    let mut cases: Vec<(String, String, &str)> = Vec::new();
    let mut case = |what: &str, token: String, reason| cases.push((what.to_owned(), token, reason));

    for casing in [
        "none", "None", "NONE", "nOnE", "noNe", "nonE", "NoNe", "nONE", "NONe", "NOne", "nONe",
        "noNE", "NonE", "nOne", "NoNE", "NOnE", "none ", " none", "",
    ] {
        let unsigned = message(&json!({ "alg": casing, "kid": "ed" }), &claims());
        case("alg none", format!("{unsigned}."), "algorithm_refused");
        case(
            "alg none, signed",
            ed_header("alg", casing.into()),
            "algorithm_refused",
        );
    }
    case(
        "alg is absent",
        ed.token(json!({ "kid": "ed" }), claims()),
        "algorithm_refused",
    );
    case(
        "alg is null",
        ed_header("alg", Value::Null),
        "token_malformed",
    );
    case(
        "alg is a list",
        ed_header("alg", json!(["EdDSA"])),
        "token_malformed",
    );
    case(
        "alg in lower case",
        ed_header("alg", "eddsa".into()),
        "algorithm_refused",
    );
    case(
        "HS256 by the RSA public key",
        hs256(header("HS256", "rsa"), &rsa.public_der()),
        "algorithm_refused",
    );
    case(
        "HS256 by the EC public key",
        hs256(header("HS256", "ec"), &ec.public_der()),
        "algorithm_refused",
    );
    case(
        "HS256 by a weak key",
        hs256(header("HS256", "ed"), b"secret"),
        "algorithm_refused",
    );
    case(
        "HS256 by an empty key",
        hs256(header("HS256", "ed"), b""),
        "algorithm_refused",
    );
    case(
        "RS256 header, HMAC by the public key",
        hs256(header("RS256", "rsa"), &rsa.public_der()),
        "signature_invalid",
    );
    case(
        "the alg of another key",
        signed_by(rsa, header("RS256", "ed")),
        "algorithm_refused",
    );
    case(
        "RS384 by an RS256 key",
        signed_by(rsa, header("RS384", "rsa")),
        "algorithm_refused",
    );
    case(
        "PS256 by an RS256 key",
        signed_by(&TestKey::rsa_pss(), header("PS256", "rsa")),
        "algorithm_refused",
    );
    case(
        "RS256 by a PS256 key",
        signed_by(rsa, header("RS256", "pss")),
        "algorithm_refused",
    );
    case(
        "Ed25519 by a key for EdDSA",
        ed_header("alg", "Ed25519".into()),
        "algorithm_refused",
    );

    let es256 = message(&header("ES256", "ec"), &claims());
    case(
        "ES256, zero signature",
        format!("{es256}.{}", encode(&[0; 64])),
        "signature_invalid",
    );
    case(
        "ES256, empty signature",
        format!("{es256}."),
        "signature_invalid",
    );
    case(
        "ES256, signature of ones",
        format!("{es256}.{}", encode(&[0xff; 64])),
        "signature_invalid",
    );
    case(
        "ES256, half a signature",
        format!("{es256}.{}", encode(&[1; 32])),
        "signature_invalid",
    );
    case(
        "EdDSA, zero signature",
        format!("{head}.{body}.{}", encode(&[0; 64])),
        "signature_invalid",
    );
    case(
        "EdDSA, no signature",
        format!("{head}.{body}."),
        "signature_invalid",
    );
    case(
        "another signer with the same kid",
        signed_by(&TestKey::ed25519(), header("EdDSA", "ed")),
        "signature_invalid",
    );
    let other_body = encode(claims_with("sub", "root").to_string().as_bytes());
    case(
        "another payload",
        format!("{head}.{other_body}.{signature}"),
        "signature_invalid",
    );
    let other_head = encode(header_with("typ", "at+jwt").to_string().as_bytes());
    case(
        "another header",
        format!("{other_head}.{body}.{signature}"),
        "signature_invalid",
    );

    for kid in [
        "unknown",
        "",
        "../../../dev/null",
        "/etc/passwd",
        "ed' OR '1'='1",
        "ed; DROP TABLE keys",
        "ED",
        "ed ",
        "%00",
        "|id",
    ] {
        case("kid", ed_header("kid", kid.into()), "key_unknown");
    }
    case(
        "kid of 10 KiB",
        ed_header("kid", "k".repeat(10 * 1024).into()),
        "key_unknown",
    );
    case(
        "kid with NUL",
        ed_header("kid", "ed\0".into()),
        "token_malformed",
    );
    case(
        "kid is a number",
        ed_header("kid", 1.into()),
        "token_malformed",
    );
    case(
        "kid is a list",
        ed_header("kid", json!(["ed"])),
        "token_malformed",
    );
    case(
        "kid is absent",
        ed.token(json!({ "alg": "EdDSA" }), claims()),
        "key_unknown",
    );

    let own_key = TestKey::ed25519();
    case(
        "jwk",
        own_key.token(header_with("jwk", own_key.jwk("ed")), claims()),
        "header_parameter_refused",
    );
    for name in ["jku", "x5u"] {
        case(
            name,
            ed_header(name, "https://attacker.example/keys".into()),
            "header_parameter_refused",
        );
    }
    case(
        "x5c",
        ed_header("x5c", json!(["MIIB"])),
        "header_parameter_refused",
    );
    case(
        "crit",
        ed_header("crit", json!(["exp"])),
        "header_parameter_refused",
    );
    case(
        "crit is empty",
        ed_header("crit", json!([])),
        "header_parameter_refused",
    );
    case(
        "b64",
        ed_header("b64", false.into()),
        "header_parameter_refused",
    );
    case(
        "enc",
        ed_header("enc", "A256GCM".into()),
        "header_parameter_refused",
    );
    case(
        "zip",
        ed_header("zip", "DEF".into()),
        "header_parameter_refused",
    );

    for typ in [
        "id_token+jwt",
        "oauth-id-jag+jwt",
        "dpop+jwt",
        "logout+jwt",
        "JOSE",
        "",
        "at+jwt ",
        "application/",
    ] {
        case("typ", ed_header("typ", typ.into()), "type_refused");
    }
    case(
        "typ is a number",
        ed_header("typ", 1.into()),
        "token_malformed",
    );

    case("expired", claim("exp", (NOW - 10).into()), "token_expired");
    case("expired in 1970", claim("exp", 0.into()), "token_expired");
    case("exp is absent", missing("exp"), "claim_missing");
    case("exp is null", claim("exp", Value::Null), "claim_missing");
    for value in [
        json!((NOW + 600).to_string()),
        json!(-1),
        json!(i64::MIN),
        json!(f64::from(2_000_000_000_u32) + 0.5),
        json!(2e9),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(253_402_300_800_i64),
        json!(true),
        json!([NOW + 600]),
        json!({}),
    ] {
        case("exp", claim("exp", value.clone()), "claim_invalid");
        case("nbf", claim("nbf", value.clone()), "claim_invalid");
        case("iat", claim("iat", value), "claim_invalid");
    }
    let two_to_the_64 = claims()
        .to_string()
        .replace(&(NOW + 600).to_string(), "18446744073709551616");
    case("exp is 2^64", raw(&two_to_the_64), "claim_invalid");
    let huge = claims()
        .to_string()
        .replace(&(NOW + 600).to_string(), "1e400");
    case("exp is no number that fits", raw(&huge), "token_malformed");
    case(
        "nbf in the future",
        claim("nbf", (NOW + 11).into()),
        "token_not_yet_valid",
    );
    case(
        "iat in the future",
        claim("iat", (NOW + 11).into()),
        "token_not_yet_valid",
    );

    for audience in [
        "other",
        "wardgate ",
        "wardgat",
        "wardgate2",
        "Wardgate",
        "https://wardgate",
        "",
    ] {
        case("aud", claim("aud", audience.into()), "audience_refused");
        case(
            "aud in a list",
            claim("aud", json!([audience])),
            "audience_refused",
        );
    }
    case(
        "aud is an empty list",
        claim("aud", json!([])),
        "audience_refused",
    );
    case("aud is absent", missing("aud"), "claim_missing");
    for value in [
        json!({ AUDIENCE: true }),
        json!([AUDIENCE, 1]),
        json!([[AUDIENCE]]),
        json!(1),
        json!(true),
    ] {
        case("aud", claim("aud", value), "claim_invalid");
    }

    for wrong in [
        "https://issuer.example/",
        "https://ISSUER.example",
        "http://issuer.example",
        "https://issuer.example.attacker.example",
        "",
    ] {
        case("iss", claim("iss", wrong.into()), "issuer_refused");
    }
    case("iss is absent", missing("iss"), "claim_missing");
    case(
        "iss is a list",
        claim("iss", json!([ISSUER])),
        "claim_invalid",
    );

    case("sub is absent", missing("sub"), "claim_missing");
    for value in [
        json!(""),
        json!("a\nb"),
        json!("a\u{7f}b"),
        json!("a\u{85}b"),
        json!("s".repeat(257)),
        json!(7),
        json!(["a"]),
    ] {
        case("sub", claim("sub", value.clone()), "claim_invalid");
        case("jti", claim("jti", value), "claim_invalid");
    }
    case(
        "sub with NUL",
        claim("sub", "a\0b".into()),
        "token_malformed",
    );
    let roles: Vec<_> = (0..257).map(|number| format!("r{number}")).collect();
    for value in [
        json!(7),
        json!({ "Doctor": true }),
        json!(["Doctor", 7]),
        json!([""]),
        json!(["a\tb"]),
        json!(roles),
    ] {
        case("roles", claim("roles", value), "claim_invalid");
    }

    for twice in [
        r#""sub":"root""#,
        r#""exp":99999999999"#,
        r#""aud":"other""#,
        r#""iss":"x""#,
        r#""s\u0075b":"root""#,
    ] {
        case("a claim twice", raw(&duplicated(twice)), "token_malformed");
    }
    case(
        "a deep claim twice",
        claim_text(&issuer, r#"{"a":1,"a":2}"#),
        "token_malformed",
    );
    let header_twice = r#"{"alg":"none","alg":"EdDSA","kid":"ed"}"#;
    case(
        "alg twice",
        ed.token(header_twice, claims()),
        "token_malformed",
    );
    for payload in ["[]", "null", "\"text\"", "", "{", "{}x", "\u{feff}{}"] {
        case("payload", raw(payload), "token_malformed");
    }
    case(
        "payload is a token (nested)",
        ed.token(header_with("cty", "JWT"), &good),
        "token_malformed",
    );
    case(
        "deep payload",
        claim_text(
            &issuer,
            &format!("{}{}", "[".repeat(5000), "]".repeat(5000)),
        ),
        "token_malformed",
    );

    case("empty", String::new(), "token_malformed");
    for parts in ["..", ".", "a.b", "...", "a.b.c", "{}.{}.{}"] {
        case("parts", parts.to_owned(), "token_malformed");
    }
    case(
        "JWE of five parts",
        format!("{head}.{body}.{body}.{body}.{signature}"),
        "token_malformed",
    );
    case("an extra dot behind", format!("{good}."), "token_malformed");
    case("an extra dot before", format!(".{good}"), "token_malformed");
    case("two parts", format!("{head}.{body}"), "token_malformed");
    case("padding", format!("{good}=="), "token_malformed");
    case(
        "padding within",
        format!("{head}=.{body}.{signature}"),
        "token_malformed",
    );
    case("space", format!(" {good}"), "token_malformed");
    case("line break", format!("{good}\n"), "token_malformed");
    case(
        "JSON serialization",
        json!({ "payload": body, "signature": signature, "protected": head }).to_string(),
        "token_malformed",
    );
    let standard_alphabet = format!("{head}.{body}.{}", "+/".repeat(43));
    case(
        "base64 that is not base64url",
        standard_alphabet,
        "token_malformed",
    );
    // 64 bytes end in a character with four unused bits: 'A' ends in zeros, 'B' spells the same bytes.
    let zeros = encode(&[0; 64]);
    case(
        "non-canonical base64url",
        format!("{head}.{body}.{}B", &zeros[..85]),
        "token_malformed",
    );

    case(
        "16 KiB and a byte",
        "a".repeat(16 * 1024 + 1),
        "token_too_long",
    );
    case(
        "64 KiB",
        claim("padding", "p".repeat(64 * 1024).into()),
        "token_too_long",
    );

    for (what, token, reason) in &cases {
        assert_eq!(issuer.reason(token).await, *reason, "{what}: {token}");
    }
    assert_eq!(issuer.reason(&good).await, "accepted");
}

/// A token with a claim of just that text.
fn claim_text(issuer: &Issuer, value: &str) -> String {
    issuer.token(
        claims_with("extra", "?")
            .to_string()
            .replace("\"?\"", value),
    )
}

#[tokio::test]
async fn no_token_with_a_changed_character_is_accepted() {
    let issuer = Issuer::new().await;
    let good = issuer.token(claims());
    for index in 0..good.len() {
        for other in ["A", "B", "_", "."] {
            let mut changed = good.clone();
            changed.replace_range(index..=index, other);
            if changed != good {
                assert_ne!(
                    issuer.reason(&changed).await,
                    "accepted",
                    "{other} at {index}"
                );
            }
        }
    }
}

#[tokio::test]
async fn no_refusal_repeats_the_token() {
    let issuer = Issuer::new().await;
    for token in [
        issuer.token(claims_with("sub", "secret\n")),
        issuer.token(claims_with("iss", "secret")),
        issuer.ed.token(header_with("kid", "secret"), claims()),
        issuer.ed.token(header_with("alg", "secret"), claims()),
    ] {
        let refusal = issuer.authenticator.caller(&token).await.unwrap_err();
        assert!(!refusal.description().contains("secret"), "{refusal:?}");
        assert!(
            !refusal.description().contains(['"', '\\']),
            "{refusal:?} fits a quoted string"
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
        &Digest::of(token.as_bytes()).to_string()[..32]
    );
}

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
        issuer
    });
    let config = AuthConfig {
        issuers: issuers.into(),
    };
    let authenticator = Authenticator::new(config, FakeClock::at(NOW).ambient())
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
    let authenticator = authenticator(file_issuer(file.path()), &FakeClock::at(NOW))
        .await
        .unwrap();
    authenticator
        .caller(&key.token(json!({ "alg": "EdDSA" }), claims()))
        .await
        .unwrap();
}

#[tokio::test]
async fn the_token_comes_from_the_one_authorization_header() {
    let issuer = Issuer::new().await;
    let mut headers = HeaderMap::new();
    let missing = issuer
        .authenticator
        .caller_of_request(&headers)
        .await
        .unwrap_err();
    assert_eq!(missing, TokenRefusal::TokenMissing);
    let value = HeaderValue::from_str(&format!("Bearer {}", issuer.token(claims()))).unwrap();
    headers.insert(AUTHORIZATION, value.clone());
    assert_eq!(
        issuer
            .authenticator
            .caller_of_request(&headers)
            .await
            .unwrap()
            .subject(),
        "dr.yenji"
    );
    headers.append(AUTHORIZATION, value);
    let repeated = issuer
        .authenticator
        .caller_of_request(&headers)
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

// === the cache ===

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
    issuer.clock.advance(609);
    let within_leeway = issuer.authenticator.caller(&token).await.unwrap();
    assert!(Arc::ptr_eq(&first, &within_leeway));
    issuer.clock.advance(1);
    assert_eq!(issuer.reason(&token).await, "token_expired");
}

#[tokio::test]
async fn a_refusal_is_not_cached() {
    let issuer = Issuer::new().await;
    let token = issuer.token(claims_with("nbf", NOW + 60));
    assert_eq!(issuer.reason(&token).await, "token_not_yet_valid");
    issuer.clock.advance(60);
    assert_eq!(issuer.reason(&token).await, "accepted");
}

#[tokio::test]
async fn a_cached_token_goes_with_its_key() {
    let (old, new) = (TestKey::ed25519(), TestKey::ed25519());
    let server = KeyServer::start(StatusCode::OK, key_set(&[old.jwk("old"), new.jwk("new")])).await;
    let authenticator = authenticator(url_issuer(&server), &FakeClock::at(NOW))
        .await
        .unwrap();
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
    let server = KeyServer::start(StatusCode::OK, key_set(&[old.jwk("k")])).await;
    let authenticator = authenticator(url_issuer(&server), &FakeClock::at(NOW))
        .await
        .unwrap();
    let token = good(&old, "k");
    authenticator.caller(&token).await.unwrap();
    server.answer_with(StatusCode::OK, key_set(&[new.jwk("k")]));
    authenticator.keys.refresh(0).await.unwrap();
    assert_eq!(
        authenticator.caller(&token).await.unwrap_err(),
        TokenRefusal::SignatureInvalid
    );
}

// === rotation ===

#[tokio::test]
async fn a_new_key_is_read_with_its_first_token() {
    let (old, new) = (TestKey::ed25519(), TestKey::ed25519());
    let server = KeyServer::start(StatusCode::OK, key_set(&[old.jwk("old")])).await;
    let authenticator = authenticator(url_issuer(&server), &FakeClock::at(NOW))
        .await
        .unwrap();
    server.answer_with(StatusCode::OK, key_set(&[old.jwk("old"), new.jwk("new")]));
    authenticator.caller(&good(&new, "new")).await.unwrap();
    authenticator.caller(&good(&old, "old")).await.unwrap();
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn unknown_keys_cause_at_most_one_reading_in_ten_seconds() {
    let key = TestKey::ed25519();
    let server = KeyServer::start(StatusCode::OK, key_set(&[key.jwk("k")])).await;
    let clock = FakeClock::at(NOW);
    let authenticator = authenticator(url_issuer(&server), &clock).await.unwrap();
    for (advance, requests) in [
        (0, 2),
        (0, 2),
        (9, 2),
        (1, 3),
        (9, 3),
        (1, 4),
        (-3600, 5),
        (0, 5),
    ] {
        clock.advance(advance);
        let unknown = authenticator
            .caller(&good(&key, "unknown"))
            .await
            .unwrap_err();
        assert_eq!(unknown, TokenRefusal::KeyUnknown);
        assert_eq!(server.requests(), requests, "{advance} s later");
    }
    let oversized = good(&key, &"k".repeat(257));
    clock.advance(60);
    assert_eq!(
        authenticator.caller(&oversized).await.unwrap_err(),
        TokenRefusal::KeyUnknown
    );
    assert_eq!(server.requests(), 5, "no issuer has such a key id");
}

#[tokio::test]
async fn many_unknown_keys_at_once_share_one_reading() {
    let (old, new) = (TestKey::ed25519(), TestKey::ed25519());
    let server = KeyServer::start(StatusCode::OK, key_set(&[old.jwk("old")])).await;
    let authenticator = Arc::new(
        authenticator(url_issuer(&server), &FakeClock::at(NOW))
            .await
            .unwrap(),
    );
    server.answer_with(StatusCode::OK, key_set(&[new.jwk("new")]));
    server.hold();
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
    let server = KeyServer::start(StatusCode::OK, key_set(&[old.jwk("old")])).await;
    let authenticator = Arc::new(
        authenticator(url_issuer(&server), &FakeClock::at(NOW))
            .await
            .unwrap(),
    );
    server.answer_with(StatusCode::OK, key_set(&[new.jwk("new")]));
    server.hold();
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
    let clock = FakeClock::at(NOW);
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
    clock.advance(300);
    authenticator.caller(&token).await.unwrap();
    clock.advance(1);
    assert_eq!(
        authenticator.caller(&token).await.unwrap_err(),
        TokenRefusal::KeysUnavailable,
        "cached or not"
    );
    let not_ready = Readiness::NotReady(format!("no usable key set of the issuer {ISSUER}"));
    assert_eq!(*authenticator.readiness().borrow(), not_ready);

    server.answer_with(StatusCode::OK, key_set(&[key.jwk("k")]));
    clock.advance(10);
    authenticator.caller(&token).await.unwrap();
    assert!(authenticator.readiness().borrow().is_ready());
}

#[tokio::test]
async fn an_issuer_that_withdraws_its_only_key_is_believed() {
    let key = TestKey::ed25519();
    let server = KeyServer::start(StatusCode::OK, key_set(&[key.jwk("k")])).await;
    let clock = FakeClock::at(NOW);
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
    let authenticator = authenticator(url_issuer(&server), &FakeClock::at(NOW))
        .await
        .unwrap();
    let mut readiness = authenticator.readiness();
    assert!(!readiness.borrow().is_ready());
    server.answer_with(StatusCode::OK, key_set(&[key.jwk("k")]));
    let ready = readiness.wait_for(Readiness::is_ready);
    tokio::time::timeout(Duration::from_secs(30), ready)
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
    let authenticator = authenticator(config, &FakeClock::at(NOW)).await.unwrap();
    let token = good(&old, "old");
    authenticator.caller(&token).await.unwrap();
    server.answer_with(StatusCode::OK, key_set(&[new.jwk("new")]));
    // The third reading begins after the second, the first that gets the new set, was taken in.
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
    let authenticator = authenticator(file_issuer(file.path()), &FakeClock::at(NOW))
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

#[tokio::test]
async fn a_file_that_cannot_be_used_stops_the_start_with_its_name() {
    let clock = FakeClock::at(NOW);
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display().to_string();
    let symmetric = key_set(&[json!({ "kty": "oct", "k": "c2VjcmV0" })]);
    let huge = " ".repeat(1024 * 1024 + 1);
    for (content, problem) in [
        (symmetric.as_str(), "it holds a symmetric key"),
        ("", "it is not a JSON Web Key Set"),
        (r#"{"keys": []}"#, "it holds no usable signature key"),
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
async fn an_answer_that_is_too_large_or_points_elsewhere_is_not_a_key_set() {
    let key = TestKey::ed25519();
    let set = key_set(&[key.jwk("k")]);
    let padded = |length: usize| format!("{set}{}", " ".repeat(length - set.len()));
    let server = KeyServer::start(StatusCode::OK, padded(1024 * 1024)).await;
    let authenticator = authenticator(url_issuer(&server), &FakeClock::at(NOW))
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
