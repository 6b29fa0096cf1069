//! A log that a test can read.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

/// A log in memory. Clones write to the same log.
#[derive(Debug, Clone, Default)]
pub struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    /// Returns a function that makes writers to this log, as a `tracing` subscriber takes it.
    pub fn writer(&self) -> impl Fn() -> Self + use<> {
        let log = self.clone();
        move || log.clone()
    }

    /// Returns everything that was logged so far.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).expect("logs are texts")
    }
}

impl Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
