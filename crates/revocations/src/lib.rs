//! Tokens, subjects and sign-ins that operators revoke.
//!
//! ```text
//!  revocations/add · remove ─▶ policy: may this operator? ─▶ record ─▶ store ─┐
//!                                                                             │ every 250 ms, at each gateway
//!  a request's token ─▶ edge: verified ─▶ revoked? ◀── RevocationSet ◀────────┘
//! ```
//!
//! One job: what one operator revokes at one gateway is refused at every gateway within a second.

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

/// What operators change.
pub struct Revocations {
    follower: Arc<RevocationFollower>,
    store: Arc<Store>,
    policy: PolicyClient,
    recorder: Arc<CallRecorder>,
    ambient: Ambient,
}

impl Revocations {
    /// Over what the gateway shares.
    pub fn new(
        (follower, store): (Arc<RevocationFollower>, &Arc<Store>),
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

    /// The revocations in force.
    pub fn watch(&self) -> RevocationWatch {
        self.follower.watch()
    }
}
