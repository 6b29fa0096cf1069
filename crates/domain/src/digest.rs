//! SHA-256 digests.

use std::fmt;
use std::str::FromStr;

use crate::InvalidMessage;

/// A SHA-256 digest, displayed as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns the digest of `bytes`.
    pub fn compute(bytes: &[u8]) -> Self {
        Self::of_parts([bytes])
    }

    /// Returns the digest of the concatenated parts. If different parts could have the same concatenation, the caller
    /// has to add their lengths.
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        for part in parts {
            context.update(part);
        }
        let mut bytes = [0; 32];
        bytes.copy_from_slice(context.finish().as_ref());
        Self(bytes)
    }

    /// Returns the digest of several texts. Each is preceded by its length, so that different lists of texts never have
    /// the same input.
    pub fn of_texts(texts: &[&str]) -> Self {
        let lengths: Vec<_> = texts.iter().map(|text| text.len().to_be_bytes()).collect();
        let each = lengths.iter().zip(texts);
        Self::of_parts(each.flat_map(|(length, text)| [length.as_slice(), text.as_bytes()]))
    }

    /// Creates a digest from bytes that were computed elsewhere.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns 64 hexadecimal digits. It avoids the formatting machinery for speed, since one record has five digests.
    pub fn to_hex(self) -> String {
        std::str::from_utf8(&self.digits())
            .unwrap_or_default()
            .to_owned()
    }

    fn digits(self) -> [u8; 64] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 0xf)];
        }
        text
    }

    /// Reads a digest from the bytes of a wire message. `field` names the field in the error.
    pub fn from_wire(bytes: &[u8], field: &'static str) -> Result<Self, InvalidMessage> {
        bytes
            .try_into()
            .map(Self)
            .map_err(|_| InvalidMessage::field(field, "is not 32 bytes"))
    }

    /// Returns the bytes for a wire message.
    pub fn to_wire(self) -> bytes::Bytes {
        bytes::Bytes::copy_from_slice(&self.0)
    }
}

/// Returns whether two secrets are equal. It compares their digests, so that the time it takes does not reveal where
/// they differ.
pub fn is_same_secret(given: &str, expected: &str) -> bool {
    Digest::compute(given.as_bytes()) == Digest::compute(expected.as_bytes())
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One write instead of 32 writes of two digits, which take a microsecond: every call formats several digests.
        f.write_str(std::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

/// An error for a text that is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not 64 hexadecimal digits")]
pub struct ParseDigestError;

impl FromStr for Digest {
    type Err = ParseDigestError;

    /// Parses 64 hexadecimal digits, in upper or lower case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(ParseDigestError);
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let [Some(high), Some(low)] = pair.map(|digit| char::from(digit).to_digit(16)) else {
                return Err(ParseDigestError);
            };
            *byte = u8::try_from(high * 16 + low).map_err(|_| ParseDigestError)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_shown_and_from_nothing_else() {
        let digest = Digest::compute(b"wardgate");
        let shown = digest.to_string();
        assert_eq!(shown.parse(), Ok(digest));
        assert_eq!(shown.to_uppercase().parse(), Ok(digest));
        for junk in [
            "",
            &shown[1..],
            &format!("{shown}0"),
            &format!("+{}", &shown[1..]),
            "é",
        ] {
            assert_eq!(junk.parse::<Digest>(), Err(ParseDigestError), "{junk}");
        }
    }

    #[test]
    fn is_sha_256() {
        assert_eq!(
            Digest::compute(b"abc").to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            Digest::of_parts([b"a".as_slice(), b"bc"]),
            Digest::compute(b"abc")
        );
    }
}
