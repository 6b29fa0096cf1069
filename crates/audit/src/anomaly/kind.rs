//! Kinds of anomalies.

/// A kind of anomaly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum AnomalyKind {
    /// Many refusals by policy, or of tokens.
    DenialBurst,
    /// Rows of many data subjects.
    ManyDataSubjects,
    /// A call that a watched policy allowed.
    WatchedPolicy,
    /// The same outside the usual hours.
    WatchedPolicyAtOddHours,
}

impl AnomalyKind {
    pub(crate) const ALL: [Self; 4] = [
        Self::DenialBurst,
        Self::ManyDataSubjects,
        Self::WatchedPolicy,
        Self::WatchedPolicyAtOddHours,
    ];

    /// As records and metrics spell it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::DenialBurst => "denial_burst",
            Self::ManyDataSubjects => "many_data_subjects",
            Self::WatchedPolicy => "watched_policy",
            Self::WatchedPolicyAtOddHours => "watched_policy_at_odd_hours",
        }
    }
}
