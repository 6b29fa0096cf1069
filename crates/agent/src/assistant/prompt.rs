//! Templates of system prompts, arguments and questions.
//!
//! A system prompt contains nothing of the user's message or of tool results, because there they would act as instructions. Only
//! the summary is derived from the conversation.

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::{Environment, UndefinedBehavior, context};
use wardgate_domain::{AttributeValue, Caller, Timestamp};

use super::language::Language;

/// The variables that a prompt may use.
const KNOWN: [&str; 4] = ["user", "summary", "now", "language"];
/// The members of `user` that a prompt may use.
const KNOWN_OF_USER: [&str; 4] = ["subject", "tenant", "roles", "attributes"];

/// A validated template of a system prompt.
#[derive(Clone)]
pub(crate) struct Prompt {
    environment: Arc<Environment<'static>>,
    shows_summary: bool,
}

/// The values that fill a prompt.
pub(crate) struct PromptFacts<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) summary: &'a str,
    pub(crate) now: Timestamp,
    pub(crate) language: Option<Language>,
}

const NAME: &str = "prompt";

impl Prompt {
    /// Parses `text` and checks that it uses only known variables.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let environment = environment(text, NAME)?;
        let template = environment
            .get_template(NAME)
            .map_err(|error| error.to_string())?;
        for name in template.undeclared_variables(true) {
            let mut parts = name.split('.');
            let (first, second) = (parts.next().unwrap_or_default(), parts.next());
            let is_known = KNOWN.contains(&first)
                && (first != "user" || second.is_none_or(|name| KNOWN_OF_USER.contains(&name)));
            if !is_known {
                return Err(format!(
                    "`{name}` is not supported here; supported are user.subject, user.tenant, user.roles, user.attributes, summary, now \
                     and language"
                ));
            }
        }
        let shows_summary = template.undeclared_variables(false).contains("summary");
        let prompt = Self {
            shows_summary,
            environment: Arc::new(environment),
        };
        Ok(prompt)
    }

    /// Returns whether the prompt contains the summary.
    pub(crate) fn shows_summary(&self) -> bool {
        self.shows_summary
    }

    /// Renders the prompt for one turn.
    pub(crate) fn render(&self, facts: &PromptFacts<'_>) -> Result<String, String> {
        let caller = facts.caller;
        let user = context! {
            subject => caller.subject(),
            tenant => caller.tenant(),
            roles => to_template_list(caller.roles()),
            attributes => minijinja::Value::from_pairs(
                caller
                    .attributes()
                    .iter()
                    .map(|(name, value)| (name.as_str(), to_template_value(value))),
            ),
        };
        let values = context! {
            user => user,
            summary => facts.summary,
            now => facts.now.to_string(),
            language => facts.language.map_or("English", Language::name),
        };
        render(&self.environment, NAME, values)
    }
}

impl std::fmt::Debug for Prompt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prompt")
    }
}

fn to_template_value(value: &AttributeValue) -> minijinja::Value {
    match value {
        AttributeValue::Text(text) => minijinja::Value::from(text.as_str()),
        AttributeValue::Integer(number) => minijinja::Value::from(*number),
        AttributeValue::Boolean(truth) => minijinja::Value::from(*truth),
        AttributeValue::List(items) => to_template_list(items),
    }
}

fn to_template_list(items: &[String]) -> minijinja::Value {
    items.iter().map(String::as_str).collect()
}

/// A template with named variables, for arguments and questions.
#[derive(Clone)]
pub(crate) struct Template {
    environment: Arc<Environment<'static>>,
}

impl Template {
    /// Parses `text` and checks that it uses only variables in `known`.
    pub(crate) fn parse(text: &str, known: &[&str]) -> Result<Self, String> {
        let environment = environment(text, NAME)?;
        let template = environment
            .get_template(NAME)
            .map_err(|error| error.to_string())?;
        let names = template.undeclared_variables(false);
        if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(format!(
                "`{name}` is not supported here; supported are {}",
                known.join(", ")
            ));
        }
        Ok(Self {
            environment: Arc::new(environment),
        })
    }

    /// Renders the template with `values`.
    pub(crate) fn render(&self, values: &BTreeMap<&str, &str>) -> Result<String, String> {
        render(
            &self.environment,
            NAME,
            minijinja::Value::from_pairs(values.iter().map(|(name, text)| (*name, *text))),
        )
    }
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Template")
    }
}

fn environment(text: &str, name: &'static str) -> Result<Environment<'static>, String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment
        .add_template_owned(name, text.to_owned())
        .map_err(|error| error.to_string())?;
    Ok(environment)
}

fn render(
    environment: &Environment<'_>,
    name: &str,
    values: minijinja::Value,
) -> Result<String, String> {
    environment
        .get_template(name)
        .and_then(|template| template.render(values))
        .map_err(|error| error.kind().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_prompt_names_who_asks() {
        let prompt = Prompt::parse(
            "You help {{ user.subject }} ({{ user.roles | join(', ') }}). Answer in {{ language }}.{% if summary %} So far: {{ summary }}{% endif %}",
        )
        .unwrap();
        assert!(prompt.shows_summary());
        let text = prompt
            .render(&PromptFacts {
                caller: &testing::caller("dr.yenji", &["Doctor"]),
                summary: "",
                now: Timestamp::from_seconds(0),
                language: Language::from_code("vi"),
            })
            .unwrap();
        assert_eq!(text, "You help dr.yenji (Doctor). Answer in Vietnamese.");
    }

    #[test]
    fn what_no_prompt_is_given_is_refused_when_it_is_read() {
        for (text, named) in [
            ("{{ question }}", "question"),
            ("{{ user.password }}", "user.password"),
            ("{{ user.subject", "prompt"),
        ] {
            let error = Prompt::parse(text).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
        assert!(Template::parse("{{ uuid }} {{ other }}", &["uuid"]).is_err());
    }
}
