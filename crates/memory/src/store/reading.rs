//! Reading of messages: as a window for a model, as a page, or as a turn.
//!
//! Which messages fit a window is decided by columns in clear. Only the messages of the window are decrypted.

use wardgate_domain::{Conversation, ConversationId, ConversationKey, Role, TurnId, TurnState};

use super::conversations::{BY_KEY, fetch_owned_conversation};
use super::row::{
    ConversationRow, GroundingRow, MessageRow, UnlockedConversation, ground, message, role_number,
    state,
};
use super::{GroundingResult, MemoryStore, StoredMessage, to_i64, to_u64, within};
use crate::Error;
use crate::owner::Owner;
use wardgate_store::{Transaction, Value};

/// Maximum size of the texts of one response, in bytes.
const MAX_ANSWER: i64 = 16 << 20;

/// Maximum number of messages before a window that are counted.
const MAX_UNCOVERED: i64 = 10_000;

/// Maximum number of kinds of tool results that are judged for one excerpt.
const MAX_GROUNDS: i64 = 200;

pub(super) const LAST: &str = "
    SELECT m.position, m.turn, m.role, m.characters, m.size FROM memory.message m
    WHERE m.conversation = $1 AND m.position > $2 AND m.state = 1 AND m.covers_to = 0
    ORDER BY m.position DESC LIMIT $3";

pub(super) const SAID: &str = concat!(
    message!(),
    "WHERE m.conversation = $1 AND m.position BETWEEN $2 AND $3 AND m.state = 1 AND m.covers_to = 0
     ORDER BY m.position"
);

pub(super) const SUMMARY: &str = concat!(
    message!(),
    "WHERE m.conversation = $1 AND m.position > $2 AND m.state = 1 AND m.covers_to > 0
     ORDER BY m.position DESC LIMIT 1"
);

pub(super) const UNCOVERED: &str = "
    SELECT count(*) FROM (
        SELECT 1 FROM memory.message m
        WHERE m.conversation = $1 AND m.position > $2 AND m.position < $3
            AND m.state = 1 AND m.covers_to = 0
        LIMIT $4
    ) AS before";

pub(super) const NEXT: &str = "
    SELECT m.position, m.turn, m.role, m.characters, m.size FROM memory.message m
    WHERE m.conversation = $1 AND m.position > $2 AND m.state = 1
    ORDER BY m.position LIMIT $3";

pub(super) const ALL_BETWEEN: &str = concat!(
    message!(),
    "WHERE m.conversation = $1 AND m.position BETWEEN $2 AND $3 AND m.state = 1
     ORDER BY m.position"
);

pub(super) const OF_TURN: &str = concat!(
    message!(),
    "WHERE m.conversation = $1 AND m.turn = $2 AND m.position > $3 ORDER BY m.position"
);

/// Selects the first tool result of each kind. The policy gives the same verdict on all results of a kind.
pub(super) const GROUNDS: &str = concat!(
    ground!(),
    "WHERE t.conversation = $1 AND t.position IN (
        SELECT min(g.position) FROM memory.message g
        WHERE g.conversation = $1 AND g.grounds IS NOT NULL
            AND g.position > $2 AND g.position <= $3
        GROUP BY g.grounds ORDER BY min(g.position) LIMIT $4)
    ORDER BY t.position"
);

/// Selects one conversation.
#[derive(Clone, Copy)]
pub(crate) enum ConversationSelector<'a> {
    /// The conversation of this owner with this id.
    Own(&'a Owner, &'a ConversationId),
    /// The conversation with this key, whoever owns it.
    Key(ConversationKey),
}

/// An excerpt of one conversation: messages and everything that decides who may read them.
#[derive(Debug)]
pub(crate) struct ConversationExcerpt {
    pub(crate) conversation: Conversation,
    /// The messages, oldest first.
    pub(crate) messages: Vec<StoredMessage>,
    /// The tool results on which the messages can be based, the first of each kind.
    pub(crate) grounds: Vec<GroundingResult>,
    /// The position from which on there are more kinds of tool results than can be judged, or `None` if all can be
    /// judged.
    pub(crate) unjudged_from: Option<u64>,
}

/// The last messages of a conversation.
#[derive(Debug)]
pub(crate) struct Window {
    /// The messages. If a summary covers messages before the window, it is the first of them.
    pub(crate) reading: ConversationExcerpt,
    /// The number of messages before the window that no summary covers.
    pub(crate) uncovered: u64,
}

/// The fields of a message that decide whether it fits.
struct MessageOutline {
    position: i64,
    turn: Option<String>,
    role: i64,
    characters: i64,
    size: i64,
}

wardgate_store::from_row!(MessageOutline {
    position,
    turn,
    role,
    characters,
    size
});

