//! Calls that a model wrote so that they cannot be read. None of them runs; the model is told how to write them.

/// The model is told this in the place of a result.
pub(super) const CANNOT_BE_READ: &str = "This call could not be read and was not run. Write it again: the name of the \
     tool, and its arguments as one JSON object, complete and without comments.";

/// How ids of such calls begin. The id is in the journal, so that the call is refused whenever the turn goes on.
const ID: &str = "unreadable_";

/// Whether the id is of a call that cannot be read.
pub(super) fn is_id(id: &str) -> bool {
    id.starts_with(ID)
}

/// An id for such a call.
pub(super) fn id(round: usize, number: usize) -> String {
    format!("{ID}{round}_{number}")
}
