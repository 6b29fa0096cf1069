//! Names that requests bring.

use wardgate_domain::InvalidMessage;

/// Longest name, in bytes.
const MAX_NAME: usize = 512;

/// Refuses a name that is too long to be stored, or has control characters.
pub(crate) fn check_name(text: &str, field: &'static str) -> Result<(), InvalidMessage> {
    if text.len() <= MAX_NAME && !text.contains(char::is_control) {
        return Ok(());
    }
    let problem = format!("is not at most {MAX_NAME} bytes without control characters");
    Err(InvalidMessage::field(field, problem))
}
