//! What Seaway would do in another way than nginx is named, and what it would open is closed.

use super::{super::super::report::Verdict, imported, printed, server};

const TO: &str = "proxy_pass http://10.0.0.1:1;";

#[test]
fn what_nginx_withholds_from_members_closes() {
    for name in ["proxy_pass_request_headers", "proxy_pass_request_body"] {
        let of = |value: &str| {
            let (folder, report) =
                imported("nginx", &server(&format!("location / {{ {name} {value}; {TO} }}")));
            (folder.printed().contains("Closed, requests get 403"), report.is_whole())
        };
        assert_eq!((of("off"), of("on")), ((true, false), (false, true)), "{name}");
        let around = printed("nginx", &server(&format!("{name} off; location / {{ {TO} }}")));
        assert!(around.contains("Closed, requests get 403"), "{around}");
    }
}
