//! Strict reading of parameters: every error names the field, and unknown fields are refused.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::str::FromStr;

use serde_json::value::RawValue;

use crate::envelope::{object, text_of};
use crate::rpc_error::RpcError;

/// Every request may carry this member, which belongs to MCP and not to the method.
const META: &str = "_meta";

/// The members of one JSON object.
#[derive(Debug)]
pub struct ObjectMembers<'a> {
    /// Path of the object for error messages, for example `params.messages[1]`.
    path: String,
    members: BTreeMap<Cow<'a, str>, &'a RawValue>,
}

impl<'a> ObjectMembers<'a> {
    /// Reads the parameters of a request. Absent parameters count as an empty object.
    pub fn of_params(params: Option<&'a RawValue>) -> Result<Self, RpcError> {
        let Some(params) = params else {
            return Ok(Self {
                path: "params".to_owned(),
                members: BTreeMap::new(),
            });
        };
        let mut fields = Self::parse("params".to_owned(), params)?;
        fields.members.remove(META);
        Ok(fields)
    }

    /// Reads the object `raw`, which is at `path`.
    fn parse(path: String, raw: &'a RawValue) -> Result<Self, RpcError> {
        let Some(members) = object::<BTreeMap<Cow<'a, str>, &'a RawValue>>(raw.get()) else {
            return Err(RpcError::invalid_params(format!(
                "`{path}` must be an object"
            )));
        };
        Ok(Self { path, members })
    }

    /// Returns an error if there is a member that is not among `names`.
    pub fn only(&self, names: &[&str]) -> Result<(), RpcError> {
        if self
            .members
            .keys()
            .all(|name| names.contains(&name.as_ref()))
        {
            return Ok(());
        }
        Err(RpcError::invalid_params(format!(
            "`{}` has an unknown field; the supported fields are {}",
            self.path,
            names.join(", ")
        )))
    }

