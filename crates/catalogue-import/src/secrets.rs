//! What looks like a secret in somebody's configuration. Better one variable too many than one secret in a file.

/// Parts of names whose values are secret.
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

/// What tokens of well-known services begin with.
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

/// The shortest run of characters without a blank that may be a random one.
const RANDOM: usize = 20;

/// Whether `value`, called `name`, is or holds a secret.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    is_secret_name(name) && !is_harmless(value) || is_secret_value(value)
}

/// Whether things of that name are secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    NAMES.iter().any(|part| name.contains(part)) || name == "pat" || name.ends_with("_pat")
}

/// Switches and small numbers, whatever they are called.
fn is_harmless(value: &str) -> bool {
    let is_number = value.len() <= 5 && value.bytes().all(|byte| byte.is_ascii_digit());
    is_number
        || matches!(
            value.to_ascii_lowercase().as_str(),
            "true" | "false" | "none" | "yes" | "no"
        )
}

/// Whether the value itself looks secret.
pub(super) fn is_secret_value(value: &str) -> bool {
    PREFIXES.iter().any(|prefix| value.starts_with(prefix))
        || holds_user_info(value)
        || value
            .split(|c: char| c.is_whitespace() || "=,;?&".contains(c))
            .any(is_random)
}

/// `scheme://user:password@host`
fn holds_user_info(value: &str) -> bool {
    let Some((_, rest)) = value.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.contains('@')
}

/// Long, of letters and digits mixed, and neither a path nor a host nor a package.
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
