//! Measures how long it takes to read a context while the tables grow.
//!
//! ```sh
//! cargo run --release -p wardgate-memory --example growth -- [MESSAGES] [STORE]
//! ```
//!
//! MESSAGES is up to 10,000,000 and by default 100,000. STORE is `sqlite:PATH` or `postgres://…`, must be empty and may
//! be deleted afterwards, and is by default a file in a temporary directory. Most messages are inserted directly into
//! the tables. The messages that are read were added through the service.

use std::error::Error;
use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqliteConnection};
use wardgate_domain::{Ambient, ConversationId, NewMessage, Role, Source};
use wardgate_memory::{Config, MasterKey, service};
use wardgate_rpc::client::{AuditClient, MemoryClient, MessageBatch, OnBehalfOf};
use wardgate_rpc::{Peer, link};
use wardgate_testkit::{FakePolicy, TestIssuer, caller_of};

const LIMIT: Duration = Duration::from_secs(10);
/// Number of messages in one conversation.
const EACH: i64 = 100;
/// Number of conversations that are read at each size.
const READ: usize = 50;
/// Number of contexts that are read of each conversation.
const TIMES: usize = 10;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let most: i64 = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let dir = tempfile::tempdir()?;
    let default = format!("sqlite:{}", dir.path().join("memory.db").display());
    let store = arguments.next().unwrap_or(default);
    // The policy service is asked only for the caller of a token, because no message is of a tool and nothing is erased.
    let nobody = || link::connect("http://127.0.0.1:1", Peer::Policy, "nobody", None);
    let policy = FakePolicy::new(Ambient::system());
    let service = service(
        Config::for_store(store.as_str()),
        MasterKey::from_bytes(&Ambient::system().random()),
        policy.client(Peer::Memory),
        AuditClient::new(nobody()?.link, LIMIT),
        Ambient::system(),
    )
    .await?;
    let memory = MemoryClient::new(link::local(service, Peer::Gateway).link, LIMIT);
    let issuer = TestIssuer::new("https://issuer.example");
    let caller = caller_of(&issuer.token(&json!({ "sub": "reader", "exp": 4_000_000_000_i64 })));
    let of = OnBehalfOf {
        caller: &caller,
        client_ip: "",
    };

    println!(
        "{:>12} {:>12} {:>12} {:>12} {:>12}",
        "messages", "context p50", "p99", "search p50", "add p50"
    );
    let mut filled = 0;
    for size in sizes(most.clamp(10_000, 10_000_000)) {
        fill(&store, filled, size).await?;
        filled = size;
        let ids = add(&memory, of, size).await?;
        let (mut contexts, mut searches, mut adds) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..TIMES {
            for id in &ids {
                let began = Instant::now();
                let context = memory.get_context(of, id, 20, 0).await?;
                contexts.push(began.elapsed());
                assert_eq!(context.messages.len(), 20);
                let began = Instant::now();
                let hits = memory.search(of, "tooth", Some(id), 5).await?;
                searches.push(began.elapsed());
                assert_eq!(hits.len(), 5);
                let began = Instant::now();
                memory.add_messages(of, id, &create_messages(1)).await?;
                adds.push(began.elapsed());
            }
        }
        let [context, late, search, add] = [
            percentile(&mut contexts, 50),
            percentile(&mut contexts, 99),
            percentile(&mut searches, 50),
            percentile(&mut adds, 50),
        ];
        println!("{size:>12} {context:>12.2?} {late:>12.2?} {search:>12.2?} {add:>12.2?}");
    }
    Ok(())
}

/// Returns 10,000, then ten times as many each time, and finally `most`.
fn sizes(most: i64) -> Vec<i64> {
    let below = [10_000, 100_000, 1_000_000].into_iter();
    let mut sizes: Vec<_> = below.filter(|size| *size < most).collect();
    sizes.push(most);
    sizes
}

fn create_messages(count: usize) -> MessageBatch {
    let text = "My tooth hurts, and has for a week. What can be done about it?";
    MessageBatch {
        messages: vec![NewMessage::text(Role::User, Source::Person, text); count],
        turn: None,
    }
}

