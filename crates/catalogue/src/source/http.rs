//! Sources that are reached over HTTP: their URL, their headers and credentials, and the network addresses that they may
//! use.

use std::net::IpAddr;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderMap};
use http::{HeaderName, HeaderValue};
use ipnet::IpNet;
use url::{Host, Url};
use wardgate_yaml::{Node, Position, Yaml};

use super::VariableExpander;
use super::auth::{self, Service};
use super::expand::STAND_IN;
use super::network::{self, service_url};
use crate::fault::FieldReader;
use wardgate_egress::{
    AddressGuard, AllowedHost, AuthSettings, ClientSettings, EgressError, EgressSettings,
    HttpSettings, NotAHost, PrivateAddresses,
};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const DEFAULT_MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Reads all HTTP settings of a source.
pub(super) fn read_settings(
    service: Service,
    fields: &mut FieldReader<'_>,
    expand: &mut VariableExpander<'_>,
) -> Option<HttpSettings> {
    let url = match service {
        Service::Mcp => "url",
        Service::Http | Service::Grpc => "base_url",
    };
    let url_node = fields.take_required(
        url,
        &format!("add for example `{url}: https://api.example.com`"),
        expand.faults,
    );
    let faults = expand.faults.count();
    let headers = fields
        .take_optional("headers")
        .and_then(|node| headers(node, expand));
    let auth = fields
        .take_optional("auth")
        .and_then(|node| auth::read_auth(node, service, expand));
    let listing = match service {
        Service::Mcp => fields.take_optional("listing_auth"),
        Service::Http | Service::Grpc => None,
    };
    let listing = listing.and_then(|node| {
        let listing = auth::read_auth(node, service, expand)?;
        if listing.stand_for_caller() {
            expand.faults.add(
                node.at,
                "`listing_auth` depends on a caller, but tools are listed without a caller",
                "use none, bearer, basic or client_credentials",
            );
            return None;
        }
        Some(listing)
    });
    let hosts = fields
        .take_optional("hosts")
        .map(|node| hosts(node, expand))
        .unwrap_or_default();
    let private = fields
        .take_optional("private")
        .and_then(|node| private(node, expand));
    let timeout = fields
        .take_optional("timeout")
        .and_then(|node| expand.faults.duration(node, "timeout"));
    let max_response_bytes = fields
        .take_optional("max_response_bytes")
        .and_then(|node| expand.faults.positive(node, "max_response_bytes"));
    let url_node = url_node?;
    let at = url_node.at;
    let name = url;
    let url = service_url(url_node, name, expand)?;
    let network = network::read_network(&url, at, fields, expand);
    if matches!(service, Service::Mcp) && url.path().trim_end_matches('/').ends_with("/api") {
        expand.faults.add(
            at,
            format!("`{name}` ends with /api, where no MCP server is"),
            "write the URL of the MCP endpoint itself, for example https://host/mcp",
        );
        return None;
    }
    let (headers, mut auth) = (headers.unwrap_or_default(), auth.unwrap_or_default());
    auth.belong_to(&url);
    let mut listing = listing.unwrap_or_default();
    listing.belong_to(&url);
    if auth != AuthSettings::None && headers.contains_key(AUTHORIZATION) {
        expand.faults.add(
            at,
            "the source has `auth` and a header `Authorization`",
            "keep one of them",
        );
    }
    if expand.faults.count() > faults {
        return None;
    }
    let egress = EgressSettings {
        network,
        ..EgressSettings::for_url(
            &url,
            hosts,
            private.unwrap_or_default(),
            timeout.unwrap_or(DEFAULT_TIMEOUT),
            max_response_bytes.unwrap_or(DEFAULT_MAX_RESPONSE_BYTES),
        )
    };
    check_reachable(&url, &egress, at, expand)?;
    let client = ClientSettings {
        egress,
        headers,
        auth,
    };
    Some(HttpSettings {
        url,
        client,
        listing,
    })
}

/// Checks whether the URL is a literal address that is not on the public internet and not allowed. Reporting this at load
/// is better than at the first call. A program that opens no source does not check it.
pub(super) fn check_reachable(
    url: &Url,
    egress: &EgressSettings,
    at: Position,
    expand: &mut VariableExpander<'_>,
) -> Option<()> {
    // The URL and the allowed networks may be stand-ins.
    if expand.opens_nothing() {
        return Some(());
    }
    let guard = AddressGuard::new(egress.hosts.clone(), egress.private.clone());
    if let Err(EgressError::AddressRefused(_)) = guard.check(url) {
        let network = match url.host() {
            Some(Host::Ipv6(address)) => format!("{address}/128"),
            Some(host) => format!("{host}/32"),
            None => return None,
        };
        expand.faults.add(
            at,
            "the URL is an address outside the public internet",
            format!("if this is intended, add `private: [\"{network}\"]` to the source"),
        );
        return None;
    }
    Some(())
}

/// Reads the configured headers and expands the variables of their values.
pub(crate) fn headers(node: &Node, expand: &mut VariableExpander<'_>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (key, node) in expand.faults.map(node, "headers")? {
        let name = header_name(&key.name);
        if name.is_none() {
            expand.faults.add(
                key.at,
                format!("`{}` is not a header that can be set", key.name),
                "use letters, digits and `-`; headers that frame the message are set automatically",
            );
        }
        let text = expand.connection_text(node, "headers", STAND_IN);
        let (Some(name), Some(text)) = (name, text) else {
            continue;
        };
        match HeaderValue::from_str(&text) {
            Ok(mut value) => {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
            Err(_) => expand.faults.add(
                node.at,
                format!("the value of header `{name}` contains characters that are not valid in a header"),
                "use printable ASCII characters",
            ),
        }
    }
    Some(headers)
}