    /// Returns the value of a member as written, or `None` if it is absent or null.
    pub fn value(&self, name: &str) -> Option<&'a RawValue> {
        let value = self.members.get(name).copied();
        value.filter(|raw| raw.get() != "null")
    }

    /// Creates an error about the field `name`.
    pub fn wrong(&self, name: &str, problem: &str) -> RpcError {
        RpcError::invalid_params(format!("`{}.{name}` {problem}", self.path))
    }

    fn missing_error(&self, name: &str) -> RpcError {
        self.wrong(name, "is missing")
    }

    /// Returns the string `name`, or `None` if it is absent.
    pub fn text(&self, name: &str) -> Result<Option<String>, RpcError> {
        let Some(raw) = self.value(name) else {
            return Ok(None);
        };
        match text_of(raw) {
            Some(text) => Ok(Some(text.into_owned())),
            None => Err(self.wrong(name, "must be a string")),
        }
    }

    /// Returns the string `name`, or an error if it is absent.
    pub fn required_text(&self, name: &str) -> Result<String, RpcError> {
        self.text(name)?.ok_or_else(|| self.missing_error(name))
    }

    /// Returns the string `name`, parsed as `T`, or `None` if it is absent.
    pub fn parse_optional<T: FromStr<Err: ToString>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, RpcError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let parsed = text.parse();
        parsed
            .map(Some)
            .map_err(|error: T::Err| self.wrong(name, &error.to_string()))
    }

    /// Returns the string `name`, parsed as `T`, or an error if it is absent.
    pub fn parse_required<T: FromStr<Err: ToString>>(&self, name: &str) -> Result<T, RpcError> {
        self.parse_optional(name)?
            .ok_or_else(|| self.missing_error(name))
    }

    /// Returns the value in `all` that `name` spells, or `None` if the member is absent.
    pub fn word<T: Copy>(
        &self,
        name: &str,
        all: &[T],
        spelt: impl Fn(T) -> &'static str,
    ) -> Result<Option<T>, RpcError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let found = all.iter().copied().find(|word| spelt(*word) == text);
        found.map(Some).ok_or_else(|| {
            let words: Vec<&str> = all.iter().map(|word| spelt(*word)).collect();
            self.wrong(name, &format!("must be one of {}", words.join(", ")))
        })
    }

    /// Returns the value in `all` that `name` spells, or an error if the member is absent.
    pub fn required_word<T: Copy>(
        &self,
        name: &str,
        all: &[T],
        spelt: impl Fn(T) -> &'static str,
    ) -> Result<T, RpcError> {
        self.word(name, all, spelt)?
            .ok_or_else(|| self.missing_error(name))
    }

    /// Returns the integer `name`, which must be from 1 to `most`, or `None` if it is absent.
    pub fn count(&self, name: &str, most: u32) -> Result<Option<u32>, RpcError> {
        let Some(raw) = self.value(name) else {
            return Ok(None);
        };
        match serde_json::from_str(raw.get()) {
            Ok(count) if (1..=most).contains(&count) => Ok(Some(count)),
            _ => Err(self.wrong(name, &format!("must be a whole number from 1 to {most}"))),
        }
    }

    /// Returns the position in a conversation `name`, a non-negative integer, or `None` if it is absent.
    pub fn position(&self, name: &str) -> Result<Option<u64>, RpcError> {
        let Some(raw) = self.value(name) else {
            return Ok(None);
        };
        match serde_json::from_str(raw.get()) {
            Ok(position) => Ok(Some(position)),
            Err(_) => Err(self.wrong(name, "must be a whole number from 0")),
        }
    }

    /// Returns the boolean `name`, or false if it is absent.
    pub fn flag(&self, name: &str) -> Result<bool, RpcError> {
        match self.value(name).map(RawValue::get) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(self.wrong(name, "must be true or false")),
        }
    }

    /// Returns the members of the object `name`, or `None` if it is absent.
    pub fn object(&self, name: &str) -> Result<Option<Self>, RpcError> {
        let raw = self.value(name);
        raw.map(|raw| Self::parse(format!("{}.{name}", self.path), raw))
            .transpose()
    }

    /// Returns the members of each object in the list `name`, or `None` if the list is absent.
    pub fn objects(&self, name: &str) -> Result<Option<Vec<Self>>, RpcError> {
        let Some(raw) = self.value(name) else {
            return Ok(None);
        };
        let items: Vec<&'a RawValue> = serde_json::from_str(raw.get())
            .map_err(|_| self.wrong(name, "must be a list of objects"))?;
        let item = |(index, raw)| Self::parse(format!("{}.{name}[{index}]", self.path), raw);
        let items: Result<_, RpcError> = items.into_iter().enumerate().map(item).collect();
        items.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use wardgate_domain::{ConversationId, Role};

    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn what_does_not_fit_is_named_by_its_path() {
        let raw = raw(
            r#"{"_meta":{},"id":7,"empty":"","n":0,"b":"true","role":"boss","o":[],"l":[{},{"x":1}],"nothing":null}"#,
        );
        let fields = ObjectMembers::of_params(Some(&raw)).unwrap();
        let message = |error: RpcError| error.message().to_owned();
        let cases = [
            (
                message(fields.text("id").unwrap_err()),
                "`params.id` must be a string",
            ),
            (
                message(fields.required_text("absent").unwrap_err()),
                "`params.absent` is missing",
            ),
            (
                message(fields.required_text("nothing").unwrap_err()),
                "`params.nothing` is missing",
            ),
            (
                message(
                    fields
                        .parse_required::<ConversationId>("empty")
                        .unwrap_err(),
                ),
                "`params.empty` is not 1 to 256 characters without control characters",
            ),
            (
                message(fields.count("n", 9).unwrap_err()),
                "`params.n` must be a whole number from 1 to 9",
            ),
            (
                message(fields.flag("b").unwrap_err()),
                "`params.b` must be true or false",
            ),
            (
                message(
                    fields
                        .required_word("role", Role::ALL, Role::as_str)
                        .unwrap_err(),
                ),
                "`params.role` must be one of user, assistant, tool, system",
            ),
            (
                message(fields.object("o").unwrap_err()),
                "`params.o` must be an object",
            ),
            (
                message(
                    fields.objects("l").unwrap().unwrap()[1]
                        .text("x")
                        .unwrap_err(),
                ),
                "`params.l[1].x` must be a string",
            ),
            (
                message(fields.only(&["id", "empty"]).unwrap_err()),
                "`params` has an unknown field; the supported fields are id, empty",
            ),
        ];
        for (said, expected) in cases {
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn what_mcp_adds_to_every_request_is_no_field_of_the_method() {
        let raw = raw(r#"{"_meta":{"progressToken":1},"a":"b"}"#);
        let fields = ObjectMembers::of_params(Some(&raw)).unwrap();
        assert!(fields.only(&["a"]).is_ok());
        assert_eq!(fields.text("a").unwrap().as_deref(), Some("b"));
    }
}
