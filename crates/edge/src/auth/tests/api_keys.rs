//! API keys, and changes of their file.

use super::*;

/// A file with one key, and an authenticator that accepts the key.
struct KeyHolder {
    file: tempfile::NamedTempFile,
    key: String,
    clock: TestClock,
    authenticator: Authenticator,
}

fn entry(key: &str) -> Value {
    json!({
        "name": "nightly-report",
        "sha256": Digest::compute(key.as_bytes()).to_string(),
        "subject": "svc-report",
        "roles": ["Billing"],
        "tenant": "north",
        "attributes": { "ward": "W2", "level": 3 },
        "scopes": ["reports"],
    })
}

impl KeyHolder {
    async fn with(change: impl FnOnce(&mut Value)) -> Self {
        let clock = TestClock::at(NOW);
        let key = generate_api_key(&clock.ambient());
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut entry = entry(&key);
        change(&mut entry);
        write(&file, &[entry]);
        let config = AuthConfig {
            issuers: Vec::new(),
            api_keys: Some(ApiKeyConfig {
                file: file.path().to_owned(),
            }),
        };
        let authenticator = Authenticator::new(config, None, clock.ambient()).await;
        Self {
            file,
            key,
            clock,
            authenticator: authenticator.unwrap(),
        }
    }

    async fn reason(&self, key: &str) -> &'static str {
        let caller = self.authenticator.caller(key).await;
        caller.map_or_else(|refusal| refusal.reason().as_str(), |_| "accepted")
    }

    async fn refresh(&self) {
        self.authenticator
            .api_keys
            .as_ref()
            .unwrap()
            .refresh()
            .await;
    }
}

fn write(file: &tempfile::NamedTempFile, keys: &[Value]) {
    std::fs::write(file, json!({ "keys": keys }).to_string()).unwrap();
}

#[tokio::test]
async fn an_api_key_makes_the_caller_that_its_entry_describes() {
    let holder = KeyHolder::with(|_| ()).await;
    for _ in ["new", "cached"] {
        let verified = holder.authenticator.verify(&holder.key, &[]).await.unwrap();
        let caller = verified.caller;
        assert_eq!(caller.issuer(), "urn:wardgate:api-keys");
        assert_eq!(caller.subject(), "svc-report");
        assert_eq!(caller.tenant(), "north");
        assert_eq!(caller.roles(), ["Billing"]);
        assert_eq!(caller.token_id(), "nightly-report");
        assert_eq!(
            caller.attributes().get("level"),
            Some(&AttributeValue::Integer(3))
        );
        assert!(verified.scopes.contains("reports"));
        assert_eq!(
            caller.token().map(BearerToken::expose),
            Some(&*holder.key),
            "services behind the gateway verify it themselves"
        );
    }
}

