package rules

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// podRules are the rules for pods that no marker states, by the name of the Go type and the JSON name of the field. A rule for a pointer
// or a list checks what it points to and each element. A field of an embedded struct belongs to both types.
func podRules() map[string]rule {
	return map[string]rule{
		"ConfigMapEnvSource.name":            required(valid(nameInTemplate)),
		"ConfigMapKeySelector.key":           required(valid(validation.IsConfigMapKey)),
		"ConfigMapKeySelector.name":          required(valid(validation.IsDNS1123Subdomain)),
		"Container.livenessProbe":            of(startupOrLivenessProbe),
		"Container.name":                     optional(valid(validation.IsDNS1123Label)),
		"Container.readinessProbe":           of(readinessProbe),
		"Container.resources":                of(containerResources),
		"Container.startupProbe":             of(startupOrLivenessProbe),
		"ContainerPort.name":                 optional(valid(validation.IsValidPortName)),
		"ContainerResizePolicy.resourceName": required(oneOf(corev1.ResourceCPU, corev1.ResourceMemory)),
		"EnvFromSource":                      of(envFromSource),
		"EnvFromSource.prefix":               optional(valid(validation.IsRelaxedEnvVarName)),
		"EnvVar":                             of(envVar),
		"EnvVar.name":                        required(valid(validation.IsRelaxedEnvVarName)),
		"EnvVarSource":                       of(func(c *checker, path string, s *corev1.EnvVarSource) { c.oneSource(path, s) }),
		"EnvVarSource.fieldRef":              fieldRef("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
		"FCVolumeSource.lun":                 within(0, 255),
		"FileKeySelector.key":                required(valid(validation.IsRelaxedEnvVarName)),
		"FileKeySelector.path":               required(noParentReferences),
		"FileKeySelector.volumeName":         required(valid(validation.IsDNS1123Label)),
		"ResourceFieldSelector":              of(resourceFieldRef),
		"SecretEnvSource.name":               required(valid(nameInTemplate)),
		"SecretKeySelector.key":              required(valid(validation.IsConfigMapKey)),
		"SecretKeySelector.name":             required(valid(validation.IsDNS1123Subdomain)),
		"VolumeDevice.devicePath":            required(noParentReferences),
		"VolumeMount":                        of(volumeMount),
		"VolumeMount.subPath":                subPath,
		"VolumeMount.subPathExpr":            subPath,

		"ExecAction":      of(func(c *checker, path string, e *corev1.ExecAction) { c.some(path+".command", len(e.Command)) }),
		"HTTPHeader.name": valid(validation.IsHTTPHeaderName),
		"LifecycleHandler": of(func(c *checker, path string, h *corev1.LifecycleHandler) {
			c.one(path, "exec, httpGet, sleep and tcpSocket", h)
		}),

		"AppArmorProfile": of(appArmor),
		"SeccompProfile": of(func(c *checker, path string, p *corev1.SeccompProfile) {
			c.localhostProfile(path, p.Type == corev1.SeccompProfileTypeLocalhost, p.LocalhostProfile)
		}),
		"SeccompProfile.localhostProfile": optional(relativePath),
		"SecurityContext":                 of(securityContext),
		"Sysctl.name":                     sysctl,

		"NodeSelector": of(func(c *checker, path string, s *corev1.NodeSelector) {
			c.some(path+".nodeSelectorTerms", len(s.NodeSelectorTerms))
		}),
		"NodeSelectorRequirement":     of(nodeSelectorRequirement),
		"NodeSelectorRequirement.key": valid(validation.IsQualifiedName),
		"PodAffinityTerm": of(func(c *checker, path string, t *corev1.PodAffinityTerm) {
			c.labelKeys(path, t.LabelSelector == nil, t.MatchLabelKeys, t.MismatchLabelKeys)
		}),
		"PodAffinityTerm.namespaces":     valid(validation.IsDNS1123Label),
		"PodAffinityTerm.topologyKey":    required(valid(validation.IsQualifiedName)),
		"PodDNSConfig":                   of(podDNSConfig),
		"PodDNSConfig.searches":          searchDomain,
		"PodReadinessGate.conditionType": valid(validation.IsQualifiedName),
		"PodResourceClaim":               of(podResourceClaim),
		"PodResourceClaim.name":          required(valid(validation.IsDNS1123Label)),
		"PodSchedulingGate.name":         valid(validation.IsQualifiedName),
		"PodSpec":                        of(podSpec),
		"PodSpec.activeDeadlineSeconds":  within(1, 1<<31-1),
		"PodSpec.hostname":               optional(valid(validation.IsDNS1123Label)),
		"PodSpec.hostnameOverride":       hostnameOverride,
		"PodSpec.priorityClassName":      optional(valid(validation.IsDNS1123Subdomain)),
		"PodSpec.resources":              of(podResources),
		"PodSpec.serviceAccountName":     optional(valid(validation.IsDNS1123Subdomain)),
		"PodSpec.subdomain":              optional(valid(validation.IsDNS1123Label)),
		"PreferredSchedulingTerm.weight": within(1, 100),
		"Toleration":                     of(toleration),
		"TopologySpreadConstraint":       of(topologySpreadConstraint),
		"WeightedPodAffinityTerm.weight": within(1, 100),

		"AWSElasticBlockStoreVolumeSource.partition":    within(0, 255),
		"CSIVolumeSource.driver":                        required(csiDriver),
		"CephFSVolumeSource":                            of(func(c *checker, path string, s *corev1.CephFSVolumeSource) { c.some(path+".monitors", len(s.Monitors)) }),
		"ClusterTrustBundleProjection":                  of(clusterTrustBundle),
		"ClusterTrustBundleProjection.path":             required(fileInVolume),
		"ClusterTrustBundleProjection.signerName":       required(signer),
		"DownwardAPIVolumeFile":                         of(downwardAPIFile),
		"DownwardAPIVolumeFile.fieldRef":                fieldRef("metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid"),
		"DownwardAPIVolumeFile.path":                    required(fileInVolume),
		"EmptyDirVolumeSource.sizeLimit":                notNegative,
		"EphemeralVolumeSource":                         of(ephemeralVolume),
		"GCEPersistentDiskVolumeSource.partition":       within(0, 255),
		"GitRepoVolumeSource.directory":                 relativePath,
		"HostPathVolumeSource.path":                     required(noParentReferences),
		"ISCSIVolumeSource.lun":                         within(0, 255),
		"KeyToPath.path":                                required(fileInVolume),
		"NFSVolumeSource.path":                          required(absolutePath),
		"PodCertificateProjection.certificateChainPath": optional(fileInVolume),
		"PodCertificateProjection.credentialBundlePath": optional(fileInVolume),
		"PodCertificateProjection.keyPath":              optional(fileInVolume),
		"PodCertificateProjection.keyType":              required(oneOf("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")),
		"PodCertificateProjection.maxExpirationSeconds": atLeast(3600),
		"PodCertificateProjection.signerName":           required(signer),
		"ProjectedVolumeSource":                         of(projectedVolume),
		"RBDVolumeSource": of(func(c *checker, path string, s *corev1.RBDVolumeSource) {
			c.some(path+".monitors", len(s.CephMonitors))
		}),
		"ServiceAccountTokenProjection.expirationSeconds": within(10*60, 1<<32),
		"ServiceAccountTokenProjection.path":              required(fileInVolume),
		"Volume":                                          of(volume),
		"Volume.name":                                     required(valid(validation.IsDNS1123Label)),
		"VolumeProjection":                                of(volumeProjection),
	}
}

// nameInTemplate checks the name of an object, which may end in a dash where the API server would let it be the beginning of one.
func nameInTemplate(name string) []string {
	if beginning, dash := strings.CutSuffix(name, "-"); dash {
		name = beginning + "a"
	}
	return validation.IsDNS1123Subdomain(name)
}

func absolutePath(c *checker, path string, v reflect.Value) {
	if !strings.HasPrefix(v.String(), "/") {
		c.invalid(path, "%s must be an absolute path", quoted(v.String()))
	}
}

// sysctlPattern is SysctlContainSlashFmt of k8s.io/kubernetes/pkg/apis/core/validation.
var sysctlPattern = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

func sysctl(c *checker, path string, v reflect.Value) {
	if len(v.String()) > validation.DNS1123SubdomainMaxLength || !sysctlPattern.MatchString(v.String()) {
		c.invalid(path, "%s is not the name of a sysctl", quoted(v.String()))
	}
}

func hostnameOverride(c *checker, path string, v reflect.Value) {
	const most = 64
	if len(v.String()) > most {
		c.invalid(path, "%s is too long: at most %d characters are allowed", quoted(v.String()), most)
	}
	c.messages(path, v.String(), validation.IsDNS1123Subdomain(v.String()))
}

// fieldRef returns a rule for the path of a field of the pod.
func fieldRef(allowed ...string) rule {
	return of(func(c *checker, path string, s *corev1.ObjectFieldSelector) {
		path += ".fieldPath"
		if parts := subscripted.FindStringSubmatch(s.FieldPath); parts != nil {
			key := parts[2]
			if parts[1] == "metadata.annotations" {
				key = strings.ToLower(key)
			}
			c.messages(path, key, validation.IsQualifiedName(key))
			return
		}
		// The old name of a field is converted to the new one.
		if s.FieldPath != "spec.host" {
			required(oneOf(allowed...))(c, path, reflect.ValueOf(s.FieldPath))
		}
	})
}

var subscripted = regexp.MustCompile(`^(metadata\.(?:labels|annotations))\['(.*)'\]$`)

func envVar(c *checker, path string, e *corev1.EnvVar) {
	if e.Value != "" && e.ValueFrom != nil {
		c.error(path, "value and valueFrom cannot both be set")
	}
}

func envFromSource(c *checker, path string, s *corev1.EnvFromSource) {
	c.oneSource(path, &corev1.EnvFromSource{ConfigMapRef: s.ConfigMapRef, SecretRef: s.SecretRef})
}

func (c *checker) oneSource(path string, of any) {
	if n := CountSet(of); n != 1 {
		c.error(path, "exactly one source is required, found %d", n)
	}
}

// one reports how many of the fields of a struct are set if it is not one.
func (c *checker) one(path, fields string, of any) {
	if n := CountSet(of); n != 1 {
		c.error(path, "exactly one of %s is required, found %d", fields, n)
	}
}

// CountSet returns how many of a struct's fields are set.
func CountSet(of any) int {
	n := 0
	for _, field := range reflect.ValueOf(of).Elem().Fields() {
		if !field.IsZero() {
			n++
		}
	}
	return n
}

// resourceFieldRef checks the name of a resource, and that its divisor is a unit.
func resourceFieldRef(c *checker, path string, r *corev1.ResourceFieldSelector) {
	hugePages := strings.HasPrefix(r.Resource, "limits.hugepages-") || strings.HasPrefix(r.Resource, "requests.hugepages-")
	if !hugePages {
		required(oneOf("limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage"))(
			c, path+".resource", reflect.ValueOf(r.Resource))
	}
	units := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	switch _, name, _ := strings.Cut(r.Resource, "."); {
	case name == "cpu":
		units = []string{"1m", "1"}
	case !hugePages && name != "memory" && name != "ephemeral-storage":
		return
	}
	if !r.Divisor.IsZero() {
		oneOf(units...)(c, path+".divisor", reflect.ValueOf(r.Divisor.String()))
	}
}

// securityContext checks what a privileged container may not say.
func securityContext(c *checker, path string, s *corev1.SecurityContext) {
	if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
		return
	}
	if s.Privileged != nil && *s.Privileged {
		c.error(path+".allowPrivilegeEscalation", "cannot be false for a privileged container")
	}
	if s.Capabilities != nil && slices.Contains(s.Capabilities.Add, "CAP_SYS_ADMIN") {
		c.invalid(path+".allowPrivilegeEscalation", "cannot be false for a container with the capability CAP_SYS_ADMIN")
	}
}

