//! Host and Origin, against DNS rebinding (MCP, basic/transports, "Security Warning").

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};

use crate::config::Config;

/// Refuses a request for a host that is not ours or from an `Origin` that is not welcome, and says which.
pub(super) fn check(config: &Config, target: &Uri, headers: &HeaderMap) -> Result<(), String> {
    let mut named = headers.get_all(header::HOST).iter();
    let (host, None) = (named.next(), named.next()) else {
        return Err("Send exactly one Host header.".to_owned());
    };
    let host = host.map(|host| host.to_str().ok()?.parse::<Authority>().ok());
    // HTTP/2 names the host in the target, HTTP/1.1 in the header; of both, both must be ours.
    let mut hosts = host
        .into_iter()
        .chain(target.authority().cloned().map(Some))
        .peekable();
    if hosts.peek().is_none() {
        return Err("Send exactly one Host header.".to_owned());
    }
    if !hosts.all(|host| host.is_some_and(|host| is_ours(config, host.host()))) {
        return Err("This Host is not served here; add it to gateway.allowed_hosts.".to_owned());
    }
    for origin in headers.get_all(header::ORIGIN) {
        let allowed = origin.to_str().is_ok_and(|origin| {
            config
                .allowed_origins
                .iter()
                .any(|allowed| allowed == origin)
                || origin
                    .parse::<Uri>()
                    .is_ok_and(|url| url.host().is_some_and(|host| is_ours(config, host)))
        });
        if !allowed {
            return Err("This Origin may not call; add it to gateway.allowed_origins.".to_owned());
        }
    }
    Ok(())
}

/// Loopback, the public URL's host, or one of the configured.
fn is_ours(config: &Config, host: &str) -> bool {
    let bare = host.trim_matches(['[', ']']);
    let public = config
        .public_url
        .as_deref()
        .and_then(|url| url.parse::<Uri>().ok());
    bare.eq_ignore_ascii_case("localhost")
        || bare
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
        || public.is_some_and(|url| {
            url.host()
                .is_some_and(|ours| ours.eq_ignore_ascii_case(host))
        })
        || config
            .allowed_hosts
            .iter()
            .any(|ours| ours.eq_ignore_ascii_case(bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(host: &str, origin: Option<&str>) -> bool {
        let config: Config = serde_json::from_value(serde_json::json!({
            "public_url": "https://mcp.example",
            "allowed_hosts": ["gateway.internal"],
            "allowed_origins": ["https://console.example:8443"],
            "auth": { "issuers": [] },
        }))
        .unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        check(&config, &Uri::from_static("/mcp"), &headers).is_ok()
    }

    #[test]
    fn a_rebound_name_or_a_foreign_page_is_refused() {
        for host in [
            "evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "mcp.example.evil",
            "",
        ] {
            assert!(!verdict(host, None), "{host}");
        }
        for origin in [
            "http://evil.example",
            "null",
            "https://console.example",
            "https://console.example:8443/",
            "http://127.0.0.1.evil.example",
        ] {
            assert!(!verdict("localhost:8080", Some(origin)), "{origin}");
        }
    }

    #[test]
    fn our_own_names_and_the_configured_origins_pass() {
        for host in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:8080",
            "[::1]:8080",
            "mcp.example",
            "gateway.internal:80",
        ] {
            assert!(verdict(host, None), "{host}");
        }
        for origin in [
            "http://localhost:3000",
            "http://[::1]:9",
            "https://mcp.example",
            "https://console.example:8443",
        ] {
            assert!(verdict("localhost", Some(origin)), "{origin}");
        }
    }
}
