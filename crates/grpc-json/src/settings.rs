//! What a server is called with.

use std::fmt;

use http::HeaderMap;
use url::Url;
use wardgate_egress::{AuthSettings, EgressSettings};

use super::DescriptorFile;

/// A gRPC server.
#[derive(Clone, PartialEq, Eq)]
pub struct GrpcSettings {
    /// Without a path.
    pub url: Url,
    /// What the server's methods are; without it the server is asked.
    pub descriptors: Option<DescriptorFile>,
    /// Goes along with every call.
    pub metadata: HeaderMap,
    /// What calls are made with.
    pub auth: AuthSettings,
    /// Which addresses may be called, which way, and how large a response may be.
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
