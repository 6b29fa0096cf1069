//! Submissions of a checkpoint to a witness: the body of `add-checkpoint` (tlog-witness).

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::Error;
use crate::checkpoint::{decimal, hash};
use crate::hash::Hash;
use crate::note::SignedNote;

/// Maximum number of hashes of a consistency proof.
const MAX_PATH: usize = 63;

/// A checkpoint, with the proof that its tree begins with the last tree that the witness saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointSubmission {
    /// Size of the last tree that the witness saw, or zero if it saw none.
    pub old_size: u64,
    /// The consistency path from that tree to the tree of the checkpoint (RFC 6962, section 2.1.2).
    pub path: Vec<Hash>,
    /// The checkpoint, signed by the log.
    pub checkpoint: SignedNote,
}

impl FromStr for CheckpointSubmission {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts = text.split_once("\n\n");
        let (lines, note) =
            parts.ok_or(Error::Submission("no empty line precedes the checkpoint"))?;
        let mut lines = lines.split('\n');
        let old_size = lines.next().and_then(|line| line.strip_prefix("old "));
        let old_size = old_size
            .and_then(decimal)
            .ok_or(Error::Submission("its first line is not `old SIZE`"))?;
        let path = lines
            .take(MAX_PATH + 1)
            .map(hash)
            .collect::<Option<Vec<_>>>();
        let path = path.ok_or(Error::Submission("a line of its proof is not a hash"))?;
        if path.len() > MAX_PATH {
            return Err(Error::Submission("its proof has more than 63 hashes"));
        }
        Ok(Self {
            old_size,
            path,
            checkpoint: note.parse()?,
        })
    }
}

impl fmt::Display for CheckpointSubmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "old {}", self.old_size)?;
        for hash in &self.path {
            writeln!(f, "{}", STANDARD.encode(hash))?;
        }
        write!(f, "\n{}", self.checkpoint)
    }
}
