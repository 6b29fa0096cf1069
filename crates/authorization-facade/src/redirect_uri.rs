//! Redirect URIs of clients, to which authorization codes are sent.
//!
//! Web clients use `https`; programs use `http` to loopback or their own schemes (RFC 8252 §7). A redirect URI must be
//! identical to a registered one. On loopback only the port may differ, because programs choose it for each request
//! (RFC 8252 §7.3).

use url::Url;
use wardgate_domain::is_loopback_host;

/// Maximum length of a redirect URI, in bytes.
const MAX_LENGTH: usize = 512;

/// Schemes on which a browser or an operating system acts by itself. On Windows, those that begin with `ms-` do so too.
const ACTING_SCHEMES: [&str; 25] = [
    "about",
    "blob",
    "chrome",
    "data",
    "edge",
    "facetime",
    "feed",
    "file",
    "filesystem",
    "ftp",
    "intent",
    "jar",
    "javascript",
    "ldap",
    "mailto",
    "mhtml",
    "news",
    "res",
    "search",
    "shell",
    "sms",
    "ssh",
    "tel",
    "vbscript",
    "view-source",
];

/// The reason why a redirect URI is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedirectRefusal {
    /// The URI is not safe as a redirect URI.
    Unsafe,
    /// The host is not one that the operator allows.
    OtherHost,
}

/// Checks a redirect URI of a client. `hosts` are the allowed hosts of web clients, if the operator lists them.
pub(crate) fn check(uri: &str, hosts: Option<&[String]>) -> Result<(), RedirectRefusal> {
    let plain = uri.len() <= MAX_LENGTH && uri.bytes().all(|byte| byte.is_ascii_graphic());
    let url = Url::parse(uri).ok().filter(|_| plain);
    let url = url.filter(|url| url.fragment().is_none() && !uri.contains(['"', '<', '>', '\\']));
    let url = url.ok_or(RedirectRefusal::Unsafe)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(RedirectRefusal::Unsafe);
    }
    match url.scheme() {
        "https" => {
            let host = url.host_str().unwrap_or_default();
            let listed = hosts.is_none_or(|hosts| hosts.iter().any(|it| it == host));
            listed.then_some(()).ok_or(RedirectRefusal::OtherHost)
        }
        "http" => url
            .host_str()
            .is_some_and(is_loopback_host)
            .then_some(())
            .ok_or(RedirectRefusal::Unsafe),
        scheme => {
            let acting = ACTING_SCHEMES.contains(&scheme) || scheme.starts_with("ms-");
            let rest = uri.get(scheme.len() + 1..).unwrap_or_default();
            // The scheme of a program is followed by a host, or is a reversed domain name (RFC 8252 §7.1).
            let of_program =
                rest.starts_with("//") || (rest.starts_with('/') && scheme.contains('.'));
            let acting = acting || matches!(scheme, "ws" | "wss");
            (of_program && !acting)
                .then_some(())
                .ok_or(RedirectRefusal::Unsafe)
        }
    }
}

/// Returns whether the `uri` of a request matches the `registered` one.
pub(crate) fn is_same(registered: &str, uri: &str) -> bool {
    if registered == uri {
        return true;
    }
    match (without_port(registered), without_port(uri)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// Splits a loopback URI into host and path, without its port. It does not normalize anything, so different spellings
/// do not match.
fn without_port(uri: &str) -> Option<(&str, &str)> {
    let rest = uri.strip_prefix("http://")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let is_port =
        |text: &str| (1..=5).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_digit());
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if is_port(port) => host,
        _ => authority,
    };
    let path = if path.is_empty() { "/" } else { path };
    matches!(host, "localhost" | "127.0.0.1" | "[::1]").then_some((host, path))
}

/// Returns whether the URI leads to a program on the browser's own machine only.
pub(crate) fn is_of_program(uri: &str) -> bool {
    Url::parse(uri).is_ok_and(|url| url.scheme() != "https")
}

