//! Accounting of the cost of HTTP/2 frames. Only frame headers are read (RFC 9113 §4.1), never payloads.

use super::token_bucket::{BudgetExceeded, TokenBucket};

/// The connection preface of a client (RFC 9113 §3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty SETTINGS frame, which is the first frame of a server.
pub(super) const EMPTY_SETTINGS: [u8; HEADER] = [0, 0, 0, SETTINGS, 0, 0, 0, 0, 0];

const HEADER: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
/// The error code `ENHANCE_YOUR_CALM` (RFC 9113 §7).
const ENHANCE_YOUR_CALM: u32 = 0xb;

/// Cost of a header block: this number of control frames, plus one for every `BLOCK_BYTES` bytes. A header field can be
/// as short as one byte and cost as much work as a whole frame of another type.
const BLOCK_FRAMES: u64 = 8;
const BLOCK_BYTES: u64 = 32;
/// Minimum payload of a DATA frame that is free. Smaller frames cost as much as a control frame, unless they end their
/// stream.
const SMALL_DATA: u64 = 256;
/// Number of bytes sent to the client that pay for one of its frames, since the client sends window updates for them.
const SENT_BYTES: u64 = 128;
/// Capacity of the budget of a connection: the allowance of this number of seconds, or `MOST_CREDIT` frames if they
/// were credited for requests or responses.
const BURST_SECONDS: u64 = 2;
const MOST_CREDIT: u64 = 65_536;
/// The initial reduction of the budget of a connection whose client just had a connection closed for a flood, as a
/// fraction.
const SPENT_AFTER_A_FLOOD: (u64, u64) = (9, 10);
/// Number of units per frame in which credit is counted.
const MILLI: u64 = 1_000;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frame {
    length: u64,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Frame {
    fn parse_header(bytes: [u8; HEADER]) -> Self {
        let [a, b, c, kind, flags, s1, s2, s3, s4] = bytes;
        Self {
            length: u64::from(u32::from_be_bytes([0, a, b, c])),
            kind,
            flags,
            stream: u32::from_be_bytes([s1, s2, s3, s4]) & (u32::MAX >> 1),
        }
    }

    /// Returns the cost of the frame, in control frames.
    fn cost(self) -> u64 {
        match self.kind {
            DATA if self.length >= SMALL_DATA || self.flags & END_STREAM != 0 => 0,
            HEADERS | CONTINUATION | PUSH_PROMISE => BLOCK_FRAMES + self.length / BLOCK_BYTES,
            _ => 1,
        }
    }
}

/// A tracker of the frames in one direction of a connection, regardless of how the bytes are split.
#[derive(Debug, Default)]
pub(super) struct FrameFollower {
    header: [u8; HEADER],
    header_bytes: usize,
    payload_left: u64,
}

impl FrameFollower {
    /// Reads the next `bytes` of the connection, and calls `found` for each frame header that is completed in them.
    fn follow(&mut self, mut bytes: &[u8], mut found: impl FnMut(Frame)) {
        while !bytes.is_empty() {
            let length = bytes.len() as u64;
            if self.payload_left >= length {
                self.payload_left -= length;
                return;
            }
            let skipped = usize::try_from(self.payload_left).unwrap_or(bytes.len());
            bytes = bytes.get(skipped..).unwrap_or_default();
            self.payload_left = 0;
            let needed = (HEADER - self.header_bytes).min(bytes.len());
            let (taken, rest) = bytes.split_at(needed);
            let end = self.header_bytes + needed;
            if let Some(slot) = self.header.get_mut(self.header_bytes..end) {
                slot.copy_from_slice(taken);
            }
            self.header_bytes = end;
            bytes = rest;
            if self.header_bytes == HEADER {
                let frame = Frame::parse_header(self.header);
                self.header_bytes = 0;
                self.payload_left = frame.length;
                found(frame);
            }
        }
    }

    /// Reads bytes without reporting their frames.
    pub(super) fn skip(&mut self, bytes: &[u8]) {
        self.follow(bytes, |_| ());
    }

    /// Returns whether the next byte begins a frame.
    pub(super) fn is_between_frames(&self) -> bool {
        self.header_bytes == 0 && self.payload_left == 0
    }
}

/// The budget of frames that the client of one connection may send.
#[derive(Debug)]
pub(super) struct FrameBudget {
    follower: FrameFollower,
    frames: TokenBucket,
    last_stream: u32,
}

impl FrameBudget {
    pub(super) fn new(frames_per_second: u32) -> Self {
        let rate = u64::from(frames_per_second.max(1));
        Self {
            follower: FrameFollower::default(),
            frames: TokenBucket::new(rate, rate * BURST_SECONDS),
            last_stream: 0,
        }
    }

    /// Creates the budget of a connection whose client just had a connection closed for a flood. A tenth of the usual
    /// initial budget is left.
    pub(super) fn after_a_flood(frames_per_second: u32) -> Self {
        let mut budget = Self::new(frames_per_second);
        let burst = u64::from(frames_per_second.max(1)) * BURST_SECONDS;
        let (part, of) = SPENT_AFTER_A_FLOOD;
        let _ = budget.frames.charge(burst * part / of);
        budget
    }

    /// Charges for the frames in `bytes`, and returns their cost. `sent` is the number of bytes sent to the client, and
    /// `credit` the number of frames credited for its requests, both since the last call.
    pub(super) fn charge(
        &mut self,
        bytes: &[u8],
        sent: u64,
        credit: u32,
    ) -> Result<u64, BudgetExceeded> {
        let (mut cost, mut last_stream) = (0, self.last_stream);
        self.follower.follow(bytes, |frame| {
            cost += frame.cost();
            if frame.kind == HEADERS {
                last_stream = last_stream.max(frame.stream);
            }
        });
        self.last_stream = last_stream;
        let earned = sent * MILLI / SENT_BYTES + u64::from(credit) * MILLI;
        self.frames.credit(earned, MOST_CREDIT);
        if cost > 0 {
            self.frames.charge(cost)?;
        }
        Ok(cost)
    }

    /// Returns the GOAWAY frame that ends the connection with a reason. Requests with higher stream ids than it names
    /// were not processed.
    pub(super) fn goaway(&self) -> Vec<u8> {
        goaway(self.last_stream, b"too many control frames")
    }
}

/// Returns a GOAWAY frame with the error code `ENHANCE_YOUR_CALM`.
pub(super) fn goaway(last_stream: u32, why: &[u8]) -> Vec<u8> {
    let length = u8::try_from(8 + why.len()).unwrap_or(8);
    let why = if length == 8 { &[] } else { why };
    let mut frame = vec![0, 0, length, GOAWAY, 0, 0, 0, 0, 0];
    frame.extend(last_stream.to_be_bytes());
    frame.extend(ENHANCE_YOUR_CALM.to_be_bytes());
    frame.extend(why);
    frame
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, flags: u8, stream: u32, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.resize(HEADER + payload, 0xff);
        frame
    }

    #[test]
    fn frames_are_found_however_the_bytes_are_cut() {
        let bytes: Vec<u8> = [
            frame(SETTINGS, 0, 0, 0),
            frame(HEADERS, 4, 1, 300),
            frame(DATA, 1, 1, 20),
            frame(PING, 0, 0, 8),
        ]
        .concat();
        for piece in 1..=bytes.len() {
            let mut follower = FrameFollower::default();
            let mut kinds = Vec::new();
            for piece in bytes.chunks(piece) {
                follower.follow(piece, |frame| kinds.push((frame.kind, frame.length)));
            }
            let expected = [(SETTINGS, 0), (HEADERS, 300), (DATA, 20), (PING, 8)];
            assert_eq!(kinds, expected, "in pieces of {piece}");
            assert!(follower.is_between_frames());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn control_frames_above_the_budget_end_it_and_time_fills_it() {
        let mut budget = FrameBudget::new(10);
        let ping = frame(PING, 0, 0, 8);
        for _ in 0..20 {
            budget.charge(&ping, 0, 0).unwrap();
        }
        assert_eq!(budget.charge(&ping, 0, 0), Err(BudgetExceeded));
        tokio::time::advance(Duration::from_millis(100)).await;
        budget.charge(&ping, 0, 0).unwrap();
        assert_eq!(budget.charge(&ping, 0, 0), Err(BudgetExceeded));
        tokio::time::advance(Duration::from_secs(60)).await;
        budget.charge(&ping.repeat(20), 0, 0).unwrap();
        assert_eq!(budget.charge(&ping, 0, 0), Err(BudgetExceeded));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_flood_a_connection_begins_with_a_tenth() {
        let mut budget = FrameBudget::after_a_flood(100);
        let ping = frame(PING, 0, 0, 8);
        budget.charge(&ping.repeat(20), 0, 0).unwrap();
        assert_eq!(budget.charge(&ping, 0, 0), Err(BudgetExceeded));
        tokio::time::advance(Duration::from_secs(60)).await;
        budget.charge(&ping.repeat(200), 0, 0).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_block_costs_by_its_size_and_whole_bodies_cost_nothing() {
        let mut budget = FrameBudget::new(1_000);
        budget
            .charge(&frame(DATA, 0, 1, 16_384).repeat(5_000), 0, 0)
            .unwrap();
        budget.charge(&frame(DATA, END_STREAM, 1, 1), 0, 0).unwrap();
        // Three header blocks with the maximum frame size, in which each byte may be a field.
        budget
            .charge(&frame(HEADERS, 4, 1, 16_384).repeat(3), 0, 0)
            .unwrap();
        let fourth = budget.charge(&frame(CONTINUATION, 4, 1, 16_384), 0, 0);
        assert_eq!(fourth, Err(BudgetExceeded));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_sent_and_what_known_callers_ask_pays_for_frames() {
        let mut budget = FrameBudget::new(1);
        let updates = frame(8, 0, 0, 4).repeat(100);
        assert_eq!(budget.charge(&updates, 0, 0), Err(BudgetExceeded));
        budget.charge(&updates, 100 * SENT_BYTES, 0).unwrap();
        budget.charge(&updates, 0, 100).unwrap();
        assert_eq!(budget.charge(&updates, 0, 50), Err(BudgetExceeded));
    }

    #[test]
    fn goaway_names_the_last_stream_and_the_reason() {
        let mut budget = FrameBudget::new(1);
        let _ = budget.charge(&frame(HEADERS, 4, 7, 1), 0, 0);
        let frame = budget.goaway();
        assert_eq!(frame[..5], [0, 0, 31, GOAWAY, 0]);
        assert_eq!(frame[9..17], [0, 0, 0, 7, 0, 0, 0, 0xb]);
        assert_eq!(&frame[17..], b"too many control frames");
    }
}
