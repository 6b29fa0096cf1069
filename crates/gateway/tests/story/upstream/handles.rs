//! What an upstream handed to one caller gets nothing for another, however it is written.

use super::{carried, count, request, world};
use crate::world::{LEGACY, MODERN, Reply};

#[tokio::test]
async fn an_id_that_nobody_sealed_is_not_carried() {
    let world = world().await;
    for params in [
        r#""taskId":"task-1""#,
        r#""task\u0049d":"task-1""#,
        r#""taskId":"task-1","notifications":7"#,
        r#""request\u0053tate":"task-1""#,
    ] {
        let before = count(&world);
        let reply = Reply::to(request(&world, LEGACY, "tasks/result", params)).await;
        let was_refused = reply.code() == -32602 && count(&world) == before;
        let sent = carried(&world).message;
        let sent = std::str::from_utf8(&sent).unwrap();
        assert!(was_refused || !sent.contains("task-1"), "{params}: {sent}");
    }
}

#[tokio::test]
async fn nobody_lists_the_tasks_of_all() {
    let world = world().await;
    let before = count(&world);
    for version in [MODERN, LEGACY] {
        let reply = Reply::to(request(&world, version, "tasks/list", "")).await;
        assert_eq!(reply.code(), -32601, "{reply:?}");
    }
    assert_eq!(count(&world), before);
}
