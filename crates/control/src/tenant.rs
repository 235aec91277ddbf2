//! Tenants: hosts that are decided for by themselves, under settings of their own.

use std::collections::HashSet;

use thalweg_bundle::{HOSTS_MAX, Hosts, is_host};

use crate::settings::{Fault, Settings};

/// Tenants that settings name; beside them as many hosts may be tenants by [`Settings::by_tenant`].
pub const TENANTS_MAX: usize = thalweg_bundle::TENANTS_MAX / 2;
/// Hosts of all tenants that settings name.
pub const TENANT_HOSTS_MAX: usize = 4_096;

/// A tenant that settings name.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    hosts: Vec<String>,
    /// By what is decided for it; what a PoP's tenants share is the same as that of all.
    pub settings: Settings,
}

impl Tenant {
    /// Hosts, without ports: the first is the tenant's name.
    pub fn new(hosts: impl IntoIterator<Item = String>, settings: Settings) -> Self {
        let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase());
        Self { hosts: hosts.collect(), settings }
    }

    /// Its hosts, in lower case.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// The name by which windows, states and rules are its own.
    pub fn name(&self) -> &str {
        self.hosts.first().map_or("", String::as_str)
    }
}

impl Settings {
    /// Whether a connection's tenant has to be known.
    pub fn tells_tenants(&self) -> bool {
        self.by_tenant || !self.tenants.is_empty()
    }

    /// By what is decided for a tenant; for hosts that none has if the name is empty.
    pub fn of(&self, tenant: &str) -> &Self {
        self.tenants.iter().find(|it| it.name() == tenant).map_or(self, |it| &it.settings)
    }

    /// The name of the tenant that has a host; that of a host that is one by itself.
    pub fn tenant_of(&self, host: &str) -> String {
        let has = |it: &&Tenant| it.hosts.iter().any(|own| own.eq_ignore_ascii_case(host));
        self.tenants.iter().find(has).map_or_else(|| host.to_ascii_lowercase(), |it| it.name().to_owned())
    }

    /// Whether settings name a tenant.
    pub(crate) fn names(&self, tenant: &str) -> bool {
        self.tenants.iter().any(|it| it.name() == tenant)
    }

    /// Whether a tenant is decided for under these settings. Of a host that is a tenant by itself a bundle has to take the name.
    pub fn is_tenant(&self, tenant: &str) -> bool {
        if tenant.is_empty() {
            return !self.by_tenant;
        }
        let is_of_another = || self.tenants.iter().flat_map(|it| &it.hosts).any(|host| host == tenant);
        let is_left_alone = || self.hosts_left_alone.iter().any(|host| host.eq_ignore_ascii_case(tenant));
        self.names(tenant) || (self.by_tenant && is_host(tenant) && !is_of_another() && !is_left_alone())
    }

    /// The place of each host's tenant, of those that settings name.
    pub(crate) fn tenants_of_hosts(&self) -> Hosts<usize> {
        let tenants = self.tenants.iter().enumerate();
        Hosts::new(tenants.flat_map(|(at, it)| it.hosts.iter().map(move |host| (host.as_str(), at))))
    }

    /// What is wrong with each tenant's hosts, by its place.
    pub fn check_hosts_of_tenants(&self) -> Vec<(usize, Fault)> {
        let mut faults = Vec::new();
        let mut tell = |at, expected: String| faults.push((at, Fault { setting: "hosts", expected }));
        let left_alone = self.hosts_left_alone.iter().map(|host| host.to_ascii_lowercase());
        let mut known: HashSet<_> = left_alone.collect();
        let mut count = 0;
        for (at, Tenant { hosts, .. }) in self.tenants.iter().enumerate() {
            count += hosts.len();
            if at >= TENANTS_MAX || count > TENANT_HOSTS_MAX {
                tell(at, format!("of at most {TENANTS_MAX} tenants, {TENANT_HOSTS_MAX} together"));
                break;
            }
            if !(1..=HOSTS_MAX).contains(&hosts.len()) {
                tell(at, format!("1 to {HOSTS_MAX} names"));
            }
            if let Some(host) = hosts.iter().find(|host| !is_host(host)) {
                tell(at, format!("names of hosts, without a port and a dot at the end: {host:?} is none"));
            }
            for host in hosts {
                if !known.insert(host.clone()) {
                    tell(
                        at,
                        format!(
                            "names that stand once, in one tenant, and are not left alone: {host} is not"
                        ),
                    );
                }
            }
        }
        faults
    }

    /// What is wrong with a tenant's settings.
    pub fn check_tenant(&self, tenant: &Tenant) -> Vec<Fault> {
        let own = &tenant.settings;
        let mut faults = own.check();
        let mut shared = |setting, is_shared: bool| {
            if !is_shared {
                faults.push(Fault { setting, expected: "the same for all tenants".to_owned() });
            }
        };
        shared("window_s", own.window_s == self.window_s);
        shared("late_s", own.late_s == self.late_s);
        shared("hosts_left_alone", own.hosts_left_alone == self.hosts_left_alone);
        shared("tenants", own.tenants.is_empty());
        faults
    }
}
