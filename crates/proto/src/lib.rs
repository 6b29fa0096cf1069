//! Wire types and service stubs, generated from `proto/wardgate/<service>/v1/*.proto`.
//!
//! ```text
//!  proto/*.proto ──protox──▶ descriptors ──tonic-prost-build──▶ this crate ──TryFrom──▶ wardgate-domain
//! ```
//!
//! One job: hold generated code. A type of this crate parses and nothing more; what may be trusted is
//! decided where `wardgate-domain` converts it. Import modules as `pb`, so that a reader sees on which
//! side of that line a type stands.

#[expect(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/wardgate.rs"));
}

pub use generated::wardgate::*;

/// The serialised `google.protobuf.FileDescriptorSet` of every file, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
