mod canonical;
mod changes;
mod corpus;
mod judge;
mod lock;
mod names;
mod support;