func appArmor(c *checker, path string, p *corev1.AppArmorProfile) {
	is := p.Type == corev1.AppArmorProfileTypeLocalhost
	c.localhostProfile(path, is, p.LocalhostProfile)
	if is && p.LocalhostProfile != nil && (strings.TrimSpace(*p.LocalhostProfile) != *p.LocalhostProfile || *p.LocalhostProfile == "") {
		c.invalid(path+".localhostProfile", "%s is empty, or begins or ends with whitespace", quoted(*p.LocalhostProfile))
	}
}

func (c *checker) localhostProfile(path string, is bool, profile *string) {
	switch {
	case c.placeholder(path + ".type"):
	case is && profile == nil:
		c.invalid(path+".localhostProfile", "is required for type Localhost")
	case !is && profile != nil:
		c.invalid(path+".localhostProfile", "is allowed only for type Localhost")
	}
}

func startupOrLivenessProbe(c *checker, path string, p *corev1.Probe) {
	c.one(path, "exec, grpc, httpGet and tcpSocket", &p.ProbeHandler)
	if p.SuccessThreshold > 1 {
		c.error(path+".successThreshold", `"%d" is invalid: must be 1`, p.SuccessThreshold)
	}
}

func readinessProbe(c *checker, path string, p *corev1.Probe) {
	c.one(path, "exec, grpc, httpGet and tcpSocket", &p.ProbeHandler)
	if p.TerminationGracePeriodSeconds != nil {
		c.error(path+".terminationGracePeriodSeconds", "is allowed only in livenessProbe and startupProbe")
	}
}

