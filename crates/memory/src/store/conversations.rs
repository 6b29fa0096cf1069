//! Conversations as a whole: creation, lookup and listing.

use wardgate_domain::{
    Conversation, ConversationId, ConversationKey, InvalidMessage, Skeleton, Timestamp,
};

use super::changes::{ChangeKind, log_change};
use super::row::{ConversationRow, conversation, held, owner_digest};
use super::{MemoryStore, to_u64, within};
use crate::Error;
use crate::owner::Owner;
use wardgate_store::{Transaction, Value};

pub(super) const OF_OWNER: &str = concat!(conversation!(), "WHERE c.owner = $1 AND c.id = $2");

/// The row lock makes concurrent additions to and erasures of a conversation wait for each other.
pub(super) const OF_OWNER_LOCKED: &str = concat!(
    conversation!(),
    "WHERE c.owner = $1 AND c.id = $2 FOR UPDATE"
);

pub(super) const BY_KEY: &str =
    concat!(conversation!(), "WHERE c.key = $1 AND c.erased_at IS NULL");

const OF_WHOM: &str = "SELECT tenant, issuer, subject FROM memory.conversation WHERE key = $1";

const MAKE: &str = "
    INSERT INTO memory.conversation
        (key, owner, tenant, issuer, subject, id, data_key, created_at, updated_at,
         positions, messages, cleared_to, emptied_to)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, 0, 0, 0, 0)
    ON CONFLICT (owner, id) DO NOTHING";

/// Counts the conversations of an owner, but at most `$2`, because only reaching the limit matters.
pub(super) const COUNT: &str = "
    SELECT count(*) FROM (
        SELECT 1 FROM memory.conversation c WHERE c.owner = $1 AND c.erased_at IS NULL LIMIT $2
    ) AS alive";

pub(super) const RECENT: &str = concat!(
    conversation!(),
    "WHERE c.owner = $1 AND c.erased_at IS NULL AND (c.updated_at, c.key) < ($2, $3)
     ORDER BY c.updated_at DESC, c.key DESC LIMIT $4"
);

macro_rules! skeletons {
    ($where:literal) => {
        concat!(
            "SELECT c.key, c.tenant, c.issuer, c.subject, c.created_at, c.updated_at, c.messages,
                c.erased_at, ",
            held!(),
            " AS held FROM memory.conversation c WHERE c.key < $1 AND ($2 = '' OR c.tenant = $2) ",
            $where,
            " ORDER BY c.key DESC LIMIT $3"
        )
    };
}

const SURVEY: &str = skeletons!("");
pub(super) const SURVEY_OF_SUBJECT: &str = skeletons!("AND c.subject = $4");

/// A text that sorts after every key.
const AFTER_ALL: &str = "~";

struct SkeletonRow {
    key: String,
    tenant: String,
    issuer: String,
    subject: String,
    created_at: i64,
    updated_at: i64,
    messages: i64,
    erased_at: Option<i64>,
    held: bool,
}

wardgate_store::from_row!(SkeletonRow {
    key,
    tenant,
    issuer,
    subject,
    created_at,
    updated_at,
    messages,
    erased_at,
    held,
});

impl MemoryStore {
    /// Returns the owner's conversation `id`, and whether it was created by this call. Creates it if it does not exist;
    /// without an id, creates a new conversation. Fails if there are `most` conversations already, but concurrent calls
    /// may exceed this limit.
    pub(crate) async fn get_or_create(
        &self,
        owner: &Owner,
        id: Option<&ConversationId>,
        most: u32,
        now: Timestamp,
    ) -> Result<(Conversation, bool), Error> {
        if let Some(id) = id
            && let Some(found) = self.find(owner, id).await?
        {
            return Ok((found, false));
        }
        let key = ConversationKey::new(&self.ambient);
        let text = key.to_string();
        let id = id.map_or(text.as_str(), ConversationId::as_str);
        let made_or_found = within(async {
            let mut transaction = self.database.write().await?;
            let master = self.key_in_force(&mut transaction).await?;
            let (_, wrapped) = master.new_data_key(key, &self.ambient)?;
            let row = [
                text.as_str().into(),
                owner_digest(owner).into(),
                owner.tenant.as_str().into(),
                owner.issuer.as_str().into(),
                owner.subject.as_str().into(),
                id.into(),
                wrapped.into(),
                now.as_micros().into(),
            ];
            let made = transaction.execute(MAKE, row).await? > 0;
            let found = fetch_owned_conversation(&mut transaction, owner, id).await?;
            if made {
                let enough = [
                    owner_digest(owner).into(),
                    Value::Integer(i64::from(most) + 1),
                ];
                let count: Option<(i64,)> = transaction.row(COUNT, enough).await?;
                if count.is_some_and(|(count,)| count > i64::from(most)) {
                    return Err(Error::TooManyConversations(most));
                }
                log_change(&mut transaction, found.number, ChangeKind::List).await?;
            }
            transaction.commit().await?;
            Ok((found.to_conversation()?, made))
        });
        let (conversation, made) = made_or_found.await?;
        if made {
            self.change_signal.notify_one();
        }
        Ok((conversation, made))
    }

