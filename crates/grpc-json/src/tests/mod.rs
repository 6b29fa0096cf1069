//! Tests of calls to a real gRPC server in this process.

mod calls;
mod hostile;
mod json;
mod linking;
mod proxy;
mod reflection;

use http::HeaderMap;
use prost::Message;
use prost_reflect::DynamicMessage;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use url::Url;

use super::testing::{
    TestServer, answers, descriptors, files, methods, parcel, pool, raw, refuses,
};
use super::*;
use wardgate_egress::{AuthSettings, EgressSettings, PrivateAddresses};

const LIMIT: usize = 1 << 20;

fn method(name: &str) -> MethodName {
    format!("parcels.v1.Parcels/{name}").parse().unwrap()
}

/// Returns a deadline that is far enough away.
fn soon() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

fn settings(url: &Url, descriptors: Option<DescriptorFile>) -> GrpcSettings {
    GrpcSettings {
        url: url.clone(),
        descriptors,
        metadata: HeaderMap::new(),
        auth: AuthSettings::None,
        egress: EgressSettings::for_url(url, [], PrivateAddresses::Allowed, Duration::MAX, LIMIT),
    }
}

fn open(settings: &GrpcSettings) -> GrpcServer {
    GrpcServer::open(settings, &Ambient::system()).unwrap()
}

/// Returns a client with a descriptor file.
fn open_with_descriptors(url: &Url) -> GrpcServer {
    open(&settings(url, Some(descriptors())))
}

/// Returns a client that asks the server for its methods.
fn open_with_reflection(url: &Url) -> GrpcServer {
    open(&settings(url, None))
}

/// Returns all response messages of one call.
async fn call(
    server: &GrpcServer,
    name: &MethodName,
    message: Value,
) -> Result<Vec<Value>, GrpcError> {
    let mut answers = server.call(name, &message, None, soon()).await?;
    let mut all = Vec::new();
    while let Some(answer) = answers.next().await? {
        all.push(answer);
    }
    Ok(all)
}

async fn get(server: &GrpcServer) -> Result<Value, GrpcError> {
    let answers = call(server, &method("Get"), json!({"parcelId": "p1"})).await?;
    assert_eq!(answers.len(), 1);
    Ok(answers[0].clone())
}
