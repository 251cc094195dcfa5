//! Where a load balancer's address comes from.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{
    Octavia, invalid,
    providers::{Provider, Vip},
};
use crate::cloud::{
    exchange::{Caller, Refusal},
    neutron::{GROUP, NETWORK, PORT, SUBNET, Wanted, net},
    state::State,
    store::{Fields, Row, text},
};

/// What the noop driver says where nobody asked for an address.
const NOWHERE: &str = "198.0.2.5";

/// Since which version there may be several.
const SEVERAL: usize = 26;

impl Octavia {
    pub(super) fn show_vips(&self, shown: &mut Fields) {
        if self.newest < SEVERAL {
            shown.remove("additional_vips");
        }
    }
}

impl State {
    /// They are there. Whether the provider heeds them, Octavia does not ask.
    pub(super) fn check_vip_groups(&self, fields: &Fields) -> Result<(), Refusal> {
        let groups = fields.get("vip_sg_ids").and_then(Value::as_array).into_iter().flatten();
        for group in groups.filter_map(Value::as_str) {
            if self.neutron.table(&GROUP).row(group).is_none() {
                return Err(Refusal::new(400, format!("Security Group {group} not found.")));
            }
        }
        Ok(())
    }

    /// Finds out which network, subnet and address are meant.
    pub(super) fn resolve_vip(&self, fields: &mut Fields, caller: &Caller) -> Result<(), Refusal> {
        let given = |name: &str| Some(text(fields, name).to_owned()).filter(|it| !it.is_empty());
        let (port, network, subnet, address) =
            (given("vip_port_id"), given("vip_network_id"), given("vip_subnet_id"), given("vip_address"));
        let (network, subnet, address) = match (port, network, subnet) {
            (Some(port), _, subnet) => self.by_port(&port, subnet, address, caller)?,
            (None, Some(network), subnet) => self.by_network(network, subnet, address, caller)?,
            (None, None, Some(subnet)) => {
                let row = self.found(&SUBNET, "Subnet", &subnet, caller)?;
                (row.parent.clone().unwrap_or_default(), subnet, address)
            }
            (None, None, None) => {
                let all = "vip_port_id, vip_network_id, vip_subnet_id";
                return Err(Refusal::new(
                    400,
                    format!("Validation failure: VIP must contain one of: {all}."),
                ));
            }
        };
        self.check_additional(fields, &subnet, &network)?;
        for group in fields.get("vip_sg_ids").and_then(Value::as_array).into_iter().flatten() {
            let group = group.as_str().unwrap_or_default();
            self.found(&crate::cloud::neutron::GROUP, "Security Group", group, caller)?;
        }
        fields.insert("vip_network_id".to_owned(), network.into());
        fields.insert("vip_subnet_id".to_owned(), subnet.into());
        fields.insert("vip_address".to_owned(), address.into());
        Ok(())
    }

    fn by_port(
        &self,
        port: &str,
        subnet: Option<String>,
        address: Option<String>,
        caller: &Caller,
    ) -> Result<(String, String, Option<String>), Refusal> {
        let row = self.found(&PORT, "Port", port, caller)?;
        let device = row.text("device_id");
        if !device.is_empty() {
            return Err(invalid(format!("Port {port} is already used by device {device} ")));
        }
        let fixed = row.fields.get("fixed_ips").and_then(Value::as_array).cloned().unwrap_or_default();
        let is_meant = |it: &&Value| {
            subnet.as_ref().is_none_or(|subnet| it["subnet_id"] == **subnet)
                && address.as_ref().is_none_or(|address| it["ip_address"] == **address)
        };
        let found = fixed.iter().find(is_meant).ok_or_else(|| {
            invalid(if subnet.is_some() {
                "No VIP address found on the specified VIP port within the specified subnet."
            } else {
                "Specified VIP address not found on the specified VIP port."
            })
        })?;
        if fixed.len() > 1 && subnet.is_none() && address.is_none() {
            return Err(invalid(
                "VIP port's subnet could not be determined. Please specify either a VIP subnet or address.",
            ));
        }
        let of = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
        Ok((row.text("network_id").to_owned(), of("subnet_id"), Some(of("ip_address"))))
    }

    fn by_network(
        &self,
        network: String,
        subnet: Option<String>,
        address: Option<String>,
        caller: &Caller,
    ) -> Result<(String, String, Option<String>), Refusal> {
        self.found(&NETWORK, "Network", &network, caller)?;
        let mut subnets: Vec<&Row> = self.neutron.table(&SUBNET).children(&network).collect();
        if let Some(subnet) = subnet {
            if !subnets.iter().any(|it| it.id == subnet) {
                return Err(Refusal::new(400, format!("Subnet {subnet} not found.")));
            }
            return Ok((network, subnet, address));
        }
        let found = match &address {
            Some(address) => {
                let address: Option<IpAddr> = address.parse().ok();
                let holds = |it: &&&Row| net(it).zip(address).is_some_and(|(net, ip)| net.contains(&ip));
                let found = subnets.iter().find(holds).copied();
                found.ok_or_else(|| {
                    invalid("Supplied network does not contain a subnet for VIP address specified.")
                })?
            }
            None => {
                subnets.sort_by_key(|it| it.fields.get("ip_version") != Some(&json!(4)));
                subnets
                    .first()
                    .copied()
                    .ok_or_else(|| invalid("Supplied network does not contain a subnet."))?
            }
        };
        Ok((network, found.id.clone(), address))
    }

