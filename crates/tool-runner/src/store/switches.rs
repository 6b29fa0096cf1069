//! The switches in the store.

use wardgate_domain::{
    Switch, SwitchAction, SwitchChange, SwitchKind, SwitchScope, SwitchTarget, Timestamp,
};

use super::{StoreError, ToolRunnerStore, within};
use wardgate_store::Value;

/// Maximum number of switches, so that every replica can hold all of them in memory.
const MAX_SWITCHES: i64 = 10_000;

const VERSION: &str = "SELECT version FROM tool_runner.switch_version";

const ALL: &str = "
    SELECT target_kind, target, scope_kind, scope, issuer, enabled, set_by, set_at
    FROM tool_runner.switch ORDER BY target_kind, target, scope_kind, scope, issuer";

const COUNT: &str = "SELECT count(*) FROM tool_runner.switch";

/// The first statement of a change, so that concurrent changes wait for each other.
const NEXT_VERSION: &str = "UPDATE tool_runner.switch_version SET version = version + 1";

const SET: &str = "
    INSERT INTO tool_runner.switch
        (target_kind, target, scope_kind, scope, issuer, enabled, set_by, set_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (target_kind, target, scope_kind, scope, issuer)
    DO UPDATE SET enabled = excluded.enabled, set_by = excluded.set_by, set_at = excluded.set_at";

const RESET: &str = "
    DELETE FROM tool_runner.switch
    WHERE target_kind = $1 AND target = $2 AND scope_kind = $3 AND scope = $4 AND issuer = $5";

type SwitchRow = (String, String, String, String, String, i64, String, i64);

impl ToolRunnerStore {
    /// Returns the version of the switches, which changes whenever a switch changes.
    pub(crate) async fn switches_version(&self) -> Result<i64, StoreError> {
        let versions: Vec<(i64,)> = within(self.database.rows(VERSION, [])).await?;
        Ok(versions.first().map_or(0, |(version,)| *version))
    }

    /// Returns every switch, in a fixed order.
    pub(crate) async fn switches(&self) -> Result<Vec<Switch>, StoreError> {
        let rows: Vec<SwitchRow> = within(self.database.rows(ALL, [])).await?;
        Ok(rows.into_iter().filter_map(switch).collect())
    }

    /// Changes a switch atomically.
    pub(crate) async fn set_switch(
        &self,
        change: &SwitchChange,
        by: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        within(async {
            let mut transaction = self.database.begin().await?;
            transaction.execute(NEXT_VERSION, []).await?;
            let [kind, target, scope_kind, scope, issuer] = key(change);
            if change.action == SwitchAction::Reset {
                let key = [kind, target, scope_kind, scope, issuer];
                transaction.execute(RESET, key).await?;
            } else {
                let enabled = i64::from(change.action == SwitchAction::Enable).into();
                let by = by.into();
                let at = now.as_micros().into();
                let row = [kind, target, scope_kind, scope, issuer, enabled, by, at];
                transaction.execute(SET, row).await?;
                let counts: Vec<(i64,)> = transaction.rows(COUNT, []).await?;
                if counts.first().is_some_and(|(count,)| *count > MAX_SWITCHES) {
                    return Err(StoreError::TooManySwitches(MAX_SWITCHES));
                }
            }
            Ok(transaction.commit().await?)
        })
        .await
    }
}

fn key(change: &SwitchChange) -> [Value; 5] {
    let (scope_kind, scope, issuer) = match &change.scope {
        SwitchScope::Everyone => ("everyone", "", ""),
        SwitchScope::Role(role) => ("role", role.as_str(), ""),
        SwitchScope::User { subject, issuer } => {
            let issuer = issuer.as_deref().unwrap_or_default();
            ("user", subject.as_str(), issuer)
        }
    };
    [
        change.target.kind.as_str().into(),
        change.target.name.as_str().into(),
        scope_kind.into(),
        scope.into(),
        issuer.into(),
    ]
}

/// Converts a row. Returns `None` for a kind that only a newer program writes; such a program also raises the version
/// of the schema.
fn switch(
    (kind, name, scope_kind, scope, issuer, enabled, set_by, set_at): SwitchRow,
) -> Option<Switch> {
    let kind = SwitchKind::ALL
        .into_iter()
        .find(|known| known.as_str() == kind)?;
    let scope = match scope_kind.as_str() {
        "everyone" => SwitchScope::Everyone,
        "role" => SwitchScope::Role(scope),
        "user" => SwitchScope::User {
            subject: scope,
            issuer: (!issuer.is_empty()).then_some(issuer),
        },
        _ => return None,
    };
    Some(Switch {
        target: SwitchTarget { kind, name },
        scope,
        enabled: enabled != 0,
        set_by,
        set_at: Timestamp::from_micros(set_at),
    })
}
