//! What is logged.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

/// A log in memory. Clones write to the same one.
#[derive(Debug, Clone, Default)]
pub struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    /// Makes writers to it, as a subscriber wants them.
    pub fn writer(&self) -> impl Fn() -> Self + use<> {
        let log = self.clone();
        move || log.clone()
    }

    /// Everything so far.
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
