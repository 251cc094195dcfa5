//! Numbers of the kernel's interface by the names of its headers, in the widths that messages have them in. What the libc crate has
//! is taken from there.

/// linux/netlink.h
pub(crate) const NLA_F_NESTED: u16 = libc::NLA_F_NESTED as u16;
pub(crate) const NLA_TYPE_MASK: u16 = libc::NLA_TYPE_MASK as u16;

/// linux/if_addr.h, since Linux 5.18
pub(crate) const IFA_PROTO: u16 = 11;

/// linux/fib_rules.h
pub(crate) const FRA_PRIORITY: u16 = 6;
pub(crate) const FRA_FWMARK: u16 = 10;
pub(crate) const FRA_TABLE: u16 = 15;
pub(crate) const FR_ACT_TO_TBL: u8 = 1;

/// linux/sock_diag.h and linux/inet_diag.h
pub(crate) const SOCK_DIAG_BY_FAMILY: u16 = 20;
pub(crate) const INET_DIAG_SKV6ONLY: u16 = 11;

/// net/tcp_states.h; UDP uses two of them.
pub(crate) const TCP_ESTABLISHED: u32 = 1;
pub(crate) const TCP_CLOSE: u32 = 7;
pub(crate) const TCP_LISTEN: u32 = 10;

/// linux/netfilter.h and linux/netfilter_ipv4.h
pub(crate) const NFPROTO_INET: u8 = libc::NFPROTO_INET as u8;
pub(crate) const NFPROTO_IPV4: u8 = libc::NFPROTO_IPV4 as u8;
pub(crate) const NFPROTO_IPV6: u8 = libc::NFPROTO_IPV6 as u8;
pub(crate) const NF_DROP: u32 = libc::NF_DROP as u32;
pub(crate) const NF_ACCEPT: u32 = libc::NF_ACCEPT as u32;
pub(crate) const NF_INET_PRE_ROUTING: u32 = libc::NF_INET_PRE_ROUTING as u32;
pub(crate) const NF_INET_LOCAL_OUT: u32 = libc::NF_INET_LOCAL_OUT as u32;

/// linux/netfilter/nfnetlink.h
pub(crate) const NFNL_SUBSYS_NFTABLES: u16 = libc::NFNL_SUBSYS_NFTABLES as u16;
pub(crate) const NFNL_MSG_BATCH_BEGIN: u16 = libc::NFNL_MSG_BATCH_BEGIN as u16;
pub(crate) const NFNL_MSG_BATCH_END: u16 = libc::NFNL_MSG_BATCH_END as u16;

/// linux/netfilter/nf_tables.h: kinds of messages, with the subsystem that they are for.
pub(crate) const NFT_MSG_NEWTABLE: u16 = nft_message(libc::NFT_MSG_NEWTABLE);
pub(crate) const NFT_MSG_DELTABLE: u16 = nft_message(libc::NFT_MSG_DELTABLE);
pub(crate) const NFT_MSG_NEWCHAIN: u16 = nft_message(libc::NFT_MSG_NEWCHAIN);
pub(crate) const NFT_MSG_NEWRULE: u16 = nft_message(libc::NFT_MSG_NEWRULE);
pub(crate) const NFT_MSG_NEWSET: u16 = nft_message(libc::NFT_MSG_NEWSET);
pub(crate) const NFT_MSG_NEWSETELEM: u16 = nft_message(libc::NFT_MSG_NEWSETELEM);
pub(crate) const NFT_MSG_DELSETELEM: u16 = nft_message(libc::NFT_MSG_DELSETELEM);

const fn nft_message(kind: i32) -> u16 {
    NFNL_SUBSYS_NFTABLES << 8 | kind as u16
}

/// linux/netfilter/nf_tables.h: registers, and what expressions ask and do.
pub(crate) const NFT_REG_VERDICT: u32 = libc::NFT_REG_VERDICT as u32;
pub(crate) const NFT_REG_1: u32 = libc::NFT_REG_1 as u32;
pub(crate) const NFT_REG32_00: u32 = libc::NFT_REG32_00 as u32;
pub(crate) const NFT_REG32_08: u32 = libc::NFT_REG32_08 as u32;
pub(crate) const NFT_JUMP: u32 = libc::NFT_JUMP as u32;
pub(crate) const NFT_TABLE_F_OWNER: u32 = 2;
pub(crate) const NFT_SET_MAP: u32 = libc::NFT_SET_MAP as u32;
pub(crate) const NFT_CMP_EQ: u32 = libc::NFT_CMP_EQ as u32;
pub(crate) const NFT_CMP_NEQ: u32 = libc::NFT_CMP_NEQ as u32;
pub(crate) const NFT_META_MARK: u32 = libc::NFT_META_MARK as u32;
pub(crate) const NFT_META_IIF: u32 = libc::NFT_META_IIF as u32;
pub(crate) const NFT_META_NFPROTO: u32 = libc::NFT_META_NFPROTO as u32;
pub(crate) const NFT_META_L4PROTO: u32 = libc::NFT_META_L4PROTO as u32;
pub(crate) const NFT_PAYLOAD_NETWORK_HEADER: u32 = libc::NFT_PAYLOAD_NETWORK_HEADER as u32;
pub(crate) const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = libc::NFT_PAYLOAD_TRANSPORT_HEADER as u32;
pub(crate) const NFT_SOCKET_TRANSPARENT: u32 = 0;
pub(crate) const NFT_SOCKET_WILDCARD: u32 = 2;
pub(crate) const NFT_NAT_DNAT: u32 = libc::NFT_NAT_DNAT as u32;
pub(crate) const NFT_REJECT_TCP_RST: u32 = libc::NFT_REJECT_TCP_RST as u32;
pub(crate) const NFT_REJECT_ICMPX_UNREACH: u32 = libc::NFT_REJECT_ICMPX_UNREACH as u32;
pub(crate) const NFT_REJECT_ICMPX_PORT_UNREACH: u8 = libc::NFT_REJECT_ICMPX_PORT_UNREACH as u8;

