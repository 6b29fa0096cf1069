//! The current revocations, as operators change them.

use std::sync::Arc;

use tokio::sync::watch;
use wardgate_domain::{Caller, RevocationSet};

use super::TokenRefusal;

/// A watch of the revocations in force. The default has no revocations, for a service that relies on the gateway to
/// check them.
#[derive(Debug, Clone, Default)]
pub struct RevocationWatch(Option<watch::Receiver<Option<Arc<RevocationSet>>>>);

impl RevocationWatch {
    /// Creates a watch that follows `revocations`. The value is `None` until the revocations were read once.
    pub fn new(revocations: watch::Receiver<Option<Arc<RevocationSet>>>) -> Self {
        Self(Some(revocations))
    }

    /// Fails for a caller whose token is revoked, and for every caller until the revocations were read once.
    pub(super) fn check(&self, caller: &Caller) -> Result<(), TokenRefusal> {
        let Some(revocations) = &self.0 else {
            return Ok(());
        };
        match &*revocations.borrow() {
            Some(revocations) if revocations.revokes(caller) => Err(TokenRefusal::TokenRevoked),
            Some(_) => Ok(()),
            None => Err(TokenRefusal::RevocationsUnknown),
        }
    }

    /// Waits until the token of `caller` is revoked, which may never happen.
    pub async fn until_revoked(&self, caller: &Caller) {
        if let Some(mut revocations) = self.0.clone() {
            let revokes = |it: &Option<Arc<RevocationSet>>| {
                it.as_ref()
                    .is_some_and(|revocations| revocations.revokes(caller))
            };
            if revocations.wait_for(revokes).await.is_ok() {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}
