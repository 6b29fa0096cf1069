//! Tests that replay recorded and invented answers: complete, split into pieces, and cut off.
//!
//! A cassette is one exchange with a real model: the request (`NAME.json`) and the server's response (`NAME.sse`).
//! `tests/real-model/run` records all cassettes again.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::ProviderKind;
use super::testing::read_pieces;
use crate::model::{FinishReason, FunctionCall, ModelError, ModelEvent, TokenUsage};

/// An answer with all kinds of line ends, comments, a byte order mark, multi-byte characters and a call in pieces.
const CHAT: &str = "\u{feff}: hello\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"Grüße\"}}]}\r\n\r\n\
    : ping\n\ndata:{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":\
    {\"name\":\"one\",\"arguments\":\"{\\\"x\\\"\"}}]}}]}\n\nid: 7\rdata: {\"choices\":[{\"delta\":{\"tool_calls\":\
    [{\"index\":0,\"function\":{\"arguments\":\": \\\"日本\\\"}\"}}]}}]}\r\rdata: {\"choices\":[{\"delta\":{},\
    \"finish_reason\":\"tool_calls\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\
    \"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

const DOCUMENT: &str = "{\n  \"choices\": [{\"message\": {\"content\": \"Grüße }\\\"\", \"tool_calls\": [{\"id\": \"a\",\
    \"function\": {\"name\": \"one\", \"arguments\": \"{}\"}}]}, \"finish_reason\": \"stop\"}]\r\n}\n";

const MESSAGES: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":\
    {\"input_tokens\":9}}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
    {\"type\":\"text_delta\",\"text\":\"Grüße\"}}\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n\
    event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":\
    {\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"one\",\"input\":{}}}\n\nevent: content_block_delta\n\
    data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\
    \"{\\\"x\\\":\"}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":\
    {\"type\":\"input_json_delta\",\"partial_json\":\"1}\"}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\
    \"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":5}}\n\nevent: message_stop\n\
    data: {\"type\":\"message_stop\"}\n\n";

const LINES: &str = "{\"response\":\"Grüße \",\"done\":false}\n{\"response\":\"日本 {\\\"\",\"done\":false}\r\n\
    {\"response\":\"\",\"done\":true,\"prompt_eval_count\":1,\"eval_count\":2}\n";

pub(super) const CASSETTES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/provider/cassettes");

type ReplayedAnswer = (Vec<ModelEvent>, Result<(), ModelError>);

fn cassettes() -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(CASSETTES)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sse"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{CASSETTES}");
    paths
}

fn answers() -> Vec<(ProviderKind, Vec<u8>)> {
    let made_up = [
        (ProviderKind::OpenAi, CHAT),
        (ProviderKind::OpenAi, DOCUMENT),
        (ProviderKind::Anthropic, MESSAGES),
        (ProviderKind::Ollama, LINES),
    ];
    let recorded = cassettes()
        .into_iter()
        .map(|path| (ProviderKind::OpenAi, std::fs::read(path).unwrap()));
    made_up
        .into_iter()
        .map(|(kind, text)| (kind, text.as_bytes().to_vec()))
        .chain(recorded)
        .collect()
}

/// Reads `bytes` as an answer that arrives in pieces which end at `ends`.
fn replay_answer(kind: ProviderKind, bytes: &[u8], ends: &[usize]) -> ReplayedAnswer {
    let mut pieces = Vec::new();
    let mut start = 0;
    for &end in ends.iter().chain([&bytes.len()]) {
        pieces.push(bytes[start..end].to_vec());
        start = end;
    }
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(read_pieces(kind, pieces))
}

fn calls(events: &[ModelEvent]) -> Vec<&FunctionCall> {
    let calls = events.iter().filter_map(|event| match event {
        ModelEvent::Call(call) => Some(call),
        _ => None,
    });
    calls.collect()
}

/// Checks that an answer cut off at `at` yields no call and does not end regularly, unless it has the same calls as the complete
/// answer.
fn check_cut(kind: ProviderKind, bytes: &[u8], at: usize, whole: &ReplayedAnswer) {
    let (events, end) = replay_answer(kind, &bytes[..at], &[]);
    if end == Ok(()) {
        assert_eq!(calls(&events), calls(&whole.0), "cut at {at}");
        assert!(matches!(events.last(), Some(ModelEvent::Finished(_))));
    } else {
        assert_eq!(calls(&events), [] as [&FunctionCall; 0], "cut at {at}");
    }
}

#[test]
fn recorded_answers_are_read() {
    for path in cassettes() {
        let name = Path::new(path.file_stem().unwrap()).display().to_string();
        let (events, end) =
            replay_answer(ProviderKind::OpenAi, &std::fs::read(&path).unwrap(), &[]);
        assert_eq!(end, Ok(()), "{name}");
        insta::assert_debug_snapshot!(name, debug_events(events));
    }
}

/// Returns a debug representation of events that includes their texts.
fn debug_events(events: Vec<ModelEvent>) -> Vec<impl std::fmt::Debug> {
    #[derive(Debug)]
    #[expect(dead_code, reason = "read by Debug")]
    struct FunctionCall {
        id: String,
        name: String,
        arguments: String,
    }
    #[derive(Debug)]
    #[expect(dead_code, reason = "read by Debug")]
    enum Event {
        Text(String),
        Reasoning(String),
        Call(FunctionCall),
        Usage(TokenUsage),
        Finished(FinishReason),
    }
    let shown = |event| match event {
        ModelEvent::Text(text) => Event::Text(text),
        ModelEvent::Reasoning(text) => Event::Reasoning(text),
        ModelEvent::Call(call) => Event::Call(FunctionCall {
            id: call.id,
            name: call.name,
            arguments: call.arguments,
        }),
        ModelEvent::Usage(usage) => Event::Usage(usage),
        ModelEvent::Finished(reason) => Event::Finished(reason),
    };
    events.into_iter().map(shown).collect()
}

#[test]
fn made_up_answers_are_the_same_byte_by_byte_and_safe_wherever_they_are_cut() {
    for (kind, bytes) in answers().into_iter().take(4) {
        let whole = replay_answer(kind, &bytes, &[]);
        assert_eq!(whole.1, Ok(()), "{kind:?}");
        let ends: Vec<_> = (1..bytes.len()).collect();
        assert_eq!(replay_answer(kind, &bytes, &ends), whole, "{kind:?}");
        for at in 0..bytes.len() {
            assert_eq!(
                replay_answer(kind, &bytes, &[at]),
                whole,
                "{kind:?} split at {at}"
            );
            check_cut(kind, &bytes, at, &whole);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn splitting_an_answer_anywhere_changes_nothing(
        (kind, bytes) in prop::sample::select(answers()),
        parts in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
    ) {
        let mut ends: Vec<_> = parts.iter().map(|part| part.index(bytes.len())).collect();
        ends.sort_unstable();
        prop_assert_eq!(replay_answer(kind, &bytes, &ends), replay_answer(kind, &bytes, &[]));
    }

    #[test]
    fn cutting_an_answer_anywhere_gives_no_other_call(
        (kind, bytes) in prop::sample::select(answers()),
        part in any::<prop::sample::Index>(),
    ) {
        check_cut(kind, &bytes, part.index(bytes.len()), &replay_answer(kind, &bytes, &[]));
    }

    #[test]
    fn no_bytes_are_too_strange(
        kind in prop::sample::select(vec![ProviderKind::OpenAi, ProviderKind::Anthropic, ProviderKind::Ollama]),
        (_, mut bytes) in prop::sample::select(answers()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
    ) {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let (events, end) = replay_answer(kind, &bytes, &[]);
        let finished = matches!(events.last(), Some(ModelEvent::Finished(_)));
        prop_assert_eq!(finished, end.is_ok());
    }
}
