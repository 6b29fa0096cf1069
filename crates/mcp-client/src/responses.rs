//! The responses of a client to the requests of a server.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::message::{MemberValue, UpstreamRequest};

/// The responses of a client, each a JSON object, by the keys of the requests.
#[derive(Clone)]
pub struct Responses {
    pub(super) by_key: BTreeMap<String, Box<RawValue>>,
    raw: Box<RawValue>,
}

impl Default for Responses {
    /// Returns an empty set of responses.
    fn default() -> Self {
        Self {
            by_key: BTreeMap::new(),
            raw: RawValue::from_string("{}".to_owned()).unwrap_or_default(),
        }
    }
}

impl std::fmt::Debug for Responses {
    /// Formats the number of responses without their contents.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Responses")
            .field("answers", &self.by_key.len())
            .finish_non_exhaustive()
    }
}

impl Responses {
    /// Reads the responses, or returns `None` if `json` is not an object of objects.
    pub fn parse(json: &[u8]) -> Option<Self> {
        let json = if json.is_empty() { b"{}" } else { json };
        let by_key: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(json).ok()?;
        let are_objects = by_key.values().all(|answer| answer.get().starts_with('{'));
        are_objects.then_some(Self {
            by_key,
            raw: serde_json::from_slice(json).ok()?,
        })
    }

    /// Returns whether the client accepted all requests to do something elsewhere.
    pub fn are_all_accepted(&self) -> bool {
        #[derive(Deserialize)]
        struct ElicitResult {
            action: String,
        }
        let mut answers = self.by_key.values();
        answers.all(|answer| {
            serde_json::from_str::<ElicitResult>(answer.get())
                .is_ok_and(|answer| answer.action == "accept")
        })
    }

    /// Turns a request into the retry of one that waited for input.
    pub(super) fn add_to<'a>(&'a self, request: &mut UpstreamRequest<'a>, state: Option<&'a str>) {
        let members = &mut request.members;
        members.push(("inputResponses", MemberValue::Raw(&self.raw)));
        members.extend(state.map(|state| ("requestState", MemberValue::Text(state))));
    }
}
