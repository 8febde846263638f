package podcheck

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// rule checks one value, which is neither a pointer nor a list.
type rule func(c *Checker, path string, v reflect.Value)

// rules are the checks that look at one field or struct alone, by the name of the Go type and
// the JSON name of the field. A rule for a pointer or a list checks what it points to and each
// element. A field of an embedded struct belongs to the outer type.
//
//nolint:gochecknoglobals // a table that nobody changes
var rules = map[string]rule{
	"Container.imagePullPolicy":           oneOf(corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever),
	"Container.livenessProbe":             of((*Checker).startupOrLivenessProbe),
	"Container.readinessProbe":            of((*Checker).readinessProbe),
	"Container.startupProbe":              of((*Checker).startupOrLivenessProbe),
	"Container.terminationMessagePolicy":  oneOf(corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError),
	"ContainerPort.name":                  optional(valid(validation.IsValidPortName)),
	"ContainerResizePolicy.resourceName":  required(oneOf(corev1.ResourceCPU, corev1.ResourceMemory)),
	"ContainerResizePolicy.restartPolicy": required(oneOf(corev1.NotRequired, corev1.RestartContainer)),

	"ConfigMapEnvSource.name":   required(),
	"ConfigMapKeySelector.key":  required(valid(validation.IsConfigMapKey)),
	"ConfigMapKeySelector.name": required(),
	"EnvFromSource":             of((*Checker).envFromSource),
	"EnvFromSource.prefix":      optional(valid(validation.IsRelaxedEnvVarName)),
	"EnvVar":                    of((*Checker).envVar),
	"EnvVarSource":              of((*Checker).envVarSource),
	"EnvVarSource.fieldRef":     fieldRef("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
	"ResourceFieldSelector":     of((*Checker).resourceFieldRef),
	"SecretEnvSource.name":      required(),
	"SecretKeySelector.key":     required(valid(validation.IsConfigMapKey)),
	"SecretKeySelector.name":    required(),
	"VolumeDevice.devicePath":   required(noParentReferences),
	"VolumeMount":               of((*Checker).volumeMount),
	"VolumeMount.subPath":       subPath,
	"VolumeMount.subPathExpr":   subPath,
	"VolumeMount.mountPropagation": oneOf(
		corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone),
	"VolumeMount.recursiveReadOnly": oneOf(
		corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled),

	"ExecAction":                          of((*Checker).execAction),
	"GRPCAction.port":                     port,
	"HTTPGetAction.port":                  port,
	"HTTPGetAction.scheme":                oneOf(corev1.URISchemeHTTP, corev1.URISchemeHTTPS),
	"HTTPHeader.name":                     valid(validation.IsHTTPHeaderName),
	"LifecycleHandler":                    of((*Checker).lifecycleHandler),
	"Probe.failureThreshold":              atLeast(0),
	"Probe.initialDelaySeconds":           atLeast(0),
	"Probe.periodSeconds":                 atLeast(0),
	"Probe.successThreshold":              atLeast(0),
	"Probe.terminationGracePeriodSeconds": atLeast(1),
	"Probe.timeoutSeconds":                atLeast(0),
	"TCPSocketAction.port":                port,

	"AppArmorProfile": of(func(c *Checker, path string, p *corev1.AppArmorProfile) {
		c.localhostProfile(path, p.Type == corev1.AppArmorProfileTypeLocalhost, p.LocalhostProfile)
	}),
	"AppArmorProfile.type": required(oneOf(
		corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)),
	"PodSecurityContext.fsGroup":             user,
	"PodSecurityContext.fsGroupChangePolicy": oneOf(corev1.FSGroupChangeOnRootMismatch, corev1.FSGroupChangeAlways),
	"PodSecurityContext.runAsGroup":          user,
	"PodSecurityContext.runAsUser":           user,
	"PodSecurityContext.supplementalGroups":  user,
	"SeccompProfile": of(func(c *Checker, path string, p *corev1.SeccompProfile) {
		c.localhostProfile(path, p.Type == corev1.SeccompProfileTypeLocalhost, p.LocalhostProfile)
	}),
	"SeccompProfile.localhostProfile": optional(relativePath),
	"SeccompProfile.type": required(oneOf(
		corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)),
	"SecurityContext":            of((*Checker).securityContext),
	"SecurityContext.procMount":  oneOf(corev1.DefaultProcMount, corev1.UnmaskedProcMount),
	"SecurityContext.runAsGroup": user,
	"SecurityContext.runAsUser":  user,
	"Sysctl.name":                sysctl,

	"HostAlias.hostnames":            valid(validation.IsDNS1123Subdomain),
	"HostAlias.ip":                   address,
	"NodeSelector":                   of((*Checker).nodeSelector),
	"NodeSelectorRequirement.key":    valid(validation.IsQualifiedName),
	"PodAffinityTerm.labelSelector":  of((*Checker).Selector),
	"PodAffinityTerm.topologyKey":    required(),
	"PodDNSConfig.nameservers":       address,
	"PodDNSConfig.searches":          searchDomain,
	"PodDNSConfigOption.name":        required(),
	"PodOS.name":                     required(oneOf(corev1.Linux, corev1.Windows)),
	"PodReadinessGate.conditionType": valid(validation.IsQualifiedName),
	"PodSchedulingGate.name":         valid(validation.IsQualifiedName),
	"PodSpec":                        of((*Checker).podSpec),
	"PodSpec.activeDeadlineSeconds":  atLeast(1),
	"PodSpec.dnsPolicy":              oneOf(corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone),
	"PodSpec.hostname":               optional(valid(validation.IsDNS1123Label)),
	"PodSpec.preemptionPolicy":       oneOf(corev1.PreemptLowerPriority, corev1.PreemptNever),
	"PodSpec.priorityClassName":      optional(valid(validation.IsDNS1123Subdomain)),
	"PodSpec.restartPolicy":          oneOf(corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever),
	"PodSpec.runtimeClassName":       valid(validation.IsDNS1123Subdomain),
	"PodSpec.serviceAccountName":     optional(valid(validation.IsDNS1123Subdomain)),
	"PodSpec.subdomain":              optional(valid(validation.IsDNS1123Label)),
	"PreferredSchedulingTerm.weight": within(1, 100),
	"Toleration":                     of((*Checker).toleration),
	"Toleration.effect":              oneOf(corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute),
	"Toleration.key":                 optional(valid(validation.IsQualifiedName)),
	"Toleration.operator":            oneOf(corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt),
	"WeightedPodAffinityTerm.weight": within(1, 100),
	"NodeSelectorRequirement.operator": required(oneOf(corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists,
		corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt)),
	"TopologySpreadConstraint.labelSelector":     of((*Checker).Selector),
	"TopologySpreadConstraint.maxSkew":           atLeast(1),
	"TopologySpreadConstraint.topologyKey":       required(),
	"TopologySpreadConstraint.whenUnsatisfiable": required(oneOf(corev1.DoNotSchedule, corev1.ScheduleAnyway)),

	"CSIVolumeSource.driver":                          required(),
	"ConfigMapProjection.name":                        required(),
	"ConfigMapVolumeSource.defaultMode":               mode,
	"ConfigMapVolumeSource.name":                      required(),
	"DownwardAPIVolumeFile":                           of((*Checker).downwardAPIFile),
	"DownwardAPIVolumeFile.fieldRef":                  fieldRef("metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid"),
	"DownwardAPIVolumeFile.mode":                      mode,
	"DownwardAPIVolumeFile.path":                      required(relativePath),
	"DownwardAPIVolumeSource.defaultMode":             mode,
	"EmptyDirVolumeSource.sizeLimit":                  notNegative,
	"HostPathVolumeSource.path":                       required(noParentReferences),
	"KeyToPath.key":                                   required(valid(validation.IsConfigMapKey)),
	"KeyToPath.mode":                                  mode,
	"KeyToPath.path":                                  required(relativePath),
	"NFSVolumeSource.path":                            required(),
	"NFSVolumeSource.server":                          required(),
	"PersistentVolumeClaimVolumeSource.claimName":     required(),
	"ProjectedVolumeSource.defaultMode":               mode,
	"SecretProjection.name":                           required(),
	"SecretVolumeSource.defaultMode":                  mode,
	"SecretVolumeSource.secretName":                   required(),
	"ServiceAccountTokenProjection.expirationSeconds": within(10*60, 1<<32),
	"ServiceAccountTokenProjection.path":              required(relativePath),
	"VolumeProjection":                                of((*Checker).volumeProjection),
	"HostPathVolumeSource.type": oneOf(corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory, corev1.HostPathFileOrCreate,
		corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev),
}

// fields applies the rules to a value and everything below it.
func (c *Checker) fields(path string, v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // nothing else has fields below it
	case reflect.Pointer:
		if !v.IsNil() {
			c.fields(path, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			c.fields(Indexed(path, i), v.Index(i))
		}
	case reflect.Struct:
		c.apply(v.Type().Name(), path, v)
		c.members(v.Type().Name(), path, v)
	}
}

// members applies the rules to the fields of a struct, which belong to the type of that name.
func (c *Checker) members(of, path string, v reflect.Value) {
	for f, value := range v.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" && value.Kind() == reflect.Struct:
			c.members(of, path, value)
		case name != "" && name != "-":
			c.apply(of+"."+name, path+"."+name, value)
			c.fields(path+"."+name, value)
		}
	}
}

