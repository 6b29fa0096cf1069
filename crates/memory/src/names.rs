//! Validation of names in requests.

use wardgate_domain::InvalidMessage;

/// Maximum length of a name, in bytes.
const MAX_NAME: usize = 512;

/// Returns an error if a name is too long to be stored or contains control characters.
pub(crate) fn check_name(text: &str, field: &'static str) -> Result<(), InvalidMessage> {
    if text.len() <= MAX_NAME && !text.contains(char::is_control) {
        return Ok(());
    }
    let problem = format!("exceeds {MAX_NAME} bytes or contains control characters");
    Err(InvalidMessage::field(field, problem))
}
