//! Reads a model's answer as it arrives: text for the user, and calls for the gateway.

use futures::StreamExt;
use tokio::time::{Instant, timeout_at};

use crate::model::{
    FinishReason, Function, FunctionCall, ModelError, ModelEvent, ModelStream, TokenUsage,
};
use wardgate_tool_call_parser::{CallSyntax, Extractor, Piece, UnreadableCall, mentioned_tools};

use super::failure::TurnFailure;
use super::quoted_calls::ToolData;
use super::sink::EventSink;

/// A model's complete answer.
pub(super) struct ModelAnswer {
    pub(super) text: String,
    /// The native calls, or the calls in the text if there are no native calls. Their ids may be empty or already used.
    pub(super) calls: Vec<ModelCall>,
    pub(super) finish: FinishReason,
    pub(super) usage: Option<TokenUsage>,
    /// Number of characters received, for providers that do not report token counts.
    pub(super) characters: usize,
}

/// A call made by a model.
pub(super) struct ModelCall {
    pub(super) call: FunctionCall,
    pub(super) source: CallSource,
}

/// The origin of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallSource {
    /// The model intends the call.
    Model,
    /// The model only repeats the result of a tool.
    Data,
    /// The model intends a call, but its text cannot be parsed.
    Unreadable,
}

/// Options for reading an answer.
pub(super) struct ReadOptions<'a> {
    /// The functions that the model may call.
    pub(super) functions: &'a [Function],
    pub(super) syntax: &'a CallSyntax,
    /// The tool results, from which the model may quote.
    pub(super) data: ToolData<'a>,
    /// Whether the mention of a tool counts as a call, for models that get a description of the tools in the prompt.
    pub(super) takes_mentions: bool,
    /// Whether the text is sent only after it was checked completely, and not as it arrives.
    pub(super) is_held: bool,
    pub(super) round: usize,
    pub(super) until: Instant,
}

/// Reads an answer to its end. Neither the text of a call nor any text after it is sent.
pub(super) async fn read_answer(
    options: &ReadOptions<'_>,
    mut stream: ModelStream,
    sink: &mut EventSink,
) -> Result<ModelAnswer, TurnFailure> {
    let mut extractor = Extractor::new(options.syntax.clone(), options.functions);
    let mut words = AnswerText::default();
    let mut native = Vec::new();
    let mut in_text = TextCalls::default();
    let (mut finish, mut usage, mut characters) = (None, None, 0);
    loop {
        let next = timeout_at(options.until, stream.next()).await;
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
        words.append(pieces, &mut in_text, options, sink).await;
    }
    // A stream without a `Finished` event was cut off.
    let finish = finish.ok_or(ModelError::Cut)?;
    let pieces = extractor.finish();
    words.append(pieces, &mut in_text, options, sink).await;
    let calls = if native.is_empty() {
        in_text.into_calls(options, &words.0)
    } else {
        let source = CallSource::Model;
        let classified = |call| ModelCall { call, source };
        native.into_iter().map(classified).collect()
    };
    Ok(ModelAnswer {
        text: words.0,
        calls,
        finish,
        usage,
        characters,
    })
}

/// The calls in the text, in order, each with whether it can be parsed.
#[derive(Default)]
struct TextCalls(Vec<(FunctionCall, bool)>);

impl TextCalls {
    fn push(&mut self, name: String, arguments: String, is_readable: bool) {
        let call = FunctionCall {
            id: String::new(),
            name,
            arguments,
        };
        self.0.push((call, is_readable));
    }

    /// Returns all calls. If there are none and mentions count as calls, returns calls of the tools that `words` mentions.
    fn into_calls(mut self, options: &ReadOptions<'_>, words: &str) -> Vec<ModelCall> {
        let are_mentions = self.0.is_empty() && options.takes_mentions;
        if are_mentions {
            let names: Vec<&str> = options
                .functions
                .iter()
                .map(|it| it.name.as_str())
                .collect();
            for name in mentioned_tools(words, &names) {
                self.push(name.to_owned(), "{}".to_owned(), true);
            }
        }
        let calls: Vec<&FunctionCall> = self.0.iter().map(|(call, _)| call).collect();
        let in_data =
            options
                .data
                .quoted_calls(&calls, are_mentions, options.syntax, options.functions);
        let classified = self.0.into_iter().zip(in_data);
        classified
            .map(|((call, is_readable), in_data)| ModelCall {
                call,
                source: match (is_readable, in_data) {
                    (false, _) => CallSource::Unreadable,
                    (true, true) => CallSource::Data,
                    (true, false) => CallSource::Model,
                },
            })
            .collect()
    }
}

/// The text so far, without leading white space.
#[derive(Default)]
struct AnswerText(String);

impl AnswerText {
    async fn append(
        &mut self,
        pieces: Vec<Piece>,
        calls: &mut TextCalls,
        options: &ReadOptions<'_>,
        sink: &mut EventSink,
    ) {
        for piece in pieces {
            match piece {
                // No call has run yet, so the model invented everything that it writes after a call.
                Piece::Text(_) if !calls.0.is_empty() => {}
                Piece::Text(text) => {
                    let more = if self.0.is_empty() {
                        text.trim_start()
                    } else {
                        &text
                    };
                    self.0.push_str(more);
                    if !options.is_held {
                        sink.text(options.round, self.0.len(), more).await;
                    }
                }
                Piece::Call { name, arguments } => calls.push(name, arguments, true),
                Piece::Unreadable(UnreadableCall { name, written }) => {
                    calls.push(name, written, false);
                }
            }
        }
    }
}
