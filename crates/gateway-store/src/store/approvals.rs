//! Requests for approvals, and what became of each: decided once, used once, at whichever replica.
//!
//! ```text
//!   pending ─┬─ approved ─▶ used        each step happens once, or not before the request expires
//!            └─ refused
//! ```
//!
//! There is one request for one call: whoever repeats the call finds it.

use wardgate_domain::{ApprovalId, Digest, Timestamp};

use super::{Store, StoreError};

/// Requests of one person at once, whether or not they were decided: what was used, or has expired, is none.
const EACH: i64 = 32;

/// Requests listed at once, the oldest first.
const MOST: i64 = 200;

/// The id and the content of a request that has expired or was used give way to the new ones.
const REQUEST: &str = "
    INSERT INTO gateway.approval (call, id, owner, approvers, sealed, approval, state, expires_at)
    SELECT $1, $2, $3, $4, $5, NULL, 0, $6 WHERE $8 > (
        SELECT count(*) FROM gateway.approval WHERE owner = $3 AND state < 3 AND expires_at > $7)
    ON CONFLICT (call) DO UPDATE SET id = excluded.id, approvers = excluded.approvers, sealed = excluded.sealed,
        approval = NULL, state = 0, expires_at = excluded.expires_at
    WHERE approval.expires_at <= $7 OR approval.state = 3";

const COLUMNS_BY_CALL: &str = "
    SELECT id, state, sealed, approval, expires_at FROM gateway.approval
    WHERE call = $1 AND state < 3 AND expires_at > $2";

const COLUMNS_BY_ID: &str = "
    SELECT id, state, sealed, approval, expires_at FROM gateway.approval
    WHERE id = $1 AND state < 3 AND expires_at > $2";

const LIST: &str = "
    SELECT id, state, sealed, approval, expires_at FROM gateway.approval
    WHERE state = 0 AND approvers LIKE $1 AND expires_at > $2 ORDER BY expires_at, id LIMIT $3";

const DECIDE: &str = "
    UPDATE gateway.approval SET state = $2, approval = $3, expires_at = $4
    WHERE id = $1 AND state = 0 AND expires_at > $5";

const USE: &str = "
    UPDATE gateway.approval SET state = 3 WHERE id = $1 AND state = 1 AND expires_at > $2";

pub(crate) const SWEEP: &str = "
    DELETE FROM gateway.approval WHERE call IN
        (SELECT call FROM gateway.approval WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";

/// A request for an approval.
#[derive(Debug)]
pub struct NewApprovalRequest<'a> {
    /// What is to be approved: the same for the same call alone.
    pub call: Digest,
    /// The id that it gets where there is none for the call yet.
    pub id: ApprovalId,
    /// Whose call it is: a digest of tenant, issuer and subject.
    pub owner: Digest,
    /// Those who may decide, each a digest of its own.
    pub approvers: &'a [Digest],
    /// The call, sealed.
    pub sealed: &'a [u8],
    /// When it is forgotten unless it was decided.
    pub expires_at: Timestamp,
}

/// A request for an approval, as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredApproval {
    /// Its id.
    pub id: ApprovalId,
    /// What became of it.
    pub state: ApprovalState,
    /// The call, sealed.
    pub sealed: Vec<u8>,
    /// When it is forgotten.
    pub expires_at: Timestamp,
}

/// What became of a request that was not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalState {
    /// Nobody has decided.
    Pending,
    /// The approval, sealed. It was not used.
    Approved(Vec<u8>),
    /// Somebody refused.
    Refused,
}

/// Id, state, call, approval, expiry.
type ApprovalRow = (String, i64, Vec<u8>, Option<Vec<u8>>, i64);

impl StoredApproval {
    fn from_row((id, state, sealed, approval, expires_at): ApprovalRow) -> Option<Self> {
        Some(Self {
            id: id.parse().ok()?,
            state: match (state, approval) {
                (0, _) => ApprovalState::Pending,
                (1, Some(approval)) => ApprovalState::Approved(approval),
                _ => ApprovalState::Refused,
            },
            sealed,
            expires_at: Timestamp::from_micros(expires_at),
        })
    }
}

impl Store {
    /// Asks for an approval, unless there is a request for the same call already. Gives the one that there is then; none
    /// where its owner has too many.
    pub async fn request_approval(
        &self,
        request: NewApprovalRequest<'_>,
    ) -> Result<Option<StoredApproval>, StoreError> {
        // A text, so that one index lookup per approver is not needed: a call has few, and requests last for minutes.
        let approvers: Vec<_> = request.approvers.iter().map(ToString::to_string).collect();
        let approvers = format!(" {}", approvers.join(" "));
        let id = request.id.to_string();
        let values = [
            request.call.as_bytes()[..].into(),
            id.as_str().into(),
            request.owner.as_bytes()[..].into(),
            approvers.as_str().into(),
            request.sealed.into(),
            request.expires_at.as_micros().into(),
            self.now().as_micros().into(),
            EACH.into(),
        ];
        self.execute(REQUEST, values).await?;
        self.find_approval_of(request.call).await
    }

    /// The request for the approval of `call`, if there is one that was not used.
    pub async fn find_approval_of(
        &self,
        call: Digest,
    ) -> Result<Option<StoredApproval>, StoreError> {
        let values = [call.as_bytes()[..].into(), self.now().as_micros().into()];
        let found = self.rows(COLUMNS_BY_CALL, values).await?;
        Ok(found.into_iter().find_map(StoredApproval::from_row))
    }

    /// The request with this id, if there is one that was not used.
    pub async fn find_approval(
        &self,
        id: ApprovalId,
    ) -> Result<Option<StoredApproval>, StoreError> {
        let id = id.to_string();
        let values = [id.as_str().into(), self.now().as_micros().into()];
        let found = self.rows(COLUMNS_BY_ID, values).await?;
        Ok(found.into_iter().find_map(StoredApproval::from_row))
    }

    /// Pending requests that `approver` may decide about, those that expire first.
    pub async fn list_approvals(
        &self,
        approver: Digest,
    ) -> Result<Vec<StoredApproval>, StoreError> {
        // A digest has no character that means anything to LIKE.
        let pattern = format!("% {approver}%");
        let now = self.now().as_micros();
        let values = [pattern.as_str().into(), now.into(), MOST.into()];
        let found = self.rows(LIST, values).await?;
        let found = found.into_iter().filter_map(StoredApproval::from_row);
        Ok(found.collect())
    }

    /// Decides a pending request: with a sealed approval that lasts until `expires_at`, or with none. True exactly once for
    /// each, over all replicas.
    pub async fn decide_approval(
        &self,
        id: ApprovalId,
        approval: Option<&[u8]>,
        expires_at: Timestamp,
    ) -> Result<bool, StoreError> {
        let id = id.to_string();
        let state: i64 = if approval.is_some() { 1 } else { 2 };
        let values = [
            id.as_str().into(),
            state.into(),
            wardgate_store::Value::Bytes(approval.map(<[u8]>::to_vec)),
            expires_at.as_micros().into(),
            self.now().as_micros().into(),
        ];
        Ok(self.execute(DECIDE, values).await? == 1)
    }

    /// Uses an approval up. True exactly once for each, over all replicas.
    pub async fn use_approval(&self, id: ApprovalId) -> Result<bool, StoreError> {
        let id = id.to_string();
        let values = [id.as_str().into(), self.now().as_micros().into()];
        Ok(self.execute(USE, values).await? == 1)
    }
}
