//! The settings of a gRPC server.

use std::fmt;

use http::HeaderMap;
use url::Url;
use wardgate_egress::{AuthSettings, EgressSettings};

use super::DescriptorFile;

/// The settings of a gRPC server.
#[derive(Clone, PartialEq, Eq)]
pub struct GrpcSettings {
    /// The URL of the server, without a path.
    pub url: Url,
    /// The description of the server's methods, or `None` to ask the server.
    pub descriptors: Option<DescriptorFile>,
    /// The metadata that is sent with every call.
    pub metadata: HeaderMap,
    /// The credentials of calls.
    pub auth: AuthSettings,
    /// The addresses that may be called, the route to them, and the maximum size of a response.
    pub egress: EgressSettings,
}

impl fmt::Debug for GrpcSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcSettings")
            .field("descriptors", &self.descriptors)
            .field("metadata", &self.metadata.keys().collect::<Vec<_>>())
            .field("auth", &self.auth)
            .field("egress", &self.egress)
            .finish_non_exhaustive()
    }
}
