//! What users read of the program: every text of the sources in one file, and phrases that nothing may say.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use seaway_testkit::golden;

use super::{
    built::{Workspace, root},
    source::{Source, Token},
};

/// Phrases that a reader has to think about, and what to say instead. A line that ends in `// plain` may have one.
const REFUSED: [(&str, &str); 25] = [
    ("all the same", "still, or nothing"),
    ("anew", "again"),
    ("are told", "get an event, are reported"),
    ("at hand", "available"),
    ("be had", "be available, be reached"),
    ("by the way", "nothing"),
    ("for ever", "forever, permanently"),
    ("given up", "released, stopped"),
    ("gives up", "releases, stops"),
    ("go on", "continue"),
    ("goes on", "stays in use, continues"),
    ("hand-over", "handover"),
    ("here and there", "name the places"),
    ("in the open", "plaintext, without TLS"),
    ("in vain", "without an answer, without effect"),
    ("is led", "is forwarded, is associated"),
    ("is let", "is allowed"),
    ("is told", "gets an event, is reported"),
    ("left alone", "not changed"),
    ("nobody", "no member, no controller, no client"),
    ("somebody", "name it: a client, another controller, the operator"),
    ("take-over", "handover; the flag stays --take-over"),
    ("vouch", "sign, trust"),
    ("what is there", "name it"),
    ("whoever", "name it: the controller that, a client that"),
];

/// Where a text stands that no user reads: the panics of bugs.
const PANICS: [&str; 8] =
    ["expect", "panic", "unreachable", "assert", "assert_eq", "assert_ne", "debug_assert", "expect_used"];

/// `Reason::`, and then file and text.
type Messages = BTreeMap<String, BTreeSet<(String, String)>>;

/// Each change of wording is a line of a diff that a person reads.
#[test]
fn what_users_read_is_what_was_reviewed() {
    let mut messages = Messages::new();
    for source in shipped() {
        let file = source.path.trim_start_matches("crates/").replace("/src/", "/");
        for (_, reason, text) in texts(source) {
            messages.entry(reason).or_default().insert((file.clone(), text));
        }
    }
    let mut listed = String::from(
        "Texts of the program that users may read, by the Reason that stands beside them in the sources.\n\
         Written by SEAWAY_GOLDEN=write cargo test -p seaway-testkit --test house messages\n",
    );
    for (reason, texts) in messages {
        listed += &format!("\n{reason}\n");
        for (file, text) in texts {
            listed += &format!("  {file}: {text}\n");
        }
    }
    golden::same(root().join("crates/testkit/golden/messages.txt"), &listed);
}

#[test]
fn no_message_has_a_phrase_that_is_refused() {
    let mut found = Vec::new();
    for source in shipped() {
        let lines: Vec<&str> = source.text.lines().collect();
        for (line, _, text) in texts(source) {
            let is_meant = lines.get(line - 1).is_some_and(|it| it.trim_end().ends_with("// plain"));
            found.extend(
                refused(&text)
                    .filter(|_| !is_meant)
                    .map(|(phrase, instead)| format!("{}:{line}: \"{phrase}\": say: {instead}", source.path)),
            );
        }
    }
    assert!(found.is_empty(), "{} phrases that readers stumble over:\n{}", found.len(), found.join("\n"));
}

/// Code, and names of tests, may have what they have.
#[test]
fn no_page_has_a_phrase_that_is_refused() {
    let pages = fs::read_dir(root().join("docs")).expect("a folder").map(|it| it.expect("readable").path());
    let others = ["README.md", "SECURITY.md", "CONTRIBUTING.md"].map(|it| root().join(it));
    let mut found = Vec::new();
    for page in pages.chain(others).filter(|it| it.extension().is_some_and(|it| it == "md")) {
        let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        let mut is_code = false;
        for (number, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            }
            if is_code || line.starts_with("    ") {
                continue;
            }
            let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
            let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.extend(
                refused(&prose)
                    .map(|(phrase, instead)| format!("{name}:{}: \"{phrase}\": say: {instead}", number + 1)),
            );
        }
    }
    assert!(found.is_empty(), "{} phrases that readers stumble over:\n{}", found.len(), found.join("\n"));
}

