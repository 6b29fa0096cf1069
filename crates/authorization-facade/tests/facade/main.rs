//! The facade as clients, browsers and attackers meet it, in front of providers with the particulars of real ones.

mod attacks;
mod clients;
mod providers;
mod world;
