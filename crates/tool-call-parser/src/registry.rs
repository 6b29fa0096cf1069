//! The families of models and the forms in which they write calls.

use std::fmt;
use std::str::FromStr;

use super::families::{
    anthropic, apertus, bare_json, cohere, deepseek, fenced, functionary, gemma, glm, granite,
    harmony, hermes, internlm, kimi, llama, minimax, mistral, pythonic, qwen_coder, react, step,
    tagged_json, tool_parameters,
};
use super::reading::Form;

/// A family of models that write calls in the same forms.
#[derive(Debug, Clone, Copy, Default)]
pub struct Family(Option<&'static KnownFamily>);

#[derive(Debug)]
struct KnownFamily {
    /// The name of the family, followed by prefixes of the names of its models.
    names: &'static [&'static str],
    forms: &'static [&'static Form],
}

const UNKNOWN: &str = "unknown";

/// The forms that models of any family may write: the form that the prompt asks for, and plain JSON.
static COMMON: [&Form; 3] = [&tool_parameters::FORM, &fenced::FORM, &bare_json::FORM];

/// The forms of each family. If two forms begin alike, the stricter one precedes the other.
static FAMILIES: [KnownFamily; 23] = [
    KnownFamily {
        names: &[
            "json",
            "xlam",
            "hammer",
            "openai",
            "tool-parameters",
            "text",
        ],
        forms: &[],
    },
    KnownFamily {
        names: &[
            "qwen-coder",
            "qwen3-coder",
            "qwen3-next",
            "seed",
            "nemotron-3",
            "step3p5",
        ],
        forms: &[&qwen_coder::FORM, &hermes::FORM, &hermes::COMMON_TAGS],
    },
    KnownFamily {
        names: &["hermes", "qwen", "qwq", "nous", "ernie", "exaone", "mimo"],
        forms: &[&hermes::FORM, &hermes::COMMON_TAGS, &qwen_coder::FORM],
    },
    KnownFamily {
        names: &["glm", "chatglm"],
        forms: &[&glm::FORM, &hermes::FORM, &functionary::NAME_LINE],
    },
    KnownFamily {
        names: &["llama", "meta-llama"],
        forms: &[
            &llama::FORM,
            &qwen_coder::FORM,
            &pythonic::TAGGED,
            &pythonic::LIST,
        ],
    },
    KnownFamily {
        names: &["pythonic", "olmo", "lfm", "toolace"],
        forms: &[&pythonic::TAGGED, &pythonic::LIST, &tagged_json::FORM],
    },
    KnownFamily {
        names: &[
            "mistral",
            "mixtral",
            "ministral",
            "codestral",
            "devstral",
            "magistral",
        ],
        forms: &[&mistral::FORM],
    },
    KnownFamily {
        names: &["deepseek"],
        forms: &[&deepseek::FORM, &deepseek::DSML],
    },
    KnownFamily {
        names: &["kimi", "moonshot"],
        forms: &[&kimi::FORM],
    },
    KnownFamily {
        names: &["minimax"],
        forms: &[&minimax::M2, &minimax::M1],
    },
    KnownFamily {
        names: &["hunyuan", "jamba"],
        forms: &[&minimax::M1],
    },
    KnownFamily {
        names: &["cohere", "command", "c4ai"],
        forms: &[&cohere::FORM, &cohere::ACTION],
    },
    KnownFamily {
        names: &["granite"],
        forms: &[&granite::FORM, &hermes::FORM],
    },
    KnownFamily {
        names: &["phi", "firefunction"],
        forms: &[&granite::FORM, &granite::FUNCTOOLS],
    },
    KnownFamily {
        names: &["gemma", "functiongemma"],
        forms: &[&gemma::FORM, &gemma::TOOL_CODE, &pythonic::LIST],
    },
    KnownFamily {
        names: &["harmony", "gpt-oss"],
        forms: &[&harmony::FORM, &harmony::BARE],
    },
    KnownFamily {
        names: &["functionary", "meetkai"],
        forms: &[
            &functionary::FORM,
            &functionary::V2,
            &qwen_coder::FORM,
            &functionary::NAME_LINE,
        ],
    },
    KnownFamily {
        names: &["anthropic", "claude"],
        forms: &[&anthropic::FORM],
    },
    KnownFamily {
        names: &["react", "langchain"],
        forms: &[&cohere::ACTION, &react::FORM],
    },
    KnownFamily {
        names: &["internlm"],
        forms: &[&internlm::FORM],
    },
    KnownFamily {
        names: &["step"],
        forms: &[&step::FORM],
    },
    KnownFamily {
        names: &["apertus"],
        forms: &[&apertus::FORM],
    },
    KnownFamily {
        names: &["nemotron", "longcat"],
        forms: &[&tagged_json::FORM],
    },
];

impl Family {
    /// An unknown family, for which the forms of all families are tried.
    pub const UNKNOWN: Self = Self(None);

    /// Returns the names of all families.
    pub fn names() -> Vec<&'static str> {
        let each = FAMILIES.iter().filter_map(|it| it.names.first().copied());
        std::iter::once(UNKNOWN).chain(each).collect()
    }

    /// Returns the forms of the family, in the order in which they are tried.
    pub(super) fn forms(self) -> Vec<&'static Form> {
        let own: Vec<&KnownFamily> = match self.0 {
            Some(known) => vec![known],
            None => FAMILIES.iter().collect(),
        };
        let own = own.into_iter().flat_map(|it| it.forms);
        let mut forms: Vec<&'static Form> = Vec::new();
        for form in own.chain(&COMMON).copied() {
            if !forms.iter().any(|it| std::ptr::eq(*it, form)) {
                forms.push(form);
            }
        }
        forms
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.and_then(|it| it.names.first());
        f.write_str(name.unwrap_or(&UNKNOWN))
    }
}

/// An error for a family that is not in the registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown family of models; use one of {}", Family::names().join(", "))]
pub struct UnknownFamily;

impl FromStr for Family {
    type Err = UnknownFamily;

    /// Parses the name of a family, or the name of one of its models, such as `Qwen/Qwen3-Coder-30B`.
    fn from_str(text: &str) -> Result<Self, UnknownFamily> {
        let model = text.trim().rsplit('/').next().unwrap_or_default();
        let model = model.to_ascii_lowercase().replace(['_', '.', ' '], "-");
        if matches!(model.as_str(), UNKNOWN | "auto") {
            return Ok(Self::UNKNOWN);
        }
        // The longest matching name is the most specific one.
        let named = |known: &KnownFamily| {
            let fits = known.names.iter().filter(|it| model.starts_with(**it));
            fits.map(|it| it.len()).max()
        };
        let best = FAMILIES
            .iter()
            .filter_map(|known| Some((named(known)?, known)))
            .max_by_key(|it| it.0);
        best.map(|it| Self(Some(it.1))).ok_or(UnknownFamily)
    }
}
