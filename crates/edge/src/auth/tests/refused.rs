//! Invalid tokens, and the reason for which each is refused.

use super::*;

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table reads best in one piece")]
async fn every_bad_token_is_refused_with_its_reason() {
    let issuer = Issuer::new().await;
    let (ed, ec, rsa) = (&issuer.ed, &issuer.ec, &issuer.rsa);
    let good = issuer.token(claims());
    let parts: Vec<_> = good.split('.').collect();
    let (head, body, signature) = (parts[0], parts[1], parts[2]);
    let hs256 = |header: Value, secret: &[u8]| {
        let message = token_message(&header, &claims());
        let tag = hmac::sign(
            &hmac::Key::new(hmac::HMAC_SHA256, secret),
            message.as_bytes(),
        );
        format!("{message}.{}", base64url(tag.as_ref()))
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
        let unsigned = token_message(&json!({ "alg": casing, "kid": "ed" }), &claims());
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

    let es256 = token_message(&header("ES256", "ec"), &claims());
    case(
        "ES256, zero signature",
        format!("{es256}.{}", base64url(&[0; 64])),
        "signature_invalid",
    );
    case(
        "ES256, empty signature",
        format!("{es256}."),
        "signature_invalid",
    );
    case(
        "ES256, signature of ones",
        format!("{es256}.{}", base64url(&[0xff; 64])),
        "signature_invalid",
    );
    case(
        "ES256, half a signature",
        format!("{es256}.{}", base64url(&[1; 32])),
        "signature_invalid",
    );
    case(
        "EdDSA, zero signature",
        format!("{head}.{body}.{}", base64url(&[0; 64])),
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
    let other_body = base64url(claims_with("sub", "root").to_string().as_bytes());
    case(
        "another payload",
        format!("{head}.{other_body}.{signature}"),
        "signature_invalid",
    );
    let other_head = base64url(header_with("typ", "at+jwt").to_string().as_bytes());
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
    case("exp is no number that fits", raw(&huge), "claim_invalid");
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
        json!("a\u{202e}b"),
        json!("a\u{200b}"),
        json!("\u{feff}a"),
        json!("a\u{2066}b\u{2069}"),
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
        json!(["Doctor\u{200d}"]),
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
    // The encoding of 64 bytes ends in a character with four unused bits. 'A' has zeros there; 'B' would decode to the
    // same bytes.
    let zeros = base64url(&[0; 64]);
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

/// Returns a token in which the JSON text of a claim is `value`.
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
