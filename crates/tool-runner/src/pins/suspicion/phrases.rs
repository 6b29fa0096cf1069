//! What poisoned descriptions say, as patterns of words.
//!
//! A pattern is a row of steps: `a|b` is one of two words, `ab*` a word that begins so, and `~3` lets up to
//! three words of any kind stand in between. English only, and only what somebody thought of.

use std::sync::LazyLock;

use super::Kind;
use super::words::Word;

/// `{…}` in a pattern stands for one of these lists.
const LISTS: [(&str, &str); 6] = [
    (
        "{SET_ASIDE}",
        "ignore|disregard|forget|override|bypass|discard",
    ),
    (
        "{ORDERS}",
        "instruction*|rule|rules|prompt*|guideline*|guardrail*|directive*|command*|polic*|restriction*",
    ),
    (
        "{READ}",
        "read|open|load|fetch|cat|collect|gather|extract|copy|retrieve|dump|reveal|print|access",
    ),
    (
        "{SEND}",
        "send|sends|forward|forwards|post|posts|upload|uploads|transmit|leak|mail|email|share|attach|\
        append|include|insert|put|place|supply|pass|embed|encode|copy|report|relay",
    ),
    (
        "{SECRETS}",
        "secret*|password*|passphrase*|credential*|token|tokens|keychain|cookie*",
    ),
    (
        "{CONVERSATION}",
        "conversation*|chat|transcript*|prompt|prompts",
    ),
];

