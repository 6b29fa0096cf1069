//! Bundles that were changed, and sources that misbehave.

use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex};

use aws_lc_rs::signature::Ed25519KeyPair;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{AUTHORIZATION, ETAG, IF_NONE_MATCH, WWW_AUTHENTICATE};
use proptest::prelude::*;
use tempfile::TempDir;
use wardgate_domain::Digest;
use wardgate_testkit::{serve, tool_facts};

use super::*;

fn signer() -> BundleSigner {
    let key = Ed25519KeyPair::generate().unwrap();
    BundleSigner::from_pkcs8(key.to_pkcs8().unwrap().as_ref()).unwrap()
}

fn verifier(signer: &BundleSigner) -> BundleVerifier {
    let mut verifier = BundleVerifier::default();
    assert!(verifier.add_pem(&signer.public_key_pem()));
    verifier
}

fn file(path: &str, text: &str) -> BundledFile {
    BundledFile {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

fn bundle(version: u64) -> PolicyBundle {
    let tools = vec![BundledTool::from(&tool_facts("read_note"))];
    let files = vec![
        file("tests/a.yaml", "tests: []"),
        file("a.cedar", "// nothing"),
    ];
    PolicyBundle::new(version, files, tools).unwrap()
}

fn config(source: &str, keys: &TempDir, signer: &BundleSigner) -> BundleConfig {
    let key = keys.path().join("key.pem");
    std::fs::write(&key, signer.public_key_pem()).unwrap();
    BundleConfig {
        state_file: Some(keys.path().join("state")),
        private_addresses: true,
        ..BundleConfig::new(source, vec![key])
    }
}

#[test]
fn what_was_signed_is_what_is_opened_and_it_is_the_same_each_time() {
    let signer = signer();
    let sealed = bundle(7).sign(&signer).unwrap();
    assert_eq!(sealed, bundle(7).sign(&signer).unwrap());
    let opened = PolicyBundle::open(sealed.as_bytes(), &verifier(&signer)).unwrap();
    assert_eq!(opened, bundle(7));
    assert_eq!(opened.reference().version, 7);
    assert_eq!(opened.files()[0].path, "a.cedar");
    let facts = opened.tools().unwrap();
    assert_eq!(facts[0].name, tool_facts("read_note").name);
}

#[test]
fn no_byte_can_be_changed_and_none_can_be_missing() {
    let signer = signer();
    let verifier = verifier(&signer);
    let sealed = bundle(1).sign(&signer).unwrap().into_bytes();
    for position in 0..sealed.len() {
        for bit in 0..8 {
            let mut changed = sealed.clone();
            changed[position] ^= 1 << bit;
            assert!(
                PolicyBundle::open(&changed, &verifier).is_err(),
                "bit {bit} of byte {position}"
            );
        }
        assert!(
            PolicyBundle::open(&sealed[..position], &verifier).is_err(),
            "{position} bytes"
        );
    }
    PolicyBundle::open(&sealed, &verifier).unwrap();
}

#[test]
fn another_key_is_no_key() {
    let (signer, other) = (signer(), signer());
    let sealed = bundle(1).sign(&other).unwrap();
    let opened = PolicyBundle::open(sealed.as_bytes(), &verifier(&signer));
    assert_eq!(opened.unwrap_err(), BundleError::Signature);
    let none = PolicyBundle::open(sealed.as_bytes(), &BundleVerifier::default());
    assert_eq!(none.unwrap_err(), BundleError::Signature);
    // While a key is replaced, both count.
    let mut both = verifier(&signer);
    assert!(both.add_pem(&other.public_key_pem()));
    PolicyBundle::open(sealed.as_bytes(), &both).unwrap();
}

#[test]
fn a_signature_of_another_kind_of_message_is_none() {
    let signer = signer();
    let payload = serde_json::json!({ "version": 1, "files": [], "tools": [] }).to_string();
    let sealed = envelope::seal(payload.as_bytes(), &signer);
    PolicyBundle::open(sealed.as_bytes(), &verifier(&signer)).unwrap();
    let other = sealed.replace("policy-bundle.v1", "policy-bundle.v2");
    let error = PolicyBundle::open(other.as_bytes(), &verifier(&signer)).unwrap_err();
    assert!(matches!(error, BundleError::Envelope(_)), "{error}");
}

#[test]
fn paths_that_lead_anywhere_are_refused_even_if_they_are_signed() {
    let signer = signer();
    for path in [
        "",
        "/etc/x.cedar",
        "../x.cedar",
        "tests/../x.yaml",
        "tests/../../x.yaml",
        "tests//x.yaml",
        "tests/.x.yaml",
        ".x.cedar",
        "other/x.cedar",
        "tests\\x.yaml",
        "x\0.cedar",
        "x\n.cedar",
        "x.sh",
        "tests/x.cedar",
        "C:\\x.cedar",
        &format!("{}.cedar", "x".repeat(200)),
    ] {
        let files = vec![file(path, "")];
        let error = PolicyBundle::new(1, files, Vec::new()).unwrap_err();
        assert!(matches!(error, BundleError::Path { .. }), "{path:?}");
        let files = serde_json::json!([{ "path": path, "text": "" }]);
        let payload = serde_json::json!({ "version": 1, "files": files, "tools": [] });
        let sealed = envelope::seal(payload.to_string().as_bytes(), &signer);
        let error = PolicyBundle::open(sealed.as_bytes(), &verifier(&signer)).unwrap_err();
        assert!(matches!(error, BundleError::Path { .. }), "{path:?}");
    }
    let twice = vec![file("x.cedar", ""), file("x.cedar", "// other")];
    assert!(PolicyBundle::new(1, twice, Vec::new()).is_err());
}

#[test]
fn contents_beyond_a_limit_are_refused() {
    let long = vec![file("a.cedar", &" ".repeat((1 << 20) + 1))];
    let many = (0..513).map(|number| file(&format!("{number}.cedar"), ""));
    for files in [long, many.collect()] {
        let error = PolicyBundle::new(1, files, Vec::new()).unwrap_err();
        assert!(matches!(error, BundleError::TooLarge(_)), "{error}");
    }
    let large = (0..8).map(|number| file(&format!("{number}.cedar"), &" ".repeat(1 << 20)));
    let large = PolicyBundle::new(1, large.collect(), Vec::new()).unwrap();
    assert!(matches!(
        large.sign(&signer()),
        Err(BundleError::TooLarge(_))
    ));
    let spaces = vec![b' '; (8 << 20) + 1];
    let error = PolicyBundle::open(&spaces, &verifier(&signer())).unwrap_err();
    assert!(matches!(error, BundleError::TooLarge(_)), "{error}");
    for version in [0, u64::MAX] {
        assert!(PolicyBundle::new(version, Vec::new(), Vec::new()).is_err());
    }
}

#[test]
fn a_signed_payload_that_is_not_understood_is_refused() {
    let signer = signer();
    let verifier = verifier(&signer);
    for payload in [
        "",
        "[]",
        r#"{"version":1,"files":[]}"#,
        r#"{"version":1,"files":[],"tools":[],"more":1}"#,
        r#"{"version":1,"version":2,"files":[],"tools":[]}"#,
        r#"{"version":-1,"files":[],"tools":[]}"#,
        r#"{"version":1.5,"files":[],"tools":[]}"#,
        &format!(
            r#"{{"version":1,"files":{},"tools":[]}}"#,
            "[".repeat(9_999)
        ),
    ] {
        let sealed = envelope::seal(payload.as_bytes(), &signer);
        let error = PolicyBundle::open(sealed.as_bytes(), &verifier).unwrap_err();
        assert!(matches!(error, BundleError::Payload(_)), "{error}");
    }
}

proptest! {
    #[test]
    fn bytes_that_nobody_signed_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(PolicyBundle::open(&bytes, &verifier(&signer())).is_err());
    }
}

#[test]
fn settings_that_cannot_be_used_are_named() {
    let with = |source: &str| BundleConfig {
        state_file: Some("state".into()),
        ..BundleConfig::new(source, vec!["key.pem".into()])
    };
    for source in [
        "bundles",
        "https://example.com/policies.bundle",
        "http://127.0.0.1:1/policies.bundle",
        "oci://registry.example/team/policies:stable",
        &format!(
            "oci://registry.example:5000/policies@sha256:{}",
            "a".repeat(64)
        ),
    ] {
        with(source).validate().unwrap();
    }
    for source in [
        "http://example.com/policies.bundle",
        "ftp://example.com/policies.bundle",
        "oci://registry.example/policies",
        "oci://registry.example/../policies:1",
        "oci://registry.example/policies:a?b",
        "oci://policies:1",
    ] {
        let error = with(source).validate().unwrap_err().to_string();
        assert!(error.starts_with("bundle.source "), "{source}: {error}");
    }
    let key = |config: BundleConfig| config.validate().unwrap_err().to_string();
    let without_keys = BundleConfig {
        public_key_files: Vec::new(),
        ..with("bundles")
    };
    assert!(key(without_keys).starts_with("bundle.public_key_files "));
    let forgetful = BundleConfig {
        state_file: None,
        ..with("bundles")
    };
    assert!(key(forgetful.clone()).starts_with("bundle.state_file "));
    let floor = BundleConfig {
        minimum_version: 3,
        ..forgetful
    };
    floor.validate().unwrap();
}

#[test]
fn the_state_is_replaced_whole_and_survives() {
    let dir = tempfile::tempdir().unwrap();
    let signer = signer();
    let state = BundleState::new(Some(dir.path().join("state")));
    assert!(state.read_bundle().unwrap().is_none());
    for version in 1..4 {
        let sealed = bundle(version).sign(&signer).unwrap();
        state.write(sealed.as_bytes()).unwrap();
        let kept = state.read_bundle().unwrap().unwrap();
        assert_eq!(kept.reference().unwrap(), bundle(version).reference());
        assert_eq!(kept.open(&verifier(&signer)).unwrap(), bundle(version));
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let away = BundleState::new(Some(dir.path().join("missing/state")));
    assert!(away.write(b"x").is_err());
}

#[tokio::test]
async fn work_that_ends_abnormally_is_reported_as_such_and_not_as_an_unreadable_file() {
    let error = run_blocking(|| assert_eq!(1, 2, "the work panics")).await;
    let error = error.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the processing of policy bundles ended abnormally"
    );
}

#[test]
fn files_that_differ_in_their_extensions_have_different_temporary_files() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str| BundleState::new(Some(dir.path().join(name))).write(b"x");
    // A directory cannot be used as a temporary file.
    let occupied = format!("policy.state.{}.new", std::process::id());
    std::fs::create_dir(dir.path().join(occupied)).unwrap();
    assert!(write("policy.state").is_err());
    write("policy.bundle").unwrap();
    write("policy").unwrap();
}