// apply applies the rule of that name, if there is one.
func (c *Checker) apply(name, path string, v reflect.Value) {
	check := rules[name]
	switch {
	case check == nil:
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			check(c, Indexed(path, i), v.Index(i))
		}
	case v.Kind() != reflect.Pointer:
		check(c, path, v)
	case !v.IsNil():
		check(c, path, v.Elem())
	}
}

// of returns a rule for structs.
func of[T any](check func(c *Checker, path string, v *T)) rule {
	return func(c *Checker, path string, v reflect.Value) {
		if t, ok := reflect.TypeAssert[*T](v.Addr()); ok {
			check(c, path, t)
		}
	}
}

// required returns a rule for a text that must not be empty and obeys other rules.
func required(others ...rule) rule {
	return func(c *Checker, path string, v reflect.Value) {
		if !c.require(path, v.String()) {
			return
		}
		for _, check := range others {
			check(c, path, v)
		}
	}
}

// optional returns a rule for a text that obeys another rule unless it is empty.
func optional(other rule) rule {
	return func(c *Checker, path string, v reflect.Value) {
		if v.String() != "" {
			other(c, path, v)
		}
	}
}

// valid returns a rule for a text about which a function of the API server's library has
// nothing to say.
func valid(check func(string) []string) rule {
	return func(c *Checker, path string, v reflect.Value) { c.messages(path, v.String(), check(v.String())) }
}

