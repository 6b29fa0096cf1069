//! Tests of `auth` with the samples of the book, and with faulty ones.

use std::collections::BTreeMap;

use serde_json::Value;
use tempfile::TempDir;
use wardgate_testkit::TestKey;

use super::*;
use crate::TOOLS_SCHEMA;
use crate::{Catalogue, FileText, SourceSettings};

fn parse(text: &str) -> Result<Vec<SourceSettings>, String> {
    let directory = TempDir::new().unwrap();
    let key = TestKey::ed25519().private_pem();
    std::fs::write(directory.path().join("client.pem"), key).unwrap();
    let variables = ["PASSWORD", "SECRET", "LISTING_TOKEN"];
    let variables = variables.map(|name| (name.to_owned(), "canary".to_owned()));
    let file = FileText {
        path: directory.path().join("tools.yaml"),
        text: text.to_owned(),
    };
    let parsed = Catalogue::parse(&[file], &BTreeMap::from(variables));
    let catalogue = parsed.map_err(|faults| {
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        faults.join("\n")
    })?;
    let (_, _, sources, _) = catalogue.into_parts();
    Ok(sources)
}

fn sample() -> &'static str {
    let page = include_str!("../../../../../docs/src/connect-a-rest-api.md");
    let (_, section) = page.split_once("### Credentials\n").unwrap();
    let (_, sample) = section.split_once("```yaml\n").unwrap();
    sample.split("```").next().unwrap()
}

#[test]
fn the_samples_of_the_book_are_sources() {
    let sources = parse(sample()).unwrap();
    let auth = |name: &str| {
        let source = sources.iter().find(|source| source.name == name).unwrap();
        let http = source.kind.clone().http_mut().unwrap().clone();
        (http.client.auth, http.listing)
    };
    let AuthSettings::ClientCredentials(ours) = auth("ours").0 else {
        panic!("{:?}", auth("ours"));
    };
    assert!(matches!(ours.proof, ClientProof::Key { .. }));
    let AuthSettings::ClientCredentials(found) = auth("found").0 else {
        panic!("{:?}", auth("found"));
    };
    assert_eq!((found.server.token_url, found.server.issuer), (None, None));
    let service = found.server.service.unwrap();
    assert_eq!(service.as_str(), "https://c.example.com/mcp");
    assert!(matches!(auth("company").0, AuthSettings::Enterprise(_)));
    let (personal, listing) = auth("personal");
    assert!(personal.stand_for_caller());
    assert!(matches!(listing, AuthSettings::Bearer { .. }));
    assert!(!format!("{sources:?}").contains("canary"));
}

#[test]
fn the_schema_takes_the_samples() {
    let sample: Value = wardgate_yaml::parse(sample()).unwrap();
    let schema = serde_json::from_str(TOOLS_SCHEMA).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let faults: Vec<_> = validator
        .iter_errors(&sample)
        .map(|fault| format!("{} {fault}", fault.instance_path()))
        .collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn no_server_chooses_who_gets_a_secret_or_a_callers_token() {
    let schema = serde_json::from_str(TOOLS_SCHEMA).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let identity = "identity_provider: { issuer: 'https://i', client_id: a, client_secret: s }";
    let key = "private_key: \"${file:client.pem}\"";
    for (auth, is_in_schema) in [
        (
            "token_exchange, client_id: a, client_secret: s".to_owned(),
            true,
        ),
        (format!("token_exchange, client_id: a, {key}"), true),
        (
            "client_credentials, client_id: a, client_secret: s".to_owned(),
            true,
        ),
        (
            format!("client_credentials, client_id: a, {key}, assertion_audience: b"),
            true,
        ),
        (
            format!("enterprise_managed, client_id: a, client_secret: s, {identity}"),
            true,
        ),
        (
            format!("enterprise_managed, client_id: a, {key}, audience: b, {identity}"),
            false,
        ),
        (
            "authorization_code, client_id: a, client_secret: s".to_owned(),
            true,
        ),
    ] {
        let source = |more: &str| {
            format!(
                "sources: {{ a: {{ type: mcp, url: 'https://x.example', tools: none, auth: {{ type: {auth}{more} }} }} }}\ntools: []\n"
            )
        };
        let is_schematic = |text: &str| {
            let sources: Value = wardgate_yaml::parse(text).unwrap();
            validator.is_valid(&sources)
        };
        let faults = parse(&source("")).unwrap_err();
        assert!(
            faults.contains("does not specify its authorization server"),
            "{auth}: {faults}"
        );
        assert!(faults.contains("add `token_url`"), "{auth}: {faults}");
        assert_eq!(is_schematic(&source("")), !is_in_schema, "{auth}");
        let named = source(", issuer: 'https://i'");
        assert!(parse(&named).is_ok(), "{auth}");
        assert!(is_schematic(&named), "{auth}");
    }
    for auth in [
        "authorization_code".to_owned(),
        "authorization_code, client_id: a".to_owned(),
        format!("client_credentials, client_id: a, {key}"),
        format!("enterprise_managed, client_id: a, {key}, {identity}"),
    ] {
        let found = format!(
            "sources: {{ a: {{ type: mcp, url: 'https://x.example', tools: none, auth: {{ type: {auth} }} }} }}\ntools: []\n"
        );
        assert_eq!(parse(&found).err(), None, "{auth}");
    }
}

#[test]
fn a_fault_says_what_to_write() {
    for (kind, auth, expected) in [
        (
            "http",
            "client_credentials, client_id: a, client_secret: canary",
            "does not specify its authorization server",
        ),
        (
            "mcp",
            "client_credentials, issuer: 'https://i', client_id: a, client_secret: canary, private_key: canary",
            "keep one of them",
        ),
        (
            "mcp",
            "client_credentials, client_id: a, private_key: canary",
            "`private_key` is not a PEM private key",
        ),
        (
            "mcp",
            "client_credentials, issuer: 'https://i', client_id: a, client_secret: canary, key_id: b",
            "unknown key `key_id`",
        ),
        (
            "mcp",
            "client_credentials, client_id: a, client_secret: canary, issuer: 'https://a?canary'",
            "`issuer`",
        ),
        (
            "mcp",
            "enterprise_managed, issuer: 'https://i', client_id: a, client_secret: canary",
            "`identity_provider`",
        ),
        (
            "mcp",
            "enterprise_managed, issuer: 'https://i', client_id: a, client_secret: canary, subject_token: saml, identity_provider: { issuer: 'https://a', client_id: a, client_secret: canary }",
            "`subject_token`",
        ),
        (
            "mcp",
            "enterprise_managed, issuer: 'https://i', client_id: a, client_secret: canary, identity_provider: { client_id: a, client_secret: canary }",
            "does not specify its authorization server",
        ),
        (
            "mcp",
            "authorization_code, token_url: 'https://a/token'",
            "require each other",
        ),
        (
            "mcp",
            "authorization_code, token_url: 'https://a/token', authorization_url: 'https://a/'",
            "no `client_id`",
        ),
        (
            "http",
            "authorization_code",
            "does not specify its authorization server",
        ),
        ("grpc", "authorization_code, issuer: 'https://a'", "gRPC"),
    ] {
        let url = if kind == "http" { "base_url" } else { "url" };
        let text = format!(
            "sources: {{ a: {{ type: {kind}, {url}: 'https://x.example', auth: {{ type: {auth} }} }} }}\ntools: []\n"
        );
        let faults = parse(&text).unwrap_err();
        assert!(faults.contains(expected), "{auth}: {faults}");
        assert!(!faults.contains("canary"), "{faults}");
        assert_eq!(faults.lines().count(), 1, "{auth}: {faults}");
    }
}
