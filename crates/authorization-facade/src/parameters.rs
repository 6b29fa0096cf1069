//! The parameters of a request, from a query or a form (RFC 6749 §3.1 and §3.2).

use crate::error::OAuthError;

/// Maximum length of the value of a parameter that is not a token, in bytes.
const MAX_VALUE: usize = 4_096;

/// The parameters of one request. Only `resource` may occur several times (RFC 8707 §2).
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Parses the parameters. A parameter without a value is treated as missing.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, OAuthError> {
        let mut all: Vec<(String, String)> = Vec::new();
        for (name, value) in url::form_urlencoded::parse(text) {
            if value.is_empty() {
                continue;
            }
            if name != "resource" && all.iter().any(|(known, _)| *known == name) {
                return Err(OAuthError::invalid_request("a parameter occurs twice"));
            }
            all.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self(all))
    }

    /// Returns the value of a parameter, whatever its length.
    pub(crate) fn token(&self, name: &str) -> Option<&str> {
        self.values(name).next()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.token(name).filter(|value| value.len() <= MAX_VALUE)
    }

    pub(crate) fn require(&self, name: &str, missing: &'static str) -> Result<&str, OAuthError> {
        self.get(name).ok_or(OAuthError::invalid_request(missing))
    }

    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.0.iter().filter(move |(known, _)| known == name);
        named.map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_given_twice_is_refused_and_one_without_a_value_is_none() {
        let parsed = Parameters::parse(b"a=1&b=&resource=x&resource=y").unwrap();
        assert_eq!((parsed.get("a"), parsed.get("b")), (Some("1"), None));
        assert_eq!(parsed.values("resource").collect::<Vec<_>>(), ["x", "y"]);
        assert!(Parameters::parse(b"state=1&state=1").is_err());
    }

    #[test]
    fn a_value_that_no_parameter_needs_is_none() {
        let text = format!("a={}", "x".repeat(MAX_VALUE + 1));
        let parsed = Parameters::parse(text.as_bytes()).unwrap();
        assert_eq!(parsed.get("a"), None);
        assert!(parsed.token("a").is_some());
    }
}
