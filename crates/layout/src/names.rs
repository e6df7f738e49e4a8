//! Names for a sentence.

/// The names as a choice: `fo, fl or pl`.
///
/// ```
/// assert_eq!(gabion_layout::any_of(["fo", "fl", "pl"]), "fo, fl or pl");
/// assert_eq!(gabion_layout::any_of(["fo"]), "fo");
/// ```
pub fn any_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}