impl MessageOutline {
    /// Returns an estimate of the number of tokens: a quarter of the characters, as is customary if the tokenizer of
    /// the model is unknown.
    fn tokens(&self) -> i64 {
        to_u64(self.characters)
            .div_ceil(4)
            .try_into()
            .unwrap_or(i64::MAX)
    }
}

/// A snapshot of one conversation, unlocked for reading.
struct ConversationSnapshot {
    transaction: Transaction,
    row: ConversationRow,
    unlocked: UnlockedConversation,
}

impl MemoryStore {
    /// Returns the last messages of complete turns that fit. `max_tokens` of 0 means no limit.
    pub(crate) async fn window(
        &self,
        owner: &Owner,
        id: &ConversationId,
        max_messages: u32,
        max_tokens: u32,
    ) -> Result<Window, Error> {
        within(async {
            let mut open = self
                .read_snapshot(ConversationSelector::Own(owner, id))
                .await?;
            let window = open.window(max_messages, max_tokens).await?;
            open.transaction.commit().await?;
            Ok(window)
        })
        .await
    }

    /// Returns messages of complete turns after that position, oldest first, and whether there are more.
    pub(crate) async fn page(
        &self,
        which: ConversationSelector<'_>,
        after: u64,
        limit: u32,
    ) -> Result<(ConversationExcerpt, bool), Error> {
        within(async {
            let mut open = self.read_snapshot(which).await?;
            let page = open.page(after, limit).await?;
            open.transaction.commit().await?;
            Ok(page)
        })
        .await
    }

    /// Returns one turn, complete or not, or `None` if there is no such turn.
    pub(crate) async fn turn(
        &self,
        owner: &Owner,
        id: &ConversationId,
        turn: &TurnId,
    ) -> Result<Option<(TurnState, ConversationExcerpt)>, Error> {
        within(async {
            let mut open = self
                .read_snapshot(ConversationSelector::Own(owner, id))
                .await?;
            let turn = open.turn(turn).await?;
            open.transaction.commit().await?;
            Ok(turn)
        })
        .await
    }

    async fn read_snapshot(
        &self,
        which: ConversationSelector<'_>,
    ) -> Result<ConversationSnapshot, Error> {
        let mut transaction = self.database.begin_read().await?;
        let row = match which {
            ConversationSelector::Own(owner, id) => {
                fetch_owned_conversation(&mut transaction, owner, id.as_str()).await?
            }
            ConversationSelector::Key(key) => {
                let found = transaction.row(BY_KEY, [key.to_string().into()]).await?;
                found.ok_or(Error::UnknownConversation)?
            }
        };
        Ok(ConversationSnapshot {
            unlocked: row.unlock(self)?,
            transaction,
            row,
        })
    }
}

impl ConversationSnapshot {
    async fn window(&mut self, max_messages: u32, max_tokens: u32) -> Result<Window, Error> {
        let bounds = [
            self.row.number.into(),
            self.row.cleared_to.into(),
            // One more message shows whether there is anything before the window.
            Value::Integer(i64::from(max_messages) + 1),
        ];
        let newest_first: Vec<MessageOutline> = self.transaction.rows(LAST, bounds).await?;
        let fitting = window_of(&newest_first, max_messages, max_tokens);
        let (first, last) = match newest_first[..fitting] {
            [] => (i64::MAX, i64::MAX),
            [ref last, ..] => (newest_first[fitting - 1].position, last.position),
        };
        let mut rows: Vec<MessageRow> = self.transaction.rows(SAID, self.span(first, last)).await?;
        let summary = self
            .summary_before(first, newest_first.len() > fitting)
            .await?;
        let covered = summary.as_ref().map_or(0, |(_, covers_to)| *covers_to);
        let uncovered = self.count_uncovered(covered, first).await?;
        if let Some((summary, _)) = summary {
            rows.insert(0, summary);
        }
        Ok(Window {
            reading: self.excerpt_from_rows(rows).await?,
            uncovered,
        })
    }

    /// Returns the newest summary if it covers a message before `first`.
    async fn summary_before(
        &mut self,
        first: i64,
        something_left_out: bool,
    ) -> Result<Option<(MessageRow, i64)>, Error> {
        if !something_left_out {
            return Ok(None);
        }
        let bounds = [self.row.number.into(), self.row.cleared_to.into()];
        let summary: Option<MessageRow> = self.transaction.row(SUMMARY, bounds).await?;
        let Some(summary) = summary else {
            return Ok(None);
        };
        let covers_to = summary.covers_to;
        let below = first.min(covers_to.saturating_add(1));
        let covers = self.count_between(self.row.cleared_to, below, 1).await? > 0;
        Ok(covers.then_some((summary, covers_to)))
    }

    async fn count_uncovered(&mut self, covered: i64, first: i64) -> Result<u64, Error> {
        let above = covered.max(self.row.cleared_to);
        let count = self.count_between(above, first, MAX_UNCOVERED).await?;
        Ok(to_u64(count))
    }