/// linux/netfilter/nf_tables.h: attributes, which the libc crate has not.
pub(crate) const NFTA_LIST_ELEM: u16 = 1;
pub(crate) const NFTA_HOOK_HOOKNUM: u16 = 1;
pub(crate) const NFTA_HOOK_PRIORITY: u16 = 2;
pub(crate) const NFTA_TABLE_NAME: u16 = 1;
pub(crate) const NFTA_TABLE_FLAGS: u16 = 2;
pub(crate) const NFTA_CHAIN_TABLE: u16 = 1;
pub(crate) const NFTA_CHAIN_NAME: u16 = 3;
pub(crate) const NFTA_CHAIN_HOOK: u16 = 4;
pub(crate) const NFTA_CHAIN_TYPE: u16 = 7;
pub(crate) const NFTA_RULE_TABLE: u16 = 1;
pub(crate) const NFTA_RULE_CHAIN: u16 = 2;
pub(crate) const NFTA_RULE_EXPRESSIONS: u16 = 4;
pub(crate) const NFTA_SET_TABLE: u16 = 1;
pub(crate) const NFTA_SET_NAME: u16 = 2;
pub(crate) const NFTA_SET_FLAGS: u16 = 3;
pub(crate) const NFTA_SET_KEY_TYPE: u16 = 4;
pub(crate) const NFTA_SET_KEY_LEN: u16 = 5;
pub(crate) const NFTA_SET_DATA_TYPE: u16 = 6;
pub(crate) const NFTA_SET_DATA_LEN: u16 = 7;
pub(crate) const NFTA_SET_ID: u16 = 10;
pub(crate) const NFTA_SET_ELEM_KEY: u16 = 1;
pub(crate) const NFTA_SET_ELEM_DATA: u16 = 2;
pub(crate) const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
pub(crate) const NFTA_SET_ELEM_LIST_SET: u16 = 2;
pub(crate) const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
pub(crate) const NFTA_DATA_VALUE: u16 = 1;
pub(crate) const NFTA_DATA_VERDICT: u16 = 2;
pub(crate) const NFTA_VERDICT_CODE: u16 = 1;
pub(crate) const NFTA_VERDICT_CHAIN: u16 = 2;
pub(crate) const NFTA_EXPR_NAME: u16 = 1;
pub(crate) const NFTA_EXPR_DATA: u16 = 2;
pub(crate) const NFTA_IMMEDIATE_DREG: u16 = 1;
pub(crate) const NFTA_IMMEDIATE_DATA: u16 = 2;
pub(crate) const NFTA_BITWISE_SREG: u16 = 1;
pub(crate) const NFTA_BITWISE_DREG: u16 = 2;
pub(crate) const NFTA_BITWISE_LEN: u16 = 3;
pub(crate) const NFTA_BITWISE_MASK: u16 = 4;
pub(crate) const NFTA_BITWISE_XOR: u16 = 5;
pub(crate) const NFTA_CMP_SREG: u16 = 1;
pub(crate) const NFTA_CMP_OP: u16 = 2;
pub(crate) const NFTA_CMP_DATA: u16 = 3;
pub(crate) const NFTA_LOOKUP_SET: u16 = 1;
pub(crate) const NFTA_LOOKUP_SREG: u16 = 2;
pub(crate) const NFTA_LOOKUP_DREG: u16 = 3;
pub(crate) const NFTA_PAYLOAD_DREG: u16 = 1;
pub(crate) const NFTA_PAYLOAD_BASE: u16 = 2;
pub(crate) const NFTA_PAYLOAD_OFFSET: u16 = 3;
pub(crate) const NFTA_PAYLOAD_LEN: u16 = 4;
pub(crate) const NFTA_META_DREG: u16 = 1;
pub(crate) const NFTA_META_KEY: u16 = 2;
pub(crate) const NFTA_META_SREG: u16 = 3;
pub(crate) const NFTA_SOCKET_KEY: u16 = 1;
pub(crate) const NFTA_SOCKET_DREG: u16 = 2;
pub(crate) const NFTA_REJECT_TYPE: u16 = 1;
pub(crate) const NFTA_REJECT_ICMP_CODE: u16 = 2;
pub(crate) const NFTA_NAT_TYPE: u16 = 1;
pub(crate) const NFTA_NAT_FAMILY: u16 = 2;
pub(crate) const NFTA_NAT_REG_ADDR_MIN: u16 = 3;
pub(crate) const NFTA_TPROXY_FAMILY: u16 = 1;
pub(crate) const NFTA_TPROXY_REG_ADDR: u16 = 2;
pub(crate) const NFTA_TPROXY_REG_PORT: u16 = 3;
