//! Proof bundles, which contain everything that is needed to verify one entry without the log.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::Error;
use crate::checkpoint::{Checkpoint, decimal, hash};
use crate::hash::Hash;
use crate::note::SignedNote;
use crate::path::verify_inclusion;
use crate::policy::TrustPolicy;

/// The first line of a bundle.
const FIRST_LINE: &str = "c2sp.org/tlog-proof@v1\n";

/// Maximum size in bytes of a bundle: an entry in base64, a path and a note.
const MAX_BYTES: usize = 256 * 1_024;

/// Maximum number of hashes of a path, because a tree has fewer than 2^64 entries.
const MAX_PATH: usize = 64;

/// A proof that an entry is in a log at some index, with a checkpoint of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlogProof {
    /// The data from which the leaf hash is computed, as the log defines it. The bundle alone does not prove this data.
    pub extra: Option<Vec<u8>>,
    /// Index of the entry.
    pub index: u64,
    /// The inclusion path from the entry up to the root.
    pub path: Vec<Hash>,
    /// The checkpoint of the tree.
    pub checkpoint: SignedNote,
}

impl TlogProof {
    /// Returns the checkpoint if `policy` trusts it and its tree contains the entry with the hash `leaf`.
    pub fn verify(&self, leaf: &Hash, policy: &TrustPolicy) -> Result<Checkpoint, Error> {
        let checkpoint = policy.verify(&self.checkpoint)?;
        verify_inclusion(leaf, self.index, &self.path, &checkpoint.head)?;
        Ok(checkpoint)
    }
}

impl FromStr for TlogProof {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() > MAX_BYTES {
            return Err(Error::Proof("it has more than 262144 bytes"));
        }
        let text = text.strip_prefix(FIRST_LINE);
        let text = text.ok_or(Error::Proof(
            "its first line is not `c2sp.org/tlog-proof@v1`",
        ))?;
        let parts = text.split_once("\n\n");
        let (lines, note) = parts.ok_or(Error::Proof("no empty line precedes a checkpoint"))?;
        let mut lines = lines.split('\n').peekable();
        let extra = match lines.peek().and_then(|line| line.strip_prefix("extra ")) {
            Some(extra) => {
                lines.next();
                let extra = STANDARD.decode(extra);
                Some(extra.map_err(|_| Error::Proof("its extra data are not Base64"))?)
            }
            None => None,
        };
        let index = lines.next().and_then(|line| line.strip_prefix("index "));
        let index = index
            .and_then(decimal)
            .ok_or(Error::Proof("it contains no index"))?;
        let path = lines
            .take(MAX_PATH + 1)
            .map(hash)
            .collect::<Option<Vec<_>>>();
        let path = path.ok_or(Error::Proof("a line of its path is not a hash"))?;
        if path.len() > MAX_PATH {
            return Err(Error::Proof("its path has more than 64 hashes"));
        }
        Ok(Self {
            extra,
            index,
            path,
            checkpoint: note.parse()?,
        })
    }
}

impl fmt::Display for TlogProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FIRST_LINE)?;
        if let Some(extra) = &self.extra {
            writeln!(f, "extra {}", STANDARD.encode(extra))?;
        }
        writeln!(f, "index {}", self.index)?;
        for hash in &self.path {
            writeln!(f, "{}", STANDARD.encode(hash))?;
        }
        write!(f, "\n{}", self.checkpoint)
    }
}
