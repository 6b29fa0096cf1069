//! Collects the standard error of a program: lines for progress, and the last part for the log.

use std::collections::VecDeque;

/// Maximum number of bytes kept for the log, and maximum length of one line.
const KEPT: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct StandardError {
    line: Vec<u8>,
    end: VecDeque<u8>,
}

impl StandardError {
    /// Takes bytes that were read, and passes on every complete line, truncated to a maximum length.
    pub(super) fn push_bytes(&mut self, bytes: &[u8], mut on_line: impl FnMut(&str)) {
        for &byte in bytes {
            if self.end.len() == KEPT {
                self.end.pop_front();
            }
            self.end.push_back(byte);
            if matches!(byte, b'\n' | b'\r') {
                let line = String::from_utf8_lossy(&self.line);
                let line: String = line.chars().filter(|c| !c.is_control()).collect();
                if !line.is_empty() {
                    on_line(&line);
                }
                self.line.clear();
            } else if self.line.len() < KEPT {
                self.line.push(byte);
            }
        }
    }

    /// Returns the last part of the standard error.
    pub(super) fn end(&mut self) -> String {
        String::from_utf8_lossy(self.end.make_contiguous()).into_owned()
    }
}
