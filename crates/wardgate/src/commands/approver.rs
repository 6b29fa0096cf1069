//! The name of the person who approves tools, for the lock file.

#[cfg(unix)]
use nix::unistd::{Uid, User};

/// Returns the name given with `--by` or in `$USER`. Without either, as in a container, returns the name of the process's
/// effective user.
pub(super) fn approver_name(by: Option<String>) -> String {
    by.filter(|name| !name.is_empty()).unwrap_or_else(own_name)
}

#[cfg(unix)]
fn own_name() -> String {
    user_name(Uid::effective())
}

#[cfg(not(unix))]
fn own_name() -> String {
    std::env::var("USERNAME").unwrap_or_else(|_| "unknown".to_owned())
}

/// Returns the name of the user `uid`, or `uid N` if the system has no name for it.
#[cfg(unix)]
fn user_name(uid: Uid) -> String {
    let user = User::from_uid(uid).ok().flatten();
    user.map_or_else(|| format!("uid {uid}"), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_given_is_taken() {
        assert_eq!(approver_name(Some("ada".to_owned())), "ada");
    }

    #[test]
    fn without_a_name_it_is_the_name_of_the_processs_user() {
        let own = user_name(Uid::effective());
        assert!(!own.is_empty());
        assert_eq!(approver_name(None), own);
        assert_eq!(approver_name(Some(String::new())), own);
        assert_eq!(user_name(Uid::from_raw(0)), "root");
    }

    #[test]
    fn a_user_without_a_name_is_told_by_number() {
        assert_eq!(user_name(Uid::from_raw(3_999_999_999)), "uid 3999999999");
    }
}