#[tokio::test]
async fn a_key_that_is_taken_out_of_the_file_is_refused_although_it_was_verified_before() {
    let holder = KeyHolder::with(|_| ()).await;
    assert_eq!(holder.reason(&holder.key).await, "accepted");
    write(&holder.file, &[]);
    holder.refresh().await;
    assert_eq!(holder.reason(&holder.key).await, "api_key_unknown");
    write(&holder.file, &[entry(&holder.key)]);
    holder.refresh().await;
    assert_eq!(holder.reason(&holder.key).await, "accepted");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_file_is_in_force_within_a_second() {
    let holder = KeyHolder::with(|_| ()).await;
    let api_keys = holder.authenticator.api_keys.as_ref().unwrap();
    let former = api_keys.version();
    let started = tokio::time::Instant::now();
    write(&holder.file, &[]);
    while api_keys.version() == former {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(started.elapsed() < Duration::from_secs(1));
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_used_leaves_the_former_keys_in_force() {
    let holder = KeyHolder::with(|_| ()).await;
    std::fs::write(&holder.file, "{").unwrap();
    holder.refresh().await;
    assert_eq!(holder.reason(&holder.key).await, "accepted");
}

#[tokio::test]
async fn a_key_ends_at_its_time_and_its_caller_after_an_hour() {
    let holder = KeyHolder::with(|entry| entry["expires_at"] = "2027-01-15T10:00:00Z".into()).await;
    let expiry = |caller: Arc<Caller>| caller.expires_at().as_seconds() - NOW;
    let caller = holder.authenticator.caller(&holder.key).await.unwrap();
    assert_eq!(expiry(caller), 3_600);
    holder.clock.set(NOW + 5_400);
    let caller = holder.authenticator.caller(&holder.key).await.unwrap();
    assert_eq!(expiry(caller), 7_200, "the key itself ends then");
    holder.clock.set(NOW + 7_200);
    assert_eq!(holder.reason(&holder.key).await, "token_expired");
}

#[tokio::test]
async fn other_keys_are_refused() {
    let holder = KeyHolder::with(|_| ()).await;
    let other = generate_api_key(&TestClock::at(NOW).ambient());
    for key in [
        &*other,
        "wgk_",
        &holder.key[..20],
        &format!("{}A", holder.key),
    ] {
        assert_eq!(holder.reason(key).await, "api_key_unknown", "{key}");
    }
    let digest = Digest::compute(holder.key.as_bytes()).to_string();
    assert_eq!(
        holder.reason(&format!("wgk_{digest}")).await,
        "api_key_unknown",
        "who reads the file has no key"
    );
    assert_eq!(
        holder.reason("no.such.token").await,
        "token_malformed",
        "there is no issuer"
    );
    let issuer = Issuer::new().await;
    assert_eq!(
        issuer.reason(&holder.key).await,
        "api_key_unknown",
        "a service without API keys"
    );
}

#[test]
fn a_file_of_keys_is_checked_as_a_whole() {
    let problem = |change: &dyn Fn(&mut Value)| {
        let mut keys = json!({ "keys": [entry("wgk_one")] });
        change(&mut keys);
        let parsed = ApiKeyFile::parse(keys.to_string().as_bytes());
        parsed.map_or_else(|error| error.to_string(), |_| "none".to_owned())
    };
    assert_eq!(problem(&|_| ()), "none");
    for (member, value, expected) in [
        (
            "sha256",
            json!("beef"),
            "keys[0].sha256 is not 64 hexadecimal digits",
        ),
        (
            "name",
            json!(""),
            "keys[0].name is not 1 to 256 visible characters",
        ),
        (
            "subject",
            json!("a\u{202e}b"),
            "keys[0].subject is not 1 to 256 visible characters",
        ),
        (
            "roles",
            json!([""]),
            "keys[0].roles is not 1 to 256 visible characters",
        ),
        (
            "expires_at",
            json!("tomorrow"),
            "keys[0].expires_at is not an RFC 3339 time",
        ),
        (
            "attributes",
            json!({ "ward": {} }),
            "keys[0].attributes has a value that is not a string, whole number, Boolean or array of strings",
        ),
    ] {
        assert_eq!(
            problem(&|keys| keys["keys"][0][member] = value.clone()),
            expected
        );
    }
    let twice = |name: &'static str| {
        move |keys: &mut Value| {
            let mut second = entry("wgk_two");
            second[name] = keys["keys"][0][name].clone();
            let other = if name == "name" { "sha256" } else { "name" };
            if name == "sha256" {
                second[other] = "another".into();
            }
            keys["keys"].as_array_mut().unwrap().push(second);
        }
    };
    assert_eq!(
        problem(&twice("name")),
        "keys[1].name is already used by another key"
    );
    assert_eq!(
        problem(&twice("sha256")),
        "keys[1].sha256 is already used by another key"
    );
    for text in [
        "",
        "[]",
        "{}",
        r#"{"keys":[],"keys":[]}"#,
        r#"{"keys":[],"more":1}"#,
    ] {
        let error = ApiKeyFile::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(
            error.starts_with("it is not a JSON object with `keys`"),
            "{error}"
        );
    }
}
