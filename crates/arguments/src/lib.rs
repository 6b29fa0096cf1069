//! Arguments of a call against the input schema of its tool.
