//! Extraction of the bearer token from a request (RFC 6750 §2.1). A token in the query or the body is not accepted.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::TokenRefusal;

/// Returns the token in the only `Authorization` header.
pub(super) fn bearer(headers: &HeaderMap) -> Result<&str, TokenRefusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(TokenRefusal::TokenMissing)?;
    if values.next().is_some() {
        return Err(TokenRefusal::AuthorizationRepeated);
    }
    let text = value
        .to_str()
        .map_err(|_| TokenRefusal::AuthorizationMalformed)?
        .trim_ascii();
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(if text.is_empty() {
            TokenRefusal::TokenMissing
        } else {
            TokenRefusal::SchemeRefused
        });
    }
    match token.trim_ascii_start() {
        "" => Err(TokenRefusal::TokenMissing),
        token if token.bytes().all(is_of_token) => Ok(token),
        _ => Err(TokenRefusal::AuthorizationMalformed),
    }
}

/// Returns whether `b64token` allows the byte.
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn parse_headers(values: &[&str]) -> Result<String, TokenRefusal> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(
                AUTHORIZATION,
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        bearer(&headers).map(ToOwned::to_owned)
    }

    #[test]
    fn the_scheme_is_read_in_any_case() {
        for value in ["Bearer a.b.c", "bearer a.b.c", "BEARER   a.b.c "] {
            assert_eq!(parse_headers(&[value]).unwrap(), "a.b.c");
        }
    }

    #[test]
    fn a_request_without_exactly_one_bearer_token_says_why() {
        let cases: [(&[&str], TokenRefusal); 10] = [
            (&[], TokenRefusal::TokenMissing),
            (&[""], TokenRefusal::TokenMissing),
            (&["Bearer"], TokenRefusal::TokenMissing),
            (&["Bearer  "], TokenRefusal::TokenMissing),
            (&["Basic dXNlcjpwYXNz"], TokenRefusal::SchemeRefused),
            (&["BearerX a.b.c"], TokenRefusal::SchemeRefused),
            (
                &["Bearer a.b.c", "Bearer a.b.c"],
                TokenRefusal::AuthorizationRepeated,
            ),
            (&["Bearer \u{fc}.b.c"], TokenRefusal::AuthorizationMalformed),
            (
                &["Bearer a.b.c a.b.c"],
                TokenRefusal::AuthorizationMalformed,
            ),
            (&[r#"Bearer "a.b.c""#], TokenRefusal::AuthorizationMalformed),
        ];
        for (values, refusal) in cases {
            assert_eq!(parse_headers(values), Err(refusal), "{values:?}");
        }
    }
}
