//! The other replicas of this service: an exchange that one of them suspended can go on only there, so the client's
//! answers are forwarded to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Extensions, Request, Status};
use tracing::warn;
use wardgate_rpc::client::LocalToolRunner;
use wardgate_rpc::{Link, LinkedService, link};

use crate::interaction::ResumptionState;

/// Makes the link to the replica at an address.
pub type Dial =
    Arc<dyn Fn(&str) -> Result<LinkedService<LocalToolRunner>, link::Error> + Send + Sync>;

/// Says that another replica has handed a request on: whoever gets it does not hand it on again.
const FORWARDED: &str = "x-wardgate-handed-on";

/// Links that are kept. There are more only where replicas come and go.
const MAX_LINKS: usize = 64;

pub(crate) struct Replicas {
    /// Where others reach this one.
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

    /// The link to the replica that holds what goes on with `state`, unless it is this one.
    pub(crate) fn holding(&self, state: Option<&[u8]>, metadata: &MetadataMap) -> Option<Link> {
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
                warn!(%error, "another replica of the tool-runner cannot be linked to");
            });
            links.insert(url.to_owned(), dialled.ok()?);
        }
        let neighbour = links.get(url)?;
        Some(neighbour.link.transport.clone())
    }
}

/// `message` for another replica, with the trace and the deadline of the one that came.
pub(crate) fn forwarded_request<M>(metadata: &MetadataMap, message: M) -> Request<M> {
    let mut metadata = metadata.clone();
    metadata.insert(FORWARDED, MetadataValue::from_static("1"));
    Request::from_parts(metadata, Extensions::default(), message)
}

/// What the replica says; none where it is gone, so that this one says what that means.
pub(crate) fn unless_unavailable<T>(answer: Result<T, Status>) -> Option<Result<T, Status>> {
    match answer {
        Err(status) if status.code() == Code::Unavailable => {
            warn!("a replica of the tool-runner that holds a waiting call cannot be reached");
            None
        }
        answer => Some(answer),
    }
}
