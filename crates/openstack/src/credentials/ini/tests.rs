use super::*;

fn values(text: &str) -> Vec<(String, String)> {
    let ini = Ini::parse(&format!("[s]\n{text}")).expect("parses");
    ini.entries("S").map(|it| (it.key.clone(), it.value().to_owned())).collect()
}

#[track_caller]
fn check(text: &str, value: &str) {
    assert_eq!(values(&format!("k {text}")), [("k".to_owned(), value.to_owned())], "{text}");
}

#[test]
fn values_are_read_as_gcfg_reads_them() {
    for (text, value) in [
        ("= plain", "plain"),
        ("=plain", "plain"),
        ("= two words \t", "two words"),
        ("= with # comment", "with"),
        ("= with ; comment", "with"),
        ("= \"with # and ;\"", "with # and ;"),
        ("= \"blanks \" ", "blanks "),
        ("= part\" ly \"quoted", "part ly quoted"),
        (r#"= "a \"quote\" and a \\""#, "a \"quote\" and a \\"),
        (r"= tab\tnew\n", "tab\tnew\n"),
        ("=", ""),
        ("= \"\"", ""),
        ("= p#w", "p"),
        ("= \"p#w\"", "p#w"),
        ("= one \\\ntwo", "one two"),
        ("= a=b", "a=b"),
        ("= http://k:5000/v3", "http://k:5000/v3"),
        ("= pass\r", "pass"),
        ("", "true"),
        ("# alone", "true"),
    ] {
        check(text, value);
    }
}

#[test]
fn keys_may_come_several_times_and_the_last_one_counts() {
    let text = "[Networking]\npublic-network-name = a\npublic-network-name = b\n[networking]\nx=1\n";
    let ini = Ini::parse(text).expect("parses");
    let names: Vec<&str> =
        ini.entries("networking").filter(|it| it.key == "public-network-name").map(Entry::value).collect();
    assert_eq!(names, ["a", "b"]);
    let last = ini.entry("NETWORKING", "Public-Network-Name").expect("there");
    assert_eq!((last.value(), last.line), ("b", 3));
    assert_eq!(ini.entry("networking", "x").expect("both sections are one").line, 5);
}

#[test]
fn sections_have_sub_sections_and_lines() {
    let text = "; first\n[Global] # here\n\n[LoadBalancerClass \"in \\\"ner\"]\nsubnet-id=1\n[LoadBalancerClass \"B\"]\n";
    let ini = Ini::parse(text).expect("parses");
    let subs: Vec<(Option<&str>, usize)> =
        ini.subsections("loadbalancerclass").map(|it| (it.sub.as_deref(), it.line)).collect();
    assert_eq!(subs, [(Some("in \"ner"), 4), (Some("B"), 6)]);
    assert_eq!(ini.entries("LoadBalancerClass").count(), 0, "sub sections are apart");
}

#[test]
fn what_is_broken_is_told_by_line() {
    for (text, line) in [
        ("[Global\n", 1),
        ("[]\n", 1),
        ("[Global] x\n", 1),
        ("[Global \"sub]\n", 1),
        ("\nkey = 1\n", 2),
        ("[g]\nkey = \"open\n", 2),
        ("[g]\nkey value\n", 2),
        ("[g]\n= value\n", 2),
        ("[g]\nk = \\q\n", 2),
        ("[g]\nk = end \\", 2),
    ] {
        assert_eq!(Ini::parse(text).map(|_| ()).map_err(|broken| broken.line), Err(line), "{text}");
    }
}

#[test]
fn a_value_is_not_shown_by_accident() {
    let ini = Ini::parse("[Global]\npassword = hunter2\n").expect("parses");
    assert!(!format!("{ini:?}").contains("hunter2"));
}
