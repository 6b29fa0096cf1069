//! What every HTTP edge shares: the listener, where requests come from, who makes them.