    /// Counts the messages after `above` and before `below`, up to `most`.
    async fn count_between(&mut self, above: i64, below: i64, most: i64) -> Result<i64, Error> {
        let bounds = [
            self.row.number.into(),
            above.into(),
            below.into(),
            most.into(),
        ];
        let count: Option<(i64,)> = self.transaction.row(UNCOVERED, bounds).await?;
        Ok(count.map_or(0, |(count,)| count))
    }

    async fn page(&mut self, after: u64, limit: u32) -> Result<(ConversationExcerpt, bool), Error> {
        let after = to_i64(after).max(self.row.cleared_to);
        let bounds = [
            self.row.number.into(),
            after.into(),
            Value::Integer(i64::from(limit) + 1),
        ];
        let outlines: Vec<MessageOutline> = self.transaction.rows(NEXT, bounds).await?;
        let fitting = count_fitting(&outlines, limit, 0);
        let more = outlines.len() > fitting;
        let (first, last) = match outlines[..fitting] {
            [] => (i64::MAX, i64::MAX),
            [ref first, ..] => (first.position, outlines[fitting - 1].position),
        };
        let span = self.span(first, last);
        let rows: Vec<MessageRow> = self.transaction.rows(ALL_BETWEEN, span).await?;
        Ok((self.excerpt_from_rows(rows).await?, more))
    }

    async fn turn(
        &mut self,
        turn: &TurnId,
    ) -> Result<Option<(TurnState, ConversationExcerpt)>, Error> {
        let key = [
            self.row.number.into(),
            turn.as_str().into(),
            self.row.cleared_to.into(),
        ];
        let rows: Vec<MessageRow> = self.transaction.rows(OF_TURN, key).await?;
        let Some(state_number) = rows.first().map(|row| row.state) else {
            return Ok(None);
        };
        let reading = self.excerpt_from_rows(rows).await?;
        Ok(Some((state(state_number)?, reading)))
    }

    fn span(&self, first: i64, last: i64) -> [Value; 3] {
        [self.row.number.into(), first.into(), last.into()]
    }

    async fn excerpt_from_rows(
        &mut self,
        rows: Vec<MessageRow>,
    ) -> Result<ConversationExcerpt, Error> {
        let opened = rows.into_iter().map(|row| self.unlocked.open(row));
        let messages = opened.collect::<Result<_, _>>()?;
        read_excerpt(&mut self.transaction, &self.row, &self.unlocked, messages).await
    }
}

/// Returns `messages` of the conversation `row` with the tool results on which they are based.
pub(super) async fn read_excerpt(
    transaction: &mut Transaction,
    row: &ConversationRow,
    unlocked: &UnlockedConversation,
    messages: Vec<StoredMessage>,
) -> Result<ConversationExcerpt, Error> {
    let rests_up_to = messages.iter().map(StoredMessage::rests_up_to).max();
    let bounds = [
        row.number.into(),
        row.cleared_to.into(),
        to_i64(rests_up_to.unwrap_or(0)).into(),
        (MAX_GROUNDS + 1).into(),
    ];
    let mut grounds: Vec<GroundingRow> = transaction.rows(GROUNDS, bounds).await?;
    let too_many = to_i64(grounds.len() as u64) > MAX_GROUNDS;
    let beyond = too_many.then(|| grounds.pop()).flatten();
    let grounds = grounds.into_iter().map(|row| unlocked.open_ground(row));
    Ok(ConversationExcerpt {
        conversation: row.to_conversation()?,
        messages,
        grounds: grounds.collect::<Result<_, _>>()?,
        unjudged_from: beyond.map(|row| to_u64(row.position)),
    })
}

/// Returns how many of the newest messages make a window. A window never begins with results whose calls it leaves out,
/// because models refuse such input.
fn window_of(newest_first: &[MessageOutline], max_messages: u32, max_tokens: u32) -> usize {
    let mut fitting = count_fitting(newest_first, max_messages, max_tokens);
    while let Some(before) = newest_first.get(fitting)
        && let Some(first) = fitting.checked_sub(1).map(|index| &newest_first[index])
        && first.role == role_number(Role::Tool)
        && first.turn.is_some()
        && first.turn == before.turn
    {
        fitting -= 1;
    }
    fitting
}

/// Returns how many of `outlines`, from the first on, fit into a response.
fn count_fitting(outlines: &[MessageOutline], max_messages: u32, max_tokens: u32) -> usize {
    let max_messages = usize::try_from(max_messages).unwrap_or(usize::MAX);
    let (mut tokens, mut bytes) = (0, 0);
    let fits = |outline: &&MessageOutline| {
        tokens += outline.tokens();
        bytes += outline.size;
        (max_tokens == 0 || tokens <= i64::from(max_tokens)) && bytes <= MAX_ANSWER
    };
    outlines.iter().take(max_messages).take_while(fits).count()
}
