use std::collections::BTreeMap;

use futures::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use wardgate_rpc::client::ConversationSelector;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_at_once_make_one_dense_order() {
    const WRITERS: usize = 24;
    const EACH: usize = 6;
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        let writers = (0..WRITERS).map(|writer| {
            let (setup, joy, mine) = (&setup, &joy, &mine);
            async move {
                let mut positions = Vec::new();
                for n in 0..EACH {
                    let batch = || {
                        let id = |part| format!("{writer}.{n}.{part}");
                        vec![with_id(&id(0), person("a")), with_id(&id(1), model("b"))]
                    };
                    let added = setup.add(joy, mine, batch()).await.unwrap();
                    let again = setup.add(joy, mine, batch()).await.unwrap();
                    assert_eq!(
                        added[0].position + 1,
                        added[1].position,
                        "a batch is together"
                    );
                    assert_eq!(added[0].position, again[0].position);
                    positions.extend(added.iter().map(|message| message.position));
                }
                assert!(positions.is_sorted());
                positions
            }
        });
        let mut positions = join_all(writers).await.concat();
        positions.sort_unstable();
        let dense: Vec<_> = (1..=(WRITERS * EACH * 2) as u64).collect();
        assert_eq!(positions, dense);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_send_the_same_message_at_once_all_are_told_the_same() {
    for setup in Setup::each().await {
        let joy = joy();
        let made = (0..8).map(|_| setup.create_conversation(&joy, "chat"));
        let mine = join_all(made).await.remove(0);
        let sent = (0..16).map(|_| {
            let message = vec![with_id("m", person("hello"))];
            setup.add_to_turn(&joy, &mine, "t", TurnState::Complete, message)
        });
        for added in join_all(sent).await {
            assert_eq!(added.unwrap()[0].position, 1);
        }
        let listed = setup
            .memory
            .list_conversations(on_behalf_of(&joy), 0, "")
            .await
            .unwrap();
        assert_eq!((listed.0.len(), listed.0[0].messages), (1, 1));
    }
}

/// A step that a client may take, in any order.
#[derive(Debug, Clone)]
enum Step {
    Add {
        messages: u8,
    },
    /// Sends something again.
    Retry {
        which: u8,
    },
    ToTurn {
        turn: u8,
        end: Option<TurnState>,
    },
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    let end = prop_oneof![
        Just(None),
        Just(Some(TurnState::Complete)),
        Just(Some(TurnState::Abandoned))
    ];
    prop_oneof![
        4 => (1..5_u8).prop_map(|messages| Step::Add { messages }),
        3 => any::<u8>().prop_map(|which| Step::Retry { which }),
        3 => (0..3_u8, end).prop_map(|(turn, end)| Step::ToTurn { turn, end }),
        1 => Just(Step::Clear),
    ]
}

/// A client that remembers the responses.
struct Client<'a> {
    setup: &'a Setup,
    mine: ConversationId,
    sent: Vec<MessageBatch>,
    /// Position and text by id, of everything since the last clear.
    stored: BTreeMap<String, (u64, String)>,
    last: u64,
    number: u32,
}

impl Client<'_> {
    fn message(&mut self) -> NewMessage {
        self.number += 1;
        with_id(
            &format!("m-{}", self.number),
            person(&format!("text {}", self.number)),
        )
    }

    async fn send(&mut self, messages: Vec<NewMessage>, turn: Option<(TurnId, TurnState)>) {
        let addition = MessageBatch { messages, turn };
        let joy = joy();
        let added = self
            .setup
            .memory
            .add_messages(on_behalf_of(&joy), &self.mine, &addition)
            .await;
        let added = match added {
            Ok(added) => added.messages,
            // The turn had ended already, and nothing of the batch is stored.
            Err(error) => return assert_eq!(error.reason(), ErrorReason::Conflict),
        };
        for (message, given) in added.iter().zip(&addition.messages) {
            let id = message.id.as_str().to_owned();
            let entry = (message.position, given.content.clone());
            if let Some(known) = self.stored.get(&id) {
                assert_eq!(known, &entry, "a repetition changes nothing");
            } else {
                self.last += 1;
                assert_eq!(message.position, self.last, "no gap");
                self.stored.insert(id, entry);
            }
        }
        self.sent.push(addition);
    }

    async fn run(&mut self, step: Step) {
        match step {
            Step::Add { messages } => {
                let messages = (0..messages).map(|_| self.message()).collect();
                self.send(messages, None).await;
            }
            Step::Retry { which } => {
                let Some(index) = usize::from(which).checked_rem(self.sent.len()) else {
                    return;
                };
                let MessageBatch { messages, turn } = self.sent[index].clone();
                self.send(messages, turn).await;
            }
            Step::ToTurn { turn, end } => {
                let message = self.message();
                let turn = turn_id(&format!("turn {turn}"));
                let state = end.unwrap_or(TurnState::Open);
                self.send(vec![message], Some((turn, state))).await;
            }
            Step::Clear => {
                let joy = joy();
                self.setup
                    .memory
                    .clear(on_behalf_of(&joy), &self.mine)
                    .await
                    .unwrap();
                self.stored.clear();
            }
        }
    }

    /// Checks that the store holds what the responses said, each message at its position.
    async fn check(&self) {
        let joy = joy();
        let read = self.setup.memory.read_conversation(
            on_behalf_of(&joy),
            ConversationSelector::Own(&self.mine),
            0,
            500,
        );
        let read = read.await.unwrap();
        assert_eq!(read.conversation.messages, read.messages.len() as u64);
        for message in &read.messages {
            let told = &self.stored[message.id.as_str()];
            assert_eq!(told, &(message.position, message.content.clone()));
        }
        let count = format!(
            "SELECT count(*) FROM memory.message m JOIN memory.conversation c ON c.number = m.conversation
             WHERE c.id = '{}'",
            self.mine.as_str()
        );
        let rows = self.setup.database.number(&count).await;
        assert_eq!(rows, i64::try_from(self.stored.len()).unwrap());
    }
}

#[test]
fn whatever_a_client_does_positions_are_dense_and_ids_unique() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let setups = runtime.block_on(Setup::each());
    for setup in &setups {
        let cases = Cases {
            cases: 24,
            failure_persistence: None,
            ..Cases::default()
        };
        let steps = prop::collection::vec(step(), 1..30);
        let run = TestRunner::new(cases).run(&steps, |steps| {
            runtime.block_on(async {
                let name = format!("{:x}", u64::from_be_bytes(Ambient::system().random()));
                let mut client = Client {
                    mine: setup.create_conversation(&joy(), &name).await,
                    setup,
                    sent: Vec::new(),
                    stored: BTreeMap::new(),
                    last: 0,
                    number: 0,
                };
                for step in steps {
                    client.run(step).await;
                }
                client.check().await;
            });
            Ok(())
        });
        run.unwrap();
    }
}
