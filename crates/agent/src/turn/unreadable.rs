//! Calls whose text cannot be parsed. They are not run, and the model is told how to write calls.

/// The message that the model receives instead of a result.
pub(super) const CANNOT_BE_READ: &str = "This call could not be read and was not run. Write it again: the name of the \
     tool, and its arguments as one JSON object, complete and without comments.";

/// Prefix of the ids of unreadable calls. The id is stored in the journal, so that the call is also refused when the turn is
/// resumed.
const ID: &str = "unreadable_";

/// Returns whether `id` is the id of an unreadable call.
pub(super) fn is_id(id: &str) -> bool {
    id.starts_with(ID)
}

/// Returns an id for an unreadable call.
pub(super) fn id(round: usize, number: usize) -> String {
    format!("{ID}{round}_{number}")
}
