# shellcheck shell=bash
# shellcheck disable=SC2154  # settings.sh sets them
# The cluster's certificate authority, and kubeconfigs for who it certifies. Sourced, never run; needs settings.sh.

# authority: once for a cluster, with the key that signs the tokens of service accounts.
authority() {
    mkdir -p "$certificates"
    [ ! -e "$certificates/ca.crt" ] || return 0
    new_key "$certificates/tokens.key"
    openssl pkey -in "$certificates/tokens.key" -pubout -out "$certificates/tokens.pub" 2>/dev/null
    new_key "$certificates/ca.key"
    openssl req -x509 -new -key "$certificates/ca.key" -subj /CN=seaway-rig -days 3650 \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,digitalSignature \
        -out "$certificates/ca.crt"
}

new_key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null; }

# certify NAME SUBJECT DAYS EXTENSION...: NAME.crt and NAME.key
certify() {
    local name=$1 subject=$2 days=$3
    shift 3
    new_key "$certificates/$name.key"
    openssl req -new -key "$certificates/$name.key" -subj "$subject" |
        openssl x509 -req -CA "$certificates/ca.crt" -CAkey "$certificates/ca.key" -days "$days" \
            -set_serial "0x$(openssl rand -hex 8)" -extfile <(printf '%s\n' "$@") -out "$certificates/$name.crt" 2>/dev/null
}

# kubeconfig SERVER USER...: on stdout; USER is a line of YAML of the user.
kubeconfig() {
    local server=$1
    shift
    printf '%s\n' "apiVersion: v1" "kind: Config" "current-context: rig" \
        "contexts: [{name: rig, context: {cluster: rig, user: rig}}]" \
        "clusters:" "- name: rig" "  cluster:" "    server: $server" \
        "    certificate-authority-data: $(base64 -w0 "$certificates/ca.crt")" \
        "users:" "- name: rig" "  user:"
    printf '    %s\n' "$@"
}

# certified NAME: the lines of YAML of a user with a certificate of ours.
certified() {
    printf 'client-certificate-data: %s\nclient-key-data: %s\n' \
        "$(base64 -w0 "$certificates/$1.crt")" "$(base64 -w0 "$certificates/$1.key")"
}
