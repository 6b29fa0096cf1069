//! Redacts prompts and resources before they are released: unchanged if their class is clear, otherwise only redacted
//! texts.

use serde_json::{Value, json};
use wardgate_domain::{ColumnClass, ColumnTier};
use wardgate_redact::{ConfiguredForms, Redactor};

/// Text in place of content that is withheld.
const WITHHELD: &str = "The content is withheld.";

/// A redactor for the content of one class and tier.
pub(super) struct ContentRedactor<'a> {
    pub(super) redactor: &'a Redactor,
    pub(super) forms: &'a ConfiguredForms,
    pub(super) class: &'a ColumnClass,
    pub(super) tier: ColumnTier,
    /// The number of texts and blobs that were changed.
    pub(super) redacted: u64,
}

impl ContentRedactor<'_> {
    /// Returns whether the released content is health information.
    pub(super) fn phi(&self) -> bool {
        self.class.is_phi() && self.tier != ColumnTier::Dropped
    }

    /// Redacts the result of `prompts/get` to the roles and the texts.
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

    /// Redacts the result of `resources/read` of `uri`. Other members are removed because they may contain anything.
    pub(super) fn resource(&mut self, uri: &str, result: Value) -> Value {
        if self.tier == ColumnTier::Clear {
            return result;
        }
        let contents = items(&result, "contents")
            .map(|contents| json!({ "uri": uri, "text": self.text(&contents["text"]) }));
        json!({ "contents": contents.collect::<Vec<_>>() })
    }

    /// Redacts the result of `completion/complete`. No values are released unless the tier is clear.
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

/// Returns the number of parts of a result.
pub(super) fn count(result: &Value, member: &str) -> u64 {
    items(result, member).count() as u64
}

fn items<'v>(result: &'v Value, member: &str) -> impl Iterator<Item = &'v Value> {
    result[member].as_array().into_iter().flatten()
}
