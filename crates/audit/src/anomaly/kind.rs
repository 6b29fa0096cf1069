//! The kinds of anomalies.

/// A kind of anomaly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum AnomalyKind {
    /// One origin had many requests refused by policy, or sent many invalid tokens.
    DenialBurst,
    /// One caller received rows of many data subjects.
    ManyDataSubjects,
    /// A watched policy allowed a call.
    WatchedPolicy,
    /// A watched policy allowed a call outside the usual hours.
    WatchedPolicyAtOddHours,
}

impl AnomalyKind {
    pub(crate) const ALL: [Self; 4] = [
        Self::DenialBurst,
        Self::ManyDataSubjects,
        Self::WatchedPolicy,
        Self::WatchedPolicyAtOddHours,
    ];

    /// Returns the name of the kind in records and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::DenialBurst => "denial_burst",
            Self::ManyDataSubjects => "many_data_subjects",
            Self::WatchedPolicy => "watched_policy",
            Self::WatchedPolicyAtOddHours => "watched_policy_at_odd_hours",
        }
    }
}