#[test]
fn phrases_are_whole_words_of_any_case_and_reasons_those_of_the_same_call() {
    let phrases = |text| refused(text).map(|(phrase, _)| phrase).collect::<Vec<_>>();
    assert_eq!(phrases("Nobody says so"), ["nobody"]);
    assert_eq!(phrases("busybodynobodyelse, stated"), Vec::<&str>::new());
    assert_eq!(phrases("--take-over"), Vec::<&str>::new());
    assert_eq!(phrases("the take-over failed"), ["take-over"]);
    let text = "fn f() { tell(Reason::Failed, format!(\"it is {} here\", 1)); let x = \"one two three\";\n\
                a().expect(\"no user reads this\"); Problem::new(it, Reason::Taken, message(\"it has a \\\n    port already\")) }";
    let source = Source { path: String::new(), text: text.to_owned() };
    let found: Vec<(String, String)> = texts(&source).map(|(_, reason, text)| (reason, text)).collect();
    let told = [("Failed", "it is {} here"), ("-", "one two three"), ("Taken", "it has a port already")];
    assert_eq!(found, told.map(|(reason, text)| (reason.to_owned(), text.to_owned())));
}

fn shipped() -> impl Iterator<Item = &'static Source> {
    let ships = |it: &&Source| {
        it.path.starts_with("crates/")
            && !it.path.starts_with("crates/testkit/")
            && it.path.contains("/src/")
            && !it.is_test()
    };
    Workspace::read().sources().filter(ships)
}

fn refused(text: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let lower = text.to_lowercase();
    REFUSED.into_iter().filter(move |(phrase, _)| {
        lower.match_indices(phrase).any(|(at, _)| {
            let is_letter = |it: Option<char>| it.is_some_and(char::is_alphanumeric);
            // The dash of a flag, as in --take-over, is of the word.
            let before = lower.get(..at).and_then(|it| it.chars().next_back());
            !is_letter(before)
                && before != Some('-')
                && !is_letter(lower.get(at + phrase.len()..).and_then(|it| it.chars().next()))
        })
    })
}

/// Texts of three words and more, each with its line and the Reason of the call or statement that it stands in.
fn texts(source: &Source) -> impl Iterator<Item = (usize, String, String)> {
    let tokens = source.tokens_outside_tests();
    // Of each token, where what it stands in begins: calls, and statements within blocks.
    let mut within: Vec<usize> = vec![0];
    let mut begins: Vec<Vec<usize>> = Vec::new();
    for (at, (_, token)) in tokens.iter().enumerate() {
        begins.push(within.clone());
        match token {
            Token::Sign('(' | '[') => within.push(at),
            Token::Sign('{') => within.push(at),
            Token::Sign(')' | ']' | '}') if within.len() > 1 => {
                within.pop();
            }
            Token::Sign(';') => {
                if let Some(last) = within.last_mut() {
                    *last = at;
                }
            }
            _ => {}
        }
    }
    let reasons: Vec<(usize, String)> = tokens
        .windows(4)
        .enumerate()
        .filter_map(|(at, it)| match it {
            [(_, Token::Word(kind)), _, _, (_, Token::Word(name))]
                if kind == "Reason::" && name.chars().any(|it| it.is_lowercase()) =>
            {
                Some((at, name.trim_end_matches("::").to_owned()))
            }
            _ => None,
        })
        .collect();
    let mut found = Vec::new();
    for (at, (line, token)) in tokens.iter().enumerate() {
        let Token::Text(text) = token else { continue };
        let words =
            text.split_whitespace().filter(|it| it.chars().filter(|it| it.is_alphabetic()).count() > 1);
        let Some(places) = begins.get(at) else { continue };
        if words.count() < 3 || is_of_a_panic(&tokens, places) {
            continue;
        }
        // From the innermost call outwards: the first that names a Reason.
        let of_call = places.iter().rev().take(4).find_map(|place| {
            let is_within = |it: &usize| begins.get(*it).is_some_and(|it| it.contains(place));
            let near = reasons.iter().filter(|(it, _)| *place != 0 && is_within(it));
            near.min_by_key(|(it, _)| it.abs_diff(at)).map(|(_, reason)| reason.clone())
        });
        found.push((*line, of_call.unwrap_or_else(|| "-".to_owned()), text.replace('\n', "\\n")));
    }
    found.into_iter()
}

/// In the brackets of what panics, or of a macro that does.
fn is_of_a_panic(tokens: &[(usize, Token)], places: &[usize]) -> bool {
    let Some(place) = places.last() else { return false };
    let before =
        |steps: usize| place.checked_sub(steps).and_then(|at| tokens.get(at)).map(|(_, token)| token);
    let name = match before(1) {
        Some(Token::Sign('!')) => before(2),
        other => other,
    };
    matches!(name, Some(Token::Word(name)) if PANICS.contains(&name.as_str()))
}