/// Creates the conversations that are read at this size.
async fn add(
    memory: &MemoryClient,
    of: OnBehalfOf<'_>,
    size: i64,
) -> Result<Vec<ConversationId>, Box<dyn Error>> {
    let mut ids = Vec::new();
    for n in 0..READ {
        let id: ConversationId = format!("read at {size}: {n}").parse()?;
        memory.get_or_create(of, Some(&id)).await?;
        memory.add_messages(of, &id, &create_messages(40)).await?;
        ids.push(id);
    }
    Ok(ids)
}

fn percentile(durations: &mut [Duration], percent: usize) -> Duration {
    durations.sort_unstable();
    durations[durations.len() * percent / 100]
}

/// Inserts messages of other conversations, from number `from` up to `to`.
async fn fill(store: &str, from: i64, to: i64) -> Result<(), Box<dyn Error>> {
    let mut from = from;
    while from < to {
        // This number is part of every ID, so that IDs of different insertions differ.
        let first = u64::from_be_bytes(Ambient::system().random());
        let next = to.min(from + 100_000);
        let (conversations, messages) = (next / EACH - from / EACH, next - from);
        let statements = format!(
            "INSERT INTO memory.conversation
                (key, owner, tenant, issuer, subject, id, data_key, created_at, updated_at,
                 positions, messages, cleared_to, emptied_to)
             SELECT '{first}-' || n, CAST('{first}-' || (n / 10) AS blob), '', 'i', 's', '{first}-' || n,
                CAST('k' AS blob), n, n, {EACH}, {EACH}, 0, 0
             FROM (numbers {conversations}) AS numbers;
             INSERT INTO memory.message
                (conversation, position, id, turn, state, role, source, covers_to, characters, size, at, body)
             SELECT (SELECT max(number) FROM memory.conversation) - {conversations} + 1 + n / {EACH},
                1 + n % {EACH}, '{first}-' || n, 't' || (n / 4), 1, 1 + n % 2, 1 + n % 2, 0, 200, 200, n,
                CAST('{body}' AS blob)
             FROM (numbers {messages}) AS numbers;
             {words}",
            body = "x".repeat(300),
            words = words(store, messages),
        );
        run(store, &statements).await?;
        from = next;
    }
    Ok(())
}

/// Returns the statement that inserts four words for each of the last messages.
fn words(store: &str, messages: i64) -> String {
    if store.starts_with("sqlite:") {
        return format!(
            "INSERT INTO message_words (rowid, words)
             SELECT number, printf('%016x %016x %016x %016x', number * 7919 % 500009, number * 104729 % 50021,
                number * 1299709 % 5003, number % 97)
             FROM message ORDER BY number DESC LIMIT {messages};"
        );
    }
    format!(
        "INSERT INTO memory.message_words (message, words)
         SELECT number, array_to_tsvector(ARRAY[to_hex(number * 7919 % 500009) || 'a', to_hex(number * 104729 % 50021)
            || 'b', to_hex(number * 1299709 % 5003) || 'c', to_hex(number % 97) || 'd'])
         FROM memory.message ORDER BY number DESC LIMIT {messages};"
    )
}

/// Runs statements in the dialect of the store. `(numbers N)` stands for the numbers from 0.
async fn run(store: &str, statements: &str) -> Result<(), Box<dyn Error>> {
    let sqlite = store.starts_with("sqlite:");
    let mut sql = String::new();
    for part in statements.split("(numbers ").enumerate() {
        match part {
            (0, text) => sql.push_str(text),
            (_, text) => {
                let (count, rest) = text.split_once(')').ok_or("no count")?;
                sql.push_str(&if sqlite {
                    format!(
                        "(WITH RECURSIVE series (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM series
                          WHERE n < {count} - 1) SELECT n FROM series)"
                    )
                } else {
                    format!("(SELECT n FROM generate_series(0, {count} - 1) AS n)")
                });
                sql.push_str(rest);
            }
        }
    }
    if sqlite {
        let mut connection = SqliteConnection::connect(store).await?;
        let sql = format!("BEGIN; {} COMMIT", sql.replace("memory.", ""));
        connection
            .execute(sqlx::raw_sql(AssertSqlSafe(sql)))
            .await?;
        connection.close().await?;
    } else {
        let mut connection = PgConnection::connect(store).await?;
        let sql = sql.replace("AS blob", "AS bytea");
        connection
            .execute(sqlx::raw_sql(AssertSqlSafe(sql)))
            .await?;
        connection.close().await?;
    }
    Ok(())
}
