//! Checks of Host and Origin, which protect against DNS rebinding (MCP, basic/transports, "Security Warning").

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri, header};

use crate::Error;

/// The hosts that requests may name, and the origins of pages that may call.
#[derive(Debug, Clone)]
pub struct Origins {
    section: &'static str,
    public_host: Option<String>,
    hosts: Vec<String>,
    pages: Vec<String>,
}

impl Origins {
    /// Allows loopback hosts, the host of `public_url` and `allowed_hosts` (without ports), and pages on these hosts or
    /// with one of `allowed_origins`. `section` is the section of the configuration with the last two.
    pub fn new(
        section: &'static str,
        public_url: Option<&str>,
        allowed_hosts: Vec<String>,
        allowed_origins: Vec<String>,
    ) -> Result<Self, Error> {
        for origin in &allowed_origins {
            let parsed = origin.parse::<Uri>().ok();
            let bare = parsed.is_some_and(|url| url.scheme().is_some() && url.path() == "/");
            if !bare || origin.ends_with('/') {
                return Err(Error::Origin {
                    section,
                    origin: origin.clone(),
                });
            }
        }
        let public_url = public_url.and_then(|url| url.parse::<Uri>().ok());
        Ok(Self {
            section,
            public_host: public_url.and_then(|url| url.host().map(ToOwned::to_owned)),
            hosts: allowed_hosts,
            pages: allowed_origins,
        })
    }

    /// Refuses a request for a host that is not served or from an `Origin` that is not allowed. The error states which.
    pub fn check(&self, target: &Uri, headers: &HeaderMap) -> Result<(), String> {
        let mut named = headers.get_all(header::HOST).iter();
        let (host, None) = (named.next(), named.next()) else {
            return Err("Send exactly one Host header.".to_owned());
        };
        let host = host.map(|host| host.to_str().ok()?.parse::<Authority>().ok());
        // HTTP/2 names the host in the target, HTTP/1.1 in the header. If a request has both, both must be allowed.
        let mut hosts = host
            .into_iter()
            .chain(target.authority().cloned().map(Some))
            .peekable();
        if hosts.peek().is_none() {
            return Err("Send exactly one Host header.".to_owned());
        }
        if !hosts.all(|host| host.is_some_and(|host| self.is_ours(host.host()))) {
            return Err(format!(
                "This Host is not served here; add it to {}.allowed_hosts.",
                self.section
            ));
        }
        for origin in headers.get_all(header::ORIGIN) {
            if !origin.to_str().is_ok_and(|origin| self.may_call(origin)) {
                return Err(format!(
                    "This Origin may not call; add it to {}.allowed_origins.",
                    self.section
                ));
            }
        }
        Ok(())
    }

    /// Returns the origin of a request, if pages with this origin may call.
    pub fn allowed_origin(&self, request: &Parts) -> Option<HeaderValue> {
        let origin = request.headers.get(header::ORIGIN)?;
        self.check(&request.uri, &request.headers)
            .is_ok()
            .then(|| origin.clone())
    }

    fn may_call(&self, origin: &str) -> bool {
        self.pages.iter().any(|allowed| allowed == origin)
            || origin
                .parse::<Uri>()
                .is_ok_and(|url| url.host().is_some_and(|host| self.is_ours(host)))
    }

    /// Returns whether the host is loopback, that of the public URL, or a configured one.
    fn is_ours(&self, host: &str) -> bool {
        let bare = host.trim_matches(['[', ']']);
        bare.eq_ignore_ascii_case("localhost")
            || bare
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.is_loopback())
            || self
                .public_host
                .as_ref()
                .is_some_and(|ours| ours.eq_ignore_ascii_case(host))
            || self
                .hosts
                .iter()
                .any(|ours| ours.eq_ignore_ascii_case(bare))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(host: &str, origin: Option<&str>) -> bool {
        let origins = Origins::new(
            "gateway",
            Some("https://mcp.example"),
            vec!["gateway.internal".to_owned()],
            vec!["https://console.example:8443".to_owned()],
        )
        .unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        origins.check(&Uri::from_static("/mcp"), &headers).is_ok()
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

    #[test]
    fn an_origin_that_no_browser_sends_is_named() {
        for origin in [
            "https://console.example/",
            "https://console.example/x",
            "console",
        ] {
            let refused = Origins::new("agent", None, Vec::new(), vec![origin.to_owned()]);
            let message = refused.unwrap_err().to_string();
            assert!(
                message.contains(origin) && message.contains("agent.allowed_origins"),
                "{message}"
            );
        }
    }
}
