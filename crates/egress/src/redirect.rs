//! Redirects: which of them are followed, and which headers are kept.

use http::header::{ACCEPT, ACCEPT_LANGUAGE, HeaderMap, LOCATION};
use http::{Method, StatusCode};
use url::Url;

use super::EgressError;
use super::guard::AddressGuard;

/// Maximum number of redirects of one request.
pub(super) const MOST: usize = 5;

/// Returns whether redirects of this method are followed. A request that may change something is not sent to another
/// URL.
pub(super) fn follows(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Returns the target of a redirect, or `None` if the response is not a redirect.
pub(super) fn target(
    guard: &AddressGuard,
    from: &Url,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<Url>, EgressError> {
    let redirects = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = match headers.get(LOCATION) {
        Some(location) if redirects => location,
        _ => return Ok(None),
    };
    let to = location
        .to_str()
        .ok()
        .and_then(|location| from.join(location).ok())
        .ok_or(EgressError::NotHttp)?;
    guard.check(&to)?;
    if from.scheme() == "https" && to.scheme() == "http" {
        return Err(EgressError::Downgrade);
    }
    Ok(Some(to))
}

/// Returns the headers of the next request. A configured header may be a credential, so another origin receives only
/// headers that cannot be.
pub(super) fn headers(from: &Url, to: &Url, headers: HeaderMap) -> HeaderMap {
    if from.origin() == to.origin() {
        return headers;
    }
    let mut kept = HeaderMap::new();
    for name in [ACCEPT, ACCEPT_LANGUAGE] {
        if let Some(value) = headers.get(&name) {
            kept.insert(name, value.clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PrivateAddresses;

    fn guard() -> AddressGuard {
        let hosts = ["api.example.com", "cdn.example.com:8443"];
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        AddressGuard::new(hosts, PrivateAddresses::Refused)
    }

    fn follow(from: &str, location: &'static str) -> Result<Option<String>, EgressError> {
        let headers = HeaderMap::from_iter([(LOCATION, location.parse().unwrap())]);
        let from = Url::parse(from).unwrap();
        let to = target(&guard(), &from, StatusCode::FOUND, &headers)?;
        Ok(to.map(String::from))
    }

    #[test]
    fn redirects_stay_on_listed_hosts_and_ports() {
        let from = "https://api.example.com/a/b?q=1";
        for (location, to) in [
            ("c", "https://api.example.com/a/c"),
            ("/d", "https://api.example.com/d"),
            ("//cdn.example.com:8443/e", "https://cdn.example.com:8443/e"),
            ("https://API.example.com:443/", "https://api.example.com/"),
        ] {
            assert_eq!(follow(from, location).unwrap().unwrap(), to);
        }
        for location in [
            "https://example.com/",
            "https://evil.test/",
            "//evil.test/",
            "https:\\\\evil.test\\",
            "https://api.example.com.evil.test/",
            "https://api.example.com:8443/",
            "https://cdn.example.com/",
            "https://cdn.example.com:8444/",
        ] {
            let refused = follow(from, location).unwrap_err();
            assert!(
                matches!(refused, EgressError::HostNotListed(_)),
                "{location}: {refused}"
            );
        }
        for location in [
            "file:///etc/passwd",
            "ftp://api.example.com/",
            "javascript:1",
            "https://user@api.example.com/",
            "https://api.example.com:80@evil.test/",
            "http://[::/",
        ] {
            let refused = follow(from, location).unwrap_err();
            assert!(
                matches!(refused, EgressError::NotHttp),
                "{location}: {refused}"
            );
        }
    }

    #[test]
    fn encryption_is_never_given_up() {
        let refused = follow("https://api.example.com/", "http://api.example.com/").unwrap_err();
        assert!(matches!(refused, EgressError::Downgrade), "{refused}");
        let upgraded = follow("http://api.example.com/", "https://api.example.com/").unwrap();
        assert_eq!(upgraded.unwrap(), "https://api.example.com/");
    }

    #[test]
    fn only_reading_requests_are_redirected() {
        let headers = HeaderMap::from_iter([(LOCATION, "/b".parse().unwrap())]);
        let from = Url::parse("https://api.example.com/").unwrap();
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            assert!(!follows(&method), "{method}");
        }
        for status in [200, 300, 304, 305, 306, 404] {
            let status = StatusCode::from_u16(status).unwrap();
            let to = target(&guard(), &from, status, &headers).unwrap();
            assert_eq!(to, None, "{status}");
        }
    }

    #[test]
    fn another_origin_gets_no_credentials() {
        let sent: HeaderMap = ["authorization", "cookie", "x-api-key", "accept"]
            .into_iter()
            .map(|name| (name.parse().unwrap(), "secret".parse().unwrap()))
            .collect();
        let from = Url::parse("https://api.example.com/").unwrap();
        let same = Url::parse("https://api.example.com/other").unwrap();
        assert_eq!(headers(&from, &same, sent.clone()), sent);
        for other in [
            "https://cdn.example.com:8443/",
            "http://api.example.com/",
            "https://api.example.com:8443/",
        ] {
            let other = Url::parse(other).unwrap();
            let kept = headers(&from, &other, sent.clone());
            assert_eq!(kept.keys().collect::<Vec<_>>(), [ACCEPT], "{other}");
        }
    }
}
