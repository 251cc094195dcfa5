//! What each word of HAProxy's sections is to Seaway, where nothing more has to be read.

use super::{
    Context,
    headers::of_forwardfor,
    sections::{Line, Section},
};

const READ: &str = "bind mode acl use_backend default_backend http-request http-response http-after-response redirect \
    server default-server balance cookie stick tcp-request tcp-response use-server monitor-net filter option http-check timeout reqadd rspadd block \
    stick-table rate-limit";

const NO_EFFECT: [(&str, &str); 6] = [
    (
        "log log-format log-format-sd log-tag error-log-format unique-id-format unique-id-header capture declare",
        "logs and request ids: `log`, `accessLog` and `frontDoor.requestId` in seaway.yaml",
    ),
    (
        "retries retry-on fullconn backlog hash-type hash-balance-factor id description guid",
        "Seaway replaces a member that does not accept a connection, and sizes its queues itself",
    ),
    (".notice .warning .diag", "this line prints a message when HAProxy starts"),
    ("stats", "Seaway's status page and metrics are at http://127.0.0.1:1936/ (`admin.listen`)"),
    ("maxconn", "`limits.memory` in seaway.yaml bounds what all clients together can take"),
    (
        "enabled disabled bind-process force-persist ignore-persist load-server-state-from-file persist http-reuse max-keep-alive-queue \
         clitcpka-cnt clitcpka-idle clitcpka-intvl srvtcpka-cnt srvtcpka-idle srvtcpka-intvl hash-key hash-preserve-affinity \
         max-session-srv-conns log-steps quic-initial grace",
        "this setting tunes the other proxy's process, and Seaway has its own",
    ),
];

const LEFT_OUT: [(&str, &str); 5] = [
    (
        "errorfile errorfiles errorloc errorloc302 errorloc303 http-error",
        "`frontDoor: {pages: {503: sorry.html}}` in seaway.yaml has a page for each error: the HTML alone, without the head",
    ),
    (
        "compression",
        "not translated: seaway.dev/compress: gzip at a Service compresses its responses (docs/compression.md); there is no other coding",
    ),
    ("monitor-uri monitor monitor-fail", "Seaway's readiness is at http://127.0.0.1:1936/ready"),
    (
        "email-alert use-fcgi-app external-check server-template dispatch transparent source http-send-name-header tcp-check",
        "Seaway has no counterpart",
    ),
    ("server-state-file-name load-server-state", "Seaway has no counterpart"),
];

/// Options that HAProxy needs, and Seaway does by itself.
const OPTIONS: &str = "forwardfor httplog httpslog tcplog dontlognull dontlog-normal http-server-close httpclose forceclose http-keep-alive redispatch \
    tcpka clitcpka srvtcpka splice-auto splice-request splice-response socket-stats log-separate-errors log-health-checks logasap contstats \
    prefer-last-server nolinger abortonclose http-use-htx http-buffer-request http-no-delay http-pretend-keepalive http-ignore-probes \
    tcp-smart-accept tcp-smart-connect independent-streams idle-close-on-response allbackups log-tag originalto http-tunnel \
    http-restrict-req-hdr-names accept-invalid-http-request accept-invalid-http-response tcp-check h1-case-adjust-bogus-client \
    h1-case-adjust-bogus-server disable-h2-upgrade accept-unsafe-violations-in-http-request http-drop-request-trailers persist";
/// Options without a counterpart, that refuse nothing either.
const OPTIONS_LEFT_OUT: &str = "mysql-check pgsql-check redis-check smtpchk ldap-check ssl-hello-chk external-check spop-check forwarded \
    transparent http-drop-response-trailers h1-accept-payload-with-any-method use-small-buffers";

pub(super) const NAMES: &str = "Seaway does not refuse headers whose names have other characters than letters, digits and \
     hyphens, such as X_Real_IP: everything that the line may apply to is closed (403)";
pub(super) const UNKNOWN: &str = "Seaway does not know this line, which may refuse requests: everything that it may \
     apply to is closed; to import without it, remove it from a copy of the file";

/// Whether it is known what a line says. The rules among them have to be read.
pub(super) fn is_known(line: &Line) -> bool {
    let has = |list: &str, word: &str| list.split_whitespace().any(|it| it == word);
    match line.word(0) {
        "no" => true,
        "option" => {
            let name = line.word(1);
            let refuses = name == "http-restrict-req-hdr-names" && line.word(2) == "reject";
            !refuses && (name == "httpchk" || has(OPTIONS, name) || has(OPTIONS_LEFT_OUT, name))
        }
        word => has(READ, word) || NO_EFFECT.iter().chain(&LEFT_OUT).any(|(list, _)| has(list, word)),
    }
}

