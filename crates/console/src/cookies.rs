//! Cookies: reads them from requests and sets them in responses.

use std::time::Duration;

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

/// A cookie that over https is bound to this host: browsers accept a cookie with the prefix `__Host-` from this host
/// only (RFC 6265bis §4.1.3.2).
pub(crate) struct HostCookie {
    /// The name of the cookie over https, with the prefix `__Host-`.
    pub(crate) secure_name: &'static str,
    /// The name of the cookie over plain HTTP.
    pub(crate) name: &'static str,
    /// The path of the cookie over plain HTTP. The prefix `__Host-` requires the path `/`.
    pub(crate) path: &'static str,
    pub(crate) same_site: &'static str,
}

impl HostCookie {
    /// Returns the value of the cookie in a request.
    pub(crate) fn find<'h>(&self, headers: &'h HeaderMap, is_secure: bool) -> Option<&'h str> {
        only_cookie(headers, self.name(is_secure))
    }

    /// Returns a `Set-Cookie` header that sets the cookie for the time `left`.
    pub(crate) fn set(&self, value: &str, left: Duration, is_secure: bool) -> Option<HeaderValue> {
        let (path, secure) = if is_secure {
            ("/", "; Secure")
        } else {
            (self.path, "")
        };
        let (name, same_site, left) = (self.name(is_secure), self.same_site, left.as_secs());
        secret_header(format!(
            "{name}={value}; Path={path}{secure}; Max-Age={left}; HttpOnly; SameSite={same_site}"
        ))
    }

    /// Returns a `Set-Cookie` header that removes the cookie.
    pub(crate) fn end(&self, is_secure: bool) -> Option<HeaderValue> {
        self.set("", Duration::ZERO, is_secure)
    }

    const fn name(&self, is_secure: bool) -> &'static str {
        if is_secure {
            self.secure_name
        } else {
            self.name
        }
    }
}

/// Returns a header value that is marked as sensitive, so that logs leave it out.
pub(crate) fn secret_header(text: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the value of the only cookie of this name. If there are several, one may be an attacker's, so none is used.
pub(crate) fn only_cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let cookies = headers.get_all(COOKIE).iter();
    let mut values = cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(own, _)| *own == name)
        .map(|(_, value)| value);
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value),
        _ => None,
    }
}
