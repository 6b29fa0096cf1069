//! Signed notes: a text followed by lines of signatures.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::Error;

/// Maximum size of a note in bytes.
const MAX_BYTES: usize = 64 * 1_024;

/// Prefix of a signature line.
const LINE: &str = "\u{2014} ";

/// A text with at least one signature. Parsing does not verify the signatures; see [`crate::VerifierKey::verify`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNote {
    text: String,
    signatures: Vec<NoteSignature>,
}

impl SignedNote {
    /// Creates the note of `text`, which must end with a newline and contain no other control characters than newlines.
    pub(crate) fn new(text: &str, signature: NoteSignature) -> Result<Self, Error> {
        if !text.ends_with('\n') {
            return Err(Error::Note("its text does not end with a newline"));
        }
        if text.contains(|c: char| c.is_ascii_control() && c != '\n') {
            return Err(Error::Note("it contains a control character"));
        }
        Ok(Self {
            text: text.to_owned(),
            signatures: vec![signature],
        })
    }

    /// Returns the signed text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the signatures, in order.
    pub fn signatures(&self) -> &[NoteSignature] {
        &self.signatures
    }

    /// Adds a signature after the others.
    pub fn add(&mut self, signature: NoteSignature) {
        self.signatures.push(signature);
    }
}

impl FromStr for SignedNote {
    type Err = Error;

    fn from_str(note: &str) -> Result<Self, Error> {
        if note.len() > MAX_BYTES {
            return Err(Error::Note("it has more than 65536 bytes"));
        }
        let parts = note.rsplit_once("\n\n");
        let (text, lines) =
            parts.ok_or(Error::Note("no empty line separates text and signatures"))?;
        let lines = lines.strip_suffix('\n');
        let lines = lines.ok_or(Error::Note("its last line does not end with a newline"))?;
        let mut lines = lines.split('\n').map(NoteSignature::from_str);
        let first = lines
            .next()
            .ok_or(Error::Note("it has no signature"))
            .flatten()?;
        let mut parsed = Self::new(&format!("{text}\n"), first)?;
        for signature in lines {
            parsed.add(signature?);
        }
        Ok(parsed)
    }
}

impl fmt::Display for SignedNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures
            .iter()
            .try_for_each(|signature| writeln!(f, "{signature}"))
    }
}

/// Returns whether `name` is valid in a signature line.
pub(crate) fn is_key_name(name: &str) -> bool {
    let forbidden = |c: char| c.is_whitespace() || c.is_control() || c == '+';
    !name.is_empty() && !name.contains(forbidden)
}

/// A signature line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteSignature {
    name: String,
    id: [u8; 4],
    bytes: Vec<u8>,
}

impl NoteSignature {
    pub(crate) fn new(name: String, id: [u8; 4], bytes: Vec<u8>) -> Self {
        Self { name, id, bytes }
    }

    pub(crate) fn is_by(&self, name: &str, id: [u8; 4]) -> bool {
        self.name == name && self.id == id
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl FromStr for NoteSignature {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self, Error> {
        let malformed = Error::Note("a signature line is not `— NAME BASE64`");
        let parts = line
            .strip_prefix(LINE)
            .and_then(|line| line.split_once(' '));
        let Some((name, encoded)) = parts.filter(|(name, _)| is_key_name(name)) else {
            return Err(malformed);
        };
        let decoded = STANDARD.decode(encoded).map_err(|_| malformed)?;
        match decoded.split_first_chunk() {
            Some((id, bytes)) if !bytes.is_empty() => {
                Ok(Self::new(name.to_owned(), *id, bytes.to_vec()))
            }
            _ => Err(Error::Note("a signature is too short")),
        }
    }
}

impl fmt::Display for NoteSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [self.id.as_slice(), &self.bytes].concat();
        write!(f, "{LINE}{} {}", self.name, STANDARD.encode(bytes))
    }
}
