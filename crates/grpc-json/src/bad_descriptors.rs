//! The reasons why descriptor files cannot be used.

/// Maximum length of the name of a file, in bytes.
pub(super) const MAX_FILE_NAME: usize = 255;

/// The reason why descriptor files cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDescriptors {
    /// The bytes are not a `FileDescriptorSet`.
    #[error("the bytes are not a protobuf FileDescriptorSet")]
    NotDescriptors,
    #[error("there are more than {1} {0}")]
    TooMany(&'static str, usize),
    #[error("`{0}` contains a name that is not valid in protobuf")]
    Name(String),
    #[error("a file has no name, or one of more than {MAX_FILE_NAME} bytes")]
    FileName,
    #[error("`{0}` is written in a protobuf edition; only proto2 and proto3 are supported")]
    Editions(String),
    #[error("`{0}` has a map entry without a key and a value")]
    MapEntry(String),
    #[error("`{0}` imports itself, directly or indirectly")]
    Cycle(String),
    #[error("`{file}` imports `{import}`, which is missing")]
    Missing { file: String, import: String },
    #[error("the files do not match: {0}")]
    Misfit(String),
}
