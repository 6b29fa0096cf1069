//! Requests for approvals, and their decisions. Each request is decided once and used once, across all replicas.
//!
//! ```text
//!   pending ─┬─ approved ─▶ used        each step happens once, or not before the request expires
//!            └─ refused
//! ```
//!
//! There is at most one request for a call. A repetition of the call finds it.

use wardgate_domain::{ApprovalId, Digest, Timestamp};

use super::{Store, StoreError};

/// Maximum number of open requests of one person, decided or not. Used and expired requests do not count.
const EACH: i64 = 32;

/// Maximum number of requests in one list, the oldest first.
const MOST: i64 = 200;

/// Inserts a request. An existing request for the same call is replaced if it has expired or was used.
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
    /// The digest of what is to be approved, which only the same call has.
    pub call: Digest,
    /// The id of the request, unless there is already a request for the call.
    pub id: ApprovalId,
    /// The caller of the call: a digest of tenant, issuer and subject.
    pub owner: Digest,
    /// The digests of those who may decide.
    pub approvers: &'a [Digest],
    /// The sealed call.
    pub sealed: &'a [u8],
    /// The time at which the request expires unless it was decided.
    pub expires_at: Timestamp,
}

/// A stored request for an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredApproval {
    /// The id of the request.
    pub id: ApprovalId,
    /// The state of the request.
    pub state: ApprovalState,
    /// The sealed call.
    pub sealed: Vec<u8>,
    /// The time at which the request expires.
    pub expires_at: Timestamp,
}

/// The state of a request that was not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalState {
    /// The request is not decided yet.
    Pending,
    /// The request was approved and not used yet. Holds the sealed approval.
    Approved(Vec<u8>),
    /// The request was refused.
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
    /// Requests an approval, unless there is a request for the same call already. Returns the request for the call, or
    /// `None` if its owner has too many requests.
    pub async fn request_approval(
        &self,
        request: NewApprovalRequest<'_>,
    ) -> Result<Option<StoredApproval>, StoreError> {
        // The approvers are stored as one text to avoid an index entry for each: a call has few approvers, and requests
        // last for minutes.
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

    /// Returns the request for the approval of `call`, if there is one that was not used.
    pub async fn find_approval_of(
        &self,
        call: Digest,
    ) -> Result<Option<StoredApproval>, StoreError> {
        let values = [call.as_bytes()[..].into(), self.now().as_micros().into()];
        let found = self.rows(COLUMNS_BY_CALL, values).await?;
        Ok(found.into_iter().find_map(StoredApproval::from_row))
    }

    /// Returns the request with this id, if there is one that was not used.
    pub async fn find_approval(
        &self,
        id: ApprovalId,
    ) -> Result<Option<StoredApproval>, StoreError> {
        let id = id.to_string();
        let values = [id.as_str().into(), self.now().as_micros().into()];
        let found = self.rows(COLUMNS_BY_ID, values).await?;
        Ok(found.into_iter().find_map(StoredApproval::from_row))
    }

    /// Returns the pending requests that `approver` may decide, in the order of their expiry.
    pub async fn list_approvals(
        &self,
        approver: Digest,
    ) -> Result<Vec<StoredApproval>, StoreError> {
        // A digest contains no character that is special to LIKE.
        let pattern = format!("% {approver}%");
        let now = self.now().as_micros();
        let values = [pattern.as_str().into(), now.into(), MOST.into()];
        let found = self.rows(LIST, values).await?;
        let found = found.into_iter().filter_map(StoredApproval::from_row);
        Ok(found.collect())
    }

    /// Decides a pending request: `approval` is the sealed approval, valid until `expires_at`, or `None` for a refusal.
    /// Returns `true` exactly once for each request, across all replicas.
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

    /// Uses an approval up. Returns `true` exactly once for each approval, across all replicas.
    pub async fn use_approval(&self, id: ApprovalId) -> Result<bool, StoreError> {
        let id = id.to_string();
        let values = [id.as_str().into(), self.now().as_micros().into()];
        Ok(self.execute(USE, values).await? == 1)
    }
}
