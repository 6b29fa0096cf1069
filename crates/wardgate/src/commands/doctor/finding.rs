//! A finding: the result of one check.

use std::fmt;

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckStatus {
    Ok,
    /// It works now, but needs attention.
    Warn,
    /// It does not work.
    Fail,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) verdict: CheckStatus,
    /// The kind of check.
    check: &'static str,
    /// The object of the check.
    subject: String,
    /// The result in words.
    message: String,
    /// How to fix the problem, or `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// The check and the subject that findings are about.
#[derive(Debug, Clone)]
pub(super) struct FindingSubject {
    check: &'static str,
    subject: String,
}

impl FindingSubject {
    pub(super) fn new(check: &'static str, subject: impl Into<String>) -> Self {
        let subject = subject.into();
        Self { check, subject }
    }

    pub(super) fn ok(&self, message: impl Into<String>) -> Finding {
        self.finding(CheckStatus::Ok, message.into(), None)
    }

    pub(super) fn warn(&self, message: impl Into<String>, remedy: impl Into<String>) -> Finding {
        self.finding(CheckStatus::Warn, message.into(), Some(remedy.into()))
    }

    pub(super) fn fail(&self, message: impl Into<String>, remedy: impl Into<String>) -> Finding {
        self.finding(CheckStatus::Fail, message.into(), Some(remedy.into()))
    }

    fn finding(&self, verdict: CheckStatus, message: String, remedy: Option<String>) -> Finding {
        Finding {
            verdict,
            check: self.check,
            subject: self.subject.clone(),
            message,
            remedy,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            CheckStatus::Ok => "ok",
            CheckStatus::Warn => "warn",
            CheckStatus::Fail => "FAIL",
        };
        let Self {
            check,
            subject,
            message,
            ..
        } = self;
        write!(f, "{verdict:<5} {check:<13} {subject}: {message}")?;
        match &self.remedy {
            Some(remedy) => write!(f, "\n      {:<13} └ {remedy}", ""),
            None => Ok(()),
        }
    }
}
