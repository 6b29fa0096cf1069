//! Markup that hides text from people or plays a part of the prompt, encoded text, and files of secrets.

use super::Kind;

/// What a page does not show.
const HIDDEN: [&str; 9] = [
    "<!--",
    "[//]: #",
    "[comment]: ",
    "display:none",
    "display: none",
    "visibility:hidden",
    "font-size:0",
    "<script",
    "<details",
];

/// What separates the parts of a prompt, or pretends to.
const PROMPT: [&str; 25] = [
    "[system",
    "system note",
    "system override",
    "### system",
    "<|im_",
    "<|system",
    "<|user",
    "<|assistant",
    "<|start",
    "<|end",
    "[inst]",
    "[/inst]",
    "<<sys>>",
    "<system>",
    "<important>",
    "<instruction",
    "<secret>",
    "<secret_",
    "<hidden>",
    "<admin>",
    "<assistant>",
    "<tool_call",
    "<function_call",
    "\nhuman:",
    "\nassistant:",
];

/// Commands that no description needs.
const COMMANDS: [&str; 6] = ["| sh", "|sh", "| bash", "|bash", "rm -rf", "/dev/tcp/"];

/// Files and folders that hold keys, passwords or a person's set-up.
const SECRET_FILES: [&str; 29] = [
    ".ssh/",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
    "authorized_keys",
    "/etc/passwd",
    "/etc/shadow",
    "/proc/self/environ",
    ".aws/credentials",
    ".azure/",
    ".config/gcloud",
    ".docker/config",
    ".kube/config",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".gnupg",
    ".bash_history",
    ".zsh_history",
    ".cursor/",
    ".vscode/mcp",
    "claude_desktop_config",
    "mcp.json",
    "wallet.dat",
    "keychain",
    "login data",
    "secrets.yaml",
    "secrets.yml",
];

/// A longer word is no word.
const MAX_WORD: usize = 120;

/// So many escapes in a row spell something.
const MAX_ESCAPES: usize = 4;

/// The first place of each kind, in bytes of `text`.
pub(super) fn find(text: &str) -> Vec<(Kind, usize, usize)> {
    // ASCII letters only, so that places in it are places in `text`.
    let lower = text.to_ascii_lowercase();
    let first_of = |kind, marks: &[&str]| {
        let (start, mark) = marks
            .iter()
            .filter_map(|mark| Some((lower.find(mark)?, mark)))
            .min()?;
        Some((kind, start, start + mark.len()))
    };
    let secret = first_of(Kind::Secret, &SECRET_FILES).or_else(|| dot_env(&lower));
    [
        first_of(Kind::HiddenMarkup, &HIDDEN),
        first_of(Kind::PromptMarkup, &PROMPT),
        first_of(Kind::Instruction, &COMMANDS),
        secret,
        encoded(text),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The file `.env`, as a word of its own.
fn dot_env(lower: &str) -> Option<(Kind, usize, usize)> {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    lower.match_indices(".env").find_map(|(start, mark)| {
        let end = start + mark.len();
        let alone = !lower[..start].chars().next_back().is_some_and(part)
            && !lower[end..].chars().next().is_some_and(part);
        alone.then_some((Kind::Secret, start, end))
    })
}

/// A very long run of letters and digits, or a row of character escapes.
fn encoded(text: &str) -> Option<(Kind, usize, usize)> {
    let mut start = 0;
    for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || "+/=_-".contains(c))) {
        let mixed = word.bytes().any(|b| b.is_ascii_digit())
            || word.bytes().any(|b| b.is_ascii_uppercase());
        if word.len() > MAX_WORD && mixed {
            return Some((Kind::Encoded, start, start + word.len()));
        }
        start += word.len();
        start += text[start..].chars().next().map_or(0, char::len_utf8);
    }
    ["&#", "\\x", "\\u", "%"].into_iter().find_map(|mark| {
        let places: Vec<usize> = text.match_indices(mark).map(|(at, _)| at).collect();
        // Close to one another: a text may speak of an escape here and there.
        let row = places.windows(MAX_ESCAPES).find(|row| {
            row.windows(2).all(|pair| pair[1] - pair[0] <= 8)
                && row.iter().all(|at| {
                    let code = text[at + mark.len()..].trim_start_matches('x');
                    code.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2
                })
        })?;
        Some((Kind::Encoded, row[0], row[MAX_ESCAPES - 1]))
    })
}
