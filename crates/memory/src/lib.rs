//! Conversations, and what was said in them.
