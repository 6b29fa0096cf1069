//! Cookies: how they are found in a request and set in a response.

use std::time::Duration;

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

/// A cookie that over https is of this very host alone: browsers take one whose name has the prefix from nobody else
/// (RFC 6265bis §4.1.3.2).
pub(crate) struct HostCookie {
    /// Over https, with the prefix `__Host-`.
    pub(crate) secure_name: &'static str,
    /// Over plain HTTP.
    pub(crate) name: &'static str,
    /// Where browsers send it over plain HTTP; the prefix demands all of the host.
    pub(crate) path: &'static str,
    pub(crate) same_site: &'static str,
}

impl HostCookie {
    /// Its value in a request.
    pub(crate) fn find<'h>(&self, headers: &'h HeaderMap, is_secure: bool) -> Option<&'h str> {
        only_cookie(headers, self.name(is_secure))
    }

    /// `Set-Cookie` that sets it for so long.
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

    /// `Set-Cookie` that takes it away.
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

/// A header that logs leave out.
pub(crate) fn secret_header(text: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The value of the one cookie of this name. Of two one is somebody else's doing.
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
