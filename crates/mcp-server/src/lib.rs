//! The server side of MCP: parses messages of clients, and writes results and errors, for every protocol version.
//!
//! | client version | omitted or converted |
//! |---|---|
//! | up to 2025-11-25 | structured content and output schemas that are not of type object; a text block repeats such content |
//! | up to 2025-06-18 | icons |
//! | up to 2025-03-26 | structured content, output schemas, titles, `_meta` of definitions; resource links become text |
//! | 2024-11-05 | tool annotations; audio becomes a text block |
//! | any | `execution` of tools, which concerns the tasks of 2025-11-25 |
//!
//! Everything that a version defines is kept byte for byte.

mod call_meta;
mod content_method;
mod cursor;
mod declared_capabilities;
mod definition;
mod elicitation;
mod envelope;
mod event_stream;
mod fields;
mod idempotency;
mod input_requests;
mod log_level;
mod meta;
mod method;
mod mirrored_headers;
mod older_content;
mod response;
mod rpc_error;
mod version;

pub use call_meta::{RecordStatus, call_meta, write_dropped};
pub use content_method::ContentMethod;
pub use cursor::Cursor;
pub use declared_capabilities::DeclaredCapabilities;
pub use definition::{DefinitionKind, VersionedDefinition};
pub use envelope::{
    ClientResponse, JsonRpcMessage, JsonRpcRequest, RequestParams, cancelled_request_id, inner,
    object, spelt_alike, text_of,
};
pub use event_stream::{KEEP_ALIVE, StreamAcceptance, format_event};
pub use fields::ObjectMembers;
pub use idempotency::key_of as idempotency_key;
pub use input_requests::{InputRecipient, InputRequestError, InputRequests};
pub use log_level::LogLevel;
pub use meta::RequestMeta;
pub use method::{METHODS, McpMethod, MethodVersions, find_method};
pub use mirrored_headers::{check as check_mirrored_headers, of_request};
pub use older_content::convert_content_result;
pub use response::{
    McpResponse, ResultFormat, SERVER_INFO, server_info, task_result_members, write_members,
};
pub use rpc_error::{Remedy, RpcError, sentence};
pub use version::{named_version, negotiate, negotiate_on_stream};

/// Maximum number of messages in a batch.
pub const BATCH: usize = 50;

/// Method that opens a stream of change notifications.
pub const LISTEN: &str = "subscriptions/listen";
