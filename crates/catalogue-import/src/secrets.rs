//! Detection of secrets in configurations. False positives only cost an additional variable, so detection errs on that
//! side.

/// Parts of names that indicate a secret value.
const NAMES: [&str; 12] = [
    "token",
    "key",
    "secret",
    "passw",
    "pwd",
    "credential",
    "auth",
    "cookie",
    "session",
    "dsn",
    "connection",
    "signature",
];

/// Prefixes of tokens of well-known services.
const PREFIXES: [&str; 9] = [
    "sk-",
    "ghp_",
    "gho_",
    "github_pat_",
    "glpat-",
    "xox",
    "AKIA",
    "eyJ",
    "Bearer ",
];

/// Minimum length of a word that may be random.
const RANDOM: usize = 20;

/// Returns whether `value` with the name `name` is or contains a secret.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    is_secret_name(name) && !is_harmless(value) || is_secret_value(value)
}

/// Returns whether values with that name are secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    NAMES.iter().any(|part| name.contains(part)) || name == "pat" || name.ends_with("_pat")
}

/// Returns whether a value is a switch or a small number, which are not secret whatever their name.
fn is_harmless(value: &str) -> bool {
    let is_number = value.len() <= 5 && value.bytes().all(|byte| byte.is_ascii_digit());
    is_number
        || matches!(
            value.to_ascii_lowercase().as_str(),
            "true" | "false" | "none" | "yes" | "no"
        )
}

/// Returns whether the value itself looks like a secret.
pub(super) fn is_secret_value(value: &str) -> bool {
    PREFIXES.iter().any(|prefix| value.starts_with(prefix))
        || holds_user_info(value)
        || value
            .split(|c: char| c.is_whitespace() || "=,;?&".contains(c))
            .any(is_random)
}

/// Returns whether the value is a URL with user information, such as `scheme://user:password@host`.
fn holds_user_info(value: &str) -> bool {
    let Some((_, rest)) = value.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.contains('@')
}

/// Returns whether a word is long, mixes letters and digits, and is not a path, a host or a package.
fn is_random(word: &str) -> bool {
    word.len() >= RANDOM
        && !word.contains(['/', '.', '@', ':'])
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_alphabetic())
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-+".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_secret_is_taken_for_it() {
        for (name, value) in [
            ("GITHUB_PERSONAL_ACCESS_TOKEN", "x"),
            ("Authorization", "Basic abc"),
            ("X", "ghp_abc"),
            ("url", "postgresql://user:pw@host/db"),
            ("ID", "0f1e2d3c4b5a69788796a5b4"),
            ("ARGS", "--x=0f1e2d3c4b5a69788796a5b4"),
            ("GITHUB_PAT", "short"),
        ] {
            assert!(is_secret(name, value), "{name}={value}");
        }
    }

    #[test]
    fn what_is_plainly_none_is_left() {
        for (name, value) in [
            ("LOG_LEVEL", "debug"),
            ("PORT", "8080"),
            ("ENABLE_AUTH", "true"),
            ("URL", "https://api.example.com/v1"),
            ("PACKAGE", "@modelcontextprotocol/server-filesystem2"),
            ("DIR", "/home/someone/project-2024-reports"),
            ("PATTERN", "a long text of words"),
        ] {
            assert!(!is_secret(name, value), "{name}={value}");
        }
    }
}
