//! `auth` of a source: the credentials for its requests.

use wardgate_yaml::Node;

use super::VariableExpander;
use super::expand::{STAND_IN, STAND_IN_URL};
use super::network::service_url;
use crate::fault::FieldReader;
use wardgate_egress::{
    AuthSettings, ClientKey, ClientProof, CodeSettings, EnterpriseSettings, OAuthClient,
    RegisteredClient, Secret, ServerSettings, SubjectToken,
};

const TYPES: &str = "none, bearer, basic, client_credentials, token_exchange, enterprise_managed, authorization_code";

/// The kind of service that the credentials are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Http,
    Grpc,
    /// An MCP server, which can name its authorization server.
    Mcp,
}

/// Reads the `auth` of a source. Faults never contain secrets.
pub(crate) fn read_auth(
    node: &Node,
    service: Service,
    expand: &mut VariableExpander<'_>,
) -> Option<AuthSettings> {
    let mut fields = FieldReader::new(node, "auth", expand.faults)?;
    let kind = fields.take_required(
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
        "client_credentials" => {
            let location = server_location(node, service);
            client(node, location, &mut fields, expand).map(AuthSettings::ClientCredentials)
        }
        "token_exchange" => client(node, ServerLocation::Configured, &mut fields, expand)
            .map(AuthSettings::TokenExchange),
        "enterprise_managed" => enterprise(node, service, &mut fields, expand),
        "authorization_code" => authorization_code(node, service, &mut fields, expand),
        other => {
            expand.faults.add(
                kind.at,
                format!("`{other}` is not a type of `auth`"),
                format!("use one of {TYPES}"),
            );
            return None;
        }
    };
    fields.finish(expand.faults);
    auth
}

/// The way in which the authorization server is determined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServerLocation {
    /// The settings must name it.
    Configured,
    /// The service may name it if the settings do not.
    Discoverable,
}

/// Returns how the authorization server of `auth` is determined. A service may name it only if the client's authentication
/// is useless at any other server, which excludes client secrets and assertions with a configured audience.
fn server_location(auth: &Node, service: Service) -> ServerLocation {
    let is_good_elsewhere =
        ["client_secret", "assertion_audience"].map(|key| auth.get(key).is_some());
    if service == Service::Mcp && !is_good_elsewhere.contains(&true) {
        ServerLocation::Discoverable
    } else {
        ServerLocation::Configured
    }
}

fn client(
    node: &Node,
    location: ServerLocation,
    fields: &mut FieldReader<'_>,
    expand: &mut VariableExpander<'_>,
) -> Option<OAuthClient> {
    let server = server(node, location, fields, expand);
    let client_id = text("client_id", fields, expand);
    let proof = proof(fields, expand);
    Some(OAuthClient {
        scope: optional("scope", fields, expand),
        audience: optional("audience", fields, expand),
        resource: optional("resource", fields, expand),
        server: server?,
        client_id: client_id?,
        proof: proof?,
    })
}

/// Reads the client at the service's authorization server, and the client at the identity provider.
fn enterprise(
    node: &Node,
    service: Service,
    fields: &mut FieldReader<'_>,
    expand: &mut VariableExpander<'_>,
) -> Option<AuthSettings> {
    // An ID-JAG names the authorization server as its audience, unless the settings set another `audience` than the server
    // that receives it.
    let location = match node.get("audience") {
        Some(_) => ServerLocation::Configured,
        None => server_location(node, service),
    };
    let client = client(node, location, fields, expand);
    let provider = fields.take_required(
        "identity_provider",
        "add `identity_provider`, the client at the server that issues the callers' tokens",
        expand.faults,
    );
    let subject =
        fields
            .take_optional("subject_token")
            .map_or(Some(SubjectToken::default()), |node| {
                match expand.text(node, "subject_token")?.as_str() {
                    "access_token" => Some(SubjectToken::AccessToken),
                    "id_token" => Some(SubjectToken::IdToken),
                    _ => {
                        expand.faults.add(
                            node.at,
                            "`subject_token` must be the type of the callers' tokens",
                            "write access_token (the default) or id_token",
                        );
                        None
                    }
                }
            });
    let provider = provider.and_then(|node| {
        let mut fields = FieldReader::new(node, "identity_provider", expand.faults)?;
        let provider = client_of_provider(node, &mut fields, expand);
        fields.finish(expand.faults);
        provider
    });
    Some(AuthSettings::Enterprise(Box::new(EnterpriseSettings {
        client: client?,
        identity_provider: provider?,
        subject: subject?,
    })))
}

/// Reads the client at the identity provider. It has no scope, audience or resource, because the service determines them.
fn client_of_provider(
    node: &Node,
    fields: &mut FieldReader<'_>,
    expand: &mut VariableExpander<'_>,
) -> Option<OAuthClient> {
    let server = server(node, ServerLocation::Configured, fields, expand);
    let client_id = text("client_id", fields, expand);
    let proof = proof(fields, expand);
    Some(OAuthClient {
        server: server?,
        client_id: client_id?,
        proof: proof?,
        scope: None,
        audience: None,
        resource: None,
    })
}

