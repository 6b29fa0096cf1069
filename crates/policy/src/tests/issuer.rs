//! An issuer whose tokens the service under test accepts. It uses only public crates, so that integration tests can use
//! it too.

use serde_json::json;
use wardgate_domain::{AttributeValue, Caller, Timestamp};
use wardgate_edge::{AuthConfig, IssuerConfig, JwksSource};
use wardgate_testkit::TestIssuer;

/// The URL of the issuer of test callers.
const URL: &str = "https://issuer.example";

/// An issuer and its published key set.
pub(crate) struct Issuer(TestIssuer);

impl Issuer {
    pub(crate) fn new() -> Self {
        Self(TestIssuer::new(URL))
    }

    /// Returns a configuration that trusts the issuer, with the attributes of test callers.
    pub(crate) fn auth_config(&self) -> AuthConfig {
        let keys = JwksSource::File(self.0.key_set().to_owned());
        let mut issuer = IssuerConfig::new(URL, "wardgate", keys);
        issuer.leeway_seconds = 0;
        for name in ["ward", "patient_id"] {
            issuer.attributes.insert(name.to_owned(), name.to_owned());
        }
        AuthConfig::of_issuers(vec![issuer])
    }

    /// Returns a token with the claims of `caller` that expires at `ends`.
    pub(crate) fn token(&self, caller: &Caller, ends: Timestamp) -> String {
        let mut claims = json!({
            "iss": caller.issuer(),
            "sub": caller.subject(),
            "roles": caller.roles(),
            "jti": caller.token_id(),
            "exp": ends.as_seconds(),
        });
        for (name, value) in caller.attributes() {
            claims[name] = match value {
                AttributeValue::Text(text) => json!(text),
                AttributeValue::Integer(number) => json!(number),
                AttributeValue::Boolean(truth) => json!(truth),
                AttributeValue::List(items) => json!(items),
            };
        }
        self.0.token(&claims)
    }
}
