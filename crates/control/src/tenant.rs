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
    /// Its hosts, without ports. The first is its name.
    pub hosts: Vec<String>,
    /// By what is decided for it; what a PoP's tenants share is the same as that of all.
    pub settings: Settings,
}

impl Tenant {
    /// The name by which windows, states and rules are its own.
    pub fn name(&self) -> String {
        self.hosts.first().map(|host| host.to_ascii_lowercase()).unwrap_or_default()
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

    /// Whether settings name a tenant.
    pub(crate) fn names(&self, tenant: &str) -> bool {
        self.tenants.iter().any(|it| it.name() == tenant)
    }

    /// Whether a tenant is decided for under these settings.
    pub(crate) fn has(&self, tenant: &str) -> bool {
        let is_of_another =
            || self.tenants.iter().flat_map(|it| &it.hosts).any(|host| host.eq_ignore_ascii_case(tenant));
        self.names(tenant) || (self.by_tenant != tenant.is_empty() && !is_of_another())
    }

    /// The name of each host's tenant, of those that settings name.
    pub(crate) fn tenants_of_hosts(&self) -> Hosts<usize> {
        let tenants = self.tenants.iter().enumerate();
        Hosts::new(tenants.flat_map(|(at, it)| it.hosts.iter().map(move |host| (host.as_str(), at))))
    }

    /// What is wrong with the tenants' hosts.
    pub fn check_hosts_of_tenants(&self) -> Vec<Fault> {
        let fault = |expected: String| Fault { setting: "hosts", expected };
        let mut faults = Vec::new();
        let hosts = self.tenants.iter().map(|it| it.hosts.len());
        if self.tenants.len() > TENANTS_MAX || hosts.sum::<usize>() > TENANT_HOSTS_MAX {
            let expected =
                format!("of at most {TENANTS_MAX} tenants, and at most {TENANT_HOSTS_MAX} together");
            faults.push(fault(expected));
        }
        let left_alone = self.hosts_left_alone.iter().map(|host| host.to_ascii_lowercase());
        let mut known: HashSet<_> = left_alone.collect();
        for tenant in self.tenants.iter().take(TENANTS_MAX) {
            let hosts: Vec<_> =
                tenant.hosts.iter().take(HOSTS_MAX).map(|host| host.to_ascii_lowercase()).collect();
            if tenant.hosts.is_empty()
                || tenant.hosts.len() > HOSTS_MAX
                || !hosts.iter().all(|host| is_host(host))
            {
                faults.push(fault(format!("1 to {HOSTS_MAX} names of hosts, without ports")));
            }
            for host in hosts {
                if known.contains(&host) {
                    faults.push(fault(format!(
                        "names that no other tenant has and that are not left alone, unlike {host}"
                    )));
                }
                known.insert(host);
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
