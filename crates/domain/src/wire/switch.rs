//! Conversions of switches and their changes.

use wardgate_proto::toolrunner;

use super::require_field;
use crate::{
    InvalidMessage, Switch, SwitchAction, SwitchChange, SwitchKind, SwitchScope, SwitchTarget,
    ToolSwitches,
};

/// Maximum length of a name, role, subject or issuer, in bytes.
const MAX_TEXT: usize = 512;

fn text(text: String, field: &'static str) -> Result<String, InvalidMessage> {
    if text.is_empty() || text.len() > MAX_TEXT || text.contains(char::is_control) {
        let problem = format!("is not 1 to {MAX_TEXT} bytes without control characters");
        return Err(InvalidMessage::field(field, problem));
    }
    Ok(text)
}

impl TryFrom<toolrunner::v1::SwitchTarget> for SwitchTarget {
    type Error = InvalidMessage;

    fn try_from(target: toolrunner::v1::SwitchTarget) -> Result<Self, Self::Error> {
        use toolrunner::v1::SwitchKind as Wire;
        let kind = match target.kind() {
            Wire::Unspecified => {
                return Err(InvalidMessage::field("target.kind", "is unspecified"));
            }
            Wire::Upstream => SwitchKind::Upstream,
            Wire::Toolset => SwitchKind::Toolset,
            Wire::Tool => SwitchKind::Tool,
        };
        Ok(Self {
            kind,
            name: text(target.name, "target.name")?,
        })
    }
}

impl From<&SwitchTarget> for toolrunner::v1::SwitchTarget {
    fn from(target: &SwitchTarget) -> Self {
        use toolrunner::v1::SwitchKind as Wire;
        let kind = match target.kind {
            SwitchKind::Upstream => Wire::Upstream,
            SwitchKind::Toolset => Wire::Toolset,
            SwitchKind::Tool => Wire::Tool,
        };
        Self {
            kind: kind.into(),
            name: target.name.clone(),
        }
    }
}

impl TryFrom<toolrunner::v1::SwitchScope> for SwitchScope {
    type Error = InvalidMessage;

    fn try_from(scope: toolrunner::v1::SwitchScope) -> Result<Self, Self::Error> {
        use toolrunner::v1::switch_scope::Scope as Wire;
        Ok(match require_field(scope.scope, "scope")? {
            Wire::Everyone(_) => Self::Everyone,
            Wire::Role(role) => Self::Role(text(role, "scope.role")?),
            Wire::User(user) => Self::User {
                subject: text(user.subject, "scope.user.subject")?,
                issuer: (!user.issuer.is_empty())
                    .then(|| text(user.issuer, "scope.user.issuer"))
                    .transpose()?,
            },
        })
    }
}

impl From<&SwitchScope> for toolrunner::v1::SwitchScope {
    fn from(scope: &SwitchScope) -> Self {
        use toolrunner::v1::switch_scope::{Everyone, Scope as Wire, User};
        let scope = match scope {
            SwitchScope::Everyone => Wire::Everyone(Everyone {}),
            SwitchScope::Role(role) => Wire::Role(role.clone()),
            SwitchScope::User { subject, issuer } => Wire::User(User {
                subject: subject.clone(),
                issuer: issuer.clone().unwrap_or_default(),
            }),
        };
        Self { scope: Some(scope) }
    }
}

impl TryFrom<toolrunner::v1::SetSwitchRequest> for SwitchChange {
    type Error = InvalidMessage;

    fn try_from(request: toolrunner::v1::SetSwitchRequest) -> Result<Self, Self::Error> {
        use toolrunner::v1::SwitchAction as Wire;
        let action = match request.action() {
            Wire::Unspecified => return Err(InvalidMessage::field("action", "is unspecified")),
            Wire::Enable => SwitchAction::Enable,
            Wire::Disable => SwitchAction::Disable,
            Wire::Reset => SwitchAction::Reset,
        };
        Ok(Self {
            target: require_field(request.target, "target")?.try_into()?,
            scope: require_field(request.scope, "scope")?.try_into()?,
            action,
        })
    }
}

impl From<&SwitchChange> for toolrunner::v1::SetSwitchRequest {
    fn from(change: &SwitchChange) -> Self {
        use toolrunner::v1::SwitchAction as Wire;
        let action = match change.action {
            SwitchAction::Enable => Wire::Enable,
            SwitchAction::Disable => Wire::Disable,
            SwitchAction::Reset => Wire::Reset,
        };
        Self {
            target: Some((&change.target).into()),
            scope: Some((&change.scope).into()),
            action: action.into(),
            caller_token: String::new(),
        }
    }
}

impl TryFrom<toolrunner::v1::Switch> for Switch {
    type Error = InvalidMessage;

    fn try_from(switch: toolrunner::v1::Switch) -> Result<Self, Self::Error> {
        Ok(Self {
            target: require_field(switch.target, "target")?.try_into()?,
            scope: require_field(switch.scope, "scope")?.try_into()?,
            enabled: switch.enabled,
            set_by: switch.set_by,
            set_at: require_field(switch.set_at, "set_at")?.try_into()?,
        })
    }
}

impl From<&Switch> for toolrunner::v1::Switch {
    fn from(switch: &Switch) -> Self {
        Self {
            target: Some((&switch.target).into()),
            scope: Some((&switch.scope).into()),
            enabled: switch.enabled,
            set_by: switch.set_by.clone(),
            set_at: Some(switch.set_at.into()),
        }
    }
}

impl TryFrom<Vec<toolrunner::v1::ToolSwitch>> for ToolSwitches {
    type Error = InvalidMessage;

    fn try_from(switches: Vec<toolrunner::v1::ToolSwitch>) -> Result<Self, Self::Error> {
        switches
            .into_iter()
            .map(|switch| {
                let scope = require_field(switch.scope, "switches.scope")?.try_into()?;
                Ok((scope, switch.enabled))
            })
            .collect()
    }
}

impl From<&ToolSwitches> for Vec<toolrunner::v1::ToolSwitch> {
    fn from(switches: &ToolSwitches) -> Self {
        switches
            .iter()
            .map(|(scope, enabled)| toolrunner::v1::ToolSwitch {
                scope: Some(scope.into()),
                enabled,
            })
            .collect()
    }
}
