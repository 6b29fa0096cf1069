//! Switches, which enable or disable tools at run time for everyone, a role or one user.
//!
//! ```text
//!   within one scope:   tool      overrides  toolset  overrides  upstream    several toolsets: disabled wins
//!   for one caller:     the user  overrides  roles    overrides  everyone    several roles: disabled wins; no switch: enabled
//! ```

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use crate::{Caller, Timestamp};

/// The kind of target of a switch, least specific first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SwitchKind {
    /// All tools of one source.
    Upstream,
    /// All tools of one toolset.
    Toolset,
    /// One tool.
    Tool,
}

impl SwitchKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Upstream, Self::Toolset, Self::Tool];

    /// Returns the name of the kind in records and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Toolset => "toolset",
            Self::Tool => "tool",
        }
    }
}

/// The target of a switch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwitchTarget {
    /// The kind of target.
    pub kind: SwitchKind,
    /// The name of the target; for a tool, its canonical name.
    pub name: String,
}

/// The callers that a switch concerns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SwitchScope {
    /// Every caller.
    Everyone,
    /// Callers with this role.
    Role(String),
    /// One caller.
    User {
        /// The token subject.
        subject: String,
        /// The token issuer, or `None` for any issuer.
        issuer: Option<String>,
    },
}

impl fmt::Display for SwitchScope {
    /// Formats the scope as it appears in records and tables.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everyone => f.write_str("everyone"),
            Self::Role(role) => write!(f, "role:{role}"),
            Self::User {
                subject,
                issuer: None,
            } => write!(f, "user:{subject}"),
            Self::User {
                subject,
                issuer: Some(issuer),
            } => write!(f, "user:{subject} of {issuer}"),
        }
    }
}

/// The current state of one switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// The target of the switch.
    pub target: SwitchTarget,
    /// The callers that the switch concerns.
    pub scope: SwitchScope,
    /// Whether the target is enabled.
    pub enabled: bool,
    /// The operator who set the switch.
    pub set_by: String,
    /// The time at which the switch was set.
    pub set_at: Timestamp,
}

/// A change to make to a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchAction {
    /// Enables the target, whatever less specific switches say.
    Enable,
    /// Disables the target, whatever less specific switches say.
    Disable,
    /// Removes the switch, so that less specific switches apply.
    Reset,
}

impl SwitchAction {
    /// Returns the name of the action in records and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enable => "enable",
            Self::Disable => "disable",
            Self::Reset => "reset",
        }
    }
}

/// A change of one switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchChange {
    /// The target of the switch.
    pub target: SwitchTarget,
    /// The callers that the switch concerns.
    pub scope: SwitchScope,
    /// The change to make.
    pub action: SwitchAction,
}

/// The effective switches of one tool, one for each scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolSwitches(BTreeMap<SwitchScope, bool>);

impl ToolSwitches {
    /// Combines all switches of a tool, its toolsets and its upstream.
    pub fn from_switches<'a>(switches: impl IntoIterator<Item = &'a Switch>) -> Self {
        let mut scopes = BTreeMap::<SwitchScope, (SwitchKind, bool)>::new();
        for switch in switches {
            let new = (switch.target.kind, switch.enabled);
            scopes
                .entry(switch.scope.clone())
                .and_modify(|held| match new.0.cmp(&held.0) {
                    Ordering::Greater => *held = new,
                    Ordering::Equal => held.1 &= new.1,
                    Ordering::Less => {}
                })
                .or_insert(new);
        }
        scopes
            .into_iter()
            .map(|(scope, (_, enabled))| (scope, enabled))
            .collect()
    }

    /// Returns whether the tool is enabled for `caller`.
    pub fn allow(&self, caller: &Caller) -> bool {
        // Fast path: usually there is no switch at all.
        if self.0.is_empty() {
            return true;
        }
        let user = |issuer: Option<&str>| {
            let scope = SwitchScope::User {
                subject: caller.subject().to_owned(),
                issuer: issuer.map(str::to_owned),
            };
            self.0.get(&scope).copied()
        };
        let roles = || {
            caller
                .roles()
                .iter()
                .filter_map(|role| self.0.get(&SwitchScope::Role(role.clone())).copied())
                .reduce(|one, other| one && other)
        };
        user(Some(caller.issuer()))
            .or_else(|| user(None))
            .or_else(roles)
            .or_else(|| self.0.get(&SwitchScope::Everyone).copied())
            .unwrap_or(true)
    }

    /// Returns the scopes, and for each whether the tool is enabled.
    pub fn iter(&self) -> impl Iterator<Item = (&SwitchScope, bool)> {
        self.0.iter().map(|(scope, enabled)| (scope, *enabled))
    }
}