    /// Returns the owner's conversation `id`, or `None` if it does not exist.
    pub(crate) async fn find(
        &self,
        owner: &Owner,
        id: &ConversationId,
    ) -> Result<Option<Conversation>, Error> {
        within(async {
            let mut transaction = self.database.begin_read().await?;
            let found = fetch_owned_conversation(&mut transaction, owner, id.as_str()).await;
            transaction.commit().await?;
            match found {
                Ok(row) => Ok(Some(row.to_conversation()?)),
                Err(Error::UnknownConversation) => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// Returns the conversation with this key, whoever owns it, and its owner.
    pub(crate) async fn find_by_key(
        &self,
        key: ConversationKey,
    ) -> Result<Option<(Conversation, Owner)>, Error> {
        within(async {
            let mut transaction = self.database.begin_read().await?;
            let text = key.to_string();
            let row: Option<ConversationRow> =
                transaction.row(BY_KEY, [text.as_str().into()]).await?;
            let owner: Option<(String, String, String)> =
                transaction.row(OF_WHOM, [text.into()]).await?;
            transaction.commit().await?;
            let Some((row, (tenant, issuer, subject))) = row.zip(owner) else {
                return Ok(None);
            };
            let owner = Owner {
                tenant,
                issuer,
                subject,
            };
            Ok(Some((row.to_conversation()?, owner)))
        })
        .await
    }

    /// Returns a page of the owner's conversations, most recently changed first, and the token of the next page.
    pub(crate) async fn list(
        &self,
        owner: &Owner,
        limit: u32,
        page_token: &str,
    ) -> Result<(Vec<Conversation>, String), Error> {
        let (updated_at, key) = if page_token.is_empty() {
            (i64::MAX, AFTER_ALL.to_owned())
        } else {
            let parts = page_token.split_once('.');
            let parsed = parts.and_then(|(time, key)| {
                let key: ConversationKey = key.parse().ok()?;
                Some((time.parse::<i64>().ok()?, key.to_string()))
            });
            parsed.ok_or_else(invalid_token)?
        };
        within(async {
            let mut transaction = self.database.begin_read().await?;
            let bounds = [
                owner_digest(owner).into(),
                updated_at.into(),
                key.into(),
                Value::Integer(i64::from(limit)),
            ];
            let rows: Vec<ConversationRow> = transaction.rows(RECENT, bounds).await?;
            transaction.commit().await?;
            let conversations: Vec<_> = rows
                .iter()
                .map(ConversationRow::to_conversation)
                .collect::<Result<_, _>>()?;
            let last = conversations
                .last()
                .filter(|_| is_full(conversations.len(), limit));
            let token = last.map(|last| format!("{}.{}", last.updated_at.as_micros(), last.key));
            Ok((conversations, token.unwrap_or_default()))
        })
        .await
    }

    /// Returns a page of the skeletons of all owners' conversations, newest first, and the token of the next page. An
    /// empty tenant or subject matches all.
    pub(crate) async fn survey(
        &self,
        tenant: &str,
        subject: &str,
        limit: u32,
        page_token: &str,
    ) -> Result<(Vec<Skeleton>, String), Error> {
        let before = if page_token.is_empty() {
            AFTER_ALL.to_owned()
        } else {
            let key = page_token.parse::<ConversationKey>();
            key.map_err(|_| invalid_token())?.to_string()
        };
        within(async {
            let mut transaction = self.database.begin_read().await?;
            let limit_value = Value::Integer(i64::from(limit));
            let rows: Vec<SkeletonRow> = if subject.is_empty() {
                let bounds = [before.into(), tenant.into(), limit_value];
                transaction.rows(SURVEY, bounds).await?
            } else {
                let bounds = [before.into(), tenant.into(), limit_value, subject.into()];
                transaction.rows(SURVEY_OF_SUBJECT, bounds).await?
            };
            transaction.commit().await?;
            let skeletons: Vec<_> = rows
                .into_iter()
                .map(SkeletonRow::into_skeleton)
                .collect::<Result<_, _>>()?;
            let last = skeletons.last().filter(|_| is_full(skeletons.len(), limit));
            let token = last.map(|last| last.key.to_string());
            Ok((skeletons, token.unwrap_or_default()))
        })
        .await
    }
}

impl SkeletonRow {
    fn into_skeleton(self) -> Result<Skeleton, Error> {
        Ok(Skeleton {
            key: self
                .key
                .parse()
                .map_err(|_| Error::Damaged("conversation"))?,
            tenant: self.tenant,
            issuer: self.issuer,
            subject: self.subject,
            created_at: Timestamp::from_micros(self.created_at),
            updated_at: Timestamp::from_micros(self.updated_at),
            messages: to_u64(self.messages),
            held: self.held,
            erased_at: self.erased_at.map(Timestamp::from_micros),
        })
    }
}

/// Returns the owner's conversation `id`. Fails if it does not exist.
pub(super) async fn fetch_owned_conversation(
    transaction: &mut Transaction,
    owner: &Owner,
    id: &str,
) -> Result<ConversationRow, Error> {
    let key = [owner_digest(owner).into(), id.into()];
    let found = transaction.row(OF_OWNER, key).await?;
    found.ok_or(Error::UnknownConversation)
}

/// Like [`fetch_owned_conversation`], but locks the row until the transaction ends.
pub(super) async fn lock_owned_conversation(
    transaction: &mut Transaction,
    owner: &Owner,
    id: &str,
) -> Result<ConversationRow, Error> {
    let key = [owner_digest(owner).into(), id.into()];
    let found = transaction.row(OF_OWNER_LOCKED, key).await?;
    found.ok_or(Error::UnknownConversation)
}

fn is_full(found: usize, limit: u32) -> bool {
    u32::try_from(found).is_ok_and(|found| found >= limit)
}

fn invalid_token() -> Error {
    InvalidMessage::field("page_token", "was not issued by this service").into()
}
