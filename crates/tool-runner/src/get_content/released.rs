//! What of a prompt or resource leaves: as it is where its class is clear, else texts only, and those redacted.

use serde_json::{Value, json};
use wardgate_domain::{ColumnClass, ColumnTier};
use wardgate_redact::{ConfiguredForms, Redactor};

/// Stands where something may not leave.
const WITHHELD: &str = "The content is withheld.";

/// Takes out what a tier does not let through.
pub(super) struct ContentRedactor<'a> {
    pub(super) redactor: &'a Redactor,
    pub(super) forms: &'a ConfiguredForms,
    pub(super) class: &'a ColumnClass,
    pub(super) tier: ColumnTier,
    /// Texts and blobs that were changed.
    pub(super) redacted: u64,
}

impl ContentRedactor<'_> {
    /// Whether what leaves is health information.
    pub(super) fn phi(&self) -> bool {
        self.class.is_phi() && self.tier != ColumnTier::Dropped
    }

    /// The result of `prompts/get`: who speaks, and the texts.
    pub(super) fn prompt(&mut self, result: Value) -> Value {
        if self.tier == ColumnTier::Clear {
            return result;
        }
        let messages = items(&result, "messages").map(|message| {
            let content = self.block(&message["content"]);
            json!({ "role": message["role"], "content": content })
        });
        json!({ "messages": messages.collect::<Vec<_>>() })
    }

    /// The result of `resources/read` of `uri`. What else a server says of its contents may hold anything.
    pub(super) fn resource(&mut self, uri: &str, result: Value) -> Value {
        if self.tier == ColumnTier::Clear {
            return result;
        }
        let contents = items(&result, "contents")
            .map(|contents| json!({ "uri": uri, "text": self.text(&contents["text"]) }));
        json!({ "contents": contents.collect::<Vec<_>>() })
    }

    /// The result of `completion/complete`: a value that is not clear completes nothing.
    pub(super) fn completion(&mut self, result: Value) -> Value {
        if self.tier == ColumnTier::Clear {
            return result;
        }
        self.redacted += count(&result["completion"], "values");
        json!({ "completion": { "values": [] } })
    }

    fn block(&mut self, content: &Value) -> Value {
        let text = match content["type"].as_str() {
            Some("text") => &content["text"],
            Some("resource") => &content["resource"]["text"],
            _ => &Value::Null,
        };
        json!({ "type": "text", "text": self.text(text) })
    }

    fn text(&mut self, text: &Value) -> Value {
        self.redacted += 1;
        let released = self
            .redactor
            .field(self.class, self.tier, self.forms, text.clone());
        released
            .filter(Value::is_string)
            .unwrap_or_else(|| WITHHELD.into())
    }
}

/// How many parts a result has.
pub(super) fn count(result: &Value, member: &str) -> u64 {
    items(result, member).count() as u64
}

fn items<'v>(result: &'v Value, member: &str) -> impl Iterator<Item = &'v Value> {
    result[member].as_array().into_iter().flatten()
}
