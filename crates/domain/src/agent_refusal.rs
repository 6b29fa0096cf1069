//! Calls that an agent refuses itself, so that the gateway does not run anything.

use std::str::FromStr;

use crate::{Reason, Status};

/// The reason for which an agent does not make a call that its model asked for. The set is closed, so that an agent
/// cannot write free text into the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgentRefusal {
    /// The tool was not offered to the model, because the caller may not use it or because the assistant is not made
    /// for it.
    NotAvailable,
    /// The call was found in data that a tool returned.
    InData,
    /// The call cannot be parsed.
    Unreadable,
    /// The arguments do not match the input schema of the tool.
    Arguments,
    /// The model already made the same call in this turn.
    Repeated,
    /// The person who was asked for approval refused the call.
    Declined,
    /// The approval was given for other arguments.
    ApprovalChanged,
}

impl AgentRefusal {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::NotAvailable,
        Self::InData,
        Self::Unreadable,
        Self::Arguments,
        Self::Repeated,
        Self::Declined,
        Self::ApprovalChanged,
    ];

    /// The member of `_meta` in a `tools/call` request in which an agent states the reason.
    pub const META: &str = "dev.wardgate/refusedByAgent";

    /// Returns the name of the reason in messages, records and metrics.
    pub fn as_str(self) -> &'static str {
        self.reason().as_str()
    }

    /// Returns the reason that the record states.
    pub fn reason(self) -> Reason {
        match self {
            Self::NotAvailable => Reason::NOT_AVAILABLE,
            Self::InData => Reason::IN_DATA,
            Self::Unreadable => Reason::UNREADABLE,
            Self::Arguments => Reason::ARGUMENTS,
            Self::Repeated => Reason::REPEATED,
            Self::Declined => Reason::DECLINED,
            Self::ApprovalChanged => Reason::APPROVAL_CHANGED,
        }
    }

    /// Returns the status with which the record says that the call ended.
    pub fn status(self) -> Status {
        match self {
            Self::Unreadable | Self::Arguments => Status::InvalidArguments,
            Self::NotAvailable
            | Self::InData
            | Self::Repeated
            | Self::Declined
            | Self::ApprovalChanged => Status::Denied,
        }
    }
}

impl FromStr for AgentRefusal {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let mut reasons = Self::ALL.into_iter();
        reasons
            .find(|reason| reason.as_str() == name)
            .ok_or("is not a reason for which an agent refuses a call")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_reads_back_and_free_text_does_not() {
        for reason in AgentRefusal::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
        assert!("patient NUGWI".parse::<AgentRefusal>().is_err());
    }
}
