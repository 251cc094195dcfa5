use proptest::prelude::*;

use super::*;

fn list(compiler: &mut Compiler, written: &[(&str, &str)]) -> Vec<Expression> {
    let one = |(namespace, text): &(&str, &str)| {
        let regex = compiler.whole(&Name::from(*text))?;
        Some(Expression { text: Name::from(*text), namespace: Name::from(*namespace), regex })
    };
    written.iter().filter_map(one).collect()
}

fn compiled(written: &[(&str, &str)], table: usize) -> Expressions {
    let mut compiler = Compiler { table, ..Compiler::default() };
    let list = list(&mut compiler, written);
    compiler.expressions(list.iter())
}

/// Bytes of tables, and how many are tried by themselves.
fn size(expressions: &Expressions) -> (usize, usize) {
    let sets = || expressions.groups.iter().filter_map(|it| it.sets.get(it.which));
    let tables = sets().filter_map(|it| it.automaton.as_ref()).map(dense::DFA::memory_usage).sum();
    (tables, sets().filter(|it| it.automaton.is_none()).map(|it| it.members.len()).sum())
}

/// Pieces of which expressions are made, such as people write and such as only somebody hostile does.
const PIECES: [&str; 30] = [
    "/",
    "a",
    "b",
    "ab",
    "/a",
    ".",
    ".*",
    "[^/]+",
    "[ab]",
    "a|b",
    "(a|/)",
    "(?:b/)*",
    "a{1,3}",
    "b?",
    "\\w+",
    "\\d",
    "\\b",
    "\\B",
    "^",
    "$",
    "(?i:A)",
    "(?m)",
    "(?m:$)",
    "(?-u:.)",
    "(?-u:\\xff)",
    "ä",
    ")|(",
    "(?:",
    ")",
    "(?:a|b)*a(?:a|b){9}",
];

fn expression() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&PIECES[..]), 0..6).prop_map(|it| it.concat())
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(&b"aabbAB//1.\n"[..]);
    let any =
        prop_oneof![8 => prop::collection::vec(byte, 0..12), 1 => prop::collection::vec(any::<u8>(), 0..6)];
    prop_oneof![8 => any, 1 => "[abä/]{0,6}".prop_map(String::into_bytes)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn all_at_once_finds_what_one_after_the_other_finds(
        written in prop::collection::vec((prop::sample::select(&["one", "other"][..]), expression()), 0..24),
        texts in prop::collection::vec((text(), any::<u32>()), 8),
        table in 256..4_096_usize,
    ) {
        let written: Vec<(&str, &str)> = written.iter().map(|(namespace, it)| (*namespace, it.as_str())).collect();
        let mut compiler = Compiler { table, ..Compiler::default() };
        let list = list(&mut compiler, &written);
        let expressions = compiler.expressions(list.iter());
        for (text, fitting) in &texts {
            let fits = |place: usize| fitting >> (place % 32) & 1 == 1;
            let mut alone = list.iter().enumerate();
            let expected = alone.find(|(place, it)| it.regex.is_match(text) && fits(*place));
            prop_assert_eq!(expressions.first(text, fits), expected.map(|(place, _)| place), "{:?}", text);
        }
    }
}

/// As `bench/run attacks` floods with.
#[test]
fn as_many_as_a_namespace_may_have_are_one_automaton() {
    let texts: Vec<String> = (0..64).map(|at| format!("/(a|b|[a-f])*(x|y){{1,20}}{at}.*")).collect();
    let written: Vec<(&str, &str)> = texts.iter().map(|it| ("shop", it.as_str())).collect();
    let expressions = compiled(&written, TABLE);
    assert_eq!(expressions.groups.len(), 1);
    assert_eq!(size(&expressions).1, 0);
    assert_eq!(expressions.first(b"/abxx63", |_| true), Some(6), "6 and whatever comes then");
    assert_eq!(expressions.first(b"/abxx63", |place| place > 6), Some(63));
}

#[test]
fn what_would_be_too_large_together_is_split_and_bounded() {
    // Half of them have to know what came some bytes before the end, the others which of them have begun.
    let texts: Vec<String> = (0..64)
        .map(|at| match at % 2 {
            0 => format!("/.*[a-m].{{{at}}}.{{10}}"),
            _ => format!("/.*k{at}.*l{at}.*"),
        })
        .collect();
    let written: Vec<(&str, &str)> = texts.iter().map(|it| ("shop", it.as_str())).collect();
    let expressions = compiled(&written, 2 << 10);
    let (tables, alone) = size(&expressions);
    assert!(expressions.groups.len() > 1);
    assert!(tables <= 64 * 2 * (2 << 10), "{tables}");
    assert_eq!(alone, 32, "more than 1,024 states");
    assert_eq!(expressions.first(b"/kk63l63", |_| true), Some(63));
}

#[test]
fn a_change_of_one_namespace_leaves_what_others_have() {
    let mut compiler = Compiler::default();
    let written = [("one", "/a.*"), ("other", "/b.*"), ("one", "/c.*")];
    let list_before = list(&mut compiler, &written);
    let before = compiler.expressions(list_before.iter());
    let changed = [("one", "/a.*"), ("one", "/new"), ("other", "/b.*"), ("one", "/c.*")];
    let list_after = list(&mut compiler, &changed);
    let after = compiler.expressions(list_after.iter());
    let sets = |it: &Expressions, text: &[u8]| {
        let place = u32::try_from(it.first(text, |_| true).expect("it matches")).expect("a place");
        it.groups.iter().find(|it| it.indices.contains(&place)).expect("it is there").sets.clone()
    };
    assert!(Arc::ptr_eq(&sets(&before, b"/b"), &sets(&after, b"/b")));
    assert!(!Arc::ptr_eq(&sets(&before, b"/a"), &sets(&after, b"/a")));
    drop((list_before, before, list_after, after));
    compiler.forget_unused();
    assert!(compiler.alone.is_empty() && compiler.together.is_empty());
}
