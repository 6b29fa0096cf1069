//! Work that is driven by the future that waits for it, and continues in a task if that future is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use tokio::runtime::Handle;

/// Work that must run to its end. The task that awaits this future also does the work. If this future is dropped before
/// the end, the rest runs in a new task. A panic ends the work but does not propagate to the waiting task.
pub struct AttachedWork(Option<BoxFuture<'static, ()>>);

impl AttachedWork {
    /// Creates work that begins when it is first polled.
    pub fn new(work: BoxFuture<'static, ()>) -> Self {
        Self(Some(work))
    }
}

impl Future for AttachedWork {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(work) = &mut self.0 {
            let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
            ready!(polled.unwrap_or(Poll::Ready(())));
            self.0 = None;
        }
        Poll::Ready(())
    }
}

impl Drop for AttachedWork {
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, poll};
    use tokio::sync::oneshot;

    use super::*;

    fn tasks() -> usize {
        Handle::current().metrics().num_alive_tasks()
    }

    #[tokio::test]
    async fn work_gets_a_task_of_its_own_when_nobody_waits_for_it_and_not_before() {
        let before = tasks();
        let (release, released) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel();
        let work = async move {
            released.await.unwrap();
            end.send(()).unwrap();
        };
        let mut work = AttachedWork::new(work.boxed());
        assert!(poll!(&mut work).is_pending());
        assert_eq!(tasks(), before);
        drop(work);
        assert_eq!(tasks(), before + 1);
        release.send(()).unwrap();
        ended.await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_ends_the_work_and_not_who_waits_for_it() {
        let before = tasks();
        AttachedWork::new(async { panic!("as ordered") }.boxed()).await;
        assert_eq!(tasks(), before);
    }
}
