//! One-time passwords, and the sessions that they begin.
//!
//! A password opens one session. Another one is drawn at once and announced, so that the operator can log in from a
//! second browser. A session has two secrets: browsers send the cookie's to every port of the host, and the page alone
//! knows the key. A request needs both. Nothing outlives the process.

use ring::rand::{SecureRandom, SystemRandom};
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq as _;

/// Letters of passwords: 32 that are not mistaken for each other.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Letters of a password: 80 bits.
const LETTER_COUNT: usize = 16;
/// Random bytes of each secret of a session.
const SECRET_BYTES: usize = 16;

/// Most sessions at a time. One more ends the one that is silent longest.
pub(crate) const SESSION_COUNT_MAX: usize = 16;
/// Longest life of a session.
pub(crate) const SESSION_LIMIT: Duration = Duration::from_hours(12);
/// Longest silence of a session. A visible page asks each two seconds.
const SILENCE_LIMIT: Duration = Duration::from_hours(1);

/// Wrong passwords that are called wrong in a row, and the time after which one more is. The right one always succeeds.
const TRY_COUNT_MAX: u32 = 5;
const TRY_EVERY: Duration = Duration::from_secs(2);

/// Tells the operator the password that is valid now.
pub(crate) type Announce = Box<dyn Fn(&str) + Send + Sync>;

/// Causes of a refused login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoginError {
    /// It is not the password, or no more.
    Wrong,
    /// There were too many wrong ones.
    TooMany {
        /// The time after which the next one is called wrong.
        retry_after: Duration,
    },
    /// The system gives no random numbers.
    NoRandomness,
}

/// The two secrets of a session. A request needs both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Secrets {
    /// The browser's cookie, which it sends to every server of the host.
    pub(crate) token: String,
    /// The key that the page keeps, and sends to its own server alone.
    pub(crate) key: String,
}

struct Session {
    secrets: Secrets,
    begun: Instant,
    heard: Instant,
}

impl Session {
    fn has(&self, token: &str, key: &str) -> bool {
        is_same(token, &self.secrets.token) & is_same(key, &self.secrets.key)
    }

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

