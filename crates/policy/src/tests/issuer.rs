//! An issuer whose tokens the service under test accepts; of the public crates alone, so that every kind of test can use
//! it.

use serde_json::json;
use wardgate_domain::{AttributeValue, Caller, Timestamp};
use wardgate_edge::{AuthConfig, IssuerConfig, JwksSource};
use wardgate_testkit::TestIssuer;

/// Where the callers of tests come from.
const URL: &str = "https://issuer.example";

/// An issuer and its published key set.
pub(crate) struct Issuer(TestIssuer);

impl Issuer {
    pub(crate) fn new() -> Self {
        Self(TestIssuer::new(URL))
    }

    /// Trusts it, with the attributes that callers of tests have.
    pub(crate) fn trusted(&self) -> AuthConfig {
        let keys = JwksSource::File(self.0.key_set().to_owned());
        let mut issuer = IssuerConfig::new(URL, "wardgate", keys);
        issuer.leeway_seconds = 0;
        for name in ["ward", "patient_id"] {
            issuer.attributes.insert(name.to_owned(), name.to_owned());
        }
        AuthConfig::of_issuers(vec![issuer])
    }

    /// A token that says what is known of `caller`, good until `ends`.
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
