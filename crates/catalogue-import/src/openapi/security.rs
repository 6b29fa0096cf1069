//! Conversion of security schemes to the credentials of the source, with variables in place of secrets.

use serde_json::{Map, Value, json};
use url::Url;

use super::OpenapiDocument;
use crate::draft::{Draft, SourceDraft};
use crate::text;

/// Sets `auth` and `headers` of the source according to the security schemes of the service.
pub(super) fn set_auth(api: OpenapiDocument<'_>, source: &mut SourceDraft, draft: &mut Draft) {
    let schemes = api
        .root
        .pointer("/components/securitySchemes")
        .and_then(Value::as_object);
    let Some(schemes) = schemes.filter(|schemes| !schemes.is_empty()) else {
        return;
    };
    let chosen = requirement(api.root).unwrap_or_else(|| {
        let only = schemes.keys().next().filter(|_| schemes.len() == 1);
        only.map(String::as_str).into_iter().collect()
    });
    let prefix = text::variable(&source.name);
    let mut headers = Map::new();
    for (name, scheme) in schemes {
        if !chosen.contains(&name.as_str()) {
            source.reviews.push(format!(
                "the security scheme `{name}` is not used: another one is used"
            ));
            continue;
        }
        let Some(scheme) = api.resolve(scheme) else {
            source
                .reviews
                .push(format!("the security scheme `{name}` cannot be found"));
            continue;
        };
        if let Err(problem) = apply(name, scheme, &prefix, source, &mut headers, draft) {
            source
                .reviews
                .push(format!("the security scheme `{name}` {problem}"));
        }
    }
    if !headers.is_empty() {
        source.fields.insert("headers".to_owned(), headers.into());
    }
}

/// Returns the schemes of the first non-empty security requirement: that of the document, or else that of an operation.
fn requirement(root: &Value) -> Option<Vec<&str>> {
    names(root).or_else(|| {
        let items = root.get("paths")?.as_object()?.values();
        items
            .filter_map(Value::as_object)
            .flat_map(Map::values)
            .find_map(names)
    })
}

fn names(owner: &Value) -> Option<Vec<&str>> {
    let requirements = owner.get("security")?.as_array()?;
    requirements.iter().find_map(|requirement| {
        let names: Vec<_> = requirement
            .as_object()?
            .keys()
            .map(String::as_str)
            .collect();
        (!names.is_empty()).then_some(names)
    })
}

/// Applies a scheme to the source. An error is the reason why the scheme is not carried over, worded to follow its name.
fn apply(
    name: &str,
    scheme: &Value,
    prefix: &str,
    source: &mut SourceDraft,
    headers: &mut Map<String, Value>,
    draft: &mut Draft,
) -> Result<(), String> {
    let mut secret = |suffix: &str, what: &str| {
        let about = format!("the {what} of the security scheme `{name}`");
        draft.variable(&format!("{prefix}_{suffix}"), &about, "sample")
    };
    let word = |key: &str| {
        scheme[key]
            .as_str()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    let auth = match (word("type").as_str(), word("scheme").as_str()) {
        ("http", "bearer") => json!({ "type": "bearer", "token": secret("TOKEN", "token") }),
        ("http", "basic") => json!({
            "type": "basic",
            "username": secret("USERNAME", "user name"),
            "password": secret("PASSWORD", "password"),
        }),
        ("apikey", _) => {
            let key = scheme["name"].as_str().filter(|key| is_token(key));
            let key = key.ok_or("has a name that is not valid for a header or cookie")?;
            let location = word("in");
            if !matches!(location.as_str(), "header" | "cookie") {
                return Err("is a key in the query, which sources do not support".to_owned());
            }
            let value = secret(&text::variable(name), "key");
            if location == "header" {
                headers.insert(key.to_owned(), value.into());
            } else {
                headers.insert("Cookie".to_owned(), format!("{key}={value}").into());
            }
            return Ok(());
        }
        ("oauth2", _) => {
            let flow = &scheme["flows"]["clientCredentials"];
            let Some(url) = token_url(flow) else {
                return Err(
                    "is the sign-in of a user: use `auth: { type: token_exchange, … }` or a token"
                        .to_owned(),
                );
            };
            let mut auth = json!({
                "type": "client_credentials",
                "token_url": url,
                "client_id": secret("CLIENT_ID", "client id"),
                "client_secret": secret("CLIENT_SECRET", "client secret"),
            });
            if let (Some(scopes), Some(auth)) = (scopes(flow), auth.as_object_mut()) {
                auth.insert("scope".to_owned(), scopes.into());
            }
            auth
        }
        _ => return Err("has a type that is not imported".to_owned()),
    };
    if source.fields.contains_key("auth") {
        return Err("is omitted: a source has only one `auth`".to_owned());
    }
    source.fields.insert("auth".to_owned(), auth);
    Ok(())
}

/// Returns whether `text` is a token (RFC 9110, section 5.6.2) of at most 64 bytes.
fn is_token(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.len() <= 64 && text.bytes().all(is_allowed)
}

/// Returns the token URL if it can be written to the file without being misread as anything else.
fn token_url(flow: &Value) -> Option<String> {
    let url = Url::parse(flow["tokenUrl"].as_str()?).ok()?;
    let is_plain = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
        && !url.as_str().contains("${");
    is_plain.then(|| url.to_string())
}

fn scopes(flow: &Value) -> Option<String> {
    let is_scope = |scope: &&str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b":/._-".contains(&byte);
        !scope.is_empty() && scope.bytes().all(is_allowed)
    };
    let scopes = flow["scopes"].as_object()?.keys().map(String::as_str);
    let scopes: Vec<_> = scopes.filter(is_scope).collect();
    (!scopes.is_empty()).then(|| scopes.join(" "))
}
