//! Signed, versioned bundles of policies, and the sources that offer them.
//!
//! ```text
//!   directory of policies ──PolicyBundle::new──▶ payload (JSON) ──sign──▶ DSSE envelope, one file
//!                                                                            │ a file, a directory, HTTPS, OCI
//!   BundleSource::fetch ──▶ bytes ──PolicyBundle::open: signature, then limits, paths──▶ PolicyBundle
//!                                                                            │
//!   BundleState: the bundle that was last put in force, and thereby the lowest version that is still accepted
//! ```
//!
//! The signature is verified before the payload is parsed. The files of a bundle are kept in memory and never written
//! to a disk, so no path can lead out of a directory. This crate does not know what a policy is: whether a bundle is
//! usable is decided by the policy service.

mod blocking;
mod bundle;
mod config;
mod envelope;
mod error;
mod keys;
mod oci;
mod remote;
mod source;
mod state;

pub use blocking::run_blocking;
pub use bundle::{BundledFile, BundledTool, PolicyBundle};
pub use config::BundleConfig;
pub use error::{BundleConfigError, BundleError, SourceError};
pub use keys::{BundleSigner, BundleVerifier};
pub use remote::FetchedBundle;
pub use source::{BundleSource, OfferedBundles};
pub use state::{BundleState, KeptBundle, replace_file};

#[cfg(test)]
mod tests;
