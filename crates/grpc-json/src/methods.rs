//! The methods of a server, from its descriptor file or from its reflection service.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost_reflect::{DescriptorPool, MethodDescriptor, ServiceDescriptor};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tonic::metadata::MetadataMap;

use super::bad_descriptors::BadDescriptors;
use super::channel::GrpcChannel;
use super::descriptors;
use super::trim::is_identifier;
use super::{GrpcError, reflection};

/// Timeout of all reflection requests for one service.
const REFLECTION_LIMIT: Duration = Duration::from_secs(5);

/// The full name of a method, configured as `package.Service/Method`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodName {
    service: String,
    method: String,
    path: PathAndQuery,
}

/// The error for a text that is not the full name of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the full name of a method; write it like `package.Service/Method`")]
pub struct NotAMethod;

impl FromStr for MethodName {
    type Err = NotAMethod;

    fn from_str(text: &str) -> Result<Self, NotAMethod> {
        let (service, method) = text.split_once('/').ok_or(NotAMethod)?;
        if !service.split('.').all(is_identifier) || !is_identifier(method) {
            return Err(NotAMethod);
        }
        Ok(Self {
            service: service.to_owned(),
            method: method.to_owned(),
            path: format!("/{text}").parse().map_err(|_| NotAMethod)?,
        })
    }
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.method)
    }
}

impl MethodName {
    pub(super) fn path(&self) -> PathAndQuery {
        self.path.clone()
    }

    /// Finds the method in `pool`. Whether the method is supported can be checked without a server.
    pub fn find(&self, pool: &DescriptorPool) -> Result<MethodDescriptor, GrpcError> {
        let service = pool.get_service_by_name(&self.service);
        self.find_in_service(service.as_ref())
    }

    fn find_in_service(
        &self,
        service: Option<&ServiceDescriptor>,
    ) -> Result<MethodDescriptor, GrpcError> {
        let method = service.and_then(|service| {
            service
                .methods()
                .find(|method| method.name() == self.method)
        });
        match method {
            None => Err(GrpcError::NoMethod(self.to_string())),
            Some(method) if method.is_client_streaming() => {
                Err(GrpcError::ClientStreaming(self.to_string()))
            }
            Some(method) => Ok(method),
        }
    }
}

/// The source of method descriptors.
pub(super) enum MethodTable {
    Fixed(DescriptorPool),
    Reflected(ReflectedServices),
}

impl MethodTable {
    /// Finds a method. Without a descriptor file, the server is asked if necessary.
    pub(super) async fn find(
        &self,
        name: &MethodName,
        connection: &GrpcChannel,
        metadata: &MetadataMap,
        deadline: Instant,
    ) -> Result<MethodDescriptor, GrpcError> {
        match self {
            Self::Fixed(pool) => name.find(pool),
            Self::Reflected(reflected) => {
                let deadline = deadline.min(Instant::now() + REFLECTION_LIMIT);
                timeout_at(deadline, reflected.find(name, connection, metadata))
                    .await
                    .unwrap_or_else(|_| {
                        let problem = "its reflection took too long";
                        Err(GrpcError::Unreachable(problem.to_owned()))
                    })
            }
        }
    }

    /// Discards what is known of a service, after the server responded that it does not have the method.
    pub(super) fn forget(&self, name: &MethodName) {
        if let Self::Reflected(reflected) = self {
            let mut services = reflected
                .services
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            services.remove(&name.service);
        }
    }
}

/// The services that a server has described so far.
pub(super) struct ReflectedServices {
    /// Interval after which a method that the server did not have is looked up again.
    look_again_after: Duration,
    services: RwLock<HashMap<String, ReflectedService>>,
    /// Held during a reflection request, so that other callers wait for its result.
    asking: Mutex<()>,
}

struct ReflectedService {
    service: Option<ServiceDescriptor>,
    /// The number of the connection on which the service was described. Another connection may lead to another version
    /// of the server.
    connection: u64,
    at: Instant,
}

impl ReflectedServices {
    pub(super) fn new(look_again_after: Duration) -> Self {
        Self {
            look_again_after,
            services: RwLock::default(),
            asking: Mutex::default(),
        }
    }

    async fn find(
        &self,
        name: &MethodName,
        connection: &GrpcChannel,
        metadata: &MetadataMap,
    ) -> Result<MethodDescriptor, GrpcError> {
        if let Some(told) = self.cached_method(name, connection) {
            return told;
        }
        let _asking = self.asking.lock().await;
        if let Some(told) = self.cached_method(name, connection) {
            return told;
        }
        let service = match reflection::files(connection, metadata, &name.service).await {
            Ok(files) => link(files).await?.get_service_by_name(&name.service),
            Err(GrpcError::NoMethod(_)) => None,
            Err(error) => return Err(error),
        };
        let method = name.find_in_service(service.as_ref());
        let told = ReflectedService {
            service,
            connection: connection.connection_count(),
            at: Instant::now(),
        };
        let mut services = self
            .services
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        services.insert(name.service.clone(), told);
        method
    }

    /// Returns the result of an earlier lookup, if it is still valid.
    fn cached_method(
        &self,
        name: &MethodName,
        connection: &GrpcChannel,
    ) -> Option<Result<MethodDescriptor, GrpcError>> {
        let services = self.services.read().unwrap_or_else(PoisonError::into_inner);
        let told = services.get(&name.service)?;
        if told.connection != connection.connection_count() {
            return None;
        }
        match name.find_in_service(told.service.as_ref()) {
            Err(GrpcError::NoMethod(_)) if told.at.elapsed() >= self.look_again_after => None,
            method => Some(method),
        }
    }
}

/// Links on a blocking thread, because a thousand files take long to link.
async fn link(files: Vec<prost_types::FileDescriptorProto>) -> Result<DescriptorPool, GrpcError> {
    let linked = tokio::task::spawn_blocking(|| descriptors::link(files)).await;
    linked
        .unwrap_or_else(|_| Err(BadDescriptors::Misfit("linking them failed".to_owned())))
        .map_err(GrpcError::from)
}