/// Describes the target of the URI for a person.
pub(crate) fn describe_target(uri: &str) -> String {
    let Ok(url) = Url::parse(uri) else {
        return String::new();
    };
    match url.scheme() {
        "http" => "a program on this computer".to_owned(),
        "https" => url.host_str().unwrap_or_default().to_owned(),
        scheme => format!("the program that opens {scheme}: links"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_of_today_register_takes_codes() {
        for uri in [
            "https://vscode.dev/redirect",
            "http://127.0.0.1/",
            "http://127.0.0.1:33418/",
            "http://localhost:3118/callback",
            "http://[::1]:9/cb",
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "com.example.app:/oauth",
            "https://claude.ai/api/mcp/auth_callback",
        ] {
            assert_eq!(check(uri, None), Ok(()), "{uri}");
        }
    }

    #[test]
    fn what_a_browser_would_act_upon_takes_none() {
        for uri in [
            "",
            "callback",
            "javascript:alert(1)",
            "javascript://x/%0aalert(1)",
            "JavaScript://x/",
            "data:text/html,x",
            "data://x/",
            "vbscript://x",
            "file:///etc/passwd",
            "view-source://x",
            "ms-msdt://id",
            "search://query",
            "intent://x",
            "blob:https://a.example/x",
            "http://evil.example/cb",
            "http://127.0.0.1.evil.example/cb",
            "http://localhost.evil.example/cb",
            "http://user@127.0.0.1/cb",
            "https://user:pw@a.example/cb",
            "https://a.example/cb#x",
            "https://a.example/c b",
            "https://a.example/\u{202e}",
            "mailto:a@b.example",
            "myapp:callback",
            "ws://127.0.0.1/",
        ] {
            assert_eq!(check(uri, None), Err(RedirectRefusal::Unsafe), "{uri}");
        }
        let long = format!("https://a.example/{}", "x".repeat(MAX_LENGTH));
        assert_eq!(check(&long, None), Err(RedirectRefusal::Unsafe));
    }

    #[test]
    fn the_operator_may_list_the_hosts_of_web_clients() {
        let hosts = ["claude.ai".to_owned()];
        assert_eq!(check("https://claude.ai/cb", Some(&hosts)), Ok(()));
        for uri in [
            "https://evil.example/cb",
            "https://claude.ai.evil.example/cb",
        ] {
            assert_eq!(
                check(uri, Some(&hosts)),
                Err(RedirectRefusal::OtherHost),
                "{uri}"
            );
        }
        assert_eq!(check("http://localhost/cb", Some(&hosts)), Ok(()));
    }

    #[test]
    fn only_the_port_of_loopback_is_free() {
        let same = [
            ("http://127.0.0.1/", "http://127.0.0.1:59656/"),
            (
                "http://localhost:3118/callback",
                "http://localhost:4000/callback",
            ),
            ("http://[::1]/cb", "http://[::1]:1/cb"),
            ("https://a.example/cb", "https://a.example/cb"),
            ("http://127.0.0.1:33418", "http://127.0.0.1:5/"),
        ];
        for (registered, uri) in same {
            assert!(is_same(registered, uri), "{registered} {uri}");
        }
        let other = [
            ("https://a.example/cb", "https://a.example:444/cb"),
            ("https://a.example/cb", "https://a.example/cb/"),
            ("https://a.example/cb", "https://a.example/cb?x=1"),
            ("https://a.example/cb", "https://A.example/cb"),
            ("https://a.example/cb", "https://a.example/../cb"),
            ("http://127.0.0.1/cb", "http://localhost/cb"),
            ("http://127.0.0.1/cb", "http://127.0.0.2/cb"),
            ("http://127.0.0.1/cb", "https://127.0.0.1/cb"),
            ("http://127.0.0.1/cb", "http://127.0.0.1:9/CB"),
            ("http://127.0.0.1/cb", "http://127.0.0.1:9/x/../cb"),
            ("http://127.0.0.1/cb", "http://127.0.0.1@evil.example/cb"),
            ("http://localhost/cb", "http://localhost:80@evil.example/cb"),
            ("cursor://a/cb", "cursor://b/cb"),
        ];
        for (registered, uri) in other {
            assert!(!is_same(registered, uri), "{registered} {uri}");
        }
    }
}