#[tokio::test]
async fn a_directory_offers_its_bundles_and_a_change_is_noticed() {
    let (keys, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let signer = signer();
    let path = dir.path().display().to_string();
    let mut source = BundleSource::open(&config(&path, &keys, &signer)).unwrap();
    let error = source.fetch().await.unwrap_err();
    assert!(matches!(error, SourceError::Empty(_)), "{error}");
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("1.bundle", "one");
    write(".2.bundle", "unfinished");
    write("README.md", "other");
    let fetched = source.fetch().await.unwrap().unwrap();
    assert_eq!(fetched.bundles.len(), 1);
    assert_eq!(fetched.bundles[0].bytes, b"one");
    assert!(source.fetch().await.unwrap().is_none(), "nothing changed");
    write("2.bundle", "two");
    assert_eq!(source.fetch().await.unwrap().unwrap().bundles.len(), 2);
    source.forget();
    assert_eq!(source.fetch().await.unwrap().unwrap().bundles.len(), 2);
    write("3.bundle", &" ".repeat((8 << 20) + 1));
    let fetched = source.fetch().await.unwrap().unwrap();
    assert_eq!(
        fetched.bundles[0].bytes, b"one",
        "a file that is too large affects no other"
    );
    let refused = PolicyBundle::open(&fetched.bundles[2].bytes, &verifier(&signer));
    assert!(
        matches!(refused, Err(BundleError::TooLarge(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_reported_and_affects_no_other() {
    let (keys, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = dir.path().display().to_string();
    let mut source = BundleSource::open(&config(&path, &keys, &signer())).unwrap();
    let link = |target: &str, name: &str| symlink(target, dir.path().join(name)).unwrap();
    // The first page of a process is not mapped, so a read fails, also for root.
    link("/proc/self/mem", "1.bundle");
    link("missing", "2.bundle");
    let error = source.fetch().await.unwrap_err().to_string();
    assert!(error.contains("1.bundle"), "{error}");
    std::fs::write(dir.path().join("3.bundle"), "three").unwrap();
    let offered = source.fetch().await.unwrap().unwrap();
    assert_eq!(offered.bundles.len(), 1);
    assert_eq!(offered.bundles[0].bytes, b"three");
    let names = offered.unreadable.iter().map(ToString::to_string);
    let names: Vec<_> = names.collect();
    assert!(names[0].contains("1.bundle") && names[1].contains("2.bundle"));
    assert!(source.fetch().await.unwrap().is_none(), "nothing changed");
    std::fs::remove_file(dir.path().join("2.bundle")).unwrap();
    let offered = source.fetch().await.unwrap().unwrap();
    assert_eq!(offered.unreadable.len(), 1, "the repair is noticed");
}

/// A web server whose answer can be changed.
#[derive(Clone, Default)]
struct BundleServer {
    body: Arc<Mutex<Option<Vec<u8>>>>,
    /// The number of answers with a body.
    sent: Arc<Mutex<usize>>,
}

async fn answer(State(server): State<BundleServer>, headers: HeaderMap) -> Response {
    let Some(body) = server.body.lock().unwrap().clone() else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let tag = format!("\"{}\"", Digest::compute(&body));
    if headers.get(IF_NONE_MATCH).is_some_and(|it| *it == *tag) {
        return StatusCode::NOT_MODIFIED.into_response();
    }
    *server.sent.lock().unwrap() += 1;
    ([(ETAG, tag)], body).into_response()
}

#[tokio::test]
async fn a_web_server_is_asked_for_changes_only_and_may_go_away() {
    let keys = tempfile::tempdir().unwrap();
    let server = BundleServer::default();
    let set = |body: Option<&[u8]>| *server.body.lock().unwrap() = body.map(<[u8]>::to_vec);
    set(Some(b"one"));
    let router = Router::new().fallback(answer).with_state(server.clone());
    let url = format!("http://{}/policies.bundle", serve(router).await);
    let mut source = BundleSource::open(&config(&url, &keys, &signer())).unwrap();
    assert_eq!(
        source.fetch().await.unwrap().unwrap().bundles[0].bytes,
        b"one"
    );
    assert!(source.fetch().await.unwrap().is_none());
    assert_eq!(*server.sent.lock().unwrap(), 1, "the second answer was 304");
    set(None);
    let error = source.fetch().await.unwrap_err();
    assert!(matches!(error, SourceError::Status { .. }), "{error}");
    set(Some(b"two"));
    assert_eq!(
        source.fetch().await.unwrap().unwrap().bundles[0].bytes,
        b"two"
    );
    set(Some(&vec![b' '; (8 << 20) + 1]));
    assert!(source.fetch().await.is_err());
}

#[tokio::test]
async fn a_server_off_the_internet_is_not_reached_unless_that_is_configured() {
    let keys = tempfile::tempdir().unwrap();
    let router = Router::new().fallback(|| async { "one" });
    let url = format!("http://{}/policies.bundle", serve(router).await);
    let config = BundleConfig {
        private_addresses: false,
        ..config(&url, &keys, &signer())
    };
    let error = BundleSource::open(&config).unwrap().fetch().await;
    assert!(matches!(error, Err(SourceError::Request { .. })));
}

/// A registry with one repository, which demands a token.
#[derive(Clone)]
struct TestRegistry {
    layer: Arc<Mutex<Vec<u8>>>,
    /// The bytes that are sent as the layer, if others than the manifest names.
    sent: Arc<Mutex<Option<Vec<u8>>>>,
}

async fn registry(State(registry): State<TestRegistry>, uri: Uri, headers: HeaderMap) -> Response {
    let host = headers["host"].to_str().unwrap().to_owned();
    if uri.path() == "/token" {
        assert_eq!(
            uri.query(),
            Some("service=test&scope=repository%3Ateam%2Fpolicies%3Apull")
        );
        return r#"{"token":"t-1"}"#.into_response();
    }
    if headers
        .get(AUTHORIZATION)
        .is_none_or(|it| it != "Bearer t-1")
    {
        let challenge = format!(
            r#"Bearer realm="http://{host}/token",service="test",scope="repository:team/policies:pull""#
        );
        return (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, challenge)]).into_response();
    }
    let layer = registry.layer.lock().unwrap().clone();
    let digest = format!("sha256:{}", Digest::compute(&layer));
    if uri.path() == "/v2/team/policies/manifests/stable" {
        let layer = serde_json::json!({
            "mediaType": envelope::PAYLOAD_TYPE, "digest": digest, "size": layer.len(),
        });
        let other = serde_json::json!({ "mediaType": "x/y", "digest": "sha256:0", "size": 1 });
        let manifest = serde_json::json!({ "schemaVersion": 2, "layers": [other, layer] });
        return manifest.to_string().into_response();
    }
    assert_eq!(uri.path(), format!("/v2/team/policies/blobs/{digest}"));
    let sent = registry.sent.lock().unwrap().clone();
    sent.unwrap_or(layer).into_response()
}

#[tokio::test]
async fn a_registry_gives_a_token_and_the_layer_that_its_manifest_names() {
    let keys = tempfile::tempdir().unwrap();
    let server = TestRegistry {
        layer: Arc::new(Mutex::new(b"one".to_vec())),
        sent: Arc::default(),
    };
    let router = Router::new().fallback(registry).with_state(server.clone());
    let source = format!("oci://{}/team/policies:stable", serve(router).await);
    let mut source = BundleSource::open(&config(&source, &keys, &signer())).unwrap();
    assert_eq!(
        source.fetch().await.unwrap().unwrap().bundles[0].bytes,
        b"one"
    );
    assert!(source.fetch().await.unwrap().is_none());
    *server.layer.lock().unwrap() = b"two".to_vec();
    *server.sent.lock().unwrap() = Some(b"forged".to_vec());
    let error = source.fetch().await.unwrap_err();
    assert!(matches!(error, SourceError::Registry { .. }), "{error}");
    *server.sent.lock().unwrap() = None;
    assert_eq!(
        source.fetch().await.unwrap().unwrap().bundles[0].bytes,
        b"two"
    );
}
