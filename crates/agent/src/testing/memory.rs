//! A fake memory with the guarantees of the real one: a turn is open, complete or abandoned, and an id stands for one content.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::clients::GatewayFailure;

#[derive(Default)]
pub(super) struct FakeMemory {
    conversations: BTreeMap<String, Vec<Value>>,
    turns: BTreeMap<(String, String), String>,
    made: usize,
}

fn refusal_error(message: &str) -> GatewayFailure {
    GatewayFailure::Refused {
        code: -32602,
        reason: None,
        message: message.to_owned(),
    }
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

impl FakeMemory {
    pub(super) fn answer(&mut self, method: &str, params: &Value) -> Result<Value, GatewayFailure> {
        let id = text(params, "conversation_id");
        match method {
            "memory/get_or_create" => Ok(self.get_or_create(id)),
            "memory/get_context" => Ok(self.context(&id, params)),
            "memory/get_turn" if !self.conversations.contains_key(&id) => {
                Err(refusal_error("Unknown conversation"))
            }
            "memory/get_turn" => Ok(self.turn(&id, &text(params, "turn_id"))),
            "memory/add_message" => self.add(&id, params),
            other => panic!("{other}"),
        }
    }

    /// Returns all messages that a context of the conversation could contain.
    pub(super) fn complete(&self, id: &str) -> Vec<Value> {
        let all = self.conversations.get(id).into_iter().flatten();
        all.filter(|message| match message["turn_id"].as_str() {
            Some(turn) => self.state(id, turn) == "complete",
            None => true,
        })
        .cloned()
        .collect()
    }

    pub(super) fn only_turn(&self, id: &str) -> (String, String) {
        let mut turns = self
            .turns
            .iter()
            .filter(|((conversation, _), _)| conversation == id);
        let ((_, turn), state) = turns.next().expect("a turn");
        (turn.clone(), state.clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.conversations.is_empty()
    }

    pub(super) fn state(&self, id: &str, turn: &str) -> &str {
        let key = (id.to_owned(), turn.to_owned());
        self.turns.get(&key).map_or("none", String::as_str)
    }

    fn get_or_create(&mut self, id: String) -> Value {
        self.made += 1;
        let id = if id.is_empty() {
            format!("made-{}", self.made)
        } else {
            id
        };
        let created = !self.conversations.contains_key(&id);
        self.conversations.entry(id.clone()).or_default();
        json!({"conversation_id": id, "created": created})
    }

    fn context(&self, id: &str, params: &Value) -> Value {
        let all: Vec<Value> = self
            .complete(id)
            .into_iter()
            .filter(|message| message["source"] != "summary")
            .collect();
        let max = usize::try_from(params["max_messages"].as_u64().unwrap_or(20)).unwrap();
        let from = all.len().saturating_sub(max);
        let summary = self.conversations.get(id).and_then(|messages| {
            let mut messages = messages.iter().rev();
            messages.find(|message| message["source"] == "summary")
        });
        let covered = summary.map_or(0, |summary| summary["covers_to"].as_u64().unwrap_or(0));
        let uncovered = all[..from]
            .iter()
            .filter(|message| message["position"].as_u64().unwrap() > covered)
            .count();
        let mut context = json!({"messages": all[from..], "uncovered": uncovered});
        if let Some(summary) = summary {
            context["summary"] = summary.clone();
        }
        context
    }

    fn turn(&self, id: &str, turn: &str) -> Value {
        let messages: Vec<&Value> = self
            .conversations
            .get(id)
            .into_iter()
            .flatten()
            .filter(|message| message["turn_id"] == turn)
            .collect();
        json!({"state": self.state(id, turn), "messages": messages})
    }

    fn add(&mut self, id: &str, params: &Value) -> Result<Value, GatewayFailure> {
        let turn = params["turn"]["id"].as_str();
        let state = text(&params["turn"], "state");
        let is_over = turn.is_some_and(|turn| {
            let is = self.state(id, turn);
            matches!(is, "complete" | "abandoned") && is != state
        });
        let conversation = self
            .conversations
            .get_mut(id)
            .ok_or_else(|| refusal_error("Unknown conversation"))?;
        let mut fresh = Vec::new();
        for message in params["messages"].as_array().unwrap() {
            let mut message = message.clone();
            let calls = message["tool_calls"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            if calls.iter().any(|call| !call["arguments"].is_object()) {
                return Err(refusal_error("`arguments` must be an object"));
            }
            if let Some(turn) = turn {
                message["turn_id"] = turn.into();
            }
            if message["tool"].is_object() {
                message["tool_call_id"] = message["tool"]["call_id"].clone();
                message["is_error"] = message["tool"]["is_error"].clone();
            }
            let is_same = |known: &&Value| known["message_id"] == message["message_id"];
            match conversation.iter().find(is_same) {
                Some(known) if known["content"] == message["content"] => {}
                Some(_) => return Err(refusal_error("another message has this id")),
                None => fresh.push(message),
            }
        }
        // A repeated message changes nothing and is accepted at any time.
        let is_repeated = fresh.is_empty() && params["messages"] != json!([]);
        if is_over && !is_repeated {
            return Err(refusal_error("the turn is over"));
        }
        for mut message in fresh {
            message["position"] = (conversation.len() + 1).into();
            conversation.push(message);
        }
        if let Some(turn) = turn
            && !is_over
        {
            self.turns.insert((id.to_owned(), turn.to_owned()), state);
        }
        Ok(json!({"status": "success", "conversation_id": id}))
    }
}
