//! What an upstream handed to one caller gets nothing for another, however it is written.

use super::{count, request, world};
use crate::world::{LEGACY, MODERN, Reply};

#[tokio::test]
async fn an_id_that_nobody_sealed_is_not_carried() {
    let world = world().await;
    let before = count(&world);
    for params in [
        r#""taskId":"task-1""#,
        r#""task\u0049d":"task-1""#,
        r#""taskId":"task-1","notifications":7"#,
        r#""request\u0053tate":"theirs""#,
    ] {
        let reply = Reply::to(request(&world, LEGACY, "tasks/result", params)).await;
        assert_eq!(reply.code(), -32602, "{params}: {reply:?}");
    }
    assert_eq!(count(&world), before);
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
