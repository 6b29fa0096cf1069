//! Tests that faults of a tool or a source are reported when the catalogue is read.

use super::*;

#[test]
fn faults_of_a_request_name_what_to_mend() {
    for (execute, problem) in [
        ("{ type: http }", "has no `source`"),
        (
            "{ type: http, source: other }",
            "the source `other` does not exist",
        ),
        (
            "{ type: http, source: db }",
            "the source is not an HTTP service",
        ),
        (
            "{ type: http, source: api, path: v1 }",
            "does not begin with `/`",
        ),
        (
            "{ type: http, source: api, path: '/v1?x={id}' }",
            "contains `?`",
        ),
        (
            "{ type: http, source: api, path: '/v1//x' }",
            "an empty, `.` or `..` segment",
        ),
        (
            "{ type: http, source: api, path: '/v1/%2e%2E/x' }",
            "an empty, `.` or `..` segment",
        ),
        (
            "{ type: http, source: api, path: '/{nope}' }",
            "`{nope}` is not a property",
        ),
        (
            "{ type: http, source: api, method: get }",
            "`get` is not a supported method",
        ),
        (
            "{ type: http, source: api, method: GET, text: x }",
            "a GET request must not have a body",
        ),
        (
            "{ type: http, source: api, text: x, json: {} }",
            "more than one of",
        ),
        (
            "{ type: http, source: api, headers: { Host: x } }",
            "`Host` is not a header that a tool can set",
        ),
        (
            "{ type: http, source: api, headers: { Authorization: x } }",
            "is not a header that a tool can set",
        ),
        (
            "{ type: http, source: api, headers: { X-Q: \"x\\n\" } }",
            "the value of header `X-Q` contains a line break",
        ),
        (
            "{ type: http, source: api, headers: { 'a b': x } }",
            "is not a header that a tool can set",
        ),
        (
            "{ type: http, source: api, querry: {} }",
            "unknown key `querry`",
        ),
    ] {
        let sources = "{ api: { type: http, base_url: 'https://api.example.com' }, db: { type: sqlite, url: 'sqlite:x.db' } }";
        let faults = TestTool::faults(sources, execute);
        assert!(faults.contains(problem), "{execute}: {faults}");
    }
}

#[test]
fn faults_of_a_source_name_what_to_mend_and_no_secret() {
    for (source, problem) in [
        ("{ type: http }", "has no `base_url`"),
        (
            "{ type: http, base_url: nothing }",
            "`base_url` is not a URL",
        ),
        (
            "{ type: http, base_url: 'ftp://x/' }",
            "is not an http(s) URL",
        ),
        (
            "{ type: http, base_url: 'https://u:canary@x/' }",
            "contains user info",
        ),
        (
            "{ type: http, base_url: 'https://x/?key=canary' }",
            "contains a query",
        ),
        (
            "{ type: http, base_url: 'http://0x7f.1:8080/' }",
            "add `private: [\"127.0.0.1/32\"]`",
        ),
        (
            "{ type: http, base_url: 'http://[::1]/' }",
            "add `private: [\"::1/128\"]`",
        ),
        (
            "{ type: http, base_url: 'https://x/', hosts: ['https://y/'] }",
            "`hosts` is not a host",
        ),
        (
            "{ type: http, base_url: 'https://x/', private: ['10.0.0.0/33'] }",
            "`private` is not a network",
        ),
        (
            "{ type: http, base_url: 'https://x/', headers: { Host: y } }",
            "`Host` is not a header",
        ),
        (
            "{ type: http, base_url: 'https://x/', headers: { X: \"canary\\r\\nY: 1\" } }",
            "characters that are not valid in a header",
        ),
        (
            "{ type: http, base_url: 'https://x/', auth: { type: magic } }",
            "`magic` is not a type of `auth`",
        ),
        (
            "{ type: http, base_url: 'https://x/', auth: { type: bearer } }",
            "has no `token`",
        ),
        (
            "{ type: http, base_url: 'https://x/', auth: { type: bearer, token: canary, user: x } }",
            "unknown key `user`",
        ),
        (
            "{ type: http, base_url: 'https://x/', headers: { Authorization: x }, auth: { type: bearer, token: canary } }",
            "keep one of them",
        ),
        (
            "{ type: http, base_url: 'https://x/', auth: { type: client_credentials, token_url: x, client_id: a, client_secret: canary } }",
            "`token_url` is not a URL",
        ),
        (
            "{ type: http, base_url: 'https://x/', timeout: 0 }",
            "`timeout` is not a duration",
        ),
    ] {
        let sources = format!("{{ api: {source} }}");
        let faults = TestTool::faults(&sources, "{ type: http, source: api }");
        assert!(faults.contains(problem), "{source}: {faults}");
        assert!(!faults.contains("canary"), "{faults}");
    }
}

#[tokio::test]
async fn only_a_source_that_exchanges_the_callers_token_asks_for_it() {
    let oauth = "token_url: 'https://x/token', client_id: a, client_secret: b";
    for (auth, needs) in [
        ("{ type: none }".to_owned(), false),
        (format!("{{ type: client_credentials, {oauth} }}"), false),
        (
            format!("{{ type: token_exchange, {oauth}, audience: c, scope: 'd e' }}"),
            true,
        ),
    ] {
        let sources = format!("{{ api: {{ type: http, base_url: 'https://x/', auth: {auth} }} }}");
        for execute in [
            "{ type: http, source: api }",
            "{ type: jsonrpc, source: api, method: m }",
        ] {
            let tool = TestTool::new(&sources, execute, "{}");
            assert_eq!(tool.needs_caller_token(), needs, "{auth} {execute}");
        }
    }
}
