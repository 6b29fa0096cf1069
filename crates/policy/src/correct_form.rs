//! Suggestions of the correct form for common mistakes in policies.
//!
//! Cedar reports mistakes in its own terms. The author of a policy needs to know what to write instead.

/// A mistake as Cedar reports it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mistake<'a> {
    /// The whole source text.
    pub(crate) text: &'a str,
    /// The part of the text that Cedar points at: byte offset and length.
    pub(crate) span: Option<(usize, usize)>,
    /// Cedar's message.
    pub(crate) problem: &'a str,
    /// Cedar's advice.
    pub(crate) help: Option<&'a str>,
}

impl<'a> Mistake<'a> {
    /// Returns what to write instead. If no better suggestion is known, it is Cedar's own advice.
    pub(crate) fn correct_form(&self) -> Option<String> {
        let better = if self.problem.contains("ipaddr") {
            Some("an IP address is not a string; write `context.client_ip.isInRange(ip(\"10.0.0.0/8\"))`, or `context.client_ip == \
                  ip(\"10.1.2.3\")`".to_owned())
        } else if self.problem.starts_with("expected single entity uid") {
            self.list_in_scope()
        } else if self.problem.starts_with("expected an entity uid") {
            self.no_entity_in_scope()
        } else if self.problem.contains("unable to find an applicable action") {
            Some(self.resource_of_another_action())
        } else if self.problem.contains("unrecognized entity type") {
            self.unknown_entity_type()
        } else if self.problem.contains("unexpected type: expected") {
            self.text_as_entity()
        } else if self.problem.contains("are not compatible") {
            self.different_types()
        } else if self.problem.contains("access to optional attribute") {
            self.unguarded_attribute()
        } else if self.problem.contains("access to tag") {
            self.unguarded_tag()
        } else if self.problem.contains("not found") {
            self.unknown_attribute()
        } else {
            None
        };
        better.or_else(|| self.help.map(str::to_owned))
    }

    /// Suggests a fix for `principal in [Role::"A", Role::"B"]` in the scope.
    fn list_in_scope(&self) -> Option<String> {
        let (list, (variable, _)) = (self.snippet()?, self.before()?);
        if variable == "action" {
            return Some(format!("write `action in {list}`"));
        }
        Some(format!(
            "the scope takes a single entity; write `{variable}` in the scope and `when {{ {variable} in {list} }}` after it"
        ))
    }

    /// Suggests a fix for `principal in "Doctor"`, `action == read` or `resource in Patient` in the scope.
    fn no_entity_in_scope(&self) -> Option<String> {
        let (found, (variable, operator)) = (self.snippet()?, self.before()?);
        let id = found.trim_matches('"');
        Some(match (variable, operator) {
            ("action", _) => format!("write `action == Action::\"{id}\"`"),
            ("resource", _) if !found.starts_with('"') => format!(
                "write `resource is {id}` for each {id}, or a single entity, such as `resource == Tool::\"{id}\"`"
            ),
            _ => with_entity(variable, operator, id),
        })
    }

    fn resource_of_another_action(&self) -> String {
        let advice = self
            .help
            .map(|help| format!("{help}; "))
            .unwrap_or_default();
        format!(
            "{advice}callers are `principal == User::\"…\"` or `principal in Role::\"…\"`; `call_tool` requires `resource == Tool::\"…\"` \
             or `resource in Tag::\"…\"`, `read` requires `resource is ROW_TYPE`, `show_…` requires `resource in Class::\"…\"`, \
             `connect`, `read_resource` and `get_prompt` require `resource == Source::\"…\"`"
        )
    }

    fn unknown_entity_type(&self) -> Option<String> {
        let name = self.quoted_last()?;
        let advice = self.help.map(|help| format!("{help} ")).unwrap_or_default();
        Some(format!(
            "{advice}A row type is declared in a `.cedarschema`: `entity {name} {{ column?: String }};`"
        ))
    }

    /// Suggests a fix for `principal in "Doctor"` in a condition, or for `principal.subject in ["a", "b"]`.
    fn text_as_entity(&self) -> Option<String> {
        let found = self.snippet()?;
        let (_, after) = self.around()?;
        if let Some(list) = after.trim_start().strip_prefix("in").map(str::trim_start) {
            let end = list.find(']')?;
            return Some(format!("write `{}.contains({found})`", list.get(..=end)?));
        }
        let (variable, operator) = self.before()?;
        found
            .starts_with('"')
            .then(|| with_entity(variable, operator, found.trim_matches('"')))
    }

