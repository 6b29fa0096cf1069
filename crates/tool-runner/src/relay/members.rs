//! The members of a JSON object by name, their values unread.

use serde_json::value::RawValue;

/// Two readers may make different things of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ambiguous;

/// The members of an object, in their order.
pub(super) struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Those of `text`, if it is an object.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let members: wardgate_arguments::Members<'a> = serde_json::from_str(text).ok()?;
        Some(Self(members.0))
    }

    /// The member `name`. Some readers of JSON do not tell `name` from `Name` and take the last one, so what was
    /// looked at here could be something else there: such an object is refused.
    pub(super) fn get(&self, name: &str) -> Result<Option<&'a RawValue>, Ambiguous> {
        let mut found = None;
        for (own, value) in &self.0 {
            if own == name && found.is_none() {
                found = Some(*value);
            } else if folded(own).eq(folded(name)) {
                return Err(Ambiguous);
            }
        }
        Ok(found)
    }

    /// The text that the member `name` is.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Ambiguous> {
        let member = self.get(name)?;
        Ok(member.and_then(|member| serde_json::from_str(member.get()).ok()))
    }

    /// The object that the member `name` is.
    pub(super) fn object(&self, name: &str) -> Result<Option<Self>, Ambiguous> {
        let member = self.get(name)?;
        Ok(member.and_then(|member| Self::read(member.get())))
    }
}

/// The letters whatever their case; also those that Unicode folds to an ASCII letter, as U+017F to `s`.
fn folded(name: &str) -> impl Iterator<Item = char> + '_ {
    name.chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_readers_could_take_for_another_is_refused() {
        let plain = Members::read(r#"{"name":"a","other":1.10,"n":null}"#).unwrap();
        assert_eq!(plain.text("name"), Ok(Some("a".to_owned())));
        assert_eq!(plain.get("other").unwrap().unwrap().get(), "1.10");
        assert_eq!(plain.get("n").unwrap().unwrap().get(), "null");
        assert!(plain.get("absent").unwrap().is_none());
        for odd in [
            r#"{"name":"a","name":"b"}"#,
            r#"{"name":"a","Name":"b"}"#,
            r#"{"NAME":"b"}"#,
            r#"{"name":"a","n\u0061me":"b"}"#,
        ] {
            let odd = Members::read(odd).unwrap();
            assert_eq!(odd.text("name"), Err(Ambiguous));
        }
        let folded = Members::read(r#"{"params":{},"param\u017f":{}}"#).unwrap();
        assert_eq!(folded.get("params").unwrap_err(), Ambiguous);
        assert!(Members::read("[]").is_none());
    }
}
