//! Licences: which let us ship under Apache-2.0, and the expressions in which packages name theirs.

/// All permissive: they ask for their notice to be kept, and for nothing of our own code.
///
/// Not here, on purpose: MPL-2.0 (whoever changes a file of it must publish the change, which those who package
/// Seaway would have to follow), the GPL family (it reaches our code), and what lawyers argue about (CC0 on code,
/// WTFPL, BUSL). CDLA-Permissive-2.0 is for data: the root certificates that TLS brings.
const ALLOWED: [&str; 10] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Licences of single packages that are no part of what is shipped.
const ALSO: [(&str, &str, &str); 1] =
    [("libfuzzer-sys", "NCSA", "it is as permissive as BSD-3-Clause, and only fuzzers contain LLVM's")];

/// Whether a package can be taken under allowed licences alone.
pub(crate) fn is_allowed_for(package: &str, expression: &str) -> bool {
    let also = ALSO.iter().find(|(it, ..)| *it == package);
    // What is allowed here may as well be MIT.
    is_allowed(&also.map_or(expression.to_owned(), |(_, licence, _)| expression.replace(licence, "MIT")))
}

/// Whether an SPDX expression leaves a way to take the package under allowed licences alone. An expression that is not
/// understood does not.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    let allowed = either(&mut rest);
    rest.is_empty() && allowed.unwrap_or(false)
}

/// `all OR all …`
fn either(rest: &mut &[&str]) -> Option<bool> {
    let mut allowed = all(rest)?;
    while take(rest, "OR") {
        allowed |= all(rest)?;
    }
    Some(allowed)
}

/// `one AND one …`
fn all(rest: &mut &[&str]) -> Option<bool> {
    let mut allowed = one(rest)?;
    while take(rest, "AND") {
        allowed &= one(rest)?;
    }
    Some(allowed)
}

fn one(rest: &mut &[&str]) -> Option<bool> {
    if take(rest, "(") {
        let allowed = either(rest)?;
        return take(rest, ")").then_some(allowed);
    }
    let (first, more) = rest.split_first()?;
    *rest = more;
    let mut name = (*first).to_owned();
    if take(rest, "WITH") {
        let (exception, more) = rest.split_first()?;
        *rest = more;
        name = format!("{name} WITH {exception}");
    }
    Some(ALLOWED.contains(&&*name))
}

fn take(rest: &mut &[&str], word: &str) -> bool {
    match rest.split_first() {
        Some((first, more)) if *first == word => {
            *rest = more;
            true
        }
        _ => false,
    }
}

#[test]
fn a_choice_needs_one_allowed_licence_and_a_sum_needs_all() {
    for (expression, allowed) in [
        ("MIT", true),
        ("MIT OR Apache-2.0", true),
        ("MIT/Apache-2.0", true),
        ("Unlicense OR MIT", true),
        ("GPL-3.0-only", false),
        ("MIT AND GPL-3.0-only", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("GPL-2.0-only OR (MIT AND MPL-2.0)", false),
        ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true),
        ("Apache-2.0 WITH Some-exception", false),
        ("", false),
        ("MIT MIT", false),
        ("(MIT", false),
    ] {
        assert_eq!(is_allowed(expression), allowed, "{expression:?}");
    }
}

#[test]
fn a_licence_that_is_allowed_for_one_package_is_allowed_for_no_other() {
    let expression = "(MIT OR Apache-2.0) AND NCSA";
    assert!(is_allowed_for("libfuzzer-sys", expression));
    assert!(!is_allowed_for("libfuzzer-sys", "NCSA AND GPL-3.0-only"));
    assert!(!is_allowed_for("serde", expression));
}
