//! One answer of a model while it comes in: words for the person, calls for the gateway.

use futures::StreamExt;
use tokio::time::{Instant, timeout_at};

use crate::model::{
    FinishReason, Function, FunctionCall, ModelError, ModelEvent, ModelStream, TokenUsage,
};
use crate::text_calls::{Extractor, Family, Piece, mentioned};

use super::failure::Failure;
use super::recited::Data;
use super::sink::Sink;

/// What a model said.
pub(super) struct Speech {
    pub(super) text: String,
    /// Those of the wire, or where there are none those in the text; ids may be empty or taken.
    pub(super) calls: Vec<Heard>,
    pub(super) finish: FinishReason,
    pub(super) usage: Option<TokenUsage>,
    /// What was read of it, in characters.
    pub(super) characters: usize,
}

/// A call that a model made.
pub(super) struct Heard {
    pub(super) call: FunctionCall,
    /// The model only repeats what a tool gave.
    pub(super) in_data: bool,
}

/// How to listen.
pub(super) struct Ear<'a> {
    /// What the model could call.
    pub(super) functions: &'a [Function],
    pub(super) family: Family,
    /// What is no word of the model's own.
    pub(super) data: Data<'a>,
    /// A model that was told of tools in words may only say that it uses one.
    pub(super) takes_mentions: bool,
    /// Words are told once all are checked, not as they come.
    pub(super) held: bool,
    pub(super) round: usize,
    pub(super) until: Instant,
}

/// Listens to the end. The text of a call is never told, nor what is said after it.
pub(super) async fn listen(
    ear: &Ear<'_>,
    mut stream: ModelStream,
    sink: &mut Sink,
) -> Result<Speech, Failure> {
    let mut extractor = Extractor::new(ear.family, ear.functions);
    let mut words = Words::default();
    let mut native = Vec::new();
    let mut in_text = Vec::new();
    let (mut finish, mut usage, mut characters) = (None, None, 0);
    loop {
        let next = timeout_at(ear.until, stream.next()).await;
        let Some(event) = next.map_err(|_| ModelError::Late)? else {
            break;
        };
        let pieces = match event? {
            ModelEvent::Text(text) => {
                characters += text.chars().count();
                extractor.push(&text)
            }
            ModelEvent::Reasoning(text) => {
                characters += text.chars().count();
                continue;
            }
            ModelEvent::Call(call) => {
                native.push(call);
                continue;
            }
            ModelEvent::Usage(counted) => {
                usage = Some(counted);
                continue;
            }
            ModelEvent::Finished(reason) => {
                finish = Some(reason);
                continue;
            }
        };
        words.take(pieces, &mut in_text, ear, sink).await;
    }
    // A stream that does not say that it is over was cut.
    let finish = finish.ok_or(ModelError::Cut)?;
    let pieces = extractor.finish();
    words.take(pieces, &mut in_text, ear, sink).await;
    let are_mentions = native.is_empty() && in_text.is_empty() && ear.takes_mentions;
    if are_mentions {
        let names: Vec<&str> = ear.functions.iter().map(|it| it.name.as_str()).collect();
        in_text.extend(
            mentioned(&words.0, &names)
                .into_iter()
                .map(without_arguments),
        );
    }
    let (calls, in_data) = if native.is_empty() {
        let in_data = ear
            .data
            .spells(&in_text, are_mentions, ear.family, ear.functions);
        (in_text, in_data)
    } else {
        let in_data = vec![false; native.len()];
        (native, in_data)
    };
    let heard = calls.into_iter().zip(in_data);
    Ok(Speech {
        text: words.0,
        calls: heard
            .map(|(call, in_data)| Heard { call, in_data })
            .collect(),
        finish,
        usage,
        characters,
    })
}

fn without_arguments(name: &str) -> FunctionCall {
    FunctionCall {
        id: String::new(),
        name: name.to_owned(),
        arguments: "{}".to_owned(),
    }
}

/// The words so far, without white space in front.
#[derive(Default)]
struct Words(String);

impl Words {
    async fn take(
        &mut self,
        pieces: Vec<Piece>,
        calls: &mut Vec<FunctionCall>,
        ear: &Ear<'_>,
        sink: &mut Sink,
    ) {
        for piece in pieces {
            match piece {
                // Nothing has run yet: whatever the model goes on to say, it makes up.
                Piece::Text(_) if !calls.is_empty() => {}
                Piece::Text(text) => {
                    let more = if self.0.is_empty() {
                        text.trim_start()
                    } else {
                        &text
                    };
                    self.0.push_str(more);
                    if !ear.held {
                        sink.text(ear.round, self.0.len(), more).await;
                    }
                }
                Piece::Call { name, arguments } => calls.push(FunctionCall {
                    id: String::new(),
                    name,
                    arguments,
                }),
            }
        }
    }
}
