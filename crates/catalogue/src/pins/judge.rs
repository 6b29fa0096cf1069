//! Comparison of the tools that an upstream offers with the approved ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::escape::EscapedText;
use super::pointer::Pointer;
use super::suspicion::{Finding, SuspicionScan};
use super::{Diff, Grade, Names, Pins};
use serde::Serialize;
use wardgate_mcp_client::{CanonicalDefinition, INSTRUCTIONS, name_in};

/// The tools that an upstream offers now.
#[derive(Debug, Clone, Copy)]
pub struct UpstreamOffer<'a> {
    /// The upstream's name in `tools.yaml`.
    pub source: &'a str,
    /// The prefix of the upstream's tool names in the names that clients see.
    pub prefix: &'a str,
    /// The tools that `tools.yaml` lists, or `None` if all tools are offered.
    pub only: Option<&'a BTreeSet<String>>,
    /// The definitions as the upstream sent them, each one JSON object.
    pub definitions: &'a [&'a str],
}

impl UpstreamOffer<'_> {
    fn tool(
        &self,
        name: &str,
        definition: Option<CanonicalDefinition>,
        judged: PinJudgement,
    ) -> JudgedTool {
        JudgedTool {
            name: EscapedText::short(name).to_string(),
            shown: EscapedText::short(&format!("{}{name}", self.prefix)).to_string(),
            definition,
            judged,
            is_configured: false,
        }
    }
}

/// One tool of an upstream and its judgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedTool {
    /// The upstream's name of the tool, safe to display.
    pub name: String,
    /// The name of the tool that clients see, safe to display. If a tool of `tools.yaml` calls this tool, it is the name of
    /// the tool of `tools.yaml`.
    pub shown: String,
    /// The current definition, or `None` if it is missing or cannot be read.
    pub definition: Option<CanonicalDefinition>,
    /// The judgement of the tool.
    pub judged: PinJudgement,
    /// Whether a tool of `tools.yaml` calls this tool, and it is judged for that tool. Otherwise it is imported.
    pub is_configured: bool,
}

/// The judgement of a tool. Only approved tools are offered to clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum PinJudgement {
    /// The definition equals the approved one.
    Approved,
    /// No tool with that name was approved.
    New {
        /// Parts of the definition that may be meant to mislead the model.
        findings: Vec<Finding>,
    },
    /// Another definition was approved under that name.
    Drifted {
        /// The differences from the approved definition.
        diff: Diff,
    },
    /// The tool was approved, but the upstream no longer offers it.
    Gone,
    /// The tool cannot be offered, whether or not it was approved.
    Refused {
        /// The reason for the refusal.
        reason: String,
    },
}

impl PinJudgement {
    /// Returns how carefully an approver must look at the tool, or `None` if there is nothing to approve.
    #[must_use]
    pub fn grade(&self) -> Option<Grade> {
        match self {
            Self::New { findings } if findings.is_empty() => Some(Grade::Wider),
            Self::New { .. } => Some(Grade::Suspicious),
            Self::Drifted { diff } => Some(diff.grade),
            Self::Approved | Self::Gone | Self::Refused { .. } => None,
        }
    }

    /// Returns the name of the judgement.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::New { .. } => "new",
            Self::Drifted { .. } => "drifted",
            Self::Gone => "gone",
            Self::Refused { .. } => "refused",
        }
    }
}

impl JudgedTool {
    /// Returns whether an approval would change anything about the tool.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        match self.judged {
            PinJudgement::New { .. } | PinJudgement::Drifted { .. } => self.definition.is_some(),
            // The entry of a tool that `tools.yaml` uses is kept, so that a later tool of that name is compared with it.
            PinJudgement::Gone => !self.is_configured,
            PinJudgement::Approved | PinJudgement::Refused { .. } => false,
        }
    }

    /// Returns everything that a model sees of the tool, as JSON that is safe to display on a terminal. The text is empty
    /// if there is no definition.
    #[must_use]
    pub fn definition_text(&self) -> String {
        let text = self.definition.as_ref().map(CanonicalDefinition::text);
        EscapedText::whole(&text.unwrap_or_default()).to_string()
    }
}

/// Displays the grade, the judgement and the names of the tool, then its reasons with one per line.
impl fmt::Display for JudgedTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shown, judged, .. } = self;
        let grade = judged.grade().map_or("-", Grade::as_str);
        write!(f, "{grade:<10} {:<9} {shown}", judged.as_str())?;
        if self.is_configured {
            write!(f, " (calls `{}`)", self.name)?;
        }
        match judged {
            PinJudgement::Approved | PinJudgement::Gone => writeln!(f),
            PinJudgement::Refused { reason } => writeln!(f, ": {reason}"),
            PinJudgement::Drifted { diff } => write!(f, "\n{diff}"),
            PinJudgement::New { findings } => {
                writeln!(f)?;
                findings
                    .iter()
                    .try_for_each(|finding| writeln!(f, "  {:<10} {finding}", Grade::Suspicious))
            }
        }
    }
}

