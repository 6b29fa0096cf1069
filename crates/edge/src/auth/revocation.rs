//! What operators revoked, as it changes.

use std::sync::Arc;

use tokio::sync::watch;
use wardgate_domain::{Caller, RevocationSet};

use super::TokenRefusal;

/// The revocations in force. The default knows of none, for a service that leaves them to the gateway.
#[derive(Debug, Clone, Default)]
pub struct RevocationWatch(Option<watch::Receiver<Option<Arc<RevocationSet>>>>);

impl RevocationWatch {
    /// Follows `revocations`, which are none until they were read once.
    pub fn new(revocations: watch::Receiver<Option<Arc<RevocationSet>>>) -> Self {
        Self(Some(revocations))
    }

    /// Fails for a caller whose token was revoked, and for everybody as long as nobody knows what was.
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

    /// Waits until the token of `caller` is revoked, perhaps for ever.
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
