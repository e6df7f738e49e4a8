//! Tables in Markdown documents: just enough to read the two that tidy checks against.

/// One row of a table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    /// The line, counted from 1.
    pub(crate) line: usize,
    /// The cells, without the space around them.
    pub(crate) cells: Vec<&'a str>,
}

/// The rows of every table of `text` whose header is exactly `header`, in order.
///
/// A document may split one table over several headings by repeating the header. Rows keep the
/// number of cells they were written with; the caller judges a wrong number.
pub(crate) fn table_rows<'a>(text: &'a str, header: &[&str]) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        let Some(cells) = cells(line) else {
            inside = false;
            continue;
        };
        if cells == header {
            inside = true;
        } else if inside && !is_rule(&cells) {
            rows.push(Row {
                line: index + 1,
                cells,
            });
        }
    }
    rows
}

/// The cells of a table's line; `None` for a line that is not one.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?;
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    Some(inner.split('|').map(str::trim).collect())
}

/// Whether these are the dashes between a header and its rows.
fn is_rule(cells: &[&str]) -> bool {
    cells
        .iter()
        .all(|cell| cell.contains("--") && cell.chars().all(|c| matches!(c, '-' | ':')))
}

/// The items of a cell such as `` `codec`, `layout` ``; a lone `-` is the empty list.
///
/// `None` when the cell is anything else, such as prose.
pub(crate) fn code_list(cell: &str) -> Option<Vec<&str>> {
    if cell == "-" {
        return Some(Vec::new());
    }
    cell.split(',').map(|item| code(item.trim())).collect()
}

/// The text of one inline code span.
pub(crate) fn code(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('`')?.strip_suffix('`')?;
    (!inner.is_empty() && !inner.contains('`')).then_some(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_wanted_table_alone() {
        let text = "\
| a | b |
|---|:--:|
| 1 | 2 |

| other | b |
|---|---|
| 5 | 6 |
prose
| a | b |
|---|---|
| 3 | - |
| lonely |
";
        let rows = table_rows(text, &["a", "b"]);
        let expected = [
            Row {
                line: 3,
                cells: vec!["1", "2"],
            },
            Row {
                line: 11,
                cells: vec!["3", "-"],
            },
            Row {
                line: 12,
                cells: vec!["lonely"],
            },
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn code_lists() {
        assert_eq!(code_list("-"), Some(vec![]));
        assert_eq!(code_list("`a`, `b c`"), Some(vec!["a", "b c"]));
        assert_eq!(code_list("plan and below"), None);
        assert_eq!(code_list("`a`, b"), None);
        assert_eq!(code_list("`a` `b`"), None);
        assert_eq!(code_list(""), None);
    }
}
