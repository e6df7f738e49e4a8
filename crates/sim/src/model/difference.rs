//! Differences between the model and the cluster, in words.

use super::answer::Answer;
use super::operation::Access;

/// The difference between two answers, in words.
pub(crate) fn difference(expected: &Answer, answer: &Answer) -> Option<String> {
    if expected == answer {
        return None;
    }
    if let (Answer::Bytes(expected), Answer::Bytes(read)) = (expected, answer) {
        return first_difference(expected, read);
    }
    Some(format!("expected {expected:?}, and it was {answer:?}"))
}

/// The first difference between the bytes of the model and others.
pub(crate) fn first_difference(expected: &[u8], read: &[u8]) -> Option<String> {
    if expected.len() != read.len() {
        let (model, cluster) = (expected.len(), read.len());
        return Some(format!("expected {model} bytes, and there were {cluster}"));
    }
    let at = expected
        .iter()
        .zip(read)
        .position(|(one, other)| one != other)?;
    Some(format!(
        "byte {at} is {}, and must be {}",
        read[at], expected[at]
    ))
}

/// Checks what is left of an access whose outcome is unknown, between the bytes before and after it.
pub(crate) fn is_between(
    (old, new): (&[u8], &[u8]),
    read: &[u8],
    access: &Access,
) -> Result<(), String> {
    if access.is_atomic() {
        let is_either = read == old || read == new;
        return is_either.then_some(()).ok_or_else(|| {
            let before = first_difference(old, read).unwrap_or_default();
            let after = first_difference(new, read).unwrap_or_default();
            format!("neither before ({before}) nor after ({after})")
        });
    }
    let sizes = old.len().min(new.len())..=old.len().max(new.len());
    if !sizes.contains(&read.len()) {
        return Err(format!("{} bytes are not within {sizes:?}", read.len()));
    }
    let of = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or_default();
    let may_be_zero = |at: usize| matches!(access, Access::Append(_)) && at >= old.len();
    for (at, &byte) in read.iter().enumerate() {
        let (before, after) = (of(old, at), of(new, at));
        if byte != before && byte != after && !(byte == 0 && may_be_zero(at)) {
            return Err(format!("byte {at} is {byte}, and was {before} or {after}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::operation::Content;

    #[test]
    fn an_access_in_doubt_leaves_the_bytes_before_or_after_it() {
        let (old, new) = (&[1, 2, 3][..], &[1, 9, 9, 9][..]);
        let content = Content::of(0, 3);
        let judge = |read: &[u8], access: &Access| is_between((old, new), read, access).is_ok();
        let whole = Access::Write(1, content);
        assert!(judge(old, &whole) && judge(new, &whole));
        assert!(!judge(&[1, 9, 3], &whole), "a write is atomic");
        let pieces = Access::WritePieces(1, content);
        assert!(judge(&[1, 9, 3], &pieces) && judge(&[1, 2, 9, 0], &pieces));
        assert!(!judge(&[1, 8, 3], &pieces) && !judge(&[1, 2], &pieces));
        assert!(judge(&[1, 2, 3, 0], &Access::Append(content)));
    }
}