func volumeMount(c *checker, path string, m *corev1.VolumeMount) {
	if r := m.RecursiveReadOnly; r != nil && *r != corev1.RecursiveReadOnlyDisabled && !m.ReadOnly {
		c.invalid(path+".recursiveReadOnly", "%q requires readOnly: true", *r)
	}
	if m.SubPath != "" && m.SubPathExpr != "" {
		c.error(path+".subPathExpr", "subPath and subPathExpr cannot both be set")
	}
}

// podSpec checks fields of a pod that must go together.
func podSpec(c *checker, path string, s *corev1.PodSpec) {
	isTrue := func(b *bool) bool { return b != nil && *b }
	if s.HostPID && isTrue(s.ShareProcessNamespace) {
		c.invalid(path+".shareProcessNamespace", "shareProcessNamespace and hostPID cannot both be true")
	}
	if s.DNSPolicy == corev1.DNSNone && (s.DNSConfig == nil || len(s.DNSConfig.Nameservers) == 0) && !c.placeholder(path+".dnsPolicy") {
		c.error(path+".dnsConfig.nameservers", "dnsPolicy: None requires at least one nameserver")
	}
	if s.HostnameOverride != nil && (s.HostNetwork || isTrue(s.SetHostnameAsFQDN)) {
		c.error(path+".hostnameOverride", "is not allowed with hostNetwork or setHostnameAsFQDN")
	}
}