    fn check_additional(&self, fields: &Fields, subnet: &str, network: &str) -> Result<(), Refusal> {
        let mut used = vec![subnet.to_owned()];
        for vip in fields.get("additional_vips").and_then(Value::as_array).into_iter().flatten() {
            let other = vip["subnet_id"].as_str().unwrap_or_default();
            if used.iter().any(|it| it == other) {
                return Err(invalid(
                    "Duplicate VIP subnet(s) specified. Only one IP can be bound per subnet.",
                ));
            }
            let row = self.neutron.table(&SUBNET).row(other);
            // Nobody looked for it before.
            let missing = || Refusal::new(500, format!("subnet not found (subnet id: {other})."));
            let row = row.ok_or_else(missing)?;
            if row.parent.as_deref() != Some(network) {
                return Err(invalid("All VIP subnets must belong to the same network."));
            }
            used.push(other.to_owned());
        }
        Ok(())
    }

    /// What another service has, as this caller sees it.
    fn found(
        &self,
        kind: &crate::cloud::neutron::Kind,
        title: &str,
        id: &str,
        caller: &Caller,
    ) -> Result<&Row, Refusal> {
        let found = self.neutron.visible_object(kind, id, caller);
        found.map_err(|_| Refusal::new(400, format!("{title} {id} not found.")))
    }

    pub(super) fn check_subnet(&self, id: &str, caller: &Caller) -> Result<(), Refusal> {
        self.found(&SUBNET, "Subnet", id, caller).map(|_| ())
    }

    /// Takes the addresses, as the provider does it.
    pub(super) fn make_vip(
        &mut self,
        fields: &mut Fields,
        id: &str,
        project: &str,
        provider: Provider,
    ) -> Result<(), Refusal> {
        let given = |name: &str| Some(text(fields, name).to_owned()).filter(|it| !it.is_empty());
        let own_port = given("vip_port_id");
        let (network, subnet) =
            (text(fields, "vip_network_id").to_owned(), text(fields, "vip_subnet_id").to_owned());
        if provider == Provider::Noop {
            let address = given("vip_address").unwrap_or_else(|| NOWHERE.to_owned());
            let port = own_port.unwrap_or_else(|| self.ids.uuid());
            fields.insert("vip_address".to_owned(), address.into());
            fields.insert("vip_port_id".to_owned(), port.into());
            return Ok(());
        }
        if let (Provider::Amphora, Some(port)) = (provider, &own_port) {
            self.give_port(port, &format!("lb-{id}"), "Octavia", "DOWN");
        } else {
            let address = given("vip_address");
            let made = self.vip_port(id, project, &network, Some(subnet), address, provider)?;
            fields.insert("vip_address".to_owned(), made.1.into());
            fields.insert("vip_port_id".to_owned(), made.0.into());
        }
        let mut additional = fields.get("additional_vips").cloned().unwrap_or_default();
        for vip in additional.as_array_mut().into_iter().flatten() {
            let of = |name: &str| vip[name].as_str().map(str::to_owned);
            let (subnet, address) = (of("subnet_id"), of("ip_address"));
            let (port, address) = self.vip_port(id, project, &network, subnet, address, provider)?;
            vip["port_id"] = json!(port);
            vip["ip_address"] = json!(address);
        }
        fields.insert("additional_vips".to_owned(), additional);
        Ok(())
    }

    fn vip_port(
        &mut self,
        id: &str,
        project: &str,
        network: &str,
        subnet: Option<String>,
        address: Option<String>,
        provider: Provider,
    ) -> Result<(String, String), Refusal> {
        let (name, device, device_owner) = match provider {
            Provider::Ovn => (format!("ovn-lb-vip-{id}"), String::new(), ""),
            _ => (format!("octavia-lb-{id}"), format!("lb-{id}"), "Octavia"),
        };
        let wanted = Wanted {
            network: network.to_owned(),
            subnet,
            address,
            project: project.to_owned(),
            name,
            device,
            device_owner: device_owner.to_owned(),
        };
        let made = self.make_port(wanted).map_err(|refusal| match (provider, refusal.status) {
            (Provider::Amphora, 409) if refusal.kind == "IpAddressAlreadyAllocated" => {
                Refusal::new(409, format!("The VIP IP address is already in use: {}", refusal.message))
            }
            _ => provider.broken(refusal.message),
        })?;
        Ok((made.port, made.address))
    }

    /// What goes with the load balancer; a port of the user's own stays.
    pub(super) fn drop_vip(&mut self, balancer: &Row) {
        let additional =
            balancer.fields.get("additional_vips").and_then(Value::as_array).into_iter().flatten();
        let mut ports: Vec<String> =
            additional.filter_map(|it| it["port_id"].as_str().map(str::to_owned)).collect();
        ports.push(balancer.text("vip_port_id").to_owned());
        for port in ports {
            let name = self.neutron.table(&PORT).row(&port).map(|it| it.text("name").to_owned());
            match name {
                Some(name) if name.ends_with(&balancer.id) => self.remove_port(&port),
                Some(_) => self.give_port(&port, "", "", "DOWN"),
                None => {}
            }
        }
    }

    pub(super) fn vip_of(&self, balancer: &Row) -> Vip {
        let address: Option<IpAddr> = balancer.text("vip_address").parse().ok();
        let additional =
            balancer.fields.get("additional_vips").and_then(Value::as_array).into_iter().flatten();
        let is_other = |it: &Value| {
            it["ip_address"]
                .as_str()
                .and_then(|it| it.parse::<IpAddr>().ok())
                .zip(address)
                .is_some_and(|(a, b)| a.is_ipv4() != b.is_ipv4())
        };
        let mut additional = additional;
        Vip {
            address,
            range: self.neutron.table(&SUBNET).row(balancer.text("vip_subnet_id")).and_then(net),
            is_mixed: additional.any(is_other),
        }
    }
}
