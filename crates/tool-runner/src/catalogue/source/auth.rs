//! `auth` of a source: the credentials it is called with.

use super::Expand;
use super::http::service_url;
use crate::catalogue::fault::Fields;
use crate::catalogue::yaml::Node;
use crate::egress::{AuthSettings, ClientKey, ClientProof, OAuthClient, Secret};

const TYPES: &str = "none, bearer, basic, client_credentials, token_exchange";

/// Reads it; what is secret in it is never part of a fault.
pub(crate) fn read(node: &Node, expand: &mut Expand<'_>) -> Option<AuthSettings> {
    let mut fields = Fields::of(node, "auth", expand.faults)?;
    let kind = fields.required(
        "type",
        &format!("add `type`, one of {TYPES}"),
        expand.faults,
    )?;
    let auth = match expand.text(kind, "type")?.as_str() {
        "none" => Some(AuthSettings::None),
        "bearer" => {
            secret("token", &mut fields, expand).map(|token| AuthSettings::Bearer { token })
        }
        "basic" => {
            let username = text("username", &mut fields, expand);
            let password = secret("password", &mut fields, expand);
            username
                .zip(password)
                .map(|(username, password)| AuthSettings::Basic { username, password })
        }
        "client_credentials" => client(&mut fields, expand).map(AuthSettings::ClientCredentials),
        "token_exchange" => client(&mut fields, expand).map(AuthSettings::TokenExchange),
        other => {
            expand.faults.add(
                kind.at,
                format!("`{other}` is no type of `auth`"),
                format!("use one of {TYPES}"),
            );
            return None;
        }
    };
    fields.finish(expand.faults);
    auth
}

fn client(fields: &mut Fields<'_>, expand: &mut Expand<'_>) -> Option<OAuthClient> {
    let token_url = fields.required(
        "token_url",
        "add the token endpoint of the authorization server",
        expand.faults,
    );
    let client_id = text("client_id", fields, expand);
    let proof = proof(fields, expand);
    let scope = optional("scope", fields, expand);
    let audience = optional("audience", fields, expand);
    Some(OAuthClient {
        token_url: service_url(token_url?, "token_url", expand)?,
        client_id: client_id?,
        proof: proof?,
        scope,
        audience,
    })
}

/// A secret or a private key.
fn proof(fields: &mut Fields<'_>, expand: &mut Expand<'_>) -> Option<ClientProof> {
    let Some(node) = fields.optional("private_key") else {
        return secret("client_secret", fields, expand).map(ClientProof::Secret);
    };
    let key_id = optional("key_id", fields, expand);
    let audience = optional("assertion_audience", fields, expand);
    if fields.optional("client_secret").is_some() {
        expand.faults.add(
            node.at,
            "the client has a `client_secret` and a `private_key`",
            "keep one of them",
        );
        return None;
    }
    let pem = expand.text(node, "private_key")?;
    match ClientKey::read(Secret::from(pem), key_id) {
        Ok(key) => Some(ClientProof::Key { key, audience }),
        Err(not_a_key) => {
            expand.faults.add(
                node.at,
                format!("`private_key` {not_a_key}"),
                "write `private_key: \"${file:client.pem}\"`",
            );
            None
        }
    }
}

fn optional(key: &'static str, fields: &mut Fields<'_>, expand: &mut Expand<'_>) -> Option<String> {
    let node = fields.optional(key)?;
    expand.text(node, key)
}

fn secret(key: &'static str, fields: &mut Fields<'_>, expand: &mut Expand<'_>) -> Option<Secret> {
    text(key, fields, expand).map(Secret::from)
}

fn text(key: &'static str, fields: &mut Fields<'_>, expand: &mut Expand<'_>) -> Option<String> {
    let fix = format!("add `{key}`, a secret for example as \"${{NAME}}\"");
    let node = fields.required(key, &fix, expand.faults)?;
    expand.text(node, key)
}
