//! Requests a list from servers: at the start, after a change, when a server becomes unavailable or available, and
//! every minute.
//!
//! ```text
//!   ServerListing: the request ─▶ Followers: one task per server ─▶ Roster: the last lists and missing servers
//! ```

mod follow;
mod roster;

use std::future::Future;

use tokio::sync::watch;
use tokio::time::Instant;

use wardgate_mcp_client::{Upstream, UpstreamError};

pub(crate) use follow::Followers;
pub(crate) use roster::Roster;

/// A list that is requested from each server.
pub(crate) trait ServerListing: 'static {
    /// The type of the list.
    type List: Clone + Default + PartialEq + Send + 'static;

    /// Returns a channel that changes when the list has changed, or may have.
    fn changes(upstream: &Upstream) -> watch::Receiver<u64>;

    fn fetch(
        upstream: &Upstream,
        deadline: Instant,
    ) -> impl Future<Output = Result<Self::List, UpstreamError>> + Send;
}
