//! The format of `assistants.yaml`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use wardgate_domain::duration;
use wardgate_yaml::Spanned;

/// One file of assistants.
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
    /// The name of the file with the model's chat template, in the same directory.
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

/// Texts by language. The key `default` names the language to use for all other languages.
pub(super) type Texts = BTreeMap<String, Spanned<String>>;

/// How the model learns about tools and calls them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Calls {
    /// By the functions of the provider's API. Calls in the model's text are understood too.
    #[default]
    Native,
    /// By a description in the prompt and calls in the model's text.
    Text,
}

/// The selection of an assistant's tools from those of the caller.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ToolSelection {
    /// The toolsets to select from. Empty means all tools.
    pub(crate) toolsets: Vec<String>,
    /// Patterns of allowed tool names, in which `*` matches any sequence of characters.
    pub(crate) allow: Vec<String>,
    /// The tools' own names, by the names for the model.
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

/// The part of a conversation that the model sees.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Context {
    /// Maximum number of messages.
    pub(crate) messages: u32,
    /// Maximum number of tokens; 0 means no limit.
    pub(crate) tokens: u32,
    /// Whether the assistant's model summarizes messages that leave the window.
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

/// Limits of one turn. When any limit except `parallel` is reached, the model gets one last round without tools.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TurnLimits {
    /// Maximum number of rounds of tool calls.
    pub(crate) turns: u32,
    /// Maximum number of calls of the same tool with the same arguments.
    pub(crate) identical_calls: u32,
    /// Maximum number of input and output tokens.
    pub(crate) tokens: u64,
    pub(crate) seconds: u64,
    /// Maximum cost. `None` means that the cost is not limited.
    pub(crate) cost: Option<Cost>,
    /// Maximum number of concurrent calls.
    pub(crate) parallel: usize,
}

/// The maximum cost of a turn and the prices of tokens, all in one currency.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cost {
    pub(crate) most: Amount,
    /// The price of a million input tokens.
    pub(crate) input: Amount,
    /// The price of a million output tokens.
    pub(crate) output: Amount,
}

/// An amount of money: a finite number that is not negative.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct Amount(pub(crate) f64);

impl TryFrom<f64> for Amount {
    type Error = &'static str;

    fn try_from(amount: f64) -> Result<Self, Self::Error> {
        if amount.is_finite() && amount >= 0.0 {
            Ok(Self(amount))
        } else {
            Err("an amount of money must be a number of at least zero")
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

/// A question to a model about every message, which is asked before anything else.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Guardrail {
    /// The provider of the guardrail's model. `None` means the assistant's provider.
    #[serde(default)]
    pub(super) provider: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) model: Option<Spanned<String>>,
    /// The questions, with the variable `{{ message }}`. The model answers YES if the message is acceptable.
    pub(super) questions: Texts,
    pub(super) refusals: Texts,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Checks {
    /// Checks of the user's messages.
    pub(super) input: Vec<Check>,
    /// Checks of the model's answers. If there are any, an answer is sent only when it is complete.
    pub(super) output: Vec<Check>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Check {
    /// A regular expression that matches forbidden text.
    pub(super) pattern: Spanned<String>,
    /// The text that is sent instead.
    pub(super) refusal: String,
}

/// The calls that require the user's approval.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Approval {
    /// The names of tools that require an approval, in addition to tools whose definition requires it.
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

/// A slash command, which calls a tool without asking the model.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Command {
    /// The names of the command's words. The last one takes the rest of the message.
    #[serde(default)]
    pub(super) words: Vec<String>,
    /// The model's name of the tool.
    pub(super) tool: String,
    #[serde(default)]
    pub(super) arguments: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    pub(super) answer: CommandAnswer,
}

/// A call that is made for every message before the model is asked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpeningCall {
    /// The model's name of the tool.
    pub(super) tool: String,
    /// The arguments, whose strings may use the variable `{{ message }}`.
    #[serde(default)]
    pub(super) arguments: BTreeMap<String, Spanned<Value>>,
}

/// What answers a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CommandAnswer {
    /// The model, on the basis of the call's result.
    #[default]
    Model,
    /// The result of the call itself.
    Result,
}
