//! What each directive of nginx is to Seaway.

use super::{
    super::{Text, report::Report},
    parse::{Directive, parse},
};

pub(super) enum Class {
    /// Read where it stands.
    Read,
    /// With the reason.
    NoEffect(&'static str),
    /// With what to do instead.
    LeftOut(&'static str),
    /// It says who may ask: what it is about is closed.
    Protects(&'static str),
    /// It refuses nothing.
    Unknown,
}

const READ: &str = "server listen server_name location upstream proxy_pass grpc_pass return rewrite if allow deny satisfy \
    auth_basic client_max_body_size proxy_connect_timeout proxy_read_timeout proxy_send_timeout grpc_connect_timeout \
    grpc_read_timeout grpc_send_timeout keepalive_timeout client_header_timeout proxy_set_header grpc_set_header add_header \
    proxy_hide_header ssl_certificate ssl_certificate_key ssl_protocols ssl ssl_verify_client ssl_client_certificate \
    proxy_ssl_verify proxy_ssl_name proxy_ssl_server_name proxy_ssl_trusted_certificate set_real_ip_from real_ip_header \
    try_files root alias proxy_timeout proxy_protocol ssl_preread proxy_ssl proxy_redirect map http2 include internal";

const NO_EFFECT: [(&str, &str); 13] = [
    ("proxy_pass_header grpc_pass_header", "Seaway passes on all headers of responses"),
    (
        "user pid daemon master_process worker_processes worker_connections worker_rlimit_nofile worker_cpu_affinity \
         worker_priority worker_shutdown_timeout worker_rlimit_core working_directory pcre_jit thread_pool timer_resolution \
         lock_file load_module env multi_accept use accept_mutex events debug_connection",
        "settings of the process: `seaway run --help`, `dataPlane` in seaway.yaml",
    ),
    (
        "error_log log_format log_not_found log_subrequest open_log_file_cache",
        "logs: `log` and `accessLog` in seaway.yaml",
    ),
    (
        "sendfile sendfile_max_chunk tcp_nopush tcp_nodelay aio directio output_buffers postpone_output reset_timedout_connection \
         open_file_cache open_file_cache_valid open_file_cache_min_uses open_file_cache_errors read_ahead disable_symlinks \
         send_lowat lingering_close lingering_time lingering_timeout chunked_transfer_encoding",
        "no effect: socket and file I/O tuning of nginx",
    ),
    (
        "proxy_buffering proxy_buffers proxy_buffer_size proxy_busy_buffers_size proxy_request_buffering proxy_temp_path \
         proxy_temp_file_write_size proxy_max_temp_file_size proxy_headers_hash_max_size proxy_headers_hash_bucket_size \
         client_body_buffer_size client_body_temp_path client_body_in_file_only client_body_in_single_buffer \
         preread_buffer_size proxy_buffer_size grpc_buffer_size proxy_force_ranges",
        "Seaway does not buffer bodies: it forwards bytes as they arrive, at the speed of the receiver",
    ),
    (
        "types_hash_max_size types_hash_bucket_size server_names_hash_bucket_size server_names_hash_max_size \
         map_hash_bucket_size map_hash_max_size variables_hash_max_size variables_hash_bucket_size connection_pool_size \
         request_pool_size http2_max_concurrent_streams http2_max_requests http2_recv_buffer_size http2_chunk_size \
         proxy_bind_dynamic http2_body_preread_size http2_idle_timeout http2_max_field_size http2_max_header_size",
        "tables and buffers are sized by Seaway",
    ),
    (
        "proxy_http_version proxy_socket_keepalive keepalive keepalive_requests zone proxy_ignore_client_abort \
         proxy_pass_request_headers proxy_pass_request_body proxy_ssl_session_reuse proxy_ssl_protocols proxy_ssl_ciphers \
         grpc_socket_keepalive keepalive_time keepalive_disable",
        "Seaway keeps connections to members open, and speaks HTTP/1.1 or HTTP/2 to them",
    ),
    (
        "proxy_next_upstream proxy_next_upstream_tries proxy_next_upstream_timeout proxy_intercept_errors \
         grpc_next_upstream grpc_next_upstream_tries grpc_next_upstream_timeout",
        "a member that does not accept a connection is replaced by another one (docs/health.md)",
    ),
    (
        "ssl_ciphers ssl_prefer_server_ciphers ssl_dhparam ssl_ecdh_curve ssl_session_cache ssl_session_timeout \
         ssl_session_tickets ssl_session_ticket_key ssl_buffer_size ssl_conf_command ssl_early_data ssl_handshake_timeout",
        "`frontDoor.tls.profile` selects versions and ciphers; sessions are resumed by tickets (docs/tls.md)",
    ),
    (
        "server_tokens merge_slashes absolute_redirect port_in_redirect server_name_in_redirect msie_padding msie_refresh \
         ignore_invalid_headers underscores_in_headers http2_push_preload etag if_modified_since max_ranges default_type types charset \
         override_charset charset_types source_charset variables_hash",
        "this directive does not change what Seaway answers or forwards",
    ),
    (
        "resolver resolver_timeout",
        "names of backends are resolved by /etc/resolv.conf, or `resolvers` in seaway.yaml",
    ),
    (
        "client_body_timeout send_timeout",
        "`defaults.timeouts.answer` (50s) limits the time without a byte in either direction",
    ),
    ("set", "a variable: the import writes its value where it is used, or reports that place"),
];

const LEFT_OUT: [(&str, &str); 14] = [
    (
        "access_log",
        "each request is one line of `accessLog: {format: combined, to: FILE}` in seaway.yaml, for all routes together",
    ),
    (
        "gzip gzip_vary gzip_types gzip_proxied gzip_comp_level gzip_buffers gzip_http_version gzip_min_length gzip_disable \
         gzip_static gunzip brotli brotli_types brotli_comp_level brotli_static zstd",
        "not translated: seaway.dev/compress: gzip at a Service compresses its responses (docs/compression.md); there is no other coding",
    ),
    (
        "proxy_cache proxy_cache_path proxy_cache_valid proxy_cache_key proxy_cache_bypass proxy_no_cache proxy_cache_methods \
         proxy_cache_use_stale proxy_cache_lock proxy_cache_min_uses proxy_cache_revalidate proxy_cache_background_update \
         proxy_cache_convert_head proxy_cache_lock_timeout proxy_cache_lock_age proxy_ignore_headers proxy_store proxy_store_access slice",
        "Seaway does not cache: let the backend do it",
    ),
    (
        "index autoindex expires fastcgi_pass fastcgi_param fastcgi_index fastcgi_split_path_info fastcgi_buffers \
         fastcgi_buffer_size fastcgi_read_timeout fastcgi_send_timeout fastcgi_connect_timeout fastcgi_intercept_errors \
         fastcgi_request_buffering fastcgi_max_temp_file_size fastcgi_hide_header fastcgi_busy_buffers_size uwsgi_pass \
         uwsgi_param scgi_pass memcached_pass random_index empty_gif",
        "Seaway forwards HTTP to backends, and serves no files, FastCGI or uWSGI: put a web server behind it, as a backend",
    ),
    (
        "error_page recursive_error_pages",
        "`frontDoor.pages` in seaway.yaml has a page for each error that Seaway answers itself",
    ),
    (
        "sub_filter sub_filter_once sub_filter_types sub_filter_last_modified ssi ssi_types addition_types add_before_body add_after_body",
        "Seaway does not change bodies: let the backend do it",
    ),
    ("mirror mirror_request_body", "write an HTTPRoute with the filter RequestMirror (docs/manifests.md)"),
    (
        "ssl_stapling ssl_stapling_verify ssl_stapling_file ssl_trusted_certificate",
        "an OCSP answer comes from a file: `ocsp` in `frontDoor.certificates` (docs/tls.md)",
    ),
    ("limit_rate limit_rate_after", "Seaway has no limit of bandwidth"),
    ("http3 quic_retry quic_gso", "Seaway speaks HTTP/1.1 and HTTP/2"),
    (
        "geo split_clients geoip_country geoip2 map_hash",
        "Seaway has no variables: write HTTPRoutes with matches or weights (docs/manifests.md)",
    ),
    (
        "proxy_cookie_path proxy_cookie_domain proxy_cookie_flags",
        "Seaway does not change cookies: let the backend set them for the path and domain that clients see",
    ),
    (
        "large_client_header_buffers client_header_buffer_size",
        "`frontDoor.limits: {head: 32Ki, target: 16Ki}` in seaway.yaml is the counterpart, for all routes",
    ),
    (
        "proxy_bind proxy_method proxy_set_body stub_status status mail health_check match",
        "Seaway has no counterpart; its status page has states of members and counters",
    ),
];

const PROTECTS: [(&str, &str); 8] = [
    (
        "break",
        "the if, set, return and rewrite lines after it have no effect in nginx, and the import reads them as if they had",
    ),
    (
        "auth_request auth_request_set",
        "not translated: use `seaway.dev/forward-auth`, which sends each request to an authentication Service first (docs/authentication.md)",
    ),
    (
        "auth_jwt auth_pam auth_ldap auth_digest oidc_provider",
        "Seaway does not verify these: let the backend do it, or an authentication Service (`seaway.dev/forward-auth`, docs/authentication.md)",
    ),
    (
        "limit_req limit_conn",
        "not translated: `seaway.dev/requests-per-second-per-client` limits requests of a client (docs/annotations.md)",
    ),
    (
        "ssl_crl",
        "Seaway reads no lists of revoked certificates: clients whose certificate is revoked would be let in",
    ),
    ("limit_except", "Seaway does not restrict methods"),
    (
        "secure_link secure_link_md5 secure_link_secret valid_referers",
        "Seaway does not verify signed links or Referer headers",
    ),
    (
        "modsecurity modsecurity_rules modsecurity_rules_file SecRulesEnabled access_by_lua access_by_lua_block access_by_lua_file \
         js_access perl app_protect_enable",
        "Seaway runs no rules of a web application firewall",
    ),
];

/// Of what defines a limit, and limits nothing.
const DEFINITIONS: &str = "limit_req_zone limit_conn_zone limit_req_status limit_conn_status limit_req_log_level \
    limit_conn_log_level limit_req_dry_run auth_basic_user_file auth_delay real_ip_recursive ssl_verify_depth ssl_password_file \
    ssl_trusted";

/// Directives of nginx and of usual modules that are in no list above, by how their names begin: they refuse nothing. Others
/// that are not known may do so.
const HARMLESS: [&str; 24] = [
    "proxy_",
    "grpc_",
    "fastcgi_",
    "uwsgi_",
    "scgi_",
    "memcached_",
    "gzip",
    "brotli",
    "zstd",
    "http2_",
    "http3_",
    "quic_",
    "add_",
    "open_file",
    "sub_filter",
    "more_",
    "lua_",
    "js_",
    "geoip",
    "keyval",
    "vhost_traffic_status",
    "opentracing",
    "otel_",
    "pagespeed",
];
const UNKNOWN: &str = "Seaway does not know this directive, which may refuse requests or send them elsewhere; to import \
     without it, remove it from a copy of the file";

/// What may stand in an `if`, or in a snippet, and changes nothing about who gets an answer, and from where.
const PASS: &str = "add_header add_trailer access_log break expires gzip gzip_types gzip_comp_level gzip_min_length gzip_proxied gzip_vary \
    limit_rate limit_rate_after proxy_hide_header client_max_body_size proxy_connect_timeout proxy_read_timeout proxy_send_timeout \
    grpc_read_timeout grpc_send_timeout keepalive_timeout more_set_headers more_clear_headers proxy_cookie_path proxy_cookie_domain \
    proxy_cookie_flags proxy_cache proxy_cache_valid proxy_cache_key proxy_cache_bypass proxy_no_cache proxy_cache_use_stale \
    proxy_cache_lock proxy_ignore_headers proxy_pass_header sub_filter sub_filter_once sub_filter_types brotli brotli_types \
    large_client_header_buffers client_header_buffer_size";

/// Whether a directive refuses no request, and sends none elsewhere.
pub(super) fn lets_pass(it: &Directive) -> bool {
    let is_listed = PASS.split_whitespace().any(|of| of == it.name);
    it.block.is_none() && !withholds(it) && (is_listed || matches!(class(&it.name), Class::NoEffect(_)))
}

/// Whether the text of a snippet in a server or a location refuses no request, and sends none elsewhere; else the directive
/// that may do so. The controller reads variables that are set there.
pub(in crate::import) fn may_refuse(text: &str) -> Option<String> {
    let text = Text { name: "snippet".into(), text: text.to_owned() };
    let nowhere = std::path::Path::new("/nonexistent/snippet");
    let Ok(parsed) = parse(nowhere, &text, 0) else {
        return Some("text that is not valid nginx configuration".to_owned());
    };
    let ours =
        ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "x-request-id"];
    let is_harmless = |it: &Directive| match &*it.name {
        "set" => false,
        "proxy_set_header" => ours.contains(&&*it.arg(0).to_ascii_lowercase()),
        _ => lets_pass(it),
    };
    parsed.directives.iter().find(|it| !is_harmless(it)).map(Directive::written)
}

/// Members of nginx do not get what the client sent.
const WITHHOLDS: &str =
    "Seaway forwards the headers and the body of a request, so that members would get what nginx withholds";

fn withholds(it: &Directive) -> bool {
    matches!(&*it.name, "proxy_pass_request_headers" | "proxy_pass_request_body") && it.arg(0) == "off"
}

/// A `break` that ends nothing: no directive stands after it that it would keep from being done.
pub(super) fn ends_nothing(it: &Directive, block: &[Directive]) -> bool {
    let after = block.iter().skip_while(|of| of.place != it.place);
    it.name == "break"
        && !after.into_iter().any(|it| matches!(&*it.name, "if" | "set" | "return" | "rewrite"))
}

/// Why a directive closes what it is about.
pub(super) fn protects(it: &Directive) -> Option<&'static str> {
    match class(&it.name) {
        _ if withholds(it) => Some(WITHHOLDS),
        Class::Protects(why) if it.arg(0) != "off" => Some(why),
        _ => None,
    }
}

pub(super) fn class(name: &str) -> Class {
    let has = |list: &str| list.split_whitespace().any(|it| it == name);
    if has(READ) {
        return Class::Read;
    }
    if has(DEFINITIONS) {
        return Class::NoEffect(
            "this directive only prepares what another directive uses (such as limit_req): alone it \
             has no effect",
        );
    }
    let found =
        |table: &[(&'static str, &'static str)]| table.iter().find(|(list, _)| has(list)).map(|it| it.1);
    if let Some(why) = found(&NO_EFFECT) {
        return Class::NoEffect(why);
    }
    if let Some(why) = found(&PROTECTS) {
        return Class::Protects(why);
    }
    if let Some(why) = found(&LEFT_OUT) {
        return Class::LeftOut(why);
    }
    let of_access = ["auth", "access", "limit", "deny", "secure", "waf", "by_lua"];
    match of_access.iter().any(|it| name.contains(it)) {
        true => Class::Protects("Seaway does not know this directive, and by its name it restricts access"),
        false if HARMLESS.iter().any(|it| name.starts_with(it)) || name.ends_with("_zone") => Class::Unknown,
        false => Class::Protects(UNKNOWN),
    }
}

/// Reports a directive that needs no reading.
pub(super) fn report_unread(it: &Directive, report: &mut Report) {
    match class(&it.name) {
        _ if withholds(it) => report.closed(&it.place, WITHHOLDS),
        Class::Read => report.left_out(&it.place, "Seaway does not read this directive in this block"),
        Class::NoEffect(why) => report.no_effect(&it.place, why),
        Class::LeftOut(_) | Class::Protects(_) if it.arg(0) == "off" => {
            report.no_effect(&it.place, "this turns off something that Seaway never does")
        }
        Class::LeftOut(why) => report.left_out(&it.place, why),
        // Told where it is found out what it protects.
        Class::Protects(why) => report.closed(&it.place, why),
        Class::Unknown => report.left_out(&it.place, "this directive is not known"),
    }
}
