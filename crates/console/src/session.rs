//! One-time passwords, and the sessions that they begin.
//!
//! A password opens one session. Another one is drawn at once and announced, so that the operator can log in from a
//! second browser. Nothing outlives the process.

use ring::rand::{SecureRandom, SystemRandom};
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq as _;

/// Letters of passwords: 32 that are not mistaken for each other.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Letters of a password: 80 bits.
const LETTER_COUNT: usize = 16;
/// Random bytes of a session's token.
const TOKEN_BYTES: usize = 16;

/// Most sessions at a time. One more ends the one that is silent longest.
pub(crate) const SESSION_COUNT_MAX: usize = 16;
/// Longest life of a session.
pub(crate) const SESSION_LIMIT: Duration = Duration::from_hours(12);
/// Longest silence of a session. A visible page asks each two seconds.
const SILENCE_LIMIT: Duration = Duration::from_hours(1);

/// Wrong passwords that are answered in a row, and the time after which one more is.
const TRY_COUNT_MAX: u32 = 5;
const TRY_EVERY: Duration = Duration::from_secs(2);

/// Tells the operator the password that is valid now.
pub(crate) type Announce = Box<dyn Fn(&str) + Send + Sync>;

/// Why a login is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoginError {
    /// It is not the password, or no more.
    Wrong,
    /// There were too many wrong ones.
    TooMany {
        /// The time after which the next one is compared.
        retry_after: Duration,
    },
    /// The system gives no random numbers.
    NoRandomness,
}

struct Session {
    token: String,
    begun: Instant,
    heard: Instant,
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.begun) >= SESSION_LIMIT
            || now.duration_since(self.heard) >= SILENCE_LIMIT
    }
}

struct State {
    password: String,
    sessions: Vec<Session>,
    /// Wrong passwords that are still answered, as of `refilled`.
    try_count: u32,
    refilled: Instant,
}

/// The password that is valid now, and the sessions.
pub(crate) struct Sessions {
    state: Mutex<State>,
    announce: Announce,
}

impl Sessions {
    /// Draws the first password and announces it.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub(crate) fn new(announce: Announce, now: Instant) -> Result<Self, LoginError> {
        let password = draw_password()?;
        announce(&password);
        let state = State {
            password,
            sessions: Vec::new(),
            try_count: TRY_COUNT_MAX,
            refilled: now,
        };
        Ok(Self {
            state: Mutex::new(state),
            announce,
        })
    }

    /// Begins a session by a password, which is spent from then on. Returns the session's token.
    ///
    /// # Errors
    /// [`LoginError`].
    pub(crate) fn begin(&self, given: &str, now: Instant) -> Result<String, LoginError> {
        let mut state = self.lock();
        state.refill(now);
        if state.try_count == 0 {
            let retry_after = TRY_EVERY.saturating_sub(now.duration_since(state.refilled));
            return Err(LoginError::TooMany { retry_after });
        }
        // As people type it.
        let given: String = given
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect::<String>()
            .to_ascii_lowercase();
        let known: String = state.password.replace('-', "");
        if !is_same(&given, &known) {
            state.try_count -= 1;
            return Err(LoginError::Wrong);
        }
        let (token, password) = (draw_token()?, draw_password()?);
        state.password = password;
        state.try_count = TRY_COUNT_MAX;
        state.sessions.retain(|session| !session.is_over(now));
        if state.sessions.len() >= SESSION_COUNT_MAX {
            let silent = state.sessions.iter().enumerate();
            if let Some((at, _)) = silent.min_by_key(|(_, session)| session.heard) {
                state.sessions.remove(at);
            }
        }
        state.sessions.push(Session {
            token: token.clone(),
            begun: now,
            heard: now,
        });
        (self.announce)(&state.password);
        Ok(token)
    }

    /// Whether this is the token of a session, which counts as heard then.
    pub(crate) fn admits(&self, token: &str, now: Instant) -> bool {
        let mut state = self.lock();
        state.sessions.retain(|session| !session.is_over(now));
        let mut is_known = false;
        for session in &mut state.sessions {
            if is_same(token, &session.token) {
                session.heard = now;
                is_known = true;
            }
        }
        is_known
    }

    /// Ends the session with this token.
    pub(crate) fn end(&self, token: &str) {
        let mut state = self.lock();
        state
            .sessions
            .retain(|session| !is_same(token, &session.token));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole after every statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn refill(&mut self, now: Instant) {
        let passed = now.duration_since(self.refilled);
        let more = passed.as_millis() / TRY_EVERY.as_millis();
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(TRY_COUNT_MAX);
            self.try_count = self.try_count.saturating_add(more).min(TRY_COUNT_MAX);
            self.refilled = now;
        }
    }
}

