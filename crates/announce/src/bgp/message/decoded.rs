//! Updates read as a router reads them, for tests.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;

use super::{Family, HEADER, Reader};

/// What is said of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DecodedRoute {
    pub(crate) next_hop: Option<IpAddr>,
    pub(crate) path: Vec<u32>,
    pub(crate) med: Option<u32>,
    pub(crate) local_pref: Option<u32>,
    pub(crate) communities: Vec<u32>,
    pub(crate) large: Vec<[u32; 3]>,
}

/// A router's table, with what one peer of it announced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AdjRibIn {
    pub(crate) routes: BTreeMap<IpNet, DecodedRoute>,
    pub(crate) ended: Vec<Family>,
}

fn prefixes(mut all: Reader<'_>, family: Family) -> Vec<IpNet> {
    let mut found = Vec::new();
    while let Some(length) = all.u8() {
        let bytes = all.take(length.div_ceil(8).into()).expect("whole prefixes");
        let mut octets = [0; 16];
        octets[..bytes.len()].copy_from_slice(bytes);
        let ip: IpAddr = match family {
            Family::V4 => Ipv4Addr::from(*octets.first_chunk::<4>().expect("four")).into(),
            Family::V6 => Ipv6Addr::from(octets).into(),
        };
        found.push(IpNet::new(ip, length).expect("a prefix"));
    }
    found
}

fn words(mut all: Reader<'_>) -> Vec<u32> {
    std::iter::from_fn(|| all.u32()).collect()
}

impl AdjRibIn {
    /// Takes one whole message.
    pub(crate) fn take(&mut self, message: &[u8], has_four_byte_as: bool) {
        let mut body = Reader(&message[HEADER..]);
        let withdrawn = prefixes(body.long().expect("withdrawn routes"), Family::V4);
        let mut attributes = body.long().expect("attributes");
        let mut announced = prefixes(body, Family::V4);
        let (is_bare, mut is_end) = (message.len() == 23, None);
        let mut gone = withdrawn;
        let mut said = DecodedRoute::default();
        while let Some((kind, mut value)) = super::update::next_attribute(&mut attributes) {
            match kind {
                2 => {
                    if let (Some(2), Some(count)) = (value.u8(), value.u8()) {
                        let next = |it: &mut Reader<'_>| {
                            if has_four_byte_as { it.u32() } else { it.u16().map(u32::from) }
                        };
                        said.path = (0..count).map(|_| next(&mut value).expect("an AS")).collect();
                    }
                }
                3 => said.next_hop = value.chunk::<4>().map(IpAddr::from),
                4 => said.med = value.u32(),
                5 => said.local_pref = value.u32(),
                8 => said.communities = words(value),
                14 => {
                    let family = Family::read(value.u16().expect("an AFI"), value.u8().expect("a SAFI"));
                    let mut hop = value.short().expect("a next hop");
                    said.next_hop = hop.chunk::<16>().map(IpAddr::from);
                    value.u8().expect("reserved");
                    announced.extend(prefixes(value, family.expect("a family")));
                }
                15 => {
                    let family = Family::read(value.u16().expect("an AFI"), value.u8().expect("a SAFI"));
                    is_end = family.filter(|_| value.is_empty());
                    gone.extend(prefixes(value, family.expect("a family")));
                }
                17 => said.path = words(Reader(&value.0[2..])),
                32 => said.large = words(value).chunks(3).map(|it| [it[0], it[1], it[2]]).collect(),
                _ => {}
            }
        }
        self.ended.extend(is_end.or(is_bare.then_some(Family::V4)));
        gone.iter().for_each(|it| drop(self.routes.remove(it)));
        self.routes.extend(announced.into_iter().map(|it| (it, said.clone())));
    }
}