impl FromIterator<(SwitchScope, bool)> for ToolSwitches {
    fn from_iter<I: IntoIterator<Item = (SwitchScope, bool)>>(scopes: I) -> Self {
        Self(scopes.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CallerClaims;

    const ISSUER: &str = "https://issuer.example";

    fn caller(roles: &[&str]) -> Caller {
        Caller::from_verified(CallerClaims {
            issuer: ISSUER.to_owned(),
            subject: "nurse.joy".to_owned(),
            tenant: String::new(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            attributes: BTreeMap::new(),
            token_id: "t".to_owned(),
            expires_at: Timestamp::from_seconds(0),
        })
    }

    fn role(role: &str) -> SwitchScope {
        SwitchScope::Role(role.to_owned())
    }

    fn user(issuer: Option<&str>) -> SwitchScope {
        SwitchScope::User {
            subject: "nurse.joy".to_owned(),
            issuer: issuer.map(str::to_owned),
        }
    }

    fn switches(list: &[(SwitchKind, &str, SwitchScope, bool)]) -> ToolSwitches {
        let switches: Vec<_> = list
            .iter()
            .map(|(kind, name, scope, enabled)| Switch {
                target: SwitchTarget {
                    kind: *kind,
                    name: (*name).to_owned(),
                },
                scope: scope.clone(),
                enabled: *enabled,
                set_by: "operator".to_owned(),
                set_at: Timestamp::from_seconds(0),
            })
            .collect();
        ToolSwitches::from_switches(&switches)
    }

    #[test]
    fn a_tool_without_a_switch_is_on() {
        assert!(ToolSwitches::default().allow(&caller(&["Nurse"])));
    }

    #[test]
    fn the_user_wins_over_roles_and_roles_win_over_everyone() {
        use SwitchKind::Tool;
        let off_for_everyone = (Tool, "t", SwitchScope::Everyone, false);
        let on_for_nurses = (Tool, "t", role("Nurse"), true);
        let off_for_joy = (Tool, "t", user(None), false);
        let on_for_joy_of_issuer = (Tool, "t", user(Some(ISSUER)), true);
        let mut list = vec![off_for_everyone];
        for (next, allowed) in [
            (on_for_nurses, true),
            (off_for_joy, false),
            (on_for_joy_of_issuer, true),
        ] {
            assert_eq!(switches(&list).allow(&caller(&["Nurse"])), !allowed);
            list.push(next);
            assert_eq!(switches(&list).allow(&caller(&["Nurse"])), allowed);
        }
        let stranger = switches(&[(Tool, "t", user(Some("https://other.example")), false)]);
        assert!(stranger.allow(&caller(&["Nurse"])));
    }

    #[test]
    fn of_several_roles_a_disable_wins() {
        use SwitchKind::{Tool, Upstream};
        let both = switches(&[
            (Tool, "t", role("Nurse"), true),
            (Upstream, "u", role("Temp"), false),
        ]);
        assert!(both.allow(&caller(&["Nurse"])));
        assert!(!both.allow(&caller(&["Nurse", "Temp"])));
    }

    #[test]
    fn the_tool_wins_over_its_toolsets_and_those_over_the_upstream() {
        use SwitchKind::{Tool, Toolset, Upstream};
        let everyone = SwitchScope::Everyone;
        let mut list = vec![(Upstream, "u", everyone.clone(), false)];
        assert!(!switches(&list).allow(&caller(&[])));
        list.push((Toolset, "a", everyone.clone(), true));
        assert!(switches(&list).allow(&caller(&[])));
        list.push((Toolset, "b", everyone.clone(), false));
        assert!(!switches(&list).allow(&caller(&[])), "off wins");
        list.insert(0, (Tool, "t", everyone, true));
        assert!(switches(&list).allow(&caller(&[])));
    }
}