    /// Begins a session by a password, which is spent from then on. Returns the session's secrets.
    ///
    /// # Errors
    /// [`LoginError`].
    pub(crate) fn begin(&self, given: &str, now: Instant) -> Result<Secrets, LoginError> {
        let mut state = self.lock();
        // As people type it.
        let given: String = given
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect::<String>()
            .to_ascii_lowercase();
        let known: String = state.password.replace('-', "");
        if !is_same(&given, &known) {
            return Err(state.count_wrong(now));
        }
        let (token, key, password) = (draw_secret()?, draw_secret()?, draw_password()?);
        let secrets = Secrets { token, key };
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
            secrets: secrets.clone(),
            begun: now,
            heard: now,
        });
        (self.announce)(&state.password);
        Ok(secrets)
    }

    /// Whether a session has one of these tokens and this key. It counts as heard then.
    pub(crate) fn admits<'a>(
        &self,
        tokens: impl Iterator<Item = &'a str>,
        key: &str,
        now: Instant,
    ) -> bool {
        let mut state = self.lock();
        state.sessions.retain(|session| !session.is_over(now));
        let mut is_known = false;
        for token in tokens {
            for session in &mut state.sessions {
                if session.has(token, key) {
                    session.heard = now;
                    is_known = true;
                }
            }
        }
        is_known
    }

    /// Ends the session with one of these tokens and this key. Returns its token.
    pub(crate) fn end<'a>(
        &self,
        mut tokens: impl Iterator<Item = &'a str>,
        key: &str,
    ) -> Option<&'a str> {
        let mut state = self.lock();
        tokens.find(|token| {
            let count = state.sessions.len();
            state.sessions.retain(|session| !session.has(token, key));
            state.sessions.len() < count
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole after every statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts a wrong password, and tells what its sender learns.
    fn count_wrong(&mut self, now: Instant) -> LoginError {
        self.refill(now);
        if self.try_count == 0 {
            let retry_after = TRY_EVERY.saturating_sub(now.duration_since(self.refilled));
            return LoginError::TooMany { retry_after };
        }
        self.try_count -= 1;
        LoginError::Wrong
    }

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

fn draw_secret() -> Result<String, LoginError> {
    let mut secret = String::new();
    for byte in random::<SECRET_BYTES>()? {
        let _ = write!(secret, "{byte:02x}");
    }
    Ok(secret)
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

    fn admits(sessions: &Sessions, secrets: &Secrets, now: Instant) -> bool {
        sessions.admits([secrets.token.as_str()].into_iter(), &secrets.key, now)
    }

    #[test]
    fn a_password_begins_one_session() {
        let now = Instant::now();
        let (sessions, told) = sessions(now);
        let password = last(&told);
        assert_eq!(password.len(), 19, "{password}");
        let typed = password.to_uppercase().replace('-', " ");
        let secrets = sessions.begin(&typed, now).unwrap();
        assert_eq!((secrets.token.len(), secrets.key.len()), (32, 32));
        assert!(admits(&sessions, &secrets, now));
        assert_eq!(sessions.begin(&password, now), Err(LoginError::Wrong));
        assert_ne!(last(&told), password, "the next one is announced");
        let token = [secrets.token.as_str()].into_iter();
        assert_eq!(sessions.end(token.clone(), "other"), None);
        assert!(sessions.end(token, &secrets.key).is_some());
        assert!(!admits(&sessions, &secrets, now));
    }

    #[test]
    fn a_session_needs_both_of_its_secrets() {
        let now = Instant::now();
        let (sessions, told) = sessions(now);
        let first = sessions.begin(&last(&told), now).unwrap();
        let second = sessions.begin(&last(&told), now).unwrap();
        let admits = |tokens: &[&str], key: &str| sessions.admits(tokens.iter().copied(), key, now);
        let (token, key) = (first.token.as_str(), first.key.as_str());
        assert!(!admits(&[token], ""), "the cookie alone");
        assert!(!admits(&[token], "1"));
        assert!(!admits(&[token], token));
        assert!(!admits(&[], key), "the key alone");
        assert!(!admits(&[&token[..31]], key));
        assert!(!admits(&[&second.token], key), "another session's key");
        assert!(admits(&["planted", token], key), "each token is tried");
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
        let later = now + TRY_EVERY;
        assert_eq!(sessions.begin("wrong", later), Err(LoginError::Wrong));
        assert_eq!(sessions.begin("wrong", later), too_many);
        assert!(
            sessions.begin(&last(&told), later).is_ok(),
            "no guesser keeps it out"
        );
    }

    #[test]
    fn sessions_end_by_time_silence_and_number() {
        let now = Instant::now();
        let (sessions, told) = sessions(now);
        let begin = |at| sessions.begin(&last(&told), at).unwrap();
        let first = begin(now);
        assert!(!admits(&sessions, &first, now + SILENCE_LIMIT));
        let first = begin(now);
        let mut at = now;
        while at.duration_since(now) + SILENCE_LIMIT / 2 < SESSION_LIMIT {
            at += SILENCE_LIMIT / 2;
            assert!(admits(&sessions, &first, at));
        }
        assert!(!admits(&sessions, &first, now + SESSION_LIMIT));
        let opened: Vec<Secrets> = (0..=SESSION_COUNT_MAX as u32)
            .map(|number| begin(at + Duration::from_secs(u64::from(number))))
            .collect();
        let at = at + Duration::from_mins(1);
        assert!(
            !admits(&sessions, &opened[0], at),
            "the one that is silent longest"
        );
        assert!(
            opened[1..]
                .iter()
                .all(|secrets| admits(&sessions, secrets, at))
        );
    }
}
