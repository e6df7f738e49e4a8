//! Judges the cluster's answer to an operation by those of the model.

use super::answer::{Answer, Outcome};
use super::choices::Choice;
use super::difference::difference;
use super::expected::Expected;
use super::operation::{AloneOperation, Operation};
use super::runner::Runner;
use gabion_client::{Cause, ClientError};

impl Runner {
    /// Finds the outcome that the cluster's answer is, and whether that is in doubt.
    pub(crate) fn judge<'c>(
        &self,
        of: (&Operation, &Expected),
        choices: &'c [Choice],
        actual: &Result<Answer, ClientError>,
    ) -> Result<(&'c Choice, bool), String> {
        let now_us = self.cluster.world.now_us();
        let (mut unknown, mut differs) = (None, None);
        for choice in choices.iter().filter(|choice| choice.earliest_us <= now_us) {
            match self.compare(of, &choice.outcome, actual) {
                Ok(false) => return Ok((choice, false)),
                Ok(true) => {
                    unknown.get_or_insert(choice);
                }
                Err(why) => {
                    differs.get_or_insert(why);
                }
            }
        }
        match unknown {
            Some(choice) => Ok((choice, true)),
            None => Err(differs.unwrap_or_default()),
        }
    }

    /// Compares an answer with the model's. Returns whether the operation is in doubt.
    fn compare(
        &self,
        (operation, before): (&Operation, &Expected),
        predicted: &Outcome,
        actual: &Result<Answer, ClientError>,
    ) -> Result<bool, String> {
        let error = match (predicted, actual) {
            (Ok(expected), Ok(answer)) => {
                return match difference(expected, answer) {
                    None => Ok(false),
                    Some(what) => Err(what),
                };
            }
            (Err(cause), Ok(answer)) => {
                return Err(format!(
                    "expected a refusal ({}), and it was {answer:?}",
                    cause.name()
                ));
            }
            (Err(cause), Err(error)) if has_cause(error, *cause) => return Ok(false),
            (Err(cause), Err(error)) if is_other_word(*cause, error.cause(), operation) => {
                return Ok(false);
            }
            (Err(_), Err(error)) if is_other_reason(before, operation, error) => return Ok(false),
            (_, Err(error)) => error,
        };
        let is_early = error.cause() == Cause::Quota && self.counts_removed(operation);
        if self.trouble.is_some() && (is_in_doubt(error) || is_early) {
            return Ok(true);
        }
        let expected = match predicted {
            Ok(_) => "success",
            Err(cause) => cause.name(),
        };
        let cause = error.cause().name();
        Err(format!("expected {expected}, and it was {cause}: {error}"))
    }
}

/// Whether an error is the refusal that was expected, and no lack of an outcome.
fn has_cause(error: &ClientError, cause: Cause) -> bool {
    !is_without_answer(error) && error.cause() == cause
}

/// Whether an error is a refusal for a reason that holds as well as the expected one.
fn is_other_reason(before: &Expected, operation: &Operation, error: &ClientError) -> bool {
    !is_without_answer(error) && before.is_reason(operation, error.cause())
}

const fn is_without_answer(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Late { .. }
            | ClientError::NoCoordinator(_)
            | ClientError::Undecided { .. }
            | ClientError::Forgotten(_)
    )
}

/// Whether another cause than the model's is as right.
fn is_other_word(expected: Cause, found: Cause, operation: &Operation) -> bool {
    match expected {
        // The client knew a larger size.
        Cause::Invalid if found == Cause::Stale => matches!(
            operation,
            Operation::File { is_old: true, .. } | Operation::Alone(AloneOperation::Use(..))
        ),
        // A path with an invalid part below a file is wrong in two ways.
        Cause::Invalid | Cause::NameTooLong => found == Cause::NotADirectory,
        _ => false,
    }
}

/// Whether an operation may have ended so because the coordinator or a node was killed. A repeated request that was
/// refused before is answered as a stale one. Locks are never lost so.
fn is_in_doubt(error: &ClientError) -> bool {
    let causes = [Cause::Failure, Cause::NotLeading, Cause::Stale];
    let is_loss = matches!(error, ClientError::LocksLost(_));
    !is_loss && (is_without_answer(error) || causes.contains(&error.cause()))
}
