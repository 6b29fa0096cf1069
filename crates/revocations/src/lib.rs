//! Revocation of tokens, subjects and sign-ins by operators.
//!
//! ```text
//!  revocations/add · remove ─▶ policy: may this operator? ─▶ record ─▶ store ─┐
//!                                                                             │ every 250 ms, at each gateway
//!  a request's token ─▶ edge: verified ─▶ revoked? ◀── RevocationSet ◀────────┘
//! ```
//!
//! What an operator revokes at one gateway is refused at every gateway within a second.

mod error;
mod follower;
mod method;

use std::sync::Arc;

use wardgate_domain::Ambient;
use wardgate_edge::RevocationWatch;
use wardgate_gateway_record::CallRecorder;
use wardgate_gateway_store::Store;
use wardgate_rpc::client::PolicyClient;

pub use error::RevocationError;
pub use follower::RevocationFollower;
pub use method::RevocationMethod;

/// The methods by which operators list and change revocations.
pub struct Revocations {
    follower: Arc<RevocationFollower>,
    store: Arc<Store>,
    policy: PolicyClient,
    recorder: Arc<CallRecorder>,
    ambient: Ambient,
}

impl Revocations {
    /// Creates the methods over the shared state of the gateway.
    pub fn new(
        follower: Arc<RevocationFollower>,
        store: &Arc<Store>,
        policy: PolicyClient,
        recorder: &Arc<CallRecorder>,
        ambient: &Ambient,
    ) -> Arc<Self> {
        Arc::new(Self {
            follower,
            store: Arc::clone(store),
            policy,
            recorder: Arc::clone(recorder),
            ambient: ambient.clone(),
        })
    }

    /// Returns the revocations in force.
    pub fn watch(&self) -> RevocationWatch {
        self.follower.watch()
    }
}