/// Compares in a time that depends on the lengths only.
fn is_same(a: &str, b: &str) -> bool {
    bool::from(a.as_bytes().ct_eq(b.as_bytes()))
}

fn random<const COUNT: usize>() -> Result<[u8; COUNT], LoginError> {
    let mut bytes = [0; COUNT];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| LoginError::NoRandomness)?;
    Ok(bytes)
}

fn draw_password() -> Result<String, LoginError> {
    let mut password = String::new();
    for (at, byte) in random::<LETTER_COUNT>()?.into_iter().enumerate() {
        if at > 0 && at % 4 == 0 {
            password.push('-');
        }
        password.push(char::from(LETTERS[usize::from(byte) % LETTERS.len()]));
    }
    Ok(password)
}

fn draw_token() -> Result<String, LoginError> {
    let mut token = String::new();
    for byte in random::<TOKEN_BYTES>()? {
        let _ = write!(token, "{byte:02x}");
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    type Told = Arc<Mutex<Vec<String>>>;

    fn sessions(now: Instant) -> (Sessions, Told) {
        let told = Told::default();
        let announce = {
            let told = Arc::clone(&told);
            Box::new(move |password: &str| told.lock().unwrap().push(password.to_owned()))
        };
        (Sessions::new(announce, now).unwrap(), told)
    }

    fn last(told: &Told) -> String {
        told.lock().unwrap().last().unwrap().clone()
    }

    #[test]
    fn a_password_begins_one_session() {
        let now = Instant::now();
        let (sessions, told) = sessions(now);
        let password = last(&told);
        assert_eq!(password.len(), 19, "{password}");
        let typed = password.to_uppercase().replace('-', " ");
        let token = sessions.begin(&typed, now).unwrap();
        assert_eq!(token.len(), 32);
        assert!(sessions.admits(&token, now));
        assert!(!sessions.admits("", now));
        assert!(!sessions.admits(&token[..31], now));
        assert_eq!(sessions.begin(&password, now), Err(LoginError::Wrong));
        assert_ne!(last(&told), password, "the next one is announced");
        sessions.end(&token);
        assert!(!sessions.admits(&token, now));
    }

    #[test]
    fn wrong_passwords_are_limited_in_rate() {
        let now = Instant::now();
        let (sessions, told) = sessions(now);
        for _ in 0..TRY_COUNT_MAX {
            assert_eq!(sessions.begin("wrong", now), Err(LoginError::Wrong));
        }
        let retry_after = TRY_EVERY;
        let too_many = Err(LoginError::TooMany { retry_after });
        assert_eq!(sessions.begin("wrong", now), too_many);
        assert_eq!(sessions.begin(&last(&told), now), too_many);
        let later = now + TRY_EVERY;
        assert!(sessions.begin(&last(&told), later).is_ok());
    }

    #[test]
    fn sessions_end_by_time_silence_and_number() {
        let now = Instant::now();
        let (sessions, told) = sessions(now);
        let begin = |at| sessions.begin(&last(&told), at).unwrap();
        let first = begin(now);
        assert!(!sessions.admits(&first, now + SILENCE_LIMIT));
        let first = begin(now);
        let mut at = now;
        while at.duration_since(now) + SILENCE_LIMIT / 2 < SESSION_LIMIT {
            at += SILENCE_LIMIT / 2;
            assert!(sessions.admits(&first, at));
        }
        assert!(!sessions.admits(&first, now + SESSION_LIMIT));
        let tokens: Vec<String> = (0..=SESSION_COUNT_MAX as u32)
            .map(|number| begin(at + Duration::from_secs(u64::from(number))))
            .collect();
        let at = at + Duration::from_mins(1);
        assert!(
            !sessions.admits(&tokens[0], at),
            "the one that is silent longest"
        );
        assert!(tokens[1..].iter().all(|token| sessions.admits(token, at)));
    }
}
