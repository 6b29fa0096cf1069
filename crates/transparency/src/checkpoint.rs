//! Checkpoints, the statements of a log about its tree.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::Error;
use crate::hash::Hash;
use crate::key::VerifierKey;
use crate::note::SignedNote;
use crate::tree::TreeHead;

/// The size and the root of the tree of a log. The text of a checkpoint is what the log signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The origin, which is the name of the log.
    pub origin: String,
    /// The tree of the log.
    pub head: TreeHead,
}

impl Checkpoint {
    /// Returns the checkpoint in `note` if the log of `key` signed it.
    pub fn verify(note: &SignedNote, key: &VerifierKey) -> Result<Self, Error> {
        key.verify(note)?;
        let checkpoint: Self = note.text().parse()?;
        if checkpoint.origin == key.name() {
            return Ok(checkpoint);
        }
        Err(Error::Origin {
            expected: key.name().to_owned(),
            found: checkpoint.origin,
        })
    }
}

impl FromStr for Checkpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let text = text.strip_suffix('\n');
        let text = text.ok_or(Error::Checkpoint(
            "its last line does not end with a newline",
        ))?;
        let mut lines = text.split('\n');
        let mut next = || lines.next().filter(|line| !line.is_empty());
        let (Some(origin), Some(size), Some(root)) = (next(), next(), next()) else {
            return Err(Error::Checkpoint("it has fewer than three lines"));
        };
        if lines.any(str::is_empty) {
            return Err(Error::Checkpoint("it contains an empty line"));
        }
        let size = decimal(size).ok_or(Error::Checkpoint("its second line is not a tree size"))?;
        let root = hash(root).ok_or(Error::Checkpoint("its third line is not a root hash"))?;
        Ok(Self {
            origin: origin.to_owned(),
            head: TreeHead { size, root },
        })
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TreeHead { size, root } = self.head;
        let (origin, root) = (&self.origin, STANDARD.encode(root));
        write!(f, "{origin}\n{size}\n{root}\n")
    }
}

/// Parses a decimal number without leading zeros, as the formats require.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Parses a hash in base64.
pub(crate) fn hash(text: &str) -> Option<Hash> {
    STANDARD.decode(text).ok()?.try_into().ok()
}
