//! Where a source can be changed, and how: operators, conditions, and whole bodies of functions.

use std::{
    collections::BTreeMap,
    ops::{Range, RangeInclusive},
};

use syn::{
    Attribute, BinOp, Block, Expr, ImplItem, Item, Signature, TraitItem, Type, UnOp,
    spanned::Spanned as _,
    visit::{self, Visit},
};

use crate::defaults;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// Its number in the build, from 1 on; 0 until it is chosen.
    pub(crate) number: u32,
    /// `crates/plan/src/ledger.rs`.
    pub(crate) file: String,
    /// `crates/plan/src/ledger.rs: Ledger::take: a < b → a <= b`; with `, no. 2` where one function has two of them. It
    /// has no line, so that it stays what it is when other code changes.
    pub(crate) name: String,
    pub(crate) lines: RangeInclusive<usize>,
    pub(crate) range: Range<usize>,
    pub(crate) change: Change,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Operator {
        left: Range<usize>,
        right: Range<usize>,
        becomes: &'static str,
    },
    /// `!x` becomes `x`.
    Negation {
        operand: Range<usize>,
    },
    Condition(bool),
    /// A `return` at the head of a body.
    Body {
        value: String,
    },
}

impl Point {
    /// `plan` of `crates/plan/src/ledger.rs`.
    pub(crate) fn crate_name(&self) -> &str {
        self.file.split('/').nth(1).unwrap_or_default()
    }

    /// What is printed: the name with its line.
    pub(crate) fn place(&self) -> String {
        let rest = self.name.strip_prefix(&self.file).unwrap_or(&self.name);
        format!("{}:{}{rest}", self.file, self.lines.start())
    }
}

/// The points of one file, and the modules that it declares for tests only.
pub(crate) fn points(file: &str, text: &str) -> Result<(Vec<Point>, Vec<String>), String> {
    let parsed = syn::parse_file(text).map_err(|error| format!("{file}: {error}"))?;
    let mut finder = Finder {
        file,
        text,
        scope: Vec::new(),
        functions: 0,
        points: Vec::new(),
        for_tests: Vec::new(),
        seen: BTreeMap::new(),
    };
    if !only_for_tests(&parsed.attrs) {
        finder.visit_file(&parsed);
    }
    Ok((finder.points, finder.for_tests))
}

struct Finder<'a> {
    file: &'a str,
    text: &'a str,
    /// Names of what the place is in: modules, types, functions.
    scope: Vec<String>,
    /// How many functions it is in: outside of all, expressions are constants.
    functions: usize,
    points: Vec<Point>,
    for_tests: Vec<String>,
    seen: BTreeMap<String, usize>,
}