fn authorization_code(
    node: &Node,
    service: Service,
    fields: &mut FieldReader<'_>,
    expand: &mut VariableExpander<'_>,
) -> Option<AuthSettings> {
    let server = server(node, server_location(node, service), fields, expand);
    let authorization_url = match fields.take_optional("authorization_url") {
        Some(node) => service_url(node, "authorization_url", expand).map(Some),
        None => Some(None),
    };
    if let Some((server, authorization_url)) = server.as_ref().zip(authorization_url.as_ref())
        && server.token_url.is_some() != authorization_url.is_some()
    {
        expand.faults.add(
            node.at,
            "`token_url` and `authorization_url` require each other",
            "write both, or neither and `issuer`, whose metadata contains them",
        );
        return None;
    }
    let client = match fields.take_optional("client_id") {
        Some(id) => Some(RegisteredClient {
            id: expand.connection_text(id, "client_id", STAND_IN)?,
            proof: proof_or_none(node, fields, expand)?,
        }),
        None => None,
    };
    if client.is_none() && authorization_url.as_ref().is_some_and(Option::is_some) {
        expand.faults.add(
            node.at,
            "`auth` has no `client_id`, and without server metadata no client can be registered",
            "add the `client_id` that the server assigned",
        );
        return None;
    }
    let settings = CodeSettings {
        scope: optional("scope", fields, expand),
        resource: optional("resource", fields, expand),
        server: server?,
        authorization_url: authorization_url?,
        client,
    };
    if service == Service::Grpc {
        expand.faults.add(
            node.at,
            "gRPC sources do not support authorization by the individual caller",
            "use another type of `auth`",
        );
        return None;
    }
    Some(AuthSettings::AuthorizationCode(Box::new(settings)))
}

/// Reads the client authentication, or returns [`ClientProof::Nothing`] for a public client.
fn proof_or_none(
    auth: &Node,
    fields: &mut FieldReader<'_>,
    expand: &mut VariableExpander<'_>,
) -> Option<ClientProof> {
    let has_one = ["client_secret", "private_key"].map(|key| auth.get(key).is_some());
    if has_one.contains(&true) {
        proof(fields, expand)
    } else {
        Some(ClientProof::Nothing)
    }
}

fn server(
    node: &Node,
    location: ServerLocation,
    fields: &mut FieldReader<'_>,
    expand: &mut VariableExpander<'_>,
) -> Option<ServerSettings> {
    let token_url = fields.take_optional("token_url");
    let issuer = fields.take_optional("issuer");
    if token_url.is_none() && issuer.is_none() && location == ServerLocation::Configured {
        expand.faults.add(
            node.at,
            "`auth` does not specify its authorization server",
            "add `token_url`, its token endpoint, or `issuer`, whose metadata contains it; for security, the authorization server is not \
             discovered from the service",
        );
        return None;
    }
    // The issuer is validated as a URL, but its exact text is kept.
    let issuer_text = match issuer {
        Some(node) => {
            service_url(node, "issuer", expand)?;
            expand.connection_text(node, "issuer", STAND_IN_URL)
        }
        None => None,
    };
    let token_url = match token_url {
        Some(node) => Some(service_url(node, "token_url", expand)?),
        None => None,
    };
    Some(ServerSettings {
        token_url,
        issuer: issuer_text,
        service: None,
    })
}

/// Reads the client secret or the private key of a client.
fn proof(fields: &mut FieldReader<'_>, expand: &mut VariableExpander<'_>) -> Option<ClientProof> {
    let Some(node) = fields.take_optional("private_key") else {
        return secret("client_secret", fields, expand).map(ClientProof::Secret);
    };
    let key_id = optional("key_id", fields, expand);
    let audience = optional("assertion_audience", fields, expand);
    if fields.take_optional("client_secret").is_some() {
        expand.faults.add(
            node.at,
            "the client has a `client_secret` and a `private_key`",
            "keep one of them",
        );
        return None;
    }
    if expand.omits(node) {
        return Some(ClientProof::Nothing);
    }
    let pem = expand.text(node, "private_key")?;
    match ClientKey::from_pem(Secret::from(pem), key_id) {
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

fn optional(
    key: &'static str,
    fields: &mut FieldReader<'_>,
    expand: &mut VariableExpander<'_>,
) -> Option<String> {
    let node = fields.take_optional(key)?;
    expand.connection_text(node, key, STAND_IN)
}

fn secret(
    key: &'static str,
    fields: &mut FieldReader<'_>,
    expand: &mut VariableExpander<'_>,
) -> Option<Secret> {
    text(key, fields, expand).map(Secret::from)
}

fn text(
    key: &'static str,
    fields: &mut FieldReader<'_>,
    expand: &mut VariableExpander<'_>,
) -> Option<String> {
    let fix = format!("add `{key}`, a secret for example as \"${{NAME}}\"");
    let node = fields.take_required(key, &fix, expand.faults)?;
    expand.connection_text(node, key, STAND_IN)
}

#[cfg(test)]
mod tests;
