package podcheck

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// sysctl is the name of a sysctl: k8s.io/kubernetes/pkg/apis/core/validation,
// SysctlContainSlashFmt.
var sysctl = regexp.MustCompile(`^([a-z0-9][-_a-z0-9]*[./])*[a-z0-9][-_a-z0-9]*$`)

// PodSpec checks the fields of a template's spec that are neither containers nor
// volumes.
func (c *Checker) PodSpec(path string, t *corev1.PodSpec) {
	c.grace = t.TerminationGracePeriodSeconds
	for i := range t.ResourceClaims {
		c.claims[t.ResourceClaims[i].Name] = true
	}
	c.podFields(path, t)
	oneOf(c, path+".dnsPolicy", t.DNSPolicy, corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	oneOf(c, path+".restartPolicy", t.RestartPolicy, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	if t.PreemptionPolicy != nil {
		oneOf(c, path+".preemptionPolicy", *t.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
	if t.OS != nil && c.require(path+".os.name", string(t.OS.Name)) {
		oneOf(c, path+".os.name", t.OS.Name, corev1.Linux, corev1.Windows)
	}
	if t.ActiveDeadlineSeconds != nil {
		c.atLeast(path+".activeDeadlineSeconds", *t.ActiveDeadlineSeconds, 1)
	}
	for _, name := range []struct {
		field, text string
		check       func(string) []string
	}{
		{"serviceAccountName", t.ServiceAccountName, validation.IsDNS1123Subdomain},
		{"priorityClassName", t.PriorityClassName, validation.IsDNS1123Subdomain},
		{"hostname", t.Hostname, validation.IsDNS1123Label},
		{"subdomain", t.Subdomain, validation.IsDNS1123Label},
	} {
		if name.text != "" {
			c.messages(path+"."+name.field, name.text, name.check(name.text))
		}
	}
	if t.RuntimeClassName != nil {
		c.messages(path+".runtimeClassName", *t.RuntimeClassName, validation.IsDNS1123Subdomain(*t.RuntimeClassName))
	}
	if t.HostPID && t.ShareProcessNamespace != nil && *t.ShareProcessNamespace {
		c.invalid(path+".shareProcessNamespace", "shareProcessNamespace and hostPID exclude each other")
	}
	for _, key := range slices.Sorted(maps.Keys(t.NodeSelector)) {
		c.messages(path+".nodeSelector."+key, key, validation.IsQualifiedName(key))
		c.messages(path+".nodeSelector."+key, t.NodeSelector[key], validation.IsValidLabelValue(t.NodeSelector[key]))
	}
	for i, alias := range t.HostAliases {
		at := Indexed(path+".hostAliases", i)
		c.address(at+".ip", alias.IP)
		for k, name := range alias.Hostnames {
			c.messages(Indexed(at+".hostnames", k), name, validation.IsDNS1123Subdomain(name))
		}
	}
	for i, gate := range t.ReadinessGates {
		c.messages(Indexed(path+".readinessGates", i)+".conditionType", string(gate.ConditionType), validation.IsQualifiedName(string(gate.ConditionType)))
	}
	for i, gate := range t.SchedulingGates {
		c.messages(Indexed(path+".schedulingGates", i)+".name", gate.Name, validation.IsQualifiedName(gate.Name))
	}
	c.dns(path, t)
	for i := range t.Tolerations {
		c.toleration(Indexed(path+".tolerations", i), &t.Tolerations[i])
	}
	for i := range t.TopologySpreadConstraints {
		s, at := &t.TopologySpreadConstraints[i], Indexed(path+".topologySpreadConstraints", i)
		c.atLeast(at+".maxSkew", int64(s.MaxSkew), 1)
		c.require(at+".topologyKey", s.TopologyKey)
		if c.require(at+".whenUnsatisfiable", string(s.WhenUnsatisfiable)) {
			oneOf(c, at+".whenUnsatisfiable", s.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)
		}
		if s.LabelSelector != nil {
			c.Selector(at+".labelSelector", s.LabelSelector)
		}
	}
	c.affinity(path+".affinity", t.Affinity)
	c.podSecurity(path+".securityContext", t.SecurityContext)
}

func (c *Checker) dns(path string, t *corev1.PodSpec) {
	d := t.DNSConfig
	if d == nil {
		d = new(corev1.PodDNSConfig)
	}
	policy := path + ".dnsPolicy"
	path += ".dnsConfig"
	if t.DNSPolicy == corev1.DNSNone && len(d.Nameservers) == 0 && !c.placeholder(policy) {
		c.error(path+".nameservers", "", "with dnsPolicy: None a pod needs at least one, and the profile adds none")
	}
	const servers, searches = 3, 32
	if n := len(d.Nameservers); n > servers {
		c.error(path+".nameservers", "", "there are %d, and a pod may have %d", n, servers)
	}
	if n := len(d.Searches); n > searches {
		c.error(path+".searches", "", "there are %d, and a pod may have %d", n, searches)
	}
	for i, server := range d.Nameservers {
		c.address(Indexed(path+".nameservers", i), server)
	}
	for i, search := range d.Searches {
		if search != "." {
			// A part may begin with an underscore.
			name := strings.ReplaceAll(strings.TrimSuffix(search, "."), "_", "a")
			if len(validation.IsDNS1123Subdomain(name)) > 0 {
				c.invalid(Indexed(path+".searches", i), "%q is not a DNS domain", search)
			}
		}
	}
	for i := range d.Options {
		c.require(Indexed(path+".options", i)+".name", d.Options[i].Name)
	}
}

func (c *Checker) toleration(at string, t *corev1.Toleration) {
	if t.Key != "" {
		c.messages(at+".key", t.Key, validation.IsQualifiedName(t.Key))
	} else if t.Operator != corev1.TolerationOpExists {
		c.invalid(at+".operator", "%q is not allowed without a key: allowed is %q", t.Operator, corev1.TolerationOpExists)
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		c.invalid(at+".effect", "%q does not go together with tolerationSeconds: allowed is %q", t.Effect, corev1.TaintEffectNoExecute)
	}
	if t.Operator == corev1.TolerationOpExists && t.Value != "" {
		c.invalid(at+".value", "the operator Exists has no value")
	}
	oneOf(c, at+".operator", t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt)
	oneOf(c, at+".effect", t.Effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
}

func (c *Checker) affinity(path string, a *corev1.Affinity) {
	if a == nil {
		return
	}
	const required, preferred = ".requiredDuringSchedulingIgnoredDuringExecution", ".preferredDuringSchedulingIgnoredDuringExecution"
	weight := func(at string, weight int32) {
		const most = 100
		if weight < 1 || weight > most {
			c.invalid(at+".weight", "%q is out of range: allowed is 1 to %d", strconv.Itoa(int(weight)), most)
		}
	}
	if n := a.NodeAffinity; n != nil {
		at := path + ".nodeAffinity"
		if r := n.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
			if len(r.NodeSelectorTerms) == 0 {
				c.error(at+required+".nodeSelectorTerms", "", "at least one is required")
			}
			for i := range r.NodeSelectorTerms {
				c.nodeTerm(fmt.Sprintf("%s%s.nodeSelectorTerms[%d]", at, required, i), &r.NodeSelectorTerms[i])
			}
		}
		for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			p, at := &n.PreferredDuringSchedulingIgnoredDuringExecution[i], Indexed(at+preferred, i)
			weight(at, p.Weight)
			c.nodeTerm(at+".preference", &p.Preference)
		}
	}
	terms := func(at string, must []corev1.PodAffinityTerm, should []corev1.WeightedPodAffinityTerm) {
		for i := range must {
			c.podTerm(Indexed(at+required, i), &must[i])
		}
		for i := range should {
			weight(Indexed(at+preferred, i), should[i].Weight)
			c.podTerm(Indexed(at+preferred, i)+".podAffinityTerm", &should[i].PodAffinityTerm)
		}
	}
	if p := a.PodAffinity; p != nil {
		terms(path+".podAffinity", p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		terms(path+".podAntiAffinity", p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

func (c *Checker) nodeTerm(path string, t *corev1.NodeSelectorTerm) {
	for i := range t.MatchExpressions {
		e, at := &t.MatchExpressions[i], Indexed(path+".matchExpressions", i)
		c.messages(at+".key", e.Key, validation.IsQualifiedName(e.Key))
		if c.require(at+".operator", string(e.Operator)) {
			oneOf(c, at+".operator", e.Operator, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists,
				corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt)
		}
	}
}

func (c *Checker) podTerm(path string, t *corev1.PodAffinityTerm) {
	c.require(path+".topologyKey", t.TopologyKey)
	if t.LabelSelector != nil {
		c.Selector(path+".labelSelector", t.LabelSelector)
	}
}

// podFields refuses fields that no profile can set for a pod that is created.
func (c *Checker) podFields(path string, t *corev1.PodSpec) {
	if len(t.EphemeralContainers) > 0 {
		c.error(path+".ephemeralContainers", "", "a pod cannot be created with ephemeral containers")
	}
	for _, host := range []struct {
		field string
		set   bool
	}{{"hostNetwork", t.HostNetwork}, {"hostPID", t.HostPID}, {"hostIPC", t.HostIPC}} {
		if host.set {
			c.error(path+"."+host.field, "", "a profile cannot give pods a part of the node")
		}
	}
	for _, priority := range []struct {
		field string
		set   bool
	}{{"priorityClassName", t.PriorityClassName != ""}, {"priority", t.Priority != nil}, {"preemptionPolicy", t.PreemptionPolicy != nil}} {
		if priority.set {
			// plugin/pkg/admission/priority, admitPod: it has run before webhooks
			// do, and runs again.
			c.error(path+"."+priority.field, "", "the API server sets a pod's priority before webhooks are asked, and refuses another one")
		}
	}
	if t.NodeName != "" {
		c.error(path+".nodeName", "use nodeSelector or affinity", "a profile cannot put every pod on one node")
	}
}
