//! `assistants.yaml` as it is written.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use wardgate_domain::duration;
use wardgate_yaml::Spanned;

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) providers: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    pub(super) assistants: Vec<Spanned<Assistant>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Assistant {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) description: String,
    pub(super) provider: Spanned<String>,
    pub(super) model: Spanned<String>,
    #[serde(default)]
    pub(super) temperature: Option<f64>,
    #[serde(default)]
    pub(super) max_output_tokens: Option<u32>,
    #[serde(default)]
    pub(super) calls: Calls,
    #[serde(default)]
    pub(super) family: Option<Spanned<String>>,
    /// The file beside this one that holds the model's chat template.
    #[serde(default)]
    pub(super) template: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) tools: ToolSelection,
    pub(super) prompts: Spanned<Texts>,
    #[serde(default)]
    pub(super) context: Context,
    #[serde(default)]
    pub(super) limits: TurnLimits,
    #[serde(default)]
    pub(super) guardrail: Option<Spanned<Guardrail>>,
    #[serde(default)]
    pub(super) checks: Checks,
    #[serde(default)]
    pub(super) approval: Approval,
    #[serde(default)]
    pub(super) commands: BTreeMap<String, Spanned<Command>>,
    #[serde(default)]
    pub(super) opening: Option<Spanned<OpeningCall>>,
}

/// Texts by language; `default` names the one for everybody else.
pub(super) type Texts = BTreeMap<String, Spanned<String>>;

/// How the model is told of tools, and asks for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Calls {
    /// As functions of the provider's wire. Calls in the text are understood too.
    #[default]
    Native,
    /// In the prompt, and in the text.
    Text,
}

/// Which of the caller's tools the assistant has.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ToolSelection {
    /// Those of these toolsets; none: of all.
    pub(crate) toolsets: Vec<String>,
    /// Those with these names; `*` stands for any characters.
    pub(crate) allow: Vec<String>,
    /// The model's name for a tool, and the tool's own.
    pub(crate) rename: BTreeMap<String, String>,
}

impl Default for ToolSelection {
    fn default() -> Self {
        Self {
            toolsets: Vec::new(),
            allow: vec!["*".to_owned()],
            rename: BTreeMap::new(),
        }
    }
}

/// How much of a conversation the model sees.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Context {
    /// At most so many messages.
    pub(crate) messages: u32,
    /// At most so many tokens; 0 is no limit.
    pub(crate) tokens: u32,
    /// Whether the assistant's model sums up what falls out.
    pub(crate) summarise: bool,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            messages: 20,
            tokens: 0,
            summarise: false,
        }
    }
}

/// What one turn may take. On each but `parallel`, the model gets one last round without tools.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TurnLimits {
    /// Rounds of calls.
    pub(crate) turns: u32,
    /// How often the same tool may run with the same arguments.
    pub(crate) identical_calls: u32,
    /// Tokens, read and written.
    pub(crate) tokens: u64,
    pub(crate) seconds: u64,
    /// Money; none: it is not counted.
    pub(crate) cost: Option<Cost>,
    /// Calls at a time.
    pub(crate) parallel: usize,
}

/// What a turn may cost, in whatever currency the prices are in.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cost {
    pub(crate) most: Amount,
    /// Of a million tokens read.
    pub(crate) input: Amount,
    /// Of a million tokens written.
    pub(crate) output: Amount,
}

/// An amount of money: a number, not below zero.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct Amount(pub(crate) f64);

impl TryFrom<f64> for Amount {
    type Error = &'static str;

    fn try_from(amount: f64) -> Result<Self, Self::Error> {
        if amount.is_finite() && amount >= 0.0 {
            Ok(Self(amount))
        } else {
            Err("an amount of money is a number, not below zero")
        }
    }
}

impl Default for TurnLimits {
    fn default() -> Self {
        Self {
            turns: 6,
            identical_calls: 2,
            tokens: 50_000,
            seconds: 120,
            cost: None,
            parallel: 4,
        }
    }
}

/// A question to a model about every message, before anything else.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Guardrail {
    /// None: the assistant's.
    #[serde(default)]
    pub(super) provider: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) model: Option<Spanned<String>>,
    /// With `{{ message }}` in them; the model says YES where the message is fit.
    pub(super) questions: Texts,
    pub(super) refusals: Texts,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Checks {
    /// Of what the person says.
    pub(super) input: Vec<Check>,
    /// Of what the model says. With one, an answer is shown when it is whole.
    pub(super) output: Vec<Check>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Check {
    /// A regular expression.
    pub(super) pattern: Spanned<String>,
    /// What is said instead.
    pub(super) refusal: String,
}

/// Which calls wait for a person.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Approval {
    /// Names of tools, besides those whose definition asks for it.
    pub(crate) tools: Vec<String>,
    /// How long a call can be approved.
    #[serde(with = "duration")]
    pub(crate) expires: Duration,
}

impl Default for Approval {
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            expires: Duration::from_secs(15 * 60),
        }
    }
}

/// A word with a slash that calls a tool without asking the model.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Command {
    /// Names of the words behind the command; the last takes the rest of the message.
    #[serde(default)]
    pub(super) words: Vec<String>,
    /// The model's name for the tool.
    pub(super) tool: String,
    #[serde(default)]
    pub(super) arguments: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    pub(super) answer: CommandAnswer,
}

/// A call made for every message before the model is asked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpeningCall {
    /// The model's name for the tool.
    pub(super) tool: String,
    /// With `{{ message }}` in their texts.
    #[serde(default)]
    pub(super) arguments: BTreeMap<String, Spanned<Value>>,
}

/// What answers a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CommandAnswer {
    /// The model, from the result.
    #[default]
    Model,
    /// The result itself.
    Result,
}
