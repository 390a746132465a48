//! Comparison of a table with its subject: a failure names the new rows, the surplus rows, and the correction.

use std::collections::BTreeSet;

/// Compares the rows of a table with their subject. `about` names the subject, `update` the correction.
pub(crate) fn compare<T: Ord + std::fmt::Display>(
    table: &str,
    rows: impl IntoIterator<Item = T>,
    about: &str,
    named: impl IntoIterator<Item = T>,
    update: &str,
) {
    if let Some(text) = difference(table, rows, about, named, update) {
        panic!("{text}");
    }
}

fn difference<T: Ord + std::fmt::Display>(
    table: &str,
    rows: impl IntoIterator<Item = T>,
    about: &str,
    named: impl IntoIterator<Item = T>,
    update: &str,
) -> Option<String> {
    let (rows, named): (BTreeSet<T>, BTreeSet<T>) = (rows.into_iter().collect(), named.into_iter().collect());
    let lines = |word: &str, one: &BTreeSet<T>, other: &BTreeSet<T>| {
        one.difference(other).map(|row| format!("  {word}: {row}\n")).collect::<Vec<_>>().concat()
    };
    let new = lines("new, without a row", &named, &rows);
    let left = lines("a row of nothing", &rows, &named);
    (rows != named).then(|| format!("{table} is not what {about} has:\n{new}{left}{update}"))
}

#[test]
fn table_names_new_row() {
    let compared = |rows: &[&'static str], named: &[&'static str]| {
        difference("the page", rows.iter().copied(), "the code", named.iter().copied(), "Add it.")
    };
    assert_eq!(compared(&["a", "b"], &["b", "a"]), None);
    assert_eq!(
        compared(&["a", "c"], &["a", "b"]).unwrap(),
        "the page is not what the code has:\n  new, without a row: b\n  a row of nothing: c\nAdd it."
    );
}
