//! Asks servers for a list of theirs: at the start, when it changed, when one is gone or back, and every minute.
//!
//! ```text
//!   Listing: what is asked ─▶ Followers, one task a server ─▶ Roster: the last lists, and who is missing
//! ```

mod follow;
mod roster;

use std::future::Future;

use tokio::sync::watch;
use tokio::time::Instant;

use wardgate_mcp_client::{Upstream, UpstreamError};

pub(crate) use follow::Followers;
pub(crate) use roster::Roster;

/// What is asked of each server.
pub(crate) trait ServerListing: 'static {
    /// What it answers.
    type List: Clone + Default + PartialEq + Send + 'static;

    /// Changes when the list did, or may have.
    fn changes(upstream: &Upstream) -> watch::Receiver<u64>;

    fn fetch(
        upstream: &Upstream,
        deadline: Instant,
    ) -> impl Future<Output = Result<Self::List, UpstreamError>> + Send;
}
