//! Tests of the settings.

use serde_json::json;

use super::*;

fn issuer() -> IssuerConfig {
    IssuerConfig::new(
        "https://issuer.example",
        "wardgate",
        JwksSource::Url("https://issuer.example/keys".to_owned()),
    )
}

fn problem(change: impl FnOnce(&mut IssuerConfig)) -> String {
    let mut issuer = issuer();
    change(&mut issuer);
    AuthConfig::of_issuers(vec![issuer])
        .validate()
        .unwrap_err()
        .to_string()
}

#[test]
fn the_least_that_can_be_written_gets_the_defaults() {
    let written = json!({ "issuers": [{
        "issuer": "https://issuer.example",
        "audience": "wardgate",
        "jwks": { "url": "https://issuer.example/keys" },
    }]});
    let config: AuthConfig = serde_json::from_value(written).unwrap();
    assert_eq!(config.issuers, [issuer()]);
    config.validate().unwrap();
    let dumped = serde_json::to_value(&config).unwrap();
    assert_eq!(
        serde_json::from_value::<AuthConfig>(dumped).unwrap(),
        config
    );
}

#[test]
fn a_key_set_is_in_a_file_or_at_a_url_not_both_and_not_neither() {
    for jwks in [
        json!({}),
        json!({ "file": "keys.json", "url": "https://issuer.example/keys" }),
    ] {
        let error = serde_json::from_value::<JwksSource>(jwks).unwrap_err();
        assert_eq!(
            error.to_string(),
            "jwks requires exactly one of `file` and `url`"
        );
    }
}

#[test]
fn an_unknown_field_is_an_error() {
    let written = json!({ "issuers": [], "anonymous": true });
    assert!(serde_json::from_value::<AuthConfig>(written).is_err());
}

#[test]
fn no_issuer_is_an_error() {
    let error = AuthConfig::default().validate().unwrap_err();
    assert_eq!(
        error.to_string(),
        "auth.issuers is empty; add at least one token issuer, or set auth.api_keys to a file"
    );
}

#[test]
fn several_issuers_must_say_which_roles_each_may_give() {
    let mut other = issuer();
    other.issuer = "https://other.example".to_owned();
    let issuers = vec![issuer(), other];
    let error = AuthConfig::of_issuers(issuers)
        .validate()
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("auth.issuers[0].roles is missing"),
        "{error}"
    );
}

#[test]
fn issuers_name_different_people_unless_they_say_that_they_name_the_same() {
    let of_prefixes = |prefixes: &[Option<&str>]| {
        let issuers = prefixes.iter().enumerate().map(|(index, prefix)| {
            let mut issuer = issuer();
            issuer.issuer = format!("https://{index}.example");
            issuer.roles = Some(BTreeSet::new());
            issuer.subject_prefix = prefix.map(ToOwned::to_owned);
            issuer
        });
        AuthConfig::of_issuers(issuers.collect())
    };
    let problem = |prefixes: &[Option<&str>]| {
        let checked = of_prefixes(prefixes).validate();
        checked.unwrap_err().to_string()
    };
    let error = problem(&[None, None]);
    assert!(
        error.starts_with("auth.issuers[1].subject_prefix is missing"),
        "{error}"
    );
    let error = problem(&[None, Some("partner:x:"), Some("partner:")]);
    assert!(
        error.starts_with(
            "auth.issuers[2].subject_prefix is the beginning of the prefix of another"
        ),
        "{error}"
    );
    let error = problem(&[Some("a\u{200b}:")]);
    assert!(error.contains("subject_prefix is not at most"), "{error}");
    of_prefixes(&[Some(""), Some("")]).validate().unwrap();
    of_prefixes(&[Some("a:"), Some("a:")]).validate().unwrap();

    let config = of_prefixes(&[None, Some("partner:"), Some("")]);
    config.validate().unwrap();
    let subject = |issuer: usize, name| config.subject(&config.issuers[issuer], name);
    assert_eq!(subject(0, "ada").as_deref(), Some("ada"));
    assert_eq!(subject(2, "ada").as_deref(), Some("ada"));
    assert_eq!(subject(1, "ada").as_deref(), Some("partner:ada"));
    assert_eq!(subject(0, "partner:ada"), None, "whom the other one names");
}

#[test]
fn an_issuer_listed_twice_is_an_error() {
    let mut twice = issuer();
    twice.roles = Some(BTreeSet::new());
    let issuers = vec![twice.clone(), twice];
    let error = AuthConfig::of_issuers(issuers).validate().unwrap_err();
    assert_eq!(
        error.to_string(),
        "auth.issuers[1].issuer is listed twice; list each issuer once"
    );
}

#[test]
fn every_bad_field_is_named_with_what_to_set() {
    let cases: [(&str, String); 12] = [
        (
            "issuers[0].issuer is not an absolute URL",
            problem(|i| i.issuer = "hospital".to_owned()),
        ),
        (
            "audience is empty",
            problem(|i| i.audience = Some(String::new())),
        ),
        (
            "jwks.file is empty",
            problem(|i| i.jwks = Some(JwksSource::File(PathBuf::new()))),
        ),
        (
            "roles_claim is not a claim",
            problem(|i| i.roles_claim.clear()),
        ),
        (
            "tenant_claim is not a claim",
            problem(|i| i.tenant_claim = Some("a\"b".to_owned())),
        ),
        (
            "attributes `the ward`: is not an attribute name",
            problem(|i| i.attributes = [("the ward".to_owned(), "ward".to_owned())].into()),
        ),
        (
            "attributes `ward`: is not a claim",
            problem(|i| i.attributes = [("ward".to_owned(), String::new())].into()),
        ),
        (
            "leeway_seconds is 31; set it between 0 and 30",
            problem(|i| i.leeway_seconds = 31),
        ),
        (
            "refresh_seconds is 0; set it between 1 and 3600",
            problem(|i| i.refresh_seconds = 0),
        ),
        (
            "key_ttl_seconds is 49; set it between 50",
            problem(|i| i.key_ttl_seconds = 49),
        ),
        (
            "issuer is plain http to another machine",
            problem(|i| {
                i.issuer = "http://issuer.example".to_owned();
                i.jwks = None;
            }),
        ),
        (
            "jwks.url has the scheme `file`",
            problem(|i| i.jwks = Some(JwksSource::Url("file:///keys".to_owned()))),
        ),
    ];
    for (expected, message) in cases {
        assert!(message.contains(expected), "{expected:?} in {message:?}");
    }
}

#[test]
fn plain_http_reaches_only_this_machine() {
    for good in [
        "https://issuer.example/keys",
        "http://127.0.0.1:8080/keys",
        "http://127.9.9.9/keys",
        "http://[::1]/keys",
        "http://localhost/keys",
    ] {
        protected_url(good).unwrap();
    }
    for bad in [
        "http://issuer.example/keys",
        "http://10.0.0.1/keys",
        "http://localhost.example/keys",
        "http://127.0.0.1.example/keys",
        "http://[::ffff:10.0.0.1]/keys",
        "https://user:secret@issuer.example/keys",
        "ftp://issuer.example/keys",
        "/keys",
    ] {
        protected_url(bad).unwrap_err();
    }
}
