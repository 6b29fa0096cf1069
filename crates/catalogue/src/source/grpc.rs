//! Sources that are gRPC servers: their URL, their descriptors, and the metadata sent with calls.

use std::time::Duration;

use http::HeaderMap;
use http::header::HeaderValue;
use tonic::metadata::MetadataMap;
use url::Url;
use wardgate_yaml::Node;

use super::VariableExpander;
use super::auth::{self, Service};
use super::http::{DEFAULT_MAX_RESPONSE_BYTES, check_reachable, private};
use super::network::{self, file, service_url};
use crate::fault::FieldReader;
use wardgate_egress::{EgressSettings, NetworkSettings};
use wardgate_grpc_json::{DescriptorFile, GrpcSettings, add_metadata};

/// Timeout of the token endpoint of `auth`. A call itself is bounded by the time limit of its tool.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn read_settings(
    fields: &mut FieldReader<'_>,
    expand: &mut VariableExpander<'_>,
) -> Option<GrpcSettings> {
    let faults = expand.faults.count();
    let url_node = fields.take_required(
        "url",
        "add for example `url: https://grpc.example.com`",
        expand.faults,
    );
    let url = url_node.and_then(|node| Some((node, server_url(node, expand)?)));
    let network = match &url {
        Some((node, url)) => network::read_network(url, node.at, fields, expand),
        None => NetworkSettings::default(),
    };
    if let (Some(proxy), Some((node, _))) = (&network.proxy, &url)
        && proxy.scheme() != "http"
    {
        expand.faults.add(
            node.at,
            "the proxy of the source has an https URL",
            "use a proxy with an http URL: with an https `url`, the traffic through the proxy is encrypted nevertheless",
        );
    }
    if let (Some(_), Some((node, url))) = (&network.proxy, &url)
        && url.scheme() != "https"
    {
        expand.faults.add(
            node.at,
            "a gRPC source behind a proxy has an http URL",
            "use an https `url`: with plain text, a proxy may lose data that an HTTP/2 server sends before the client",
        );
    }
    let descriptors = fields
        .take_optional("descriptors")
        .and_then(|node| descriptors(node, expand));
    let metadata = fields
        .take_optional("metadata")
        .and_then(|node| metadata(node, expand));
    let auth = fields
        .take_optional("auth")
        .and_then(|node| auth::read_auth(node, Service::Grpc, expand));
    let private = fields
        .take_optional("private")
        .and_then(|node| private(node, expand));
    let max_response_bytes = fields
        .take_optional("max_response_bytes")
        .and_then(|node| expand.faults.positive(node, "max_response_bytes"));
    let (url_node, url) = url?;
    if expand.faults.count() > faults {
        return None;
    }
    let egress = EgressSettings {
        network,
        ..EgressSettings::for_url(
            &url,
            [],
            private.unwrap_or_default(),
            TOKEN_TIMEOUT,
            max_response_bytes.unwrap_or(DEFAULT_MAX_RESPONSE_BYTES),
        )
    };
    check_reachable(&url, &egress, url_node.at, expand)?;
    Some(GrpcSettings {
        url,
        descriptors,
        metadata: metadata.unwrap_or_default(),
        auth: auth.unwrap_or_default(),
        egress,
    })
}

fn server_url(node: &Node, expand: &mut VariableExpander<'_>) -> Option<Url> {
    let url = service_url(node, "url", expand)?;
    if url.path() != "/" {
        expand.faults.add(
            node.at,
            "`url` contains a path",
            "write only scheme, host and port; the path of a call is its method",
        );
        return None;
    }
    Some(url)
}

fn descriptors(node: &Node, expand: &mut VariableExpander<'_>) -> Option<DescriptorFile> {
    let fix = "create it with `protoc --include_imports --descriptor_set_out=FILE` from the required files";
    let bytes = file(node, "descriptors", fix, expand)?;
    DescriptorFile::decode(&bytes)
        .map_err(|bad| {
            expand
                .faults
                .add(node.at, format!("`descriptors` cannot be used: {bad}"), fix);
        })
        .ok()
}

fn metadata(node: &Node, expand: &mut VariableExpander<'_>) -> Option<HeaderMap> {
    let mut metadata = MetadataMap::new();
    for (key, node) in expand.faults.map(node, "metadata")? {
        // The value is valid for every key, because it is a text and Base64.
        let Some(value) = expand.connection_text(node, "metadata", "AAAA") else {
            continue;
        };
        if let Err(bad) = add_metadata(&mut metadata, &key.name, &value) {
            expand.faults.add(
                key.at,
                format!("`{}` {}", key.name, bad),
                "write it like `x-tenant`, or `x-key-bin` for bytes in Base64",
            );
        }
    }
    let mut metadata = metadata.into_headers();
    metadata
        .iter_mut()
        .for_each(|(_, value): (_, &mut HeaderValue)| value.set_sensitive(true));
    Some(metadata)
}