/// What texts say.
const IN_TEXTS: [(Kind, &str); 54] = [
    // Orders, and setting aside those of others.
    (
        Kind::Instruction,
        "{SET_ASIDE} ~4 previous|prior|earlier|above|preceding|existing|former ~3 {ORDERS}|message*|context",
    ),
    (
        Kind::Instruction,
        "{SET_ASIDE} ~3 your|the|all|any|system|safety ~2 instruction*|prompt*|guideline*|guardrail*",
    ),
    (
        Kind::Instruction,
        "new|secret|hidden|real|actual instructions",
    ),
    (Kind::Instruction, "you are now|henceforth"),
    (Kind::Instruction, "you ~2 obey"),
    (Kind::Instruction, "from now on"),
    (Kind::Instruction, "system|developer prompt|prompts"),
    (Kind::Instruction, "developer message|messages"),
    (
        Kind::Instruction,
        "the|an|ai|this assistant|agent|ai ~1 must|shall",
    ),
    (
        Kind::Instruction,
        "instructions|commands|orders ~3 found|contained|inside|returned|within ~3 output*|result*|response*|answer*",
    ),
    (Kind::Instruction, "pretend ~1 that|to|you"),
    (Kind::Instruction, "jailbreak*"),
    (Kind::Instruction, "god|dan|unrestricted mode"),
    (
        Kind::Instruction,
        "approve|accept every|all|any ~2 request*|call*|action*",
    ),
    // Secrecy towards the user.
    (
        Kind::Concealment,
        "not|dont|never|without|avoid ~1 tell|telling|inform|informing|mention|mentioning|notify|notifying|reveal|revealing|disclose|disclosing|alert|alerting ~3 user*|anyone|anybody|human*|person|them|customer|operator|this|that|it",
    ),
    (
        Kind::Concealment,
        "without ~2 user|users|human|their ~2 knowing|noticing|knowledge|consent|approval|confirmation|permission",
    ),
    (
        Kind::Concealment,
        "not|dont|never|without|no ~2 ask|asking|request|requesting|wait|waiting|need ~3 confirmation|approval|permission|consent",
    ),
    (
        Kind::Concealment,
        "user|users|human|they|customer ~1 must|should|shall|need|does|do not|never ~2 know|see|notice|learn|find|aware",
    ),
    (
        Kind::Concealment,
        "hide|conceal|keep|withhold ~4 from|secret|hidden|confidential ~2 user*|them|human*|anyone",
    ),
    (Kind::Concealment, "keep ~3 secret|hidden"),
    (
        Kind::Concealment,
        "secretly|covertly|stealthily|surreptitiously",
    ),
    (
        Kind::Concealment,
        "silently|quietly ~2 {SEND}|{READ}|remove|delete|add|call|run|execute|record|change",
    ),
    // Keys, passwords and what else is nobody's business.
    (
        Kind::Secret,
        "{READ}|{SEND}|give|output|contents ~6 {SECRETS} ~4 machine|system|seen|saved|stored|known|sidenote|context|environment",
    ),
    (Kind::Secret, "{READ}|{SEND} ~4 private key|keys"),
    (
        Kind::Secret,
        "user|users|your|saved|stored|browser ~2 private|secret key|keys",
    ),
    (
        Kind::Secret,
        "saved|stored|browser passwords|credentials|cookies|secrets",
    ),
    (
        Kind::Secret,
        "{READ} ~3 environment|env variable*|vars ~2 into|as|and",
    ),
    (
        Kind::Secret,
        "api|access|secret|auth key|keys|token|tokens you ~2 have|seen|know|hold|can",
    ),
    (
        Kind::Secret,
        "{READ} ~4 user|users settings|config|configuration file|files",
    ),
    // Data sent away.
    (
        Kind::Exfiltration,
        "{SEND} ~5 full|entire|complete|whole|all|user|users|previous|last|recent|above|earlier ~3 {CONVERSATION}",
    ),
    (
        Kind::Exfiltration,
        "{SEND} ~5 {CONVERSATION} history|transcript|log ~4 to|as|in|into",
    ),
    (
        Kind::Exfiltration,
        "{SEND} ~5 {CONVERSATION} ~2 as base64|hex",
    ),
    (
        Kind::Exfiltration,
        "conversation|chat|messages|history|context so far",
    ),
    (
        Kind::Exfiltration,
        "previous|earlier|prior|last messages ~3 conversation|chat|user|here",
    ),
    (
        Kind::Exfiltration,
        "user|users previous|earlier|prior|last|recent messages",
    ),
    (
        Kind::Exfiltration,
        "{SEND} ~8 to|at ~2 our|my server|webhook|endpoint|backend|collector|inbox",
    ),
    (
        Kind::Exfiltration,
        "{SEND} ~2 copy of ~3 {CONVERSATION}|message*|request|answer",
    ),
    (
        Kind::Exfiltration,
        "contents|content ~2 as|into|in ~2 sidenote|context|query|url",
    ),
    (Kind::Exfiltration, "exfiltrate*"),
    (
        Kind::Exfiltration,
        "everything you ~1 know|have|see|saw|learned",
    ),
    (
        Kind::Exfiltration,
        "change|replace|redirect ~2 recipient*|payee|beneficiary",
    ),
    (
        Kind::Exfiltration,
        "always ~1 add|include|put|cc|bcc ~6 bcc|cc|recipient*",
    ),
    // A say in how other tools are used.
    (
        Kind::Steering,
        "before|prior ~2 using|use|calling|call|running|invoking|executing ~1 this|the tool|function ~8 {READ}|send",
    ),
    (
        Kind::Steering,
        "before|whenever|prior|every ~4 any|all|every|another|other ~1 tool|tools ~6 call|invoke|run|use|first|must",
    ),
    (
        Kind::Steering,
        "before anything|everything|you else|reply|respond|answer",
    ),
    (
        Kind::Steering,
        "start|beginning|end of every|each|any|all conversation*|session*|response*|reply|replies|message*|turn*",
    ),
    (
        Kind::Steering,
        "on|for|after|with each|every ~1 user|users ~1 message*|prompt*|turn*|request*|query",
    ),
    (Kind::Steering, "regardless|irrespective ~3 user|users|they"),
    (
        Kind::Steering,
        "even when|if ~1 user|users ~2 asks|says|names|wants|requests|prefers|refuses|declines",
    ),
    (
        Kind::Steering,
        "always|only|must|should|never ~2 prefer|choose|select|pick ~2 this|our ~1 tool|function|one|server ~3 over|instead|rather|before|first|above",
    ),
    (
        Kind::Steering,
        "this|our ~1 tool|server|one instead|over|rather ~2 any|all|other|others|every",
    ),
    (
        Kind::Steering,
        "other|any|all|alternative ~3 tools|servers|functions ~3 deprecated|unsafe|broken|insecure|compromised|outdated|obsolete|disabled|malicious|forbidden|never",
    ),
    (
        Kind::Steering,
        "every|each time|call|invocation ~2 send|forward|copy|post|upload",
    ),
    (
        Kind::Steering,
        "after each|every ~2 forward|send|post|upload|copy",
    ),
];

