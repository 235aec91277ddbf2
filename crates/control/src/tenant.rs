//! Tenants: groups of hosts decided separately, under their own settings.

use std::collections::HashSet;

use thalweg_bundle::{HOSTS_MAX, Hosts, is_host};

use crate::settings::{Fault, Settings};

/// Maximum number of tenants named in settings. The same number of other hosts may become tenants
/// through [`Settings::by_tenant`].
pub const TENANTS_MAX: usize = thalweg_bundle::TENANTS_MAX / 2;
/// Maximum number of hosts across all tenants named in settings.
pub const TENANT_HOSTS_MAX: usize = 4_096;

/// A tenant named in settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    hosts: Vec<String>,
    /// Settings for this tenant's decisions. Settings shared by the whole PoP must equal the global
    /// settings.
    pub settings: Settings,
}

impl Tenant {
    /// Creates a tenant from hosts without ports. The first host becomes the tenant's name.
    pub fn new(hosts: impl IntoIterator<Item = String>, settings: Settings) -> Self {
        let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase());
        Self { hosts: hosts.collect(), settings }
    }

    /// Returns the tenant's hosts, in lower case.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Returns the name that identifies the tenant's windows, states and rules.
    pub fn name(&self) -> &str {
        self.hosts.first().map_or("", String::as_str)
    }
}

impl Settings {
    /// Returns whether decisions depend on a connection's tenant.
    pub fn distinguishes_tenants(&self) -> bool {
        self.by_tenant || !self.tenants.is_empty()
    }

    /// Returns the settings for a tenant. An empty name stands for hosts without a tenant.
    pub fn of(&self, tenant: &str) -> &Self {
        self.tenants.iter().find(|it| it.name() == tenant).map_or(self, |it| &it.settings)
    }

    /// Returns the name of a host's tenant. A host without a named tenant is its own tenant.
    pub fn tenant_of(&self, host: &str) -> String {
        let has = |it: &&Tenant| it.hosts.iter().any(|own| own.eq_ignore_ascii_case(host));
        self.tenants.iter().find(has).map_or_else(|| host.to_ascii_lowercase(), |it| it.name().to_owned())
    }

    /// Returns whether the settings name this tenant.
    pub(crate) fn has_named_tenant(&self, tenant: &str) -> bool {
        self.tenants.iter().any(|it| it.name() == tenant)
    }

    /// Returns whether decisions are made for this tenant under these settings. A host that is its
    /// own tenant must have a name that is valid in a bundle.
    pub fn is_tenant(&self, tenant: &str) -> bool {
        if tenant.is_empty() {
            return !self.by_tenant;
        }
        let is_of_another = || self.tenants.iter().flat_map(|it| &it.hosts).any(|host| host == tenant);
        let is_left_alone = || self.hosts_left_alone.iter().any(|host| host.eq_ignore_ascii_case(tenant));
        self.has_named_tenant(tenant)
            || (self.by_tenant && is_host(tenant) && !is_of_another() && !is_left_alone())
    }

    /// Returns the index of each host's named tenant.
    pub(crate) fn tenants_of_hosts(&self) -> Hosts<usize> {
        let tenants = self.tenants.iter().enumerate();
        Hosts::new(tenants.flat_map(|(at, it)| it.hosts.iter().map(move |host| (host.as_str(), at))))
    }

    /// Returns the faults in the tenants' hosts, each with its tenant index.
    pub fn check_hosts_of_tenants(&self) -> Vec<(usize, Fault)> {
        let mut faults = Vec::new();
        let mut report = |at, expected: String| faults.push((at, Fault { setting: "hosts", expected }));
        let left_alone = self.hosts_left_alone.iter().map(|host| host.to_ascii_lowercase());
        let mut known: HashSet<_> = left_alone.collect();
        let mut count = 0;
        for (at, Tenant { hosts, .. }) in self.tenants.iter().enumerate() {
            count += hosts.len();
            if at >= TENANTS_MAX || count > TENANT_HOSTS_MAX {
                report(at, format!("at most {TENANT_HOSTS_MAX} names across at most {TENANTS_MAX} tenants"));
                break;
            }
            if !(1..=HOSTS_MAX).contains(&hosts.len()) {
                report(at, format!("1 to {HOSTS_MAX} names"));
            }
            if let Some(host) = hosts.iter().find(|host| !is_host(host)) {
                report(at, format!("host names without a port or a trailing dot, not {host:?}"));
            }
            for host in hosts {
                if !known.insert(host.clone()) {
                    report(
                        at,
                        format!("unique names, neither in another tenant nor left alone, unlike {host}"),
                    );
                }
            }
        }
        faults
    }

    /// Returns the faults in a tenant's settings.
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
