//! Tool calls that the configuration triggers instead of the model.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::prompt::Template;
use super::settings::CommandAnswer;

/// A tool call whose arguments are templates.
#[derive(Debug, Clone)]
pub(crate) struct ConfiguredCall {
    /// The model's name of the tool.
    pub(crate) tool: String,
    pub(crate) arguments: BTreeMap<String, Argument>,
}

/// A value whose strings are templates.
#[derive(Debug, Clone)]
pub(crate) enum Argument {
    Text(Template),
    List(Vec<Argument>),
    Object(Vec<(String, Argument)>),
    Plain(Value),
}

impl Argument {
    /// Parses every string of `value` as a template and checks that it refers only to names in `known`.
    pub(super) fn parse(value: &Value, known: &[&str]) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => Self::Text(Template::parse(text, known)?),
            Value::Array(items) => {
                let items = items.iter().map(|item| Self::parse(item, known));
                Self::List(items.collect::<Result<_, _>>()?)
            }
            Value::Object(members) => {
                let members = members
                    .iter()
                    .map(|(name, item)| Ok((name.clone(), Self::parse(item, known)?)));
                Self::Object(members.collect::<Result<_, String>>()?)
            }
            plain => Self::Plain(plain.clone()),
        })
    }

    fn fill(&self, words: &BTreeMap<&str, &str>) -> Option<Value> {
        match self {
            Self::Text(template) => Some(Value::String(template.render(words).ok()?)),
            Self::List(items) => items.iter().map(|item| item.fill(words)).collect(),
            Self::Object(members) => members
                .iter()
                .map(|(name, item)| Some((name.clone(), item.fill(words)?)))
                .collect(),
            Self::Plain(value) => Some(value.clone()),
        }
    }
}

impl ConfiguredCall {
    /// Renders the arguments as JSON text, as a model would write them.
    fn fill(&self, words: &BTreeMap<&str, &str>) -> Option<String> {
        let filled = self
            .arguments
            .iter()
            .map(|(name, argument)| Some((name.clone(), argument.fill(words)?)))
            .collect::<Option<Map<_, _>>>()?;
        Some(Value::Object(filled).to_string())
    }
}

/// A slash command and the call that it triggers.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    /// The name, including the slash.
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
    pub(crate) call: ConfiguredCall,
    pub(crate) answer: CommandAnswer,
}

/// What the configuration does with a message before a model is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MessageOpening {
    /// Nothing: the model handles the message.
    None,
    /// A tool call is made as if the model had requested it.
    Call {
        tool: String,
        arguments: String,
        answer: CommandAnswer,
        /// Whether the user wrote a command.
        is_command: bool,
    },
    /// A command lacks a word. The text shows the syntax of the command.
    Usage(String),
}

/// Returns what the configuration does with `message`.
pub(crate) fn resolve_opening(
    message: &str,
    commands: &[Command],
    always: Option<&ConfiguredCall>,
) -> MessageOpening {
    let message = message.trim();
    let (first, rest) = message
        .split_once(char::is_whitespace)
        .unwrap_or((message, ""));
    if let Some(command) = commands.iter().find(|command| command.name == first) {
        return command.open(rest.trim());
    }
    match always.and_then(|call| Some((call, call.fill(&BTreeMap::from([("message", message)]))?)))
    {
        Some((call, arguments)) => MessageOpening::Call {
            tool: call.tool.clone(),
            arguments,
            answer: CommandAnswer::Model,
            is_command: false,
        },
        None => MessageOpening::None,
    }
}

impl Command {
    fn open(&self, rest: &str) -> MessageOpening {
        let mut parts = rest.splitn(self.words.len().max(1), char::is_whitespace);
        let words: BTreeMap<&str, &str> = self
            .words
            .iter()
            .filter_map(|name| Some((name.as_str(), parts.next()?.trim())))
            .filter(|(_, word)| !word.is_empty())
            .collect();
        let all = (words.len() == self.words.len() && (!self.words.is_empty() || rest.is_empty()))
            .then(|| self.call.fill(&words))
            .flatten();
        match all {
            Some(arguments) => MessageOpening::Call {
                tool: self.call.tool.clone(),
                arguments,
                answer: self.answer,
                is_command: true,
            },
            None => MessageOpening::Usage(self.usage()),
        }
    }

    /// Returns the syntax of the command, for example `/record <uuid>`.
    fn usage(&self) -> String {
        let words = self.words.iter().map(|word| format!("<{word}>"));
        std::iter::once(self.name.clone())
            .chain(words)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(argument: &str, text: &str, known: &[&str]) -> ConfiguredCall {
        ConfiguredCall {
            tool: "look_up".to_owned(),
            arguments: BTreeMap::from([(
                argument.to_owned(),
                Argument::parse(&text.into(), known).unwrap(),
            )]),
        }
    }

    fn command() -> Command {
        Command {
            name: "/record".to_owned(),
            words: vec!["uuid".to_owned()],
            call: call("uuid", "{{ uuid }}", &["uuid"]),
            answer: CommandAnswer::Result,
        }
    }

    #[test]
    fn a_command_fills_in_its_words_and_says_which_it_lacks() {
        let commands = [command()];
        let open = |message| resolve_opening(message, &commands, None);
        assert_eq!(
            open("/record  a\"b c "),
            MessageOpening::Call {
                tool: "look_up".to_owned(),
                arguments: r#"{"uuid":"a\"b c"}"#.to_owned(),
                answer: CommandAnswer::Result,
                is_command: true,
            }
        );
        assert_eq!(
            open("/record"),
            MessageOpening::Usage("/record <uuid>".to_owned())
        );
        assert_eq!(open("/recorder x"), MessageOpening::None);
        assert_eq!(open("what is /record x"), MessageOpening::None);
    }

    #[test]
    fn a_call_for_every_message_has_the_message_in_it() {
        let always = call("query", "{{ message }}", &["message"]);
        let MessageOpening::Call { arguments, .. } =
            resolve_opening("toothache?", &[], Some(&always))
        else {
            panic!("no call");
        };
        assert_eq!(arguments, r#"{"query":"toothache?"}"#);
    }
}
