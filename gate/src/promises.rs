//! Tests of promises: what Seaway says it never does. One that failed has no second try.

use std::fs;

use crate::options::Options;

#[derive(Debug)]
pub(crate) struct Promise {
    line: usize,
    label: String,
    part: String,
}

impl Promise {
    pub(crate) fn covers(&self, label: &str, test: &str) -> bool {
        self.label == label && test.contains(&self.part)
    }

    pub(crate) fn is_of(&self, label: &str) -> bool {
        self.label == label
    }

    pub(crate) fn place(&self) -> String {
        format!(
            "gate/promises.txt:{}: no test of \"{}\" has \"{}\" in its name",
            self.line, self.label, self.part
        )
    }
}

pub(crate) fn read(options: &Options) -> Result<Vec<Promise>, String> {
    let file = options.checkout.join("gate/promises.txt");
    let text =
        fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    parse(&text).map_err(|fault| format!("{}:{fault}", file.display()))
}

/// `LABEL | PART OF A TEST'S NAME`; an empty part covers the whole program.
fn parse(text: &str) -> Result<Vec<Promise>, String> {
    let mut promises = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (label, part) =
            line.split_once('|').ok_or(format!("{}: no | between program and test", at + 1))?;
        promises.push(Promise { line: at + 1, label: label.trim().to_owned(), part: part.trim().to_owned() });
    }
    Ok(promises)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_covers_the_tests_that_its_line_names() {
        let promises = parse("# why\n\nproxy | takeover::\ncli, tests/walk | \n").expect("it is well formed");
        assert!(promises[0].covers("proxy", "takeover::tests::nothing_is_lost"));
        assert!(!promises[0].covers("proxy, tests/tcp", "takeover::tests::nothing_is_lost"));
        assert!(!promises[0].covers("proxy", "udp::tests::nothing_is_lost"));
        assert!(promises[1].covers("cli, tests/walk", "anything"));
    }

    #[test]
    fn a_line_without_a_bar_is_an_error_with_its_number() {
        assert_eq!(parse("\nproxy takeover").expect_err("no bar"), "2: no | between program and test");
    }
}