// oneOf returns a rule for a text that is one of these, or empty, which is the default.
func oneOf[T ~string](allowed ...T) rule {
	return func(c *Checker, path string, v reflect.Value) {
		if !c.placeholder(path) {
			OneOf(c, path, T(v.String()), allowed...)
		}
	}
}

func atLeast(least int64) rule {
	return func(c *Checker, path string, v reflect.Value) {
		if v.Int() < least {
			c.invalid(path, "%q is too low: must be %d or more", strconv.FormatInt(v.Int(), 10), least)
		}
	}
}

func within(least, most int64) rule {
	return func(c *Checker, path string, v reflect.Value) {
		if v.Int() < least || v.Int() > most {
			c.invalid(path, "%q is out of range: must be %d to %d", strconv.FormatInt(v.Int(), 10), least, most)
		}
	}
}

// fieldRef returns a rule for the path of a field of the pod.
func fieldRef(allowed ...string) rule {
	return of(func(c *Checker, path string, s *corev1.ObjectFieldSelector) {
		path += ".fieldPath"
		if parts := subscripted.FindStringSubmatch(s.FieldPath); parts != nil {
			key := parts[2]
			if parts[1] == "metadata.annotations" {
				key = strings.ToLower(key)
			}
			c.messages(path, key, validation.IsQualifiedName(key))
			return
		}
		required(oneOf(allowed...))(c, path, reflect.ValueOf(s.FieldPath))
	})
}