    /// Suggests a fix for `resource.owner == principal`, `resource == "tool"`, or the comparison of an argument's tag
    /// with a number.
    fn different_types(&self) -> Option<String> {
        let comparison = self.snippet()?;
        let (left, right) = comparison.split_once("==")?;
        let (left, right) = (left.trim(), right.trim());
        for (one, other) in [(left, right), (right, left)] {
            if one == "principal" && !other.starts_with('"') {
                return Some(format!(
                    "rows and arguments contain the caller's subject: write `{other} == principal.subject`"
                ));
            }
            if one.contains(".getTag(") && other.bytes().all(|byte| byte.is_ascii_digit()) {
                return Some(format!("a tag is a string: write `{one} == \"{other}\"`"));
            }
            if ["principal", "resource"].contains(&one) && other.starts_with('"') {
                return Some(with_entity(one, "==", other.trim_matches('"')));
            }
        }
        None
    }

    fn unguarded_attribute(&self) -> Option<String> {
        let (_, named) = self.problem.split_once("optional attribute `")?;
        let attribute = named.split('`').next()?.rsplit('.').next()?;
        // If a method of the attribute is called, the part that Cedar points at extends beyond the attribute.
        let (holder, _) = self.snippet()?.rsplit_once(&format!(".{attribute}"))?;
        Some(format!(
            "it may be absent; write `{holder} has {attribute} && {holder}.{attribute} …`"
        ))
    }

    fn unguarded_tag(&self) -> Option<String> {
        let access = self.snippet()?;
        let (holder, tag) = access.split_once(".getTag(")?;
        Some(format!(
            "it may be absent; write `{holder}.hasTag({tag} && {access} …`"
        ))
    }

    fn unknown_attribute(&self) -> Option<String> {
        let (_, named) = self.problem.split_once("attribute `")?;
        let (name, holder) = named.split_once('`')?;
        let advice = self.help.map(|help| format!("{help} ")).unwrap_or_default();
        let entity = holder.split('`').nth(1);
        match (entity?, name) {
            ("Arguments", _) => Some(format!(
                "write `context.arguments.hasTag(\"{name}\") && context.arguments.getTag(\"{name}\") == \"…\"`, or \
                 declare its type in a `.cedarschema`: `entity Arguments {{ {name}?: Long }};`"
            )),
            ("User", "role" | "roles" | "group" | "groups") => Some(
                "roles are the parents of a caller: write `principal in Role::\"…\"`".to_owned(),
            ),
            ("User", "id" | "name" | "sub") => Some("write `principal.subject`".to_owned()),
            ("Tool" | "Source" | "Class", "id" | "name") => {
                Some(format!("write `resource == {}::\"…\"`", entity?))
            }
            ("Tool" | "Source", "tag" | "tags") => {
                Some("write `resource in Tag::\"…\"`".to_owned())
            }
            ("Tool" | "Source" | "Class" | "Role" | "Tag" | "Audit" | "Conversation", _) => None,
            (entity, _) => Some(format!(
                "{advice}Additional attributes are declared in a `.cedarschema`: `entity {entity} {{ {name}?: String }};`"
            )),
        }
    }

    /// Returns the part of the text that Cedar points at.
    fn snippet(&self) -> Option<&'a str> {
        let (offset, length) = self.span?;
        self.text
            .get(offset..offset.checked_add(length)?)
            .map(str::trim)
    }

    /// Returns the text before and after the part that Cedar points at.
    fn around(&self) -> Option<(&'a str, &'a str)> {
        let (offset, length) = self.span?;
        let after = self.text.get(offset.checked_add(length)?..)?;
        Some((self.text.get(..offset)?, after))
    }

    /// Returns the variable and the operator before the part that Cedar points at.
    fn before(&self) -> Option<(&'a str, &'a str)> {
        let mut words = self.around()?.0.split_whitespace().rev();
        let operator = words.next()?;
        let variable = words.next()?;
        let variable =
            variable.rsplit(|character: char| !character.is_alphanumeric() && character != '_');
        Some((variable.into_iter().next()?, operator))
    }

    /// Returns the last name in backquotes in Cedar's message.
    fn quoted_last(&self) -> Option<&'a str> {
        self.problem.rsplit('`').nth(1)
    }
}

/// Suggests to compare the variable with an entity of the type that is usual for it.
fn with_entity(variable: &str, operator: &str, id: &str) -> String {
    match (variable, operator) {
        ("principal", "in") => format!("write `principal in Role::\"{id}\"`"),
        ("principal", _) => format!("write `principal == User::\"{id}\"`"),
        (_, "in") => format!(
            "specify the type: `{variable} in Tag::\"{id}\"`, or `{variable} in Class::\"{id}\"`"
        ),
        _ => format!(
            "specify the type: `{variable} == Tool::\"{id}\"`, or `{variable} == Source::\"{id}\"`"
        ),
    }
}