func podDNSConfig(c *checker, path string, d *corev1.PodDNSConfig) {
	c.fewer(path+".nameservers", len(d.Nameservers), 3)
	c.fewer(path+".searches", len(d.Searches), 32)
}

func podResourceClaim(c *checker, path string, claim *corev1.PodResourceClaim) {
	rest := *claim
	rest.Name = ""
	if n := CountSet(&rest); n != 1 {
		c.error(path, "exactly one of resourceClaimName and resourceClaimTemplateName is required, found %d", n)
	}
}

func toleration(c *checker, at string, t *corev1.Toleration) {
	if t.Key == "" && t.Operator != corev1.TolerationOpExists {
		c.invalid(at+".operator", "%q requires a key: without one, it must be %q", t.Operator, corev1.TolerationOpExists)
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		c.invalid(at+".effect", "%q cannot have tolerationSeconds: must be %q", t.Effect, corev1.TaintEffectNoExecute)
	}
	switch t.Operator { //nolint:exhaustive // of numbers, only some are known by older versions
	case corev1.TolerationOpExists:
		if t.Value != "" {
			c.invalid(at+".value", "must be empty with the operator Exists")
		}
	case corev1.TolerationOpEqual, "":
		c.messages(at+".value", t.Value, validation.IsValidLabelValue(t.Value))
	}
}

