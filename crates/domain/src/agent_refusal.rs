//! Calls that an agent refuses itself, before it asks the gateway to run anything.

use std::str::FromStr;

use crate::{Reason, Status};

/// Why an agent does not make a call that its model asked for. The set is closed: an agent cannot write words of its own
/// into the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgentRefusal {
    /// The tool was not offered to the model: its caller may not use it, or the assistant is not made for it.
    NotAvailable,
    /// The call stands in data that a tool gave.
    InData,
    /// The call cannot be read.
    Unreadable,
    /// The arguments do not fit the tool's input schema.
    Arguments,
    /// The same call was made in this turn already.
    Repeated,
    /// The person who was asked for approval refused it.
    Declined,
    /// The approval is of other arguments.
    ApprovalChanged,
}

impl AgentRefusal {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::NotAvailable,
        Self::InData,
        Self::Unreadable,
        Self::Arguments,
        Self::Repeated,
        Self::Declined,
        Self::ApprovalChanged,
    ];

    /// The member of `_meta` of a `tools/call` in which an agent states the reason.
    pub const META: &str = "dev.wardgate/refusedByAgent";

    /// The reason as messages, records and metrics spell it.
    pub fn as_str(self) -> &'static str {
        self.reason().as_str()
    }

    /// The reason on record.
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

    /// How the record says that the call ended.
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
            .ok_or("is no reason for which an agent refuses a call")
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