pub(super) fn report_unread(sections: &[Section], context: &mut Context<'_>) {
    for section in sections {
        match &*section.kind {
            "global" => global(section, context),
            "defaults" | "frontend" | "backend" | "listen" => {
                context.report.translated(&section.place);
                section.lines.iter().for_each(|it| line(it, context));
            }
            "userlist" => whole(
                section,
                "no effect of its own: a userlist is used only by rules with http_auth",
                true,
                context,
            ),
            "resolvers" => whole(
                section,
                "names of backends are resolved by /etc/resolv.conf, or `resolvers` in seaway.yaml",
                true,
                context,
            ),
            "peers" => whole(
                section,
                "Seaway has no stick tables shared between hosts (docs/balancing.md)",
                false,
                context,
            ),
            "cache" => whole(section, "Seaway does not cache: let the backend do it", false, context),
            "program" | "ring" | "log-forward" | "mailers" | "traces" | "log-profile" => {
                whole(
                    section,
                    "email alerts, external programs and log forwarding are left to the system (systemd)",
                    true,
                    context,
                );
            }
            _ => whole(section, "Seaway has no counterpart", false, context),
        }
    }
}

fn whole(section: &Section, why: &str, no_effect: bool, context: &mut Context<'_>) {
    for place in std::iter::once(&section.place).chain(section.lines.iter().map(|it| &it.place)) {
        match no_effect {
            true => context.report.no_effect(place, why),
            false => context.report.left_out(place, why),
        }
    }
}

fn global(section: &Section, context: &mut Context<'_>) {
    context.report.translated(&section.place);
    for line in &section.lines {
        match line.word(0) {
            "crt-base" => {
                context.base = Some(context.path(line.word(1)));
                context.report.translated(&line.place);
            }
            "ssl-default-bind-options" => {
                let new = line.after(1).windows(2).any(|it| it == ["ssl-min-ver", "TLSv1.3"]);
                context.proxy.door.modern |= new;
                match new {
                    true => context.report.translated(&line.place),
                    false => context.report.no_effect(
                        &line.place,
                        "Seaway speaks TLS 1.2 and 1.3; `frontDoor.tls.profile: modern` is 1.3 alone",
                    ),
                }
            }
            word if word.starts_with("lua-") || word.starts_with("setenv") || word == "presetenv" => {
                context.report.left_out(&line.place, "Seaway runs no scripts");
            }
            _ => context.report.no_effect(
                &line.place,
                "settings of the process: `seaway run --help`, `dataPlane` and `limits` in seaway.yaml",
            ),
        }
    }
}

fn line(line: &Line, context: &mut Context<'_>) {
    let word = match line.word(0) {
        "no" => line.word(1),
        word => word,
    };
    let has = |list: &str, word: &str| list.split_whitespace().any(|it| it == word);
    let report = &mut context.report;
    if word == "option" {
        let name = if line.word(0) == "no" { line.word(2) } else { line.word(1) };
        return match name {
            "forwardfor" if of_forwardfor(line).is_some() && line.word(0) != "no" => report.translated(&line.place),
            "http-restrict-req-hdr-names" if line.word(2) == "reject" && line.word(0) != "no" => {
                report.closed(&line.place, NAMES);
            }
            "http-restrict-req-hdr-names" if line.word(2) == "delete" && line.word(0) != "no" => report.left_out(
                &line.place,
                "Seaway forwards headers whose names have other characters than letters, digits and hyphens, such as X_Real_IP",
            ),
            // Read with the checks of a backend.
            "httpchk" => report.translated(&line.place),
            name if has(OPTIONS_LEFT_OUT, name) => {
                report.left_out(&line.place, "Seaway has no such option; it checks that a member accepts a connection, or by HTTP, gRPC or UDP (docs/health.md)");
            }
            name if has(OPTIONS, name) => {
                report.no_effect(&line.place, "Seaway does this without a setting, or does not need it")
            }
            _ if line.word(0) == "no" => {
                report.no_effect(&line.place, "this turns off something that Seaway never does")
            }
            _ => report.closed(&line.place, UNKNOWN),
        };
    }
    if word == "filter" && line.word(0) != "no" {
        return match line.word(1) {
            "spoe" => report.left_out(
                &line.place,
                "Seaway asks no agent (SPOE), such as a web application firewall: rules that refuse by its answer are closed",
            ),
            "trace" | "compression" | "comp-req" | "comp-res" | "cache" | "bwlim-in" | "bwlim-out" => {
                report.left_out(&line.place, "Seaway has no such filter")
            }
            _ => report.closed(&line.place, UNKNOWN),
        };
    }
    if has(READ, word) {
        // What reads it says more.
        return report.translated(&line.place);
    }
    let find = |table: &[(&str, &'static str)]| table.iter().find(|(list, _)| has(list, word)).map(|it| it.1);
    if let Some(why) = find(&NO_EFFECT) {
        return report.no_effect(&line.place, why);
    }
    match find(&LEFT_OUT) {
        Some(why) => report.left_out(&line.place, why),
        None if line.word(0) == "no" => {
            report.no_effect(&line.place, "this turns off something that Seaway never does")
        }
        None => report.closed(&line.place, UNKNOWN),
    }
}
