//! `wardgate agent extract`: extracts the tool calls from the output of models.

use std::io::{BufRead, Write};

use wardgate_domain::escape_invisible_json;
use wardgate_tool_call_parser::{CallSyntax, FailedLines};

use crate::Failure;
use crate::cli::ExtractArgs;

pub(crate) fn run(arguments: &ExtractArgs) -> Result<(), Failure> {
    let output = std::io::BufWriter::new(std::io::stdout().lock());
    filter(arguments, std::io::stdin().lock(), output)
}

fn filter(
    arguments: &ExtractArgs,
    mut input: impl BufRead,
    mut output: impl Write,
) -> Result<(), Failure> {
    let syntax = CallSyntax::from(arguments.family);
    let syntax = match &arguments.template {
        None => syntax,
        Some(path) => {
            let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
            let source = std::fs::read_to_string(path).map_err(|error| fault(&error))?;
            let learned = syntax.with_template(&source);
            learned.map_err(|error| fault(&error))?
        }
    };
    let failed = wardgate_tool_call_parser::extract_calls(&mut input, &syntax, |line| {
        writeln!(output, "{}", escape_invisible_json(line))
    })?;
    output.flush()?;
    match failed {
        FailedLines(0) => Ok(()),
        FailedLines(lines) => Err(format!(
            "{lines} lines could not be processed; their answers contain the reason"
        )
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::{Value, json};
    use wardgate_domain::find_invisible;

    use super::*;
    use crate::cli::{AgentCommand, Cli, Command};

    fn extract(words: &[&str], input: &str) -> (String, Result<(), String>) {
        let words = ["wardgate", "agent", "extract"].iter().chain(words);
        let Command::Agent(agent) = Cli::try_parse_from(words).unwrap().command else {
            panic!("another command");
        };
        let Some(AgentCommand::Extract(arguments)) = agent.command else {
            panic!("no command of the agent");
        };
        let mut output = Vec::new();
        let done = filter(&arguments, input.as_bytes(), &mut output);
        let output = String::from_utf8(output).unwrap();
        (output, done.map_err(|error| error.to_string()))
    }

    #[test]
    fn a_line_gives_a_line_and_a_bad_one_an_error_among_the_others() {
        let (output, done) = extract(
            &[],
            concat!(
                r#"{"id":1,"text":"TOOL: f\nPARAMETERS: {\"n\": 12345678901234567890123}","tools":[]}"#,
                "\n\nnot json\n",
                r#"{"id":"x","text":7}"#,
                "\n",
                r#"{"id":"y","text":"Hello","family":"hermes"}"#,
            ),
        );
        assert_eq!(
            output,
            concat!(
                r#"{"id":1,"calls":[{"name":"f","arguments":{"n":12345678901234567890123}}],"text":""}"#,
                "\n",
                r#"{"error":"the line is not JSON (column 2)"}"#,
                "\n",
                r#"{"id":"x","error":"\"text\" must be a string"}"#,
                "\n",
                r#"{"id":"y","calls":[],"text":"Hello"}"#,
                "\n",
            )
        );
        assert_eq!(
            done,
            Err("2 lines could not be processed; their answers contain the reason".to_owned())
        );
    }

    #[test]
    fn invisible_characters_of_an_answer_are_escaped_and_its_value_stays_the_same() {
        let text = "\u{202e}txet\u{e0041}\u{9b}2J\u{7f}";
        let arguments = json!({ "a": text });
        let call = json!({ "name": "f", "arguments": arguments });
        let line = json!({
            "id": text,
            "text": format!("{text}<tool_call>{call}</tool_call>"),
            "family": "hermes",
        });
        let (output, done) = extract(&[], &line.to_string());
        assert_eq!(done, Ok(()));
        assert_eq!(find_invisible(&output).count(), 0, "{output:?}");
        assert_eq!(
            serde_json::from_str::<Value>(&output).unwrap(),
            json!({ "id": text, "calls": [call], "text": text })
        );
    }

    const TEMPLATE: &str = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<|go {{ c.function.name }}|>{{ c.function.arguments | tojson }}<|stop|>{% endfor %}{% endfor %}";

    #[test]
    fn calls_are_read_as_a_chat_template_writes_them() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("model.jinja");
        std::fs::write(&file, TEMPLATE).unwrap();
        let text = r#"{"id":1,"text":"Yes. <|go f|>{\"a\": [1]}<|stop|>","tools":[]}"#;
        let calls = r#"{"id":1,"calls":[{"name":"f","arguments":{"a":[1]}}],"text":"Yes. "}"#;
        assert!(extract(&[], text).0.contains(r#""calls":[]"#));
        let path = file.to_str().unwrap();
        assert_eq!(extract(&["--template", path], text).0.trim(), calls);
        let member = serde_json::to_string(TEMPLATE).unwrap();
        let line = text.replace(
            "\"tools\":[]",
            &format!("\"tools\":[],\"template\":{member}"),
        );
        assert_eq!(extract(&[], &line).0.trim(), calls);
    }

    #[test]
    fn a_chat_template_that_cannot_be_used_says_why() {
        let line = r#"{"id":1,"text":"x","template":"{{ m.content }}"}"#;
        let (output, done) = extract(&[], line);
        assert!(
            output.contains("renders no tool calls; set the family"),
            "{output}"
        );
        assert!(done.is_err());
        let (output, _) = extract(&[], r#"{"id":1,"text":"x","template":7}"#);
        assert!(
            output.contains(r#"\"template\" must be a string"#),
            "{output}"
        );
        let (output, done) = extract(&["--template", "/nowhere.jinja"], line);
        assert_eq!(output, "");
        assert!(done.unwrap_err().starts_with("/nowhere.jinja: "));
    }

    #[test]
    fn the_family_is_that_of_the_line_or_else_of_the_command_line() {
        let line = r#"{"id":1,"text":"[TOOL_CALLS]f[ARGS]{}","tools":[]}"#;
        let calls = r#"{"id":1,"calls":[{"name":"f","arguments":{}}],"text":""}"#;
        let text = r#"{"id":1,"calls":[],"text":"[TOOL_CALLS]f[ARGS]{}"}"#;
        assert_eq!(extract(&["--family", "mistral"], line).0.trim(), calls);
        assert_eq!(extract(&[], line).0.trim(), calls);
        assert_eq!(extract(&["--family", "qwen"], line).0.trim(), text);
        let named = line.replace("\"tools\":[]", "\"tools\":[],\"family\":\"mistral\"");
        assert_eq!(extract(&["--family", "qwen"], &named).0.trim(), calls);
    }
}