/// What names of arguments give away, beside all of the above.
const IN_NAMES: [(Kind, &str); 3] = [
    (
        Kind::Exfiltration,
        "conversation|chat|message|prompt|session history|transcript|log|dump",
    ),
    (Kind::Exfiltration, "all|previous|prior messages"),
    (Kind::Exfiltration, "sidenote*"),
];

/// The patterns, ready to match: those for names after the others.
static PHRASES: LazyLock<Vec<Phrase>> = LazyLock::new(|| {
    let patterns = IN_TEXTS.iter().chain(&IN_NAMES);
    patterns
        .map(|(kind, text)| Phrase::read(*kind, text))
        .collect()
});

struct Phrase {
    kind: Kind,
    steps: Vec<Step>,
}

/// One word of a phrase, and how many others may stand in front of it.
struct Step {
    gap: usize,
    /// The words, and whether only their beginning is meant.
    choices: Vec<(String, bool)>,
}

impl Phrase {
    fn read(kind: Kind, text: &str) -> Self {
        let text = LISTS.iter().fold(text.to_owned(), |text, (name, words)| {
            text.replace(name, words)
        });
        let mut steps = Vec::new();
        let mut gap = 0;
        for part in text.split_whitespace() {
            if let Some(count) = part.strip_prefix('~') {
                gap = count.parse().unwrap_or(0);
                continue;
            }
            let choices = part.split('|').map(|word| match word.strip_suffix('*') {
                Some(beginning) => (beginning.to_owned(), true),
                None => (word.to_owned(), false),
            });
            steps.push(Step {
                gap: std::mem::take(&mut gap),
                choices: choices.collect(),
            });
        }
        Self { kind, steps }
    }
}

impl Step {
    fn is(&self, word: &str) -> bool {
        self.choices.iter().any(|(choice, beginning)| {
            if *beginning {
                word.starts_with(choice.as_str())
            } else {
                word == choice
            }
        })
    }
}

/// The first place where each kind of phrase stands: positions of its first and its last word.
pub(super) fn find(words: &[Word], is_name: bool) -> Vec<(Kind, usize, usize)> {
    let mut found: Vec<(Kind, usize, usize)> = Vec::new();
    let patterns = if is_name {
        PHRASES.len()
    } else {
        IN_TEXTS.len()
    };
    for phrase in PHRASES.iter().take(patterns) {
        if found.iter().any(|(kind, ..)| *kind == phrase.kind) {
            continue;
        }
        let place = (0..words.len()).find_map(|first| {
            let last = matches(&phrase.steps, words, first)?;
            Some((phrase.kind, first, last))
        });
        found.extend(place);
    }
    found
}

/// Where the phrase ends that begins at word `at`, if it does.
fn matches(steps: &[Step], words: &[Word], at: usize) -> Option<usize> {
    let (step, rest) = steps.split_first()?;
    if !words.get(at).is_some_and(|word| step.is(&word.folded)) {
        return None;
    }
    let Some(next) = rest.first() else {
        return Some(at);
    };
    (at + 1..=at + 1 + next.gap).find_map(|at| matches(rest, words, at))
}
