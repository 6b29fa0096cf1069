//! Calls to a real gRPC server in this process.

mod calls;
mod descriptors;
mod hostile;
mod json;
mod reflection;
mod server;

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use prost_types::FileDescriptorSet;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::metadata::MetadataMap;

use super::*;

const LIMIT: usize = 1 << 20;

/// The files of the test service, compiled as `protoc --include_imports` would.
fn files() -> FileDescriptorSet {
    static FILES: LazyLock<FileDescriptorSet> = LazyLock::new(|| {
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/src/grpc/tests");
        protox::compile(["parcels.proto"], [here]).unwrap()
    });
    FILES.clone()
}

fn pool() -> DescriptorPool {
    static POOL: LazyLock<DescriptorPool> =
        LazyLock::new(|| decode(&files().encode_to_vec()).unwrap());
    POOL.clone()
}

/// A parcel, from its JSON form.
fn parcel(value: Value) -> DynamicMessage {
    let parcel = pool().get_message_by_name("parcels.v1.Parcel").unwrap();
    to_message(&parcel, &value).unwrap()
}

fn method(name: &str) -> MethodName {
    format!("parcels.v1.Parcels/{name}").parse().unwrap()
}

/// Time enough.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn client(url: &Uri, descriptors: Option<DescriptorPool>) -> GrpcServer {
    GrpcServer::new(url, None, descriptors, MetadataMap::new(), LIMIT).unwrap()
}

/// All answers of one call.
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
