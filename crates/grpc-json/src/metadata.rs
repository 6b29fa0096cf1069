//! The metadata that is sent with every call of a source.

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use tonic::metadata::{
    AsciiMetadataKey, AsciiMetadataValue, BinaryMetadataKey, BinaryMetadataValue, MetadataMap,
};

/// Base64 with or without padding, as gRPC accepts it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The names that are set by gRPC or by `auth`.
const RESERVED: [&str; 6] = [
    "authorization",
    "content-type",
    "host",
    "te",
    "user-agent",
    "connection",
];

/// The reason why an entry cannot be sent. It contains no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadMetadata {
    #[error("is not a name of metadata; write lower-case letters, digits, `-`, `_` and `.`")]
    Name,
    #[error("is set by gRPC or by `auth`")]
    Reserved,
    #[error(
        "contains characters that are not printable ASCII; use a name that ends with `-bin` and Base64"
    )]
    Text,
    #[error("ends with `-bin`, so its value must be Base64")]
    Base64,
}

/// Adds an entry. The value of a name that ends in `-bin` is decoded as Base64.
pub fn add_metadata(
    metadata: &mut MetadataMap,
    name: &str,
    value: &str,
) -> Result<(), BadMetadata> {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-_.".contains(&c);
    if name.is_empty() || !name.bytes().all(plain) {
        return Err(BadMetadata::Name);
    }
    if RESERVED.contains(&name) || name.starts_with("grpc-") {
        return Err(BadMetadata::Reserved);
    }
    if name.ends_with("-bin") {
        let key = BinaryMetadataKey::from_bytes(name.as_bytes()).map_err(|_| BadMetadata::Name)?;
        let bytes = BASE64.decode(value).map_err(|_| BadMetadata::Base64)?;
        metadata.append_bin(key, BinaryMetadataValue::from_bytes(&bytes));
    } else {
        let key = AsciiMetadataKey::from_bytes(name.as_bytes()).map_err(|_| BadMetadata::Name)?;
        // The type would accept other bytes, but many servers do not.
        let plain = value.bytes().all(|c| (b' '..=b'~').contains(&c));
        let value = AsciiMetadataValue::try_from(value).ok().filter(|_| plain);
        let value = value.ok_or(BadMetadata::Text)?;
        metadata.append(key, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_base64_are_taken_and_names_of_grpc_refused() {
        let mut metadata = MetadataMap::new();
        add_metadata(&mut metadata, "x-tenant", "north").unwrap();
        add_metadata(&mut metadata, "trace-bin", "AP8").unwrap();
        add_metadata(&mut metadata, "more-bin", "AP8=").unwrap();
        assert_eq!(metadata.get("x-tenant").unwrap(), "north");
        for name in ["trace-bin", "more-bin"] {
            let value = metadata.get_bin(name).unwrap().to_bytes().unwrap();
            assert_eq!(value, [0, 255].as_slice());
        }
        for (name, value, problem) in [
            ("X-Tenant", "a", BadMetadata::Name),
            ("", "a", BadMetadata::Name),
            ("a b", "a", BadMetadata::Name),
            (":path", "a", BadMetadata::Name),
            ("grpc-timeout", "1S", BadMetadata::Reserved),
            ("authorization", "Bearer x", BadMetadata::Reserved),
            ("te", "x", BadMetadata::Reserved),
            ("x-text", "a\r\nb: c", BadMetadata::Text),
            ("x-text", "\u{fc}ber", BadMetadata::Text),
            ("x-bin", "%", BadMetadata::Base64),
        ] {
            assert_eq!(
                add_metadata(&mut metadata, name, value),
                Err(problem),
                "{name}"
            );
        }
        assert_eq!(metadata.len(), 3);
    }
}