impl Pins {
    /// Assigns each approved tool of `source` its name, before unapproved tools can claim it. This method must be called
    /// for every source before [`Self::judge`] is called for every source, both times in the order of the sources' names.
    pub fn claim(&self, source: &str, prefix: &str, names: &mut Names) {
        for definition in self.definitions(source) {
            // The earlier owner keeps a name that is claimed twice; `judge` reports the conflict.
            let _ = names.claim(source, prefix, definition.name());
        }
    }

    /// Judges each tool of an upstream, in the order of their names.
    pub fn judge(&self, offer: UpstreamOffer<'_>, names: &mut Names) -> Vec<JudgedTool> {
        let wanted = |name: &str| offer.only.is_none_or(|only| only.contains(name));
        let mut judged = Vec::new();
        let mut offered: BTreeMap<String, Vec<CanonicalDefinition>> = BTreeMap::new();
        for text in offer.definitions {
            match CanonicalDefinition::parse_tool(text) {
                Ok(definition) if wanted(definition.name()) => {
                    let same_name = offered.entry(definition.name().to_owned()).or_default();
                    same_name.push(definition);
                }
                Ok(_) => {}
                Err(bad) => {
                    judged.push(offer.tool(&name_in(text), None, refusal(bad.to_string())));
                }
            }
        }
        let gone = self
            .definitions(offer.source)
            .map(CanonicalDefinition::name);
        for name in gone.filter(|&name| wanted(name) && !offered.contains_key(name)) {
            judged.push(offer.tool(name, None, PinJudgement::Gone));
        }
        for (name, definitions) in offered {
            let claim = names.claim(offer.source, offer.prefix, &name);
            let (definition, verdict) =
                match (claim, <[CanonicalDefinition; 1]>::try_from(definitions)) {
                    (Err(bad), _) => (None, refusal(bad.to_string())),
                    // It is unknown which of the tools with the same name the upstream would call.
                    (Ok(()), Err(_)) => (None, refusal("several tools have this name".to_owned())),
                    (Ok(()), Ok([definition])) => {
                        let pinned = self.approved_definition(offer.source, definition.name());
                        let verdict = judge_against(pinned, &definition);
                        (Some(definition), verdict)
                    }
                };
            judged.push(offer.tool(&name, definition, verdict));
        }
        judged.sort_by(|a, b| a.name.cmp(&b.name));
        judged
    }

    /// Judges the tools of `source` that tools of `tools.yaml` call, in the order of the names of the latter. `called` contains
    /// the upstream's names, by the names of the tools that call them; `definitions` are those that the upstream sent, each
    /// one JSON object.
    pub fn judge_called(
        &self,
        source: &str,
        called: &BTreeMap<String, String>,
        definitions: &[&str],
    ) -> Vec<JudgedTool> {
        if called.is_empty() {
            return Vec::new();
        }
        let mut offered: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for &text in definitions {
            offered.entry(name_in(text)).or_default().push(text);
        }
        let judge = |(caller, name): (&String, &String)| {
            let texts = offered.get(name).map_or(&[][..], Vec::as_slice);
            let (definition, judged) = self.judge_called_tool(source, name, texts);
            JudgedTool {
                name: EscapedText::short(name).to_string(),
                shown: EscapedText::short(caller).to_string(),
                definition,
                judged,
                is_configured: true,
            }
        };
        called.iter().map(judge).collect()
    }

    /// Judges the tool `name` of `source`, for which the upstream sent the definitions `texts`.
    fn judge_called_tool(
        &self,
        source: &str,
        name: &str,
        texts: &[&str],
    ) -> (Option<CanonicalDefinition>, PinJudgement) {
        let pinned = self.approved_definition(source, name);
        let text = match texts {
            [] if pinned.is_some() => return (None, PinJudgement::Gone),
            [] => {
                let name = EscapedText::short(name);
                let reason = format!(
                    "`tools.lock` has no entry for the tool `{name}`, and its server has not listed it"
                );
                return (None, refusal(reason));
            }
            [text] => text,
            _ => return (None, refusal("several tools have this name".to_owned())),
        };
        match CanonicalDefinition::parse_tool(text) {
            Ok(definition) => {
                let verdict = judge_against(pinned, &definition);
                (Some(definition), verdict)
            }
            Err(bad) => (None, refusal(bad.to_string())),
        }
    }

    /// Judges the instructions of the server of `source`.
    pub fn judge_instructions(&self, source: &str, text: &str) -> JudgedTool {
        let definition = CanonicalDefinition::of_instructions(text);
        let pinned = self.instructions(source);
        let judged = judge_against(pinned, &definition);
        JudgedTool {
            name: INSTRUCTIONS.to_owned(),
            shown: EscapedText::short(&format!("{source} {INSTRUCTIONS}")).to_string(),
            definition: Some(definition),
            judged,
            is_configured: false,
        }
    }
}

fn judge_against(pinned: Option<&CanonicalDefinition>, is: &CanonicalDefinition) -> PinJudgement {
    match pinned {
        Some(was) if was.digest() == is.digest() => PinJudgement::Approved,
        Some(was) => PinJudgement::Drifted {
            diff: Diff::between(was, is),
        },
        None => {
            let mut scan = SuspicionScan::default();
            scan.value(&Pointer::Root, is.json());
            PinJudgement::New {
                findings: scan.into_findings(),
            }
        }
    }
}

fn refusal(reason: String) -> PinJudgement {
    PinJudgement::Refused { reason }
}