impl Finder<'_> {
    fn add(&mut self, of: Range<usize>, range: Range<usize>, old: &str, new: &str, change: Change) {
        let (old, new) = (short(old), short(new));
        let mut name = format!("{}: {}: {old} → {new}", self.file, self.scope.join("::"));
        let count = self.seen.entry(name.clone()).or_default();
        *count += 1;
        if *count > 1 {
            name = format!("{name}, no. {count}");
        }
        let line = |at: usize| self.text[..at].matches('\n').count() + 1;
        let lines = line(of.start)..=line(of.end);
        self.points.push(Point { number: 0, file: self.file.to_owned(), name, lines, range, change });
    }

    fn operator(&mut self, whole: &Expr, left: &Expr, operator: BinOp, right: &Expr) {
        let others: &[&'static str] = match operator {
            BinOp::Eq(_) => &["!="],
            BinOp::Ne(_) => &["=="],
            BinOp::Lt(_) => &["<=", ">="],
            BinOp::Le(_) => &["<", ">"],
            BinOp::Gt(_) => &[">=", "<="],
            BinOp::Ge(_) => &[">", "<"],
            BinOp::And(_) => &["||"],
            BinOp::Or(_) => &["&&"],
            BinOp::Add(_) => &["-"],
            BinOp::Sub(_) | BinOp::Mul(_) => &["+"],
            BinOp::AddAssign(_) => &["-="],
            BinOp::SubAssign(_) => &["+="],
            _ => return,
        };
        if has_let(whole) {
            return;
        }
        let (range, left, right) = (bytes(whole), bytes(left), bytes(right));
        let old = self.text[range.clone()].to_owned();
        for becomes in others {
            let new = format!("{} {becomes} {}", &self.text[left.clone()], &self.text[right.clone()]);
            let change = Change::Operator { left: left.clone(), right: right.clone(), becomes };
            self.add(range.clone(), range.clone(), &old, &new, change);
        }
    }

    fn condition(&mut self, condition: &Expr, values: &[bool]) {
        if has_let(condition) || matches!(condition, Expr::Lit(_)) {
            return;
        }
        let range = bytes(condition);
        let old = format!("if {}", &self.text[range.clone()]);
        for value in values {
            let new = format!("if {value}");
            self.add(range.clone(), range.clone(), &old, &new, Change::Condition(*value));
        }
    }

    fn function(&mut self, signature: &Signature, attributes: &[Attribute], block: &Block) {
        // What formats is words; `const` is asked while the compiler runs.
        if signature.constness.is_some() || only_for_tests(attributes) || signature.ident == "fmt" {
            return;
        }
        self.scope.push(signature.ident.to_string());
        let head = block.brace_token.span.open().byte_range().end;
        let tail = block.brace_token.span.close().byte_range().start;
        let body = self.text[head..tail].trim().to_owned();
        for value in defaults::of(&signature.output) {
            if body != value && !body.is_empty() {
                let shown = if value.is_empty() { "()" } else { &value };
                let of = signature.span().byte_range().start..tail;
                self.add(of, head..head, "body", shown, Change::Body { value: value.clone() });
            }
        }
        self.functions += 1;
        self.visit_block(block);
        self.functions -= 1;
        self.scope.pop();
    }

    fn named(&mut self, name: String, go_on: impl FnOnce(&mut Self)) {
        self.scope.push(name);
        go_on(self);
        self.scope.pop();
    }
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        match item {
            Item::Fn(it) => self.function(&it.sig, &it.attrs, &it.block),
            Item::Mod(it) if only_for_tests(&it.attrs) => self.for_tests.push(it.ident.to_string()),
            Item::Mod(it) => self.named(it.ident.to_string(), |this| visit::visit_item_mod(this, it)),
            Item::Impl(it) if !only_for_tests(&it.attrs) => {
                let name = type_name(&it.self_ty);
                self.named(name, |this| it.items.iter().for_each(|item| this.visit_impl_item(item)));
            }
            Item::Trait(it) if !only_for_tests(&it.attrs) => {
                let name = it.ident.to_string();
                self.named(name, |this| it.items.iter().for_each(|item| this.visit_trait_item(item)));
            }
            // Constants, types, macros.
            _ => {}
        }
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        if let ImplItem::Fn(it) = item {
            self.function(&it.sig, &it.attrs, &it.block);
        }
    }

    fn visit_trait_item(&mut self, item: &'a TraitItem) {
        if let TraitItem::Fn(it) = item
            && let Some(block) = &it.default
        {
            self.function(&it.sig, &it.attrs, block);
        }
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        if self.functions == 0 {
            return;
        }
        match expr {
            Expr::Binary(it) => self.operator(expr, &it.left, it.op, &it.right),
            Expr::Unary(it) if matches!(it.op, UnOp::Not(_)) => {
                let (range, operand) = (bytes(expr), bytes(&it.expr));
                let (old, new) = (self.text[range.clone()].to_owned(), self.text[operand.clone()].to_owned());
                self.add(range.clone(), range, &old, &new, Change::Negation { operand });
            }
            Expr::If(it) => self.condition(&it.cond, &[true, false]),
            // With `true` it would never end.
            Expr::While(it) => self.condition(&it.cond, &[false]),
            Expr::Match(it) => {
                for (_, guard) in it.arms.iter().filter_map(|arm| arm.guard.as_ref()) {
                    self.condition(guard, &[true, false]);
                }
            }
            // A length is a constant.
            Expr::Repeat(it) => return self.visit_expr(&it.expr),
            Expr::Const(_) => return,
            _ => {}
        }
        visit::visit_expr(self, expr);
    }

    // Patterns, types and the arguments of macros are no expressions.
    fn visit_pat(&mut self, _: &'a syn::Pat) {}
    fn visit_type(&mut self, _: &'a Type) {}
    fn visit_generic_argument(&mut self, _: &'a syn::GenericArgument) {}
    fn visit_attribute(&mut self, _: &'a Attribute) {}
    fn visit_macro(&mut self, _: &'a syn::Macro) {}
}

fn bytes(expr: &Expr) -> Range<usize> {
    let span: proc_macro2::Span = expr.span();
    span.byte_range()
}

/// On one line, and not too long for one.
fn short(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(90) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// `a && let Some(b) = c` cannot be put in parentheses.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(it) => has_let(&it.left) || has_let(&it.right),
        Expr::Paren(it) => has_let(&it.expr),
        _ => false,
    }
}

fn only_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|it| match &it.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let text = list.tokens.to_string();
            let mut words = text.split(|it: char| !it.is_alphanumeric());
            words.any(|word| word == "test") && !text.starts_with("not")
        }
        meta => meta.path().segments.last().is_some_and(|last| last.ident == "test"),
    })
}

