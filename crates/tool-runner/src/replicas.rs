//! Forwards requests to the other replicas of this service. An exchange that one replica suspended can go on only
//! there, so the client's answers are forwarded to that replica.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Extensions, Request, Status};
use tracing::warn;
use wardgate_rpc::client::LocalToolRunner;
use wardgate_rpc::{Link, LinkedService, link};

use crate::interaction::ResumptionState;

/// A function that creates the link to the replica at an address.
pub type Dial =
    Arc<dyn Fn(&str) -> Result<LinkedService<LocalToolRunner>, link::Error> + Send + Sync>;

/// Metadata key of a request that another replica has forwarded. Such a request is not forwarded again.
const FORWARDED: &str = "x-wardgate-handed-on";

/// Maximum number of links that are kept. More are needed only if replicas are replaced often.
const MAX_LINKS: usize = 64;

pub(crate) struct Replicas {
    /// The address at which other replicas reach this one.
    own: Option<String>,
    dial: Option<Dial>,
    links: Mutex<HashMap<String, LinkedService<LocalToolRunner>>>,
}

impl Replicas {
    pub(crate) fn new(own: Option<String>, dial: Option<Dial>) -> Self {
        Self {
            own,
            dial,
            links: Mutex::default(),
        }
    }

    /// Returns the link to the replica that holds the exchange of `state`, or `None` if this replica should handle the
    /// request.
    pub(crate) fn link_to_holder(
        &self,
        state: Option<&[u8]>,
        metadata: &MetadataMap,
    ) -> Option<Link> {
        let state = ResumptionState::decode(state?)?;
        let url = state
            .replica_address()
            .filter(|url| self.own.as_deref() != Some(url))?;
        if metadata.contains_key(FORWARDED) {
            return None;
        }
        let dial = self.dial.as_ref()?;
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if !links.contains_key(url) {
            if links.len() >= MAX_LINKS {
                links.clear();
            }
            let dialled = dial(url).inspect_err(|error| {
                warn!(%error, "no connection to another replica of the tool-runner can be configured");
            });
            links.insert(url.to_owned(), dialled.ok()?);
        }
        let neighbour = links.get(url)?;
        Some(neighbour.link.transport.clone())
    }
}

/// Returns `message` as a request to another replica, with the trace and the deadline of the original request.
pub(crate) fn forwarded_request<M>(metadata: &MetadataMap, message: M) -> Request<M> {
    let mut metadata = metadata.clone();
    metadata.insert(FORWARDED, MetadataValue::from_static("1"));
    Request::from_parts(metadata, Extensions::default(), message)
}

/// Returns the answer of the replica, or `None` if the replica is unavailable, in which case this replica answers the
/// request.
pub(crate) fn unless_unavailable<T>(answer: Result<T, Status>) -> Option<Result<T, Status>> {
    match answer {
        Err(status) if status.code() == Code::Unavailable => {
            warn!("the replica of the tool-runner that holds a suspended call cannot be reached");
            None
        }
        answer => Some(answer),
    }
}
