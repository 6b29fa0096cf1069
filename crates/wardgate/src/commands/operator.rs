//! The token with which an operator calls a running system.

use std::path::Path;

use wardgate_domain::BearerToken;

use super::{TOKEN, login};
use crate::Failure;
use crate::cli::OperatorSignIn;

/// Error message if no token is found.
pub(super) const NO_TOKEN: &str = "a token is required: sign in with wardgate login, specify a file with --token-file, or set \
                                   WARDGATE_TOKEN";

/// Returns the token of an operator, as [`find_token`] finds it, or an error if there is none.
pub(super) async fn sign_in_token(operator: &OperatorSignIn) -> Result<BearerToken, Failure> {
    Ok(find_token(operator).await?.ok_or(NO_TOKEN)?)
}

/// Returns the token of an operator: that of the named file or sign-in, else that of the environment variable, else that of
/// the current sign-in, or `None` if there is none of these.
pub(super) async fn find_token(operator: &OperatorSignIn) -> Result<Option<BearerToken>, Failure> {
    if let Some(file) = &operator.token_file {
        return read_token(file).map(Some);
    }
    if operator.context.is_none()
        && let Some(token) = environment_token()
    {
        return Ok(Some(token));
    }
    let signed_in = login::signed_in(operator.context.as_deref()).await?;
    Ok(signed_in.map(|(_, token)| BearerToken::new(&token)))
}

/// Returns the token of the environment, or `None` if it has none or an empty one.
pub(super) fn environment_token() -> Option<BearerToken> {
    let token = std::env::var(TOKEN).ok()?;
    let token = token.trim();
    (!token.is_empty()).then(|| BearerToken::new(token))
}

/// Reads the token in `file`.
pub(super) fn read_token(file: &Path) -> Result<BearerToken, Failure> {
    let token = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    Ok(BearerToken::new(token.trim()))
}
