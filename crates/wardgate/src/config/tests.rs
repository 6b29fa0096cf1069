//! Tests of sections and keys, and of the positions of their errors.

use super::*;

fn settings(text: &str) -> Result<Settings, Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wardgate.yaml");
    std::fs::write(&path, text).unwrap();
    Settings::load(&path)
}

#[test]
fn a_section_is_split_between_the_service_and_its_wiring() {
    let settings = settings(
        "audit:\n  store: sqlite:audit.sqlite\n  listen: 127.0.0.1:7003\n  plaintext: true\n  mac_key_file: mac.key\n",
    )
    .unwrap();
    let (config, wiring): (wardgate_audit::Config, ServiceWiring) =
        settings.service("audit").unwrap();
    assert_eq!(
        config.store,
        format!("sqlite:{}", settings.base.join("audit.sqlite").display())
    );
    assert_eq!(wiring.mac_key_file, Some(settings.base.join("mac.key")));
    assert!(wiring.plaintext);
}

#[test]
fn an_unknown_section_or_key_is_named() {
    let error = settings("gatewy: {}\n").unwrap_err().to_string();
    assert!(error.contains("`gatewy`"), "{error}");
    let settings = settings("audit:\n  store: sqlite:x\n  lisen: 127.0.0.1:1\n").unwrap();
    let error = settings
        .service::<wardgate_audit::Config, ServiceWiring>("audit")
        .unwrap_err();
    assert!(error.to_string().contains("unknown key `lisen`"), "{error}");
    let settings = self::settings("audit:\n  database: { pol: 1 }\n").unwrap();
    let error = settings
        .own_settings::<wardgate_audit::Config>("audit", |_| {})
        .unwrap_err()
        .to_string();
    let known = "`database.pol`: unknown key `pol`; known keys are ";
    assert!(error.contains(known), "{error}");
    assert!(!error.contains("``"), "{error}");
}

#[test]
fn what_is_no_yaml_is_refused_with_its_line() {
    let error = settings("gateway: {}\npolicy: [\n")
        .unwrap_err()
        .to_string();
    assert!(error.contains("wardgate.yaml:2:9: "), "{error}");
}

#[test]
fn an_error_names_the_line_and_column_of_its_key() {
    let settings = settings(
        "audit:\n  store: sqlite:x\n  database: { pol: 1 }\nmemory:\n  retention:\n    - 5\ngateway:\n  listen: nowhere\n",
    )
    .unwrap();
    let error = |section: &str| {
        let read = settings.own_settings::<wardgate_audit::Config>(section, |_| {});
        read.unwrap_err().to_string()
    };
    assert!(
        error("audit").contains("wardgate.yaml:3:15: section `audit`"),
        "{}",
        error("audit")
    );
    assert!(
        error("memory").contains("wardgate.yaml:5:3: "),
        "{}",
        error("memory")
    );
    let told = settings.locate_error(
        "gateway",
        &TestError("gateway.listen: `nowhere` is not an address"),
    );
    assert!(
        told.to_string()
            .contains("wardgate.yaml:8:3: gateway.listen"),
        "{told}"
    );
    let told = settings.locate_error("gateway", &TestError("auth.issuers[0].issuer: is empty"));
    assert!(
        told.to_string().contains("wardgate.yaml:7:1: auth"),
        "{told}"
    );
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct TestError(&'static str);

#[test]
fn an_ipv6_address_that_a_pod_was_given_is_bracketed_in_what_it_advertises() {
    for (given, made) in [
        ("https://fd00::7:7002", "https://[fd00::7]:7002"),
        ("https://[fd00::7]:7002", "https://[fd00::7]:7002"),
        ("https://10.1.2.3:7002", "https://10.1.2.3:7002"),
        (
            "http://gateway-0.gateway:8080",
            "http://gateway-0.gateway:8080",
        ),
        ("nonsense", "nonsense"),
    ] {
        assert_eq!(with_bracketed_host(given), made);
    }
}
