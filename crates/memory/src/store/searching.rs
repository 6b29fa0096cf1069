//! Search for messages by their words.
//!
//! The index holds digests of words under a key of their owner, so a search reads only messages of that owner.

use wardgate_domain::ConversationId;

use super::reading::{ConversationExcerpt, read_excerpt};
use super::row::{
    ConversationRow, MessageRow, UnlockedConversation, conversation, message, owner_digest,
};
use super::{MemoryStore, StoredMessage, within};
use crate::Error;
use crate::owner::Owner;
use wardgate_store::{Statement, Value};

/// Maximum size of the texts of one response, in bytes.
const MAX_ANSWER: i64 = 8 << 20;

macro_rules! hits {
    ($from:literal, $newest_first:literal) => {
        concat!(
            $from,
            " WHERE c.owner = $2 AND ($3 = '' OR c.id = $3) AND m.state = 1
                AND m.position > c.cleared_to
            ORDER BY ",
            $newest_first,
            " LIMIT $4"
        )
    };
}

pub(super) const HITS: Statement = Statement::Each {
    sqlite: hits!(
        "SELECT m.number, m.size FROM message_words
         CROSS JOIN message m ON m.number = message_words.rowid AND message_words MATCH $1
         CROSS JOIN conversation c ON c.number = m.conversation",
        "message_words.rowid DESC"
    ),
    // Materialized, so that the planner uses the index of words instead of scanning everyone's messages backwards.
    postgres: hits!(
        "WITH found AS MATERIALIZED (
            SELECT message FROM memory.message_words WHERE words @@ CAST($1 AS tsquery))
         SELECT m.number, m.size FROM found f
         JOIN memory.message m ON m.number = f.message
         JOIN memory.conversation c ON c.number = m.conversation",
        "m.number DESC"
    ),
};

const CONVERSATION_OF: &str = concat!(
    conversation!(),
    "JOIN memory.message m ON m.conversation = c.number WHERE m.number = $1"
);

const MESSAGE: &str = concat!(message!(), "WHERE m.number = $1");

impl MemoryStore {
    /// Returns the newest complete messages of the owner that contain every one of the blinded words of one of the
    /// `alternatives`, as one excerpt for each conversation.
    pub(crate) async fn search(
        &self,
        owner: &Owner,
        alternatives: &[Vec<String>],
        within_id: Option<&ConversationId>,
        limit: u32,
    ) -> Result<Vec<ConversationExcerpt>, Error> {
        let expression = search_expression(alternatives, self.is_a_file());
        within(async {
            let mut transaction = self.database.begin_read().await?;
            let bounds = [
                expression.into(),
                owner_digest(owner).into(),
                within_id.map_or("", ConversationId::as_str).into(),
                Value::Integer(i64::from(limit)),
            ];
            let found: Vec<(i64, i64)> = transaction.rows(HITS, bounds).await?;
            let mut hits: Vec<(ConversationRow, UnlockedConversation, Vec<StoredMessage>)> =
                Vec::new();
            let mut bytes = 0;
            for (number, size) in found {
                bytes += size;
                if bytes > MAX_ANSWER {
                    break;
                }
                let of = || [number.into()];
                let row: Option<ConversationRow> = transaction.row(CONVERSATION_OF, of()).await?;
                let message: Option<MessageRow> = transaction.row(MESSAGE, of()).await?;
                let (row, message) = row.zip(message).ok_or(Error::Damaged("message"))?;
                let same = |(known, ..): &(ConversationRow, _, _)| known.number == row.number;
                if let Some((_, unlocked, messages)) = hits.iter_mut().find(|hit| same(hit)) {
                    messages.push(unlocked.open(message)?);
                } else {
                    let unlocked = row.unlock(self)?;
                    let messages = vec![unlocked.open(message)?];
                    hits.push((row, unlocked, messages));
                }
            }
            let mut readings = Vec::with_capacity(hits.len());
            for (row, unlocked, messages) in hits {
                readings.push(read_excerpt(&mut transaction, &row, &unlocked, messages).await?);
            }
            transaction.commit().await?;
            Ok(readings)
        })
        .await
    }

    /// Returns the index terms for the words of `text`, for that owner: one list for each master key, since a message may be
    /// under any of them.
    pub(crate) fn words(&self, owner: &Owner, text: &str) -> Vec<Vec<String>> {
        let keys = self.keys.all_keys().map(|master| master.word_key(owner));
        keys.map(|key| crate::words::blind(text, &key).into_iter().collect())
            .collect()
    }
}

/// Returns an expression that finds the messages that contain all words of one alternative.
fn search_expression(alternatives: &[Vec<String>], is_sqlite: bool) -> String {
    let (quote, and, or) = if is_sqlite {
        ('"', " AND ", " OR ")
    } else {
        ('\'', " & ", " | ")
    };
    let all_of = |words: &Vec<String>| {
        let quoted = words.iter().map(|word| format!("{quote}{word}{quote}"));
        quoted.collect::<Vec<_>>().join(and)
    };
    if let [words] = alternatives {
        return all_of(words);
    }
    let each = alternatives
        .iter()
        .map(|words| format!("({})", all_of(words)));
    each.collect::<Vec<_>>().join(or)
}
