//! A real gRPC server in this process, with a handler for each test, and the service that it offers.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "a test helper fails by panicking"
)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::response::IntoResponse;
use futures::stream::{self, BoxStream, StreamExt};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use prost_types::FileDescriptorSet;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::service::Routes;
use tonic::transport::{Identity, ServerTlsConfig};
use tonic::{Request, Response, Status};
use tower::Service;
use url::Url;

use super::codec::DynamicCodec;
use super::descriptors::DescriptorFile;
use super::json::to_message;

pub type TestResponses = BoxStream<'static, Result<DynamicMessage, Status>>;

/// Returns the files of the test service, compiled as `protoc --include_imports` would.
pub fn files() -> FileDescriptorSet {
    static FILES: LazyLock<FileDescriptorSet> = LazyLock::new(|| {
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/src/testing");
        protox::compile(["parcels.proto"], [here]).unwrap()
    });
    FILES.clone()
}

/// Returns the files of the test service as the bytes of a descriptor file.
pub fn descriptor_set() -> Vec<u8> {
    files().encode_to_vec()
}

pub fn descriptors() -> DescriptorFile {
    static FILE: LazyLock<DescriptorFile> =
        LazyLock::new(|| DescriptorFile::decode(&descriptor_set()).unwrap());
    FILE.clone()
}

pub fn pool() -> DescriptorPool {
    descriptors().pool().clone()
}

/// Returns a parcel from its JSON form.
pub fn parcel(value: &Value) -> DynamicMessage {
    let parcel = pool().get_message_by_name("parcels.v1.Parcel").unwrap();
    to_message(&parcel, value).unwrap()
}

/// A server that stops when dropped.
pub struct TestServer {
    pub url: Url,
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl TestServer {
    pub async fn start(routes: Router) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), routes).await
    }

    pub async fn start_at(address: SocketAddr, routes: Router) -> Self {
        Self::serve(address, tonic::transport::Server::builder(), routes).await
    }

    pub async fn start_tls(certificate: &str, key: &str, routes: Router) -> Self {
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(certificate, key));
        let builder = tonic::transport::Server::builder().tls_config(tls).unwrap();
        Self::serve("127.0.0.1:0".parse().unwrap(), builder, routes).await
    }

    async fn serve(
        address: SocketAddr,
        mut builder: tonic::transport::Server,
        routes: Router,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let server = builder
            .add_routes(Routes::from(routes))
            .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async {
                let _ = stopped.await;
            });
        Self {
            url: format!("http://{address}").parse().unwrap(),
            address,
            stop: Some(stop),
            task: tokio::spawn(async { server.await.unwrap() }),
        }
    }

    /// Waits until current calls have ended, and closes all connections.
    pub async fn stop(mut self) {
        self.stop.take();
        (&mut self.task).await.unwrap();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns a router that answers every method of `pool` with the result of `handle` for the metadata and the message.
pub fn methods<H>(pool: DescriptorPool, handle: H) -> Router
where
    H: Fn(MetadataMap, DynamicMessage) -> Result<TestResponses, Status>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let service = http_service(move |request| {
        let (pool, handle) = (pool.clone(), handle.clone());
        async move {
            let path = request.uri().path().trim_start_matches('/').to_owned();
            let (service, method) = path.split_once('/').unwrap();
            let method = pool.get_service_by_name(service).and_then(|service| {
                service
                    .methods()
                    .find(|candidate| candidate.name() == method)
            });
            let Some(method) = method else {
                return Status::unimplemented("").into_http();
            };
            let codec = DynamicCodec {
                receives: method.input(),
            };
            let service = tower::service_fn(move |request: Request<DynamicMessage>| {
                let (metadata, _, message) = request.into_parts();
                let answers = handle(metadata, message).map(Response::new);
                async move { answers }
            });
            tonic::server::Grpc::new(codec)
                .server_streaming(service, request)
                .await
        }
    });
    Router::new().route_service("/parcels.v1.Parcels/{method}", service)
}

/// Returns a router that answers every HTTP request with `handle`.
pub fn raw<H, F>(handle: H) -> Router
where
    H: Fn(http::Request<axum::body::Body>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = http::Response<Body>> + Send + 'static,
{
    Router::new().fallback_service(http_service(handle))
}

fn http_service<H, F>(
    handle: H,
) -> impl Service<
    http::Request<axum::body::Body>,
    Response = axum::response::Response,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send
+ Sync
where
    H: Fn(http::Request<axum::body::Body>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = http::Response<Body>> + Send + 'static,
{
    tower::service_fn(move |request| {
        let response = handle(request);
        async move { Ok(response.await.into_response()) }
    })
}

/// Returns a `handle` for [`methods`] that responds to every call with these messages.
pub fn answers(
    messages: Vec<DynamicMessage>,
) -> impl Fn(MetadataMap, DynamicMessage) -> Result<TestResponses, Status> + Clone {
    let messages = Arc::new(messages);
    move |_, _| {
        let messages: Vec<_> = messages.iter().cloned().map(Ok).collect();
        Ok(stream::iter(messages).boxed())
    }
}

/// Returns a `handle` for [`methods`] that responds to every call with this status.
pub fn refuses(
    status: Status,
) -> impl Fn(MetadataMap, DynamicMessage) -> Result<TestResponses, Status> + Clone {
    move |_, _| Err(status.clone())
}

/// Returns the reflection service of tonic.
pub fn reflection_v1(files: &FileDescriptorSet) -> Router {
    let service = reflection(files).build_v1().unwrap();
    Routes::new(service).into_axum_router()
}

/// Returns the reflection service of tonic in the older version.
pub fn reflection_v1alpha(files: &FileDescriptorSet) -> Router {
    let service = reflection(files).build_v1alpha().unwrap();
    Routes::new(service).into_axum_router()
}

fn reflection(files: &FileDescriptorSet) -> tonic_reflection::server::Builder<'static> {
    let bytes: &'static [u8] = files.encode_to_vec().leak();
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(bytes)
        .include_reflection_service(false)
}
