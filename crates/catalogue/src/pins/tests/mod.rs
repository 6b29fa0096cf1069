mod canonical;
mod changes;
mod judge;
mod lock;
mod names;
mod support;
