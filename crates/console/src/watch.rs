//! The console's knowledge of the cluster. It asks once for all browsers, only while a browser asks, and shows the last
//! answer while the cluster does not answer. After an order it asks anew.

use gabion_client::{Client, ClientError};
use gabion_protocol::message::{LoggedEvent, ask};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Age at which an answer is asked for anew.
const FRESH_FOR: Duration = Duration::from_millis(900);
/// Time after which rates since an earlier answer say nothing of now.
const RATES_OVER: Duration = Duration::from_mins(1);

/// Events that the console keeps, and those of one request to the coordinator.
const EVENT_COUNT_MAX: usize = 1_000;
const EVENT_PAGE_COUNT: u64 = 1_000;

/// The last answer to a question.
pub(crate) struct Latest<T> {
    known: Mutex<Known<T>>,
    /// End of the last order. An answer to an earlier question may show the state before the order.
    ordered: std::sync::Mutex<Option<Instant>>,
}

struct Known<T> {
    now: Option<(Instant, Arc<T>)>,
    before: Option<(Instant, Arc<T>)>,
    /// Begin and end of the last question.
    tried: Option<(Instant, Instant)>,
    failure: Option<String>,
}

/// The cause if nothing is known yet, in a sentence.
#[derive(Debug)]
pub(crate) struct Unknown(pub(crate) String);

/// A look at the last answer.
pub(crate) struct Look<T> {
    pub(crate) now: Arc<T>,
    /// The answer before it, if it is recent.
    pub(crate) before: Option<Arc<T>>,
    pub(crate) age: Duration,
    /// The error of the newest question, if it has failed.
    pub(crate) failure: Option<String>,
}

impl<T> Latest<T> {
    pub(crate) fn new() -> Self {
        let known = Known {
            now: None,
            before: None,
            tried: None,
            failure: None,
        };
        Self {
            known: Mutex::new(known),
            ordered: std::sync::Mutex::new(None),
        }
    }

    /// An order has ended: later reads see its effect.
    pub(crate) fn forget(&self) {
        let mut ordered = self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        *ordered = Some(Instant::now());
    }

    fn is_fresh(&self, tried: Option<(Instant, Instant)>) -> bool {
        let ordered = *self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        tried.is_some_and(|(begin, end)| {
            end.elapsed() < FRESH_FOR && ordered.is_none_or(|ordered| begin > ordered)
        })
    }

    /// The last answer, asked for anew if it is not fresh.
    ///
    /// # Errors
    /// A sentence if there was never an answer.
    pub(crate) async fn look(
        &self,
        ask: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<Look<T>, Unknown> {
        // Later callers wait here for the answer in flight, and get the same one.
        let mut known = self.known.lock().await;
        if !self.is_fresh(known.tried) {
            let asked = Instant::now();
            let answer = ask.await;
            known.tried = Some((asked, Instant::now()));
            match answer {
                Ok(answer) => {
                    known.before = known.now.take();
                    known.now = Some((asked, Arc::new(answer)));
                    known.failure = None;
                }
                Err(error) => known.failure = Some(error.to_string()),
            }
        }
        let Some((at, now)) = &known.now else {
            return Err(Unknown(known.failure.clone().unwrap_or_default()));
        };
        let before = known.before.as_ref();
        let before = before.filter(|(before, _)| at.duration_since(*before) < RATES_OVER);
        Ok(Look {
            now: Arc::clone(now),
            before: before.map(|(_, before)| Arc::clone(before)),
            age: at.elapsed(),
            failure: known.failure.clone(),
        })
    }
}

/// The newest events.
#[derive(Default)]
pub(crate) struct Tail {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<LoggedEvent>,
    after: u64,
    asked: Option<Instant>,
}

impl Tail {
    /// The newest events, at most `limit`, with numbers above `after`; oldest first.
    ///
    /// # Errors
    /// Those of [`Client::events`].
    pub(crate) async fn newest(
        &self,
        client: &Client,
        after: u64,
        limit: usize,
    ) -> Result<Vec<LoggedEvent>, ClientError> {
        let mut kept = self.kept.lock().await;
        let is_fresh = kept.asked.is_some_and(|at| at.elapsed() < FRESH_FOR);
        let mut is_cut = !is_fresh;
        while is_cut {
            let asked = ask::Events {
                after: kept.after,
                since_ms: None,
                limit: EVENT_PAGE_COUNT,
            };
            let page = client.events(asked).await?;
            kept.after = page.last;
            is_cut = page.is_cut;
            kept.events.extend(page.events);
            let surplus = kept.events.len().saturating_sub(EVENT_COUNT_MAX);
            kept.events.drain(..surplus);
        }
        if !is_fresh {
            kept.asked = Some(Instant::now());
        }
        let newer = kept.events.iter().rev();
        let newer = newer.take_while(|event| event.number > after);
        let mut events: Vec<LoggedEvent> = newer.take(limit).cloned().collect();
        events.reverse();
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn look(latest: &Latest<u32>, answer: Result<u32, ClientError>) -> Option<Look<u32>> {
        latest.look(async { answer }).await.ok()
    }

    #[tokio::test]
    async fn an_answer_is_kept_while_there_is_no_other() {
        let latest = Latest::new();
        let away = || Err(ClientError::NoCoordinator("it is away".to_owned()));
        assert!(look(&latest, away()).await.is_none());
        latest.known.lock().await.tried = None;
        let first = look(&latest, Ok(1)).await.unwrap();
        assert_eq!((*first.now, first.failure), (1, None));
        let same = look(&latest, Ok(2)).await.unwrap();
        assert_eq!(*same.now, 1, "it is fresh");
        latest.known.lock().await.tried = None;
        let kept = look(&latest, away()).await.unwrap();
        assert_eq!(*kept.now, 1);
        assert!(kept.failure.unwrap().contains("it is away"));
        latest.known.lock().await.tried = None;
        let next = look(&latest, Ok(3)).await.unwrap();
        assert_eq!(
            (*next.now, *next.before.unwrap(), next.failure),
            (3, 1, None)
        );
    }

    #[tokio::test]
    async fn after_an_order_no_earlier_answer_is_used() {
        let latest = Latest::new();
        assert_eq!(*look(&latest, Ok(1)).await.unwrap().now, 1);
        latest.forget();
        assert_eq!(*look(&latest, Ok(2)).await.unwrap().now, 2);
        // The order ends while the cluster is asked.
        latest.forget();
        let during = latest.look(async {
            latest.forget();
            Ok(3)
        });
        assert_eq!(*during.await.unwrap().now, 3);
        assert_eq!(*look(&latest, Ok(4)).await.unwrap().now, 4);
        assert_eq!(*look(&latest, Ok(5)).await.unwrap().now, 4, "it is fresh");
    }
}
