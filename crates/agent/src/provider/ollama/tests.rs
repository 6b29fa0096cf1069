use serde_json::json;

use super::*;
use crate::model::ModelEvent::{self, *};
use crate::model::{FunctionChoice, TokenUsage};
use crate::provider::ProviderKind;
use crate::provider::testing::read_pieces;

async fn read_lines(lines: &[Value]) -> (Vec<ModelEvent>, Result<(), ModelError>) {
    let lines: Vec<_> = lines.iter().map(|line| format!("{line}\n")).collect();
    read_pieces(ProviderKind::Ollama, vec![lines.concat().into_bytes()]).await
}

fn request(messages: Vec<ModelMessage>) -> ModelRequest {
    ModelRequest {
        model: "m".to_owned(),
        messages,
        functions: vec![],
        choice: FunctionChoice::Auto,
        temperature: Some(0.0),
        max_output_tokens: Some(9),
    }
}

fn user(text: &str) -> ModelMessage {
    ModelMessage::User(text.to_owned())
}

#[tokio::test]
async fn lines_and_one_piece_give_the_same_answer() {
    let counts = json!({"prompt_eval_count": 5, "eval_count": 2});
    let last = |response: &str| {
        let mut line = json!({"response": response, "done": true, "done_reason": "stop"});
        line.as_object_mut()
            .unwrap()
            .extend(counts.as_object().unwrap().clone());
        line
    };
    let expected = vec![
        Text("YES".to_owned()),
        Usage(TokenUsage {
            input: 5,
            output: 2,
        }),
        Finished(FinishReason::Stop),
    ];
    let streamed = [
        json!({"model": "m", "response": "Y", "done": false}),
        json!({"response": "ES", "done": false}),
        last(""),
    ];
    assert_eq!(read_lines(&streamed).await, (expected.clone(), Ok(())));
    assert_eq!(read_lines(&[last("YES")]).await, (expected, Ok(())));

    let bare = json!({"response": "NO", "done": true});
    let expected = vec![Text("NO".to_owned()), Finished(FinishReason::Stop)];
    assert_eq!(read_lines(&[bare]).await, (expected, Ok(())));
}

#[tokio::test]
async fn other_ends_are_told_apart() {
    let said = json!({"thinking": "hm", "response": "Y", "done": false});
    let events = vec![Reasoning("hm".to_owned()), Text("Y".to_owned())];
    let cut = read_lines(std::slice::from_ref(&said)).await;
    assert_eq!(cut, (events.clone(), Err(ModelError::Cut)));
    let unknown = read_lines(&[json!({"error": "model 'x' not found"})]).await;
    assert_eq!(unknown, (vec![], Err(ModelError::UnknownModel)));
    let (events, _) = read_lines(&[
        said,
        json!({"response": "", "done": true, "done_reason": "length"}),
    ])
    .await;
    assert_eq!(events.last(), Some(&Finished(FinishReason::Length)));
}

#[test]
fn one_message_is_the_prompt_and_several_are_a_dialogue() {
    let alone = body(&request(vec![
        ModelMessage::System("Say YES or NO.".to_owned()),
        user("Is it a tooth?"),
    ]));
    let expected = json!({"model": "m", "prompt": "Is it a tooth?", "system": "Say YES or NO.", "stream": true,
        "options": {"temperature": 0.0, "num_predict": 9}});
    assert_eq!(alone, expected);

    let answer = ModelMessage::Assistant {
        text: "I look.".to_owned(),
        calls: vec![],
    };
    let dialogue = body(&request(vec![user("Look it up."), answer, user("And?")]));
    let expected = "User: Look it up.\n\nAssistant: I look.\n\nUser: And?\n\nAssistant:";
    assert_eq!(dialogue["prompt"], expected);
}
