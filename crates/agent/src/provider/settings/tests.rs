use super::*;

fn settings(yaml: &str) -> ProviderSettings {
    wardgate_yaml::parse(yaml).unwrap()
}

fn problem(yaml: &str) -> String {
    settings(yaml).target("local").unwrap_err().to_string()
}

#[test]
fn an_entry_is_read_as_people_write_it() {
    let settings = settings(
        "{ type: openai, base_url: 'http://127.0.0.1:8090/v1', api_key: '', timeout: 5s }",
    );
    assert_eq!(settings.timeout, Duration::from_secs(5));
    let (url, headers) = settings.target("local").unwrap();
    assert_eq!(url.as_str(), "http://127.0.0.1:8090/v1/chat/completions");
    assert!(headers.is_empty(), "an empty key is none");

    let misspelt = "{ type: openai, base_url: x, timout: 5s }";
    assert!(wardgate_yaml::parse::<ProviderSettings>(misspelt).is_err());
}

#[test]
fn every_wire_has_its_path_and_its_way_to_send_the_key() {
    for (kind, base, path, header) in [
        ("openai", "/v1/", "/v1/chat/completions", "authorization"),
        ("anthropic", "", "/v1/messages", "x-api-key"),
        ("anthropic", "/v1", "/v1/messages", "x-api-key"),
        ("ollama", "", "/api/generate", "authorization"),
    ] {
        let settings = settings(&format!(
            "{{ type: {kind}, base_url: 'https://h.example{base}', api_key: canary }}"
        ));
        assert_eq!(settings.kind.name(), kind);
        assert_eq!(settings.kind.carries_calls(), kind != "ollama");
        let (url, headers) = settings.target("local").unwrap();
        assert_eq!(url.path(), path, "{kind}");
        assert!(headers[header].is_sensitive());
        assert!(!format!("{settings:?} {headers:?}").contains("canary"));
    }
}

#[test]
fn plain_http_leaves_the_machine_only_when_that_is_said() {
    let to = |host: &str, more: &str| {
        settings(&format!(
            "{{ type: openai, base_url: 'http://{host}/v1' {more} }}"
        ))
    };
    for host in ["localhost:1", "127.0.0.2", "[::1]:1"] {
        assert!(to(host, "").target("local").is_ok(), "{host}");
    }
    let refused = to("llm.internal", "").target("local").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "provider `local`: `base_url` is plain http to another machine; use https, or set `allow_http: true`; \
         write a URL like https://api.example.com/v1"
    );
    assert!(
        to("llm.internal", ", allow_http: true")
            .target("local")
            .is_ok()
    );
}

#[test]
fn the_way_to_a_provider_is_checked() {
    let network = |yaml: &str| {
        let settings = settings(yaml);
        let (url, _) = settings.target("local").unwrap();
        settings.network("local", &url)
    };
    let https = "type: openai, base_url: 'https://h/v1'";
    let good = network(&format!(
        "{{ {https}, proxy: 'http://user:canary@proxy.example:3128' }}"
    ));
    let good = good.unwrap();
    assert_eq!(good.proxy.as_ref().unwrap().port(), Some(3128));
    assert!(!format!("{good:?}").contains("canary"));
    assert_eq!(
        network(&format!("{{ {https}, proxy: '' }}")).unwrap().proxy,
        None
    );

    let ca = "ca: '-----BEGIN CERTIFICATE-----'";
    for (yaml, part) in [
        (
            format!("{{ {https}, proxy: 'socks5://canary' }}"),
            "`proxy` is not an http(s) URL",
        ),
        (
            format!("{{ {https}, tls: {{ ca: canary }} }}"),
            "`ca` contains no PEM certificate",
        ),
        (
            format!("{{ {https}, tls: {{ key: '-----BEGIN PRIVATE KEY-----canary' }} }}"),
            "`key` requires a `cert`",
        ),
        (
            format!(
                "{{ type: openai, base_url: 'http://h/v1', allow_http: true, tls: {{ {ca} }} }}"
            ),
            "`base_url` is http",
        ),
        (
            format!("{{ {https}, proxy: 'https://proxy.example', tls: {{ {ca} }} }}"),
            "a proxy with an https URL",
        ),
    ] {
        let problem = network(&yaml).unwrap_err().to_string();
        assert!(problem.contains(part), "{problem}");
        assert!(!problem.contains("canary"), "{problem}");
    }
}

#[test]
fn what_cannot_be_used_is_refused_without_showing_it() {
    for (yaml, part) in [
        ("{ type: openai, base_url: canary }", "is not a URL"),
        (
            "{ type: openai, base_url: 'ftp://canary/' }",
            "is not an http(s) URL",
        ),
        (
            "{ type: openai, base_url: 'https://u:canary@h/' }",
            "user info",
        ),
        (
            "{ type: openai, base_url: 'https://h/?key=canary' }",
            "a query",
        ),
        (
            "{ type: openai, base_url: 'https://h/', attempts: 0 }",
            "`attempts`",
        ),
        (
            "{ type: openai, base_url: 'https://h/', idle_timeout: 0s }",
            "a time limit",
        ),
        (
            "{ type: openai, base_url: 'https://h/', total_timeout: 25h }",
            "a time limit",
        ),
        (
            "{ type: openai, base_url: 'https://h/', api_key: \"canary\\n\" }",
            "`api_key` contains characters",
        ),
        (
            "{ type: openai, base_url: 'https://h/', headers: {Host: canary} }",
            "`headers` contains a name",
        ),
        (
            "{ type: openai, base_url: 'https://h/', headers: {x: \"canary\\n\"} }",
            "`headers` contains characters",
        ),
        (
            "{ type: openai, base_url: 'https://h/', api_key: a, headers: {Authorization: canary} }",
            "keep one",
        ),
    ] {
        let problem = problem(yaml);
        assert!(problem.contains(part), "{problem}");
        assert!(!problem.contains("canary"), "{problem}");
    }
}

#[test]
fn a_key_that_is_a_number_is_refused_without_showing_it() {
    let yaml = "{ type: openai, base_url: 'https://h/', api_key: 271828 }";
    let error = wardgate_yaml::parse::<ProviderSettings>(yaml).unwrap_err();
    assert!(error.problem.contains("put it in quotes"), "{error:?}");
    let value =
        serde_json::json!({"type": "openai", "base_url": "https://h/", "headers": {"x": 271_828}});
    let error = serde_json::from_value::<ProviderSettings>(value).unwrap_err();
    assert!(!error.to_string().contains("271828"), "{error}");
}