var subscripted = regexp.MustCompile(`^(metadata\.(?:labels|annotations))\['(.*)'\]$`)

func user(c *Checker, path string, v reflect.Value) {
	c.messages(path, strconv.FormatInt(v.Int(), 10), validation.IsValidUserID(v.Int()))
}

func port(c *Checker, path string, v reflect.Value) {
	p, named := reflect.TypeAssert[intstr.IntOrString](v)
	switch {
	case !named:
		c.messages(path, strconv.FormatInt(v.Int(), 10), validation.IsValidPortNum(int(v.Int())))
	case p.Type == intstr.String:
		c.messages(path, p.StrVal, validation.IsValidPortName(p.StrVal))
	default:
		c.messages(path, p.String(), validation.IsValidPortNum(p.IntValue()))
	}
}

func address(c *Checker, path string, v reflect.Value) {
	if len(validation.IsValidIPForLegacyField(field.NewPath(path), v.String(), false, nil)) > 0 {
		c.invalid(path, "%q is not an IP address", v.String())
	}
}

// searchDomain checks a domain of a DNS search list, a part of which may begin with an
// underscore.
func searchDomain(c *Checker, path string, v reflect.Value) {
	name := strings.ReplaceAll(strings.TrimSuffix(v.String(), "."), "_", "a")
	if v.String() != "." && len(validation.IsDNS1123Subdomain(name)) > 0 {
		c.invalid(path, "%q is not a DNS domain", v.String())
	}
}

// sysctlPattern is SysctlContainSlashFmt of k8s.io/kubernetes/pkg/apis/core/validation.
var sysctlPattern = regexp.MustCompile(`^([a-z0-9][-_a-z0-9]*[./])*[a-z0-9][-_a-z0-9]*$`)

func sysctl(c *Checker, path string, v reflect.Value) {
	if !sysctlPattern.MatchString(v.String()) {
		c.invalid(path, "%q is not the name of a sysctl", v.String())
	}
}

// relativePath checks a path that must not leave where it begins.
func relativePath(c *Checker, path string, v reflect.Value) {
	if strings.HasPrefix(v.String(), "/") {
		c.invalid(path, "%q must be a relative path", v.String())
	}
	noParentReferences(c, path, v)
}

func noParentReferences(c *Checker, path string, v reflect.Value) {
	if hasParentReference(v.String()) {
		c.invalid(path, `%q must not contain ".."`, v.String())
	}
}

func subPath(c *Checker, path string, v reflect.Value) {
	if strings.HasPrefix(v.String(), "/") || hasParentReference(v.String()) {
		c.error(path, "", `%q must be a relative path without ".."`, v.String())
	}
}

func hasParentReference(path string) bool { return strings.Contains("/"+path+"/", "/../") }

func mode(c *Checker, path string, v reflect.Value) {
	const most = 0o777
	if v.Int() < 0 || v.Int() > most {
		c.invalid(path, "%q is out of range: must be 0 to 511, which is 0777 in octal", strconv.FormatInt(v.Int(), 10))
	}
}

func notNegative(c *Checker, path string, v reflect.Value) {
	if q, ok := reflect.TypeAssert[resource.Quantity](v); ok && q.Sign() < 0 {
		c.invalid(path, "%q is negative", q.String())
	}
}