fn type_name(of: &Type) -> String {
    match of {
        Type::Path(it) => it.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default(),
        Type::Reference(it) => type_name(&it.elem),
        _ => "impl".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let (found, _) = points("x.rs", text).expect("Rust");
        found.iter().map(|it| it.name.strip_prefix("x.rs: ").expect("its file").to_owned()).collect()
    }

    #[test]
    fn operators_conditions_and_bodies_are_found_in_their_functions() {
        let text = "struct A;\nimpl A {\n    fn is(a: u8, b: u8) -> bool {\n        if a < b { return !true; }\n        a == 1 && b == 1\n    }\n}\n";
        let told = [
            "A::is: body → true",
            "A::is: body → false",
            "A::is: if a < b → if true",
            "A::is: if a < b → if false",
            "A::is: a < b → a <= b",
            "A::is: a < b → a >= b",
            "A::is: !true → true",
            "A::is: a == 1 && b == 1 → a == 1 || b == 1",
            "A::is: a == 1 → a != 1",
            "A::is: b == 1 → b != 1",
        ];
        assert_eq!(names(text), told);
    }

    #[test]
    fn two_of_the_same_in_a_function_have_different_names() {
        let text = "fn f(a: &mut u8) {\n    g(*a == 1);\n    g(*a == 1);\n}\n";
        assert_eq!(names(text), ["f: body → ()", "f: *a == 1 → *a != 1", "f: *a == 1 → *a != 1, no. 2"]);
    }

    #[test]
    fn tests_constants_patterns_and_macros_are_left_alone() {
        for text in [
            "const A: u8 = 1 + 1;",
            "static A: [u8; 1 + 1] = [0; 1 + 1];",
            "const fn f() -> u8 { 1 + 1 }",
            "#[cfg(test)] mod tests { fn f() -> u8 { 1 + 1 } }",
            "#[test] fn f() { assert_eq!(1 + 1, 2); }",
            "fn f() -> S { [g!(1 + 1); 1 + 1] }",
            "fn f(a: u8) -> S { match a { 1 => S::A, _ => S::B } }",
            "fn f() -> S { if a && let Some(b) = c {} S }",
            "impl fmt::Display for S { fn fmt(&self) -> bool { 1 == 1 } }",
        ] {
            assert_eq!(names(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn a_module_for_tests_is_told() {
        let (found, for_tests) = points("x.rs", "#[cfg(test)]\nmod tables;\nmod other;").expect("Rust");
        assert_eq!((found, for_tests), (vec![], vec!["tables".to_owned()]));
    }
}
