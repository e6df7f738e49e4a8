//! The places of connections. A connection that has shown a session is a member, and all others are strangers. A new
//! connection replaces the stranger that has been silent longest, so that strangers cannot keep an operator out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Most connections at a time.
const SEAT_COUNT_MAX: usize = 64;
/// Most strangers among them. The other places are for members.
const STRANGER_COUNT_MAX: usize = 48;
/// Time that each connection has before another one may replace it.
const GRACE: Duration = Duration::from_millis(250);

/// The place of a connection.
#[derive(Debug)]
pub(crate) struct Seat {
    begun: Instant,
    heard: Mutex<Instant>,
    is_member: AtomicBool,
    replaced: Notify,
}

impl Seat {
    fn new(now: Instant) -> Self {
        Self {
            begun: now,
            heard: Mutex::new(now),
            is_member: AtomicBool::new(false),
            replaced: Notify::new(),
        }
    }

    /// A request has come.
    pub(crate) fn hear(&self, now: Instant) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// The connection has shown a session.
    pub(crate) fn show_session(&self) {
        self.is_member.store(true, Ordering::Relaxed);
    }

    /// Waits until another connection has taken the place.
    pub(crate) async fn replaced(&self) {
        self.replaced.notified().await;
    }

    fn is_member(&self) -> bool {
        self.is_member.load(Ordering::Relaxed)
    }

    fn heard(&self) -> Instant {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The places of all connections.
#[derive(Debug, Default)]
pub(crate) struct Places {
    seats: Mutex<Vec<Arc<Seat>>>,
}

impl Places {
    /// A place for a new connection. Another connection may lose its own for it.
    ///
    /// # Errors
    /// The time after which to ask again, if all that could be replaced have just begun.
    pub(crate) fn take(&self, now: Instant) -> Result<Arc<Seat>, Duration> {
        let mut seats = self.lock();
        let stranger_count = seats.iter().filter(|seat| !seat.is_member()).count();
        if seats.len() >= SEAT_COUNT_MAX || stranger_count >= STRANGER_COUNT_MAX {
            let can_go = |seat: &Seat| stranger_count == 0 || !seat.is_member();
            let others = seats.iter().enumerate();
            let others = others.filter(|(_, seat)| can_go(seat));
            // Those in their first moments come last.
            let is_new = |seat: &Seat| now.saturating_duration_since(seat.begun) < GRACE;
            let silent = others.min_by_key(|(_, seat)| {
                if is_new(seat) {
                    (true, seat.begun)
                } else {
                    (false, seat.heard())
                }
            });
            if let Some((at, seat)) = silent {
                if is_new(seat) {
                    return Err(GRACE.saturating_sub(now.saturating_duration_since(seat.begun)));
                }
                seats.swap_remove(at).replaced.notify_one();
            }
        }
        let seat = Arc::new(Seat::new(now));
        seats.push(Arc::clone(&seat));
        Ok(seat)
    }

    /// The connection with this place has ended.
    pub(crate) fn leave(&self, seat: &Arc<Seat>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, seat));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Seat>>> {
        // The list is whole after every statement.
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    fn is_replaced(seat: &Seat) -> bool {
        seat.replaced().now_or_never().is_some()
    }

    #[test]
    fn a_new_connection_replaces_the_stranger_that_is_silent_longest() {
        let (places, begun) = (Places::default(), Instant::now());
        let member = places.take(begun).unwrap();
        member.show_session();
        let strangers: Vec<_> = (0..STRANGER_COUNT_MAX)
            .map(|_| places.take(begun).unwrap())
            .collect();
        assert_eq!(
            places.take(begun).unwrap_err(),
            GRACE,
            "they have begun just now"
        );
        let now = begun + GRACE;
        for (at, seat) in strangers.iter().enumerate().filter(|(at, _)| *at != 7) {
            seat.hear(now + Duration::from_millis(at as u64));
        }
        let newest = places.take(now).unwrap();
        let replaced: Vec<usize> = (0..strangers.len())
            .filter(|&at| is_replaced(&strangers[at]))
            .collect();
        assert_eq!(replaced, [7]);
        assert!(!is_replaced(&member) && !is_replaced(&newest));
        places.leave(&strangers[0]);
        places.take(now).unwrap();
        assert!(!is_replaced(&strangers[1]), "one was free");
    }

    #[test]
    fn members_give_way_only_if_there_are_no_strangers() {
        let (places, begun) = (Places::default(), Instant::now());
        let members: Vec<_> = (0..SEAT_COUNT_MAX)
            .map(|_| {
                let seat = places.take(begun).unwrap();
                seat.show_session();
                seat
            })
            .collect();
        let now = begun + GRACE;
        let stranger = places.take(now).unwrap();
        assert_eq!(members.iter().filter(|seat| is_replaced(seat)).count(), 1);
        let now = now + GRACE;
        places.take(now).unwrap();
        assert!(is_replaced(&stranger));
        assert!(!members.iter().any(|seat| is_replaced(seat)));
    }

    #[test]
    fn requests_of_strangers_do_not_keep_others_out() {
        let (places, begun) = (Places::default(), Instant::now());
        let strangers: Vec<_> = (0..STRANGER_COUNT_MAX)
            .map(|_| places.take(begun).unwrap())
            .collect();
        let now = begun + GRACE;
        for seat in &strangers {
            seat.hear(now);
        }
        assert!(places.take(now).is_ok());
    }
}
