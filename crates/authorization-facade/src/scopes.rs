//! The scopes that clients request, and those that are requested from the provider.

use crate::config::AuthorizationConfig;
use crate::preset::is_of_openid;

/// The supported scopes and their names at the provider.
pub(crate) struct ScopeRules {
    always: Vec<String>,
    optional: Vec<String>,
    prefix: String,
}

impl ScopeRules {
    pub(crate) fn new(config: &AuthorizationConfig) -> Self {
        let of_preset = || config.preset.scopes().iter().map(ToString::to_string);
        Self {
            always: (config.scopes.clone()).unwrap_or_else(|| of_preset().collect()),
            optional: config.optional_scopes.clone(),
            prefix: config.scope_prefix.clone(),
        }
    }

    /// Returns all scopes, as clients write them.
    pub(crate) fn supported_scopes(&self) -> impl Iterator<Item = &str> {
        let mut all: Vec<&str> = Vec::new();
        for scope in self.always.iter().chain(&self.optional) {
            let short = self.short(scope);
            if !all.contains(&short) {
                all.push(short);
            }
        }
        all.into_iter()
    }

    /// Returns the scopes for a client that requests `asked`: the scopes that all clients get, and the optional ones
    /// that it requested. Unknown scopes are left out, as RFC 6749 §3.3 allows, because providers would refuse the
    /// whole request.
    pub(crate) fn granted_scopes(&self, asked: Option<&str>) -> Vec<&str> {
        let asked: Vec<&str> = asked
            .into_iter()
            .flat_map(str::split_ascii_whitespace)
            .collect();
        let always: Vec<&str> = self.always.iter().map(|it| self.short(it)).collect();
        self.supported_scopes()
            .filter(|scope| always.contains(scope) || asked.contains(scope))
            .collect()
    }

    /// Returns the scopes to request from the provider.
    pub(crate) fn at_provider(&self, granted: &str) -> String {
        let full = granted.split_ascii_whitespace().map(|scope| {
            if is_of_openid(scope) || scope.contains("://") {
                scope.to_owned()
            } else {
                format!("{}{scope}", self.prefix)
            }
        });
        full.collect::<Vec<_>>().join(" ")
    }

    /// Converts the scopes that the provider granted to the names that clients use.
    pub(crate) fn for_client(&self, scope: &str) -> String {
        let names = scope.split_ascii_whitespace().map(|it| self.short(it));
        names.collect::<Vec<_>>().join(" ")
    }

    fn short<'s>(&self, scope: &'s str) -> &'s str {
        scope.strip_prefix(&*self.prefix).unwrap_or(scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> ScopeRules {
        ScopeRules {
            always: ["openid", "mcp"].map(ToOwned::to_owned).into(),
            optional: ["mcp.write", "api://other/.default"]
                .map(ToOwned::to_owned)
                .into(),
            prefix: "api://gateway/".to_owned(),
        }
    }

    #[test]
    fn a_client_gets_what_everybody_gets_and_no_scope_that_nobody_knows() {
        let rules = rules();
        for (asked, granted) in [
            (None, "openid mcp"),
            (Some("mcp.write profile"), "openid mcp mcp.write"),
            (Some("admin"), "openid mcp"),
        ] {
            assert_eq!(rules.granted_scopes(asked).join(" "), granted, "{asked:?}");
        }
    }

    #[test]
    fn the_provider_reads_its_own_names_and_the_client_short_ones() {
        let rules = rules();
        let full = rules.at_provider("openid mcp api://other/.default");
        assert_eq!(full, "openid api://gateway/mcp api://other/.default");
        assert_eq!(rules.for_client(&full), "openid mcp api://other/.default");
    }
}
