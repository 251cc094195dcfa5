//! One text that holds all mutants of a file: each place asks whether its mutant is switched on.

use std::{cmp::Reverse, iter::Peekable, ops::Range, vec};

use crate::points::{Change, Point};

/// The text with all `points` of its file. Comments tell where each one is: `/*<17*/ … /*17>*/` its other code, and
/// `/*[17*/ … /*17]*/` the whole of it, so that an error of the compiler leads to its mutant.
pub(crate) fn rewritten(text: &str, points: &[&Point]) -> String {
    let mut groups: Vec<Node<'_>> = Vec::new();
    for point in points {
        let rank = rank(point);
        match groups.iter_mut().find(|it| it.range == point.range && it.rank == rank) {
            Some(node) => node.points.push(point),
            None => groups.push(Node {
                range: point.range.clone(),
                rank,
                points: vec![point],
                within: Vec::new(),
            }),
        }
    }
    groups.sort_by_key(|it| (it.range.start, it.rank != 0, Reverse(it.range.end), it.rank));
    let mut groups = groups.into_iter().peekable();
    let mut nodes = Vec::new();
    while let Some(node) = groups.next() {
        nodes.push(node.gather(&mut groups));
    }
    render(text, 0..text.len(), &nodes)
}

/// Changes of one place, and those within it.
struct Node<'a> {
    range: Range<usize>,
    /// What is outside where two have one range: 0 is put before it, 1 encloses 2.
    rank: u8,
    points: Vec<&'a Point>,
    within: Vec<Node<'a>>,
}

fn rank(point: &Point) -> u8 {
    match point.change {
        Change::Body { .. } => 0,
        Change::Condition(_) => 1,
        Change::Operator { .. } | Change::Negation { .. } => 2,
    }
}

impl<'a> Node<'a> {
    fn gather(mut self, rest: &mut Peekable<vec::IntoIter<Node<'a>>>) -> Node<'a> {
        while self.rank != 0
            && let Some(next) = rest.next_if(|next| next.range.end <= self.range.end)
        {
            self.within.push(next.gather(rest));
        }
        self
    }
}

fn render(text: &str, range: Range<usize>, nodes: &[Node<'_>]) -> String {
    let mut out = String::new();
    let mut at = range.start;
    for node in nodes.iter().filter(|it| range.start <= it.range.start && it.range.end <= range.end) {
        out += &text[at..node.range.start];
        out += &render_node(text, node);
        at = node.range.end;
    }
    out += &text[at..range.end];
    out
}

fn render_node(text: &str, node: &Node<'_>) -> String {
    let within = |range: &Range<usize>| render(text, range.clone(), &node.within);
    let mut head = String::new();
    for point in &node.points {
        let number = point.number;
        let on = format!("crate::__mutant::on({number})");
        let other = |code: String| format!("if {on} {{/*<{number}*/ {code} /*{number}>*/}}");
        head += &match &point.change {
            Change::Body { value } => format!("{} ", other(format!("return {value};"))),
            Change::Condition(true) => format!("{on} || ("),
            Change::Condition(false) => format!("!{on} && ("),
            Change::Negation { operand } => format!("{} else ", other(within(operand))),
            Change::Operator { left, right, becomes } => {
                format!("{} else ", other(format!("({}) {becomes} ({})", within(left), within(right))))
            }
        };
    }
    let open: String = node.points.iter().map(|it| format!("/*[{}*/", it.number)).collect();
    let close: String = node.points.iter().map(|it| format!("/*{}]*/", it.number)).collect();
    let original = within(&node.range);
    match node.rank {
        0 => head,
        1 => format!("{open}({head}{original}{}){close}", ")".repeat(node.points.len())),
        _ => format!("{open}({head}{{ {original} }}){close}"),
    }
}

/// The mutant that an error at `at` is about: by its other code (`signs` are `<` and `>`), or by the whole of the place
/// (`[` and `]`).
pub(crate) fn mutant_at(text: &str, at: usize, signs: [char; 2]) -> Option<u32> {
    let before = text.get(..at)?;
    let mut closed = Vec::new();
    for (start, _) in before.rmatch_indices("/*") {
        let mark = &before[start + 2..];
        let Some(end) = mark.find("*/") else { continue };
        let mark = &mark[..end];
        let number = |text: Option<&str>| text.and_then(|it| it.parse::<u32>().ok());
        if let Some(number) = number(mark.strip_suffix(signs[1])) {
            closed.push(number);
        } else if let Some(number) = number(mark.strip_prefix(signs[0])) {
            match closed.iter().rposition(|it| *it == number) {
                Some(found) => {
                    closed.remove(found);
                }
                None => return Some(number),
            }
        }
    }
    None
}

/// What each changed crate has beside its sources. It allocates nothing: some tests count that.
pub(crate) fn runtime(count: usize) -> String {
    include_str!("runtime.txt").replace("COUNT", &(count + 1).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::points;

    #[test]
    fn all_changes_of_a_place_are_in_one_text() {
        let text = "fn f(a: u8) -> bool { if a < 1 { true } else { !(a == 2) } }";
        let (mut found, _) = points("x.rs", text).expect("Rust");
        found.iter_mut().zip(1..).for_each(|(point, number)| point.number = number);
        let chosen: Vec<&Point> = found.iter().filter(|it| [2, 3, 4, 5, 7, 8].contains(&it.number)).collect();
        let made = rewritten(text, &chosen);
        let equal = "/*[8*/(if ON(8) {/*<8*/ (a) != (2) /*8>*/} else { a == 2 })/*8]*/";
        let told = [
            "fn f(a: u8) -> bool {if ON(2) {/*<2*/ return false; /*2>*/}  ",
            "if /*[3*//*[4*/(ON(3) || (!ON(4) && (/*[5*/(if ON(5) {/*<5*/ (a) <= (1) /*5>*/} else { a < 1 })/*5]*/)))/*3]*//*4]*/ ",
            "{ true } else { /*[7*/(if ON(7) {/*<7*/ (",
            equal,
            ") /*7>*/} else { !(",
            equal,
            ") })/*7]*/ } }",
        ];
        assert_eq!(made, told.concat().replace("ON", "crate::__mutant::on"));
        assert!(syn::parse_file(&made).is_ok(), "{made}");
        let at = |code: &str, signs| mutant_at(&made, made.find(code).expect("there"), signs);
        assert_eq!(at("(a) != (2)", ['<', '>']), Some(8));
        assert_eq!((at("a < 1 }", ['<', '>']), at("a < 1 }", ['[', ']'])), (None, Some(5)));
    }
}