/// Parses the name of a header that may be configured. Headers that frame the message or name its target are excluded.
pub(crate) fn header_name(name: &str) -> Option<HeaderName> {
    const FRAMING: [&str; 8] = [
        "connection",
        "expect",
        "keep-alive",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let name = HeaderName::try_from(name).ok()?;
    let is_settable = !FRAMING.contains(&name.as_str()) && name != HOST && name != CONTENT_LENGTH;
    is_settable.then_some(name)
}

fn hosts(node: &Node, expand: &mut VariableExpander<'_>) -> Vec<AllowedHost> {
    let mut hosts = Vec::new();
    for node in expand.faults.list(node, "hosts") {
        let Some(text) = expand.connection_text(node, "hosts", "host.invalid") else {
            continue;
        };
        match text.parse() {
            Ok(host) => hosts.push(host),
            Err(NotAHost) => expand.faults.add(
                node.at,
                "an entry of `hosts` is not a host",
                "write hosts like api.example.com or api.example.com:8443",
            ),
        }
    }
    hosts
}

/// Reads which addresses outside the public internet the source may use.
pub(crate) fn private(node: &Node, expand: &mut VariableExpander<'_>) -> Option<PrivateAddresses> {
    match node.value {
        Yaml::Boolean(true) => return Some(PrivateAddresses::Allowed),
        Yaml::Boolean(false) => return Some(PrivateAddresses::Refused),
        _ => {}
    }
    let mut networks = Vec::new();
    for node in expand.faults.list(node, "private") {
        let text = expand.connection_text(node, "private", "192.0.2.0/24")?;
        let address = || text.parse::<IpAddr>().map(IpNet::from);
        match text.parse::<IpNet>().or_else(|_| address()) {
            Ok(network) => networks.push(network),
            Err(_) => expand.faults.add(
                node.at,
                "an entry of `private` is not a network",
                "write networks like 10.1.0.0/16 or fd00::/8",
            ),
        }
    }
    Some(PrivateAddresses::Listed(networks))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::*;
    use crate::{Catalogue, FileText, SourceKind};
    use wardgate_egress::{ClientProof, NetworkSettings, OAuthClient, Secret, ServerSettings};

    fn parse_settings(source: &str) -> HttpSettings {
        let text = format!("sources: {{ api: {source} }}\ntools: []\n");
        let path = PathBuf::from("tools.yaml");
        let variables = [("BASE", "https://api.example.com/v1"), ("SECRET", "canary")];
        let variables: BTreeMap<_, _> = variables
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let catalogue = Catalogue::parse(&[FileText { path, text }], &variables).unwrap();
        let (_, _, sources, _) = catalogue.into_parts();
        match sources.into_iter().next().unwrap().kind {
            SourceKind::Http(settings) => *settings,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_source_is_what_its_author_wrote() {
        let settings = parse_settings(
            "{ type: http, base_url: '${BASE}', headers: { X-Key: '${SECRET}' }, auth: { type: client_credentials, token_url: 'https://id.example.com/token', client_id: me, client_secret: '${SECRET}', scope: 'a b' }, hosts: [cdn.example.com:8443], private: [10.1.0.0/16, '::1'], proxy: 'http://me:${SECRET}@proxy.example.com:3128', timeout: 10s, max_response_bytes: 5 }",
        );
        assert_eq!(settings.url.as_str(), "https://api.example.com/v1");
        let ClientSettings {
            egress,
            headers,
            auth,
        } = &settings.client;
        assert_eq!(headers["x-key"], "canary");
        let wanted = EgressSettings {
            hosts: ["api.example.com", "cdn.example.com:8443"]
                .map(|host| host.parse().unwrap())
                .into(),
            private: PrivateAddresses::Listed(vec![
                "10.1.0.0/16".parse().unwrap(),
                "::1/128".parse().unwrap(),
            ]),
            network: NetworkSettings {
                proxy: Some("http://me:canary@proxy.example.com:3128/".parse().unwrap()),
                ..NetworkSettings::default()
            },
            timeout: Duration::from_secs(10),
            max_response_bytes: 5,
        };
        assert_eq!(*egress, wanted);
        let wanted = AuthSettings::ClientCredentials(OAuthClient {
            server: ServerSettings {
                token_url: Some("https://id.example.com/token".parse().unwrap()),
                issuer: None,
                service: Some("https://api.example.com/v1".parse().unwrap()),
            },
            resource: None,
            client_id: "me".to_owned(),
            proof: ClientProof::Secret(Secret::from("canary".to_owned())),
            scope: Some("a b".to_owned()),
            audience: None,
        });
        assert_eq!(*auth, wanted);
        assert!(!format!("{settings:?}").contains("canary"));
    }

    #[test]
    fn what_is_not_written_is_safe() {
        let settings = parse_settings("{ type: http, base_url: 'http://localhost:8080' }");
        let egress = &settings.client.egress;
        assert_eq!(egress.private, PrivateAddresses::Refused);
        assert_eq!(egress.hosts, ["localhost:8080".parse().unwrap()]);
        assert_eq!(egress.timeout, Duration::from_secs(30));
        assert_eq!(settings.client.auth, AuthSettings::None);
        assert!(settings.client.headers.is_empty());
        let private = parse_settings("{ type: http, base_url: 'http://127.0.0.1', private: true }");
        assert_eq!(private.client.egress.private, PrivateAddresses::Allowed);
    }
}
