//! The `WWW-Authenticate` challenge of a service that rejects a request (RFC 9110 §11.6.1, RFC 6750 §3).

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;

/// The `Bearer` challenge of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BearerChallenge {
    /// The parameters of the challenge, with names in lower case.
    parameters: BTreeMap<String, String>,
}

impl BearerChallenge {
    /// Returns the first `Bearer` challenge of a response, if there is one.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(WWW_AUTHENTICATE).iter();
        values
            .filter_map(|value| value.to_str().ok())
            .find_map(Self::parse)
    }

    /// Returns the URL of the metadata of the service (RFC 9728 §5.1).
    pub(super) fn resource_metadata(&self) -> Option<&str> {
        self.get("resource_metadata")
    }

    /// Returns the scopes that the request needs.
    pub(super) fn scope(&self) -> Option<&str> {
        self.get("scope")
    }

    /// Returns whether the token is valid but lacks a scope.
    pub(super) fn is_insufficient_scope(&self) -> bool {
        self.get("error") == Some("insufficient_scope")
    }

    /// Returns the parameter of this name, which is in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// Parses the `Bearer` challenge of a header that may contain several challenges, with commas between and within
    /// them.
    fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim_start();
        let mut challenge: Option<Self> = None;
        while !rest.is_empty() {
            let (word, after) = token(rest);
            if word.is_empty() {
                break;
            }
            let after = after.trim_start();
            if let Some(value) = after.strip_prefix('=') {
                let (value, after) = value_of(value.trim_start())?;
                if let Some(challenge) = &mut challenge {
                    // Only the first of several parameters with one name counts.
                    let parameters = &mut challenge.parameters;
                    parameters.entry(word.to_ascii_lowercase()).or_insert(value);
                }
                rest = after;
            } else if challenge.is_some() {
                // The next challenge begins here.
                break;
            } else {
                challenge = word.eq_ignore_ascii_case("bearer").then(Self::default);
                rest = after;
            }
            rest = rest.trim_start_matches([',', ' ', '\t']);
        }
        challenge
    }
}

/// Splits `text` after a leading token (RFC 9110 §5.6.2).
fn token(text: &str) -> (&str, &str) {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let end = text.find(|c| !is_token(c)).unwrap_or(text.len());
    text.split_at(end)
}

/// Parses a token or a quoted string, and returns it with the rest of the text.
fn value_of(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = token(text);
        return Some((value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_challenge(text: &str) -> Option<BearerChallenge> {
        let mut headers = HeaderMap::new();
        headers.insert(WWW_AUTHENTICATE, text.parse().unwrap());
        BearerChallenge::from_headers(&headers)
    }

    #[test]
    fn the_bearer_challenge_is_found_among_others() {
        for text in [
            r#"Bearer error="insufficient_scope", scope="a b", resource_metadata="https://x/y""#,
            r#"Basic realm="a, Bearer scope=\"no\"", bearer ERROR=insufficient_scope,scope = "a b",  resource_metadata="https://x/\y", DPoP scope="no""#,
        ] {
            let challenge = parse_challenge(text).unwrap();
            assert!(challenge.is_insufficient_scope(), "{text}");
            assert_eq!(challenge.scope(), Some("a b"), "{text}");
            assert_eq!(challenge.resource_metadata(), Some("https://x/y"));
        }
    }

    #[test]
    fn what_is_no_bearer_challenge_is_none() {
        for text in [
            "",
            "Basic realm=\"x\"",
            "Bearer scope=\"open",
            "=,;",
            "\"Bearer\"",
        ] {
            assert_eq!(parse_challenge(text), None, "{text}");
        }
        assert_eq!(
            parse_challenge("Bearer").unwrap(),
            BearerChallenge::default()
        );
    }
}