func nodeSelectorRequirement(c *checker, path string, r *corev1.NodeSelectorRequirement) {
	switch n := len(r.Values); r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		c.some(path+".values", n)
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if n > 0 {
			c.invalid(path+".values", "must be empty with the operator %s", r.Operator)
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if n != 1 {
			c.invalid(path+".values", "must have one value with the operator %s", r.Operator)
		}
	}
}

func topologySpreadConstraint(c *checker, path string, t *corev1.TopologySpreadConstraint) {
	if t.MinDomains != nil && t.WhenUnsatisfiable != corev1.DoNotSchedule {
		c.invalid(path+".minDomains", "requires whenUnsatisfiable: DoNotSchedule")
	}
	c.labelKeys(path, t.LabelSelector == nil, t.MatchLabelKeys, nil)
}

// labelKeys checks the keys that complete a label selector.
func (c *checker) labelKeys(path string, without bool, match, mismatch []string) {
	for name, keys := range map[string][]string{".matchLabelKeys": match, ".mismatchLabelKeys": mismatch} {
		for i, key := range keys {
			c.messages(strict.Element(path+name, i), key, validation.IsQualifiedName(key))
		}
		if len(keys) > 0 && without {
			c.error(path+name, "requires a labelSelector")
		}
	}
}

func volume(c *checker, path string, v *corev1.Volume) {
	if n := CountSet(&v.VolumeSource); n > 1 {
		c.error(path, "volume %q has %d sources: exactly one is allowed", v.Name, n)
	}
}

func volumeProjection(c *checker, path string, s *corev1.VolumeProjection) {
	if n := CountSet(s); n > 1 {
		c.error(path, "one source is allowed, found %d", n)
	}
}

func ephemeralVolume(c *checker, path string, s *corev1.EphemeralVolumeSource) {
	if s.VolumeClaimTemplate == nil {
		c.error(path+".volumeClaimTemplate", "a value is required")
	}
}

func clusterTrustBundle(c *checker, path string, s *corev1.ClusterTrustBundleProjection) {
	switch {
	case (s.Name == nil) == (s.SignerName == nil):
		c.error(path, "exactly one of name and signerName is required")
	case s.Name != nil && *s.Name == "":
		c.invalid(path+".name", "a value is required")
	case s.Name != nil && s.LabelSelector != nil:
		c.error(path+".labelSelector", "is allowed only with signerName")
	}
}

// projectedVolume finds files that two sources have in the same place.
func projectedVolume(c *checker, path string, p *corev1.ProjectedVolumeSource) {
	taken := sets.New[string]()
	take := func(at, file string) {
		if file != "" && taken.Has(file) {
			c.invalid(at, "%s is also the path of another file of the volume", quoted(file))
		}
		taken.Insert(file)
	}
	keys := func(at string, items []corev1.KeyToPath) {
		for i := range items {
			take(strict.Element(at+".items", i)+".path", items[i].Path)
		}
	}
	for i := range p.Sources {
		s, at := &p.Sources[i], strict.Element(path+".sources", i)
		if s.Secret != nil {
			keys(at+".secret", s.Secret.Items)
		}
		if s.ConfigMap != nil {
			keys(at+".configMap", s.ConfigMap.Items)
		}
		if s.DownwardAPI != nil {
			for k := range s.DownwardAPI.Items {
				take(strict.Element(at+".downwardAPI.items", k)+".path", s.DownwardAPI.Items[k].Path)
			}
		}
		if s.ClusterTrustBundle != nil {
			take(at+".clusterTrustBundle.path", s.ClusterTrustBundle.Path)
		}
		if s.PodCertificate != nil {
			take(at+".podCertificate.credentialBundlePath", s.PodCertificate.CredentialBundlePath)
			take(at+".podCertificate.keyPath", s.PodCertificate.KeyPath)
			take(at+".podCertificate.certificateChainPath", s.PodCertificate.CertificateChainPath)
		}
	}
}

