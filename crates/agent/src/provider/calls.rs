//! Assembles the function calls of an answer from the pieces in which providers send them.

use std::collections::HashSet;

use serde_json::{Map, Value};
use wardgate_domain::Ambient;

use crate::model::FunctionCall;

/// A piece of a call. The index, the id, both or neither identify the call that the piece belongs to.
#[derive(Debug, Default)]
pub(super) struct CallPiece<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    pub(super) arguments: Option<ArgumentsPiece<'a>>,
}

/// The arguments in a piece: a fragment of their text, or the complete value.
#[derive(Debug)]
pub(super) enum ArgumentsPiece<'a> {
    More(&'a str),
    Whole(&'a Value),
}

/// A call as far as its pieces have arrived.
#[derive(Debug, Default)]
struct PartialCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl PartialCall {
    /// Returns whether the arguments are complete. Empty arguments do not count, because more of them may follow.
    fn is_whole(&self) -> bool {
        serde_json::from_str::<Map<String, Value>>(&self.arguments).is_ok()
    }
}

/// The calls received so far.
#[derive(Debug, Default)]
pub(super) struct Calls {
    parts: Vec<PartialCall>,
}

/// An error for an answer that contains an incomplete call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnfinishedCall;

impl Calls {
    pub(super) fn push(&mut self, piece: &CallPiece<'_>) {
        let at = self.place_of(piece).unwrap_or_else(|| {
            self.parts.push(PartialCall::default());
            self.parts.len() - 1
        });
        let part = &mut self.parts[at];
        part.index = part.index.or(piece.index);
        if let Some(id) = piece.id
            && part.id.is_empty()
        {
            id.clone_into(&mut part.id);
        }
        if let Some(name) = piece.name
            && part.name != name
        {
            part.name.push_str(name);
        }
        match piece.arguments {
            Some(ArgumentsPiece::More(text)) => part.arguments.push_str(text),
            Some(ArgumentsPiece::Whole(value)) => part.arguments = value.to_string(),
            None => {}
        }
    }

    /// Returns the position of the call that a piece continues, or `None` if the piece begins a new call. Some servers send the
    /// index 0 or no index for every call, so a piece with a different id, or with a name after arguments, begins a new call.
    fn place_of(&self, piece: &CallPiece<'_>) -> Option<usize> {
        let at = match (piece.index, piece.id) {
            (Some(index), _) => self.last(|part| part.index == Some(index))?,
            (None, Some(id)) => self.last(|part| part.id == id)?,
            (None, None) => self.parts.len().checked_sub(1)?,
        };
        let part = &self.parts[at];
        let another_id = piece
            .id
            .is_some_and(|id| !part.id.is_empty() && id != part.id);
        let another_name = piece.name.is_some_and(|name| {
            let has_arguments = matches!(piece.arguments, Some(ArgumentsPiece::Whole(_)))
                || matches!(piece.arguments, Some(ArgumentsPiece::More(text)) if !text.is_empty());
            let differs = name != part.name && !part.arguments.is_empty();
            piece.id.is_none() && (differs || has_arguments && part.is_whole())
        });
        (!another_id && !another_name).then_some(at)
    }

    fn last(&self, is_it: impl Fn(&PartialCall) -> bool) -> Option<usize> {
        self.parts.iter().rposition(is_it)
    }

    /// Returns all calls of an answer that the model itself ended, without checking names and arguments: the model is told
    /// about invalid ones later. A call without a name is named `null`.
    pub(super) fn into_calls(self, ids: &mut CallIds) -> Vec<FunctionCall> {
        self.parts
            .into_iter()
            .map(|part| FunctionCall {
                id: ids.unique(part.id),
                name: match part.name {
                    empty if empty.trim().is_empty() => "null".to_owned(),
                    name => name,
                },
                arguments: match part.arguments {
                    empty if empty.trim().is_empty() => "{}".to_owned(),
                    text => text,
                },
            })
            .collect()
    }

    /// Returns the calls that are certainly complete, for an answer that the model did not end itself.
    pub(super) fn whole(
        mut self,
        ids: &mut CallIds,
    ) -> (Vec<FunctionCall>, Result<(), UnfinishedCall>) {
        let before = self.parts.len();
        self.parts.retain(PartialCall::is_whole);
        let all = if self.parts.len() == before {
            Ok(())
        } else {
            Err(UnfinishedCall)
        };
        (self.into_calls(ids), all)
    }
}

/// The ids of the calls of a turn, which are unique.
#[derive(Debug)]
pub(super) struct CallIds {
    taken: HashSet<String>,
    ambient: Ambient,
}

impl CallIds {
    /// Creates a generator of ids that differ from `taken`, the ids of earlier calls.
    pub(super) fn new(taken: HashSet<String>, ambient: Ambient) -> Self {
        Self { taken, ambient }
    }

    /// Returns the provider's id, or a generated id if it is empty or already taken. Generated ids have nine letters and digits,
    /// a form that every provider accepts.
    fn unique(&mut self, id: String) -> String {
        const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        if !id.is_empty() && self.taken.insert(id.clone()) {
            return id;
        }
        let own: String = self
            .ambient
            .random::<9>()
            .iter()
            .map(|byte| char::from(ALPHABET[usize::from(byte % 32)]))
            .collect();
        self.taken.insert(own.clone());
        own
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type RawPiece<'a> = (
        Option<u64>,
        Option<&'a str>,
        Option<&'a str>,
        Option<&'a str>,
    );

    fn put_together(pieces: &[RawPiece<'_>]) -> Vec<(String, String, String)> {
        let mut calls = Calls::default();
        for &(index, id, name, arguments) in pieces {
            calls.push(&CallPiece {
                index,
                id,
                name,
                arguments: arguments.map(ArgumentsPiece::More),
            });
        }
        calls
            .into_calls(&mut ids())
            .into_iter()
            .map(|call| (call.id, call.name, call.arguments))
            .collect()
    }

    fn ids() -> CallIds {
        CallIds::new(HashSet::new(), Ambient::system())
    }

    fn triple(id: &str, name: &str, arguments: &str) -> (String, String, String) {
        (id.to_owned(), name.to_owned(), arguments.to_owned())
    }

    #[test]
    fn interleaved_pieces_find_their_call_by_index() {
        let calls = put_together(&[
            (Some(0), Some("a"), Some("one"), Some("")),
            (Some(1), Some("b"), Some("two"), Some("{")),
            (Some(0), None, None, Some("{\"x\"")),
            (Some(1), None, None, Some("}")),
            (Some(0), None, None, Some(":1}")),
        ]);
        assert_eq!(
            calls,
            [triple("a", "one", "{\"x\":1}"), triple("b", "two", "{}")]
        );
    }

    #[test]
    fn pieces_without_an_index_go_on_with_the_last_call() {
        let calls = put_together(&[
            (None, Some("a"), Some("one"), Some("{\"x\"")),
            (None, None, None, Some(":1}")),
            (None, Some("b"), Some("two"), Some("{}")),
        ]);
        assert_eq!(
            calls,
            [triple("a", "one", "{\"x\":1}"), triple("b", "two", "{}")]
        );
    }

    #[test]
    fn whole_calls_under_one_index_stay_apart() {
        for index in [Some(0), None] {
            let by_id = put_together(&[
                (index, Some("a"), Some("one"), Some("{}")),
                (index, Some("b"), Some("one"), Some("{\"x\":1}")),
            ]);
            assert_eq!(
                by_id,
                [triple("a", "one", "{}"), triple("b", "one", "{\"x\":1}")]
            );

            let nameless = put_together(&[
                (index, None, Some("one"), Some("{}")),
                (index, None, Some("one"), Some("{\"x\":1}")),
                (index, None, Some("two"), Some("{}")),
            ]);
            let names: Vec<_> = nameless.iter().map(|(_, name, _)| name.as_str()).collect();
            assert_eq!(names, ["one", "one", "two"]);
        }
    }

    #[test]
    fn an_id_and_a_name_repeated_in_every_piece_are_one_call() {
        for id in [Some("a"), None] {
            let calls = put_together(&[
                (Some(0), id, Some("one"), Some("{\"x\"")),
                (Some(0), id, Some("one"), Some(":1}")),
                (Some(0), id, Some("one"), Some("")),
            ]);
            assert_eq!(calls.len(), 1);
            assert_eq!(
                (calls[0].1.as_str(), calls[0].2.as_str()),
                ("one", "{\"x\":1}")
            );
        }
    }

    #[test]
    fn a_name_in_pieces_is_put_together() {
        let calls = put_together(&[
            (Some(0), Some("a"), Some("get_"), None),
            (Some(0), None, Some("records"), None),
            (Some(0), None, None, Some("{}")),
        ]);
        assert_eq!(calls, [triple("a", "get_records", "{}")]);
    }

    #[test]
    fn whole_arguments_are_taken_as_their_text() {
        let mut calls = Calls::default();
        calls.push(&CallPiece {
            name: Some("one"),
            arguments: Some(ArgumentsPiece::Whole(&json!({"x": 1}))),
            ..CallPiece::default()
        });
        let calls = calls.into_calls(&mut ids());
        assert_eq!(calls[0].arguments, "{\"x\":1}");
    }

    #[test]
    fn what_is_not_surely_whole_is_left_out_of_an_answer_that_was_cut() {
        let mut calls = Calls::default();
        for (index, arguments) in ["{\"x\":1}", "", "{\"x\":"].into_iter().enumerate() {
            calls.push(&CallPiece {
                index: u64::try_from(index).ok(),
                name: Some("one"),
                arguments: Some(ArgumentsPiece::More(arguments)),
                ..CallPiece::default()
            });
        }
        let (whole, all) = calls.whole(&mut ids());
        assert_eq!((whole.len(), all), (1, Err(UnfinishedCall)));
        assert_eq!(whole[0].arguments, "{\"x\":1}");
    }

    #[test]
    fn every_call_of_a_turn_has_an_id_of_its_own() {
        let taken = HashSet::from(["call_0".to_owned()]);
        let mut ids = CallIds::new(taken, Ambient::system());
        let given: Vec<_> = ["call_0", "x", "x", "", ""]
            .map(|id| ids.unique(id.to_owned()))
            .into();
        assert_eq!(given[1], "x");
        assert_eq!(given.iter().collect::<HashSet<_>>().len(), 5);
        assert!(!given.contains(&"call_0".to_owned()));
    }

    #[test]
    fn a_call_without_a_name_is_called_null() {
        assert_eq!(
            put_together(&[(Some(0), Some("a"), None, Some("{}"))]),
            [triple("a", "null", "{}")]
        );
    }
}