func downwardAPIFile(c *checker, path string, f *corev1.DownwardAPIVolumeFile) {
	if (f.FieldRef == nil) == (f.ResourceFieldRef == nil) {
		c.error(path, "exactly one of fieldRef and resourceFieldRef is required")
	}
	if f.ResourceFieldRef != nil && f.ResourceFieldRef.ContainerName == "" {
		c.error(path+".resourceFieldRef.containerName", "a value is required")
	}
}

// containerResources checks what a container needs: that names are known, that no request is above its limit, and that what cannot be
// shared is asked for as a whole.
func containerResources(c *checker, path string, r *corev1.ResourceRequirements) {
	c.resources(path, r, func(at string, name corev1.ResourceName) {
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage, isHugePages(name):
		case !strings.Contains(string(name), "/"):
			c.invalid(at, "%q is unknown: must be cpu, memory, ephemeral-storage, hugepages-<size> or a name with a domain", name)
		}
	})
}

// podResources checks what a pod needs as a whole.
func podResources(c *checker, path string, r *corev1.ResourceRequirements) {
	c.resources(path, r, func(at string, name corev1.ResourceName) {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory && !isHugePages(name) {
			c.invalid(at, "%q is not a resource of a pod: must be cpu, memory or hugepages-<size>", name)
		}
	})
	if len(r.Claims) > 0 {
		c.error(path+".claims", "is not allowed for a whole pod")
	}
}

func (c *checker) resources(path string, r *corev1.ResourceRequirements, known func(at string, name corev1.ResourceName)) {
	for field, list := range map[string]corev1.ResourceList{".requests": r.Requests, ".limits": r.Limits} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			quantity := list[name]
			at := strict.Member(path+field, string(name))
			if messages := validation.IsQualifiedName(string(name)); len(messages) > 0 {
				c.messages(at, string(name), messages)
				continue
			}
			if quantity.Sign() < 0 {
				c.error(at, "%q is negative", quantity.String())
			}
			if strings.Contains(string(name), "/") && isExclusive(name) && quantity.MilliValue()%1000 != 0 {
				c.invalid(at, "%q must be an integer", quantity.String())
			}
			known(at, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		c.request(strict.Member(path+".requests", string(name)), name, r)
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(r.Requests)), maps.Keys(r.Limits))
	if slices.ContainsFunc(names, isHugePages) && !slices.Contains(names, corev1.ResourceCPU) && !slices.Contains(names, corev1.ResourceMemory) {
		c.error(path, "huge pages also require cpu or memory")
	}
}

// request compares what is requested with its limit.
func (c *checker) request(path string, name corev1.ResourceName, r *corev1.ResourceRequirements) {
	request := r.Requests[name]
	limit, limited := r.Limits[name]
	switch {
	case limited && request.Cmp(limit) > 0:
		c.error(path, "the request %q exceeds the limit %q", request.String(), limit.String())
	case !isExclusive(name):
	case !limited:
		c.invalid(path, "%s cannot be overcommitted: a limit of %q is required", name, request.String())
	case request.Cmp(limit) != 0:
		c.invalid(path, "%s cannot be overcommitted: the request %q must equal the limit %q", name, request.String(), limit.String())
	}
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// isExclusive reports whether a resource cannot be shared: an extended one, or huge pages.
func isExclusive(name corev1.ResourceName) bool {
	return isHugePages(name) || strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}
