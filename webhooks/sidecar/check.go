package sidecar

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
)

func objectName(p *Profile) string { return "SidecarProfile/" + p.Name }

func errorAt(p *Profile, path, message string) diagnostic.Diagnostic {
	return diagnostic.Diagnostic{Severity: diagnostic.Error, Source: p.Source, Object: objectName(p), Field: path, Message: message}
}

func (c *compiler) error(path, hint, format string, args ...any) {
	f := errorAt(c.profile, path, fmt.Sprintf(format, args...))
	f.Hint = hint
	c.found = append(c.found, f)
}

func (c *compiler) warn(path, hint, format string, args ...any) {
	c.error(path, hint, format, args...)
	c.found[len(c.found)-1].Severity = diagnostic.Warning
}

// checkProfile checks what a profile says besides its template.
func (c *compiler) checkProfile() {
	p := c.profile
	switch p.Name {
	case "":
		c.error("metadata.name", "", "a name is required")
	case "true", "false":
		c.error("metadata.name", "", "%q cannot be a profile's name: it has a meaning of its own in the annotation %s", p.Name, v1alpha1.InjectAnnotation)
	default:
		for _, message := range validation.IsDNS1123Subdomain(p.Name) {
			c.error("metadata.name", "", "%q: %s", p.Name, message)
		}
		if prefix := p.Name + "." + v1alpha1.ParameterDomain; len(prefix) > validation.DNS1123SubdomainMaxLength && len(p.Spec.Parameters) > 0 {
			c.error("metadata.name", "", "%q is too long for the names of the annotations that set parameters: allowed are %d characters",
				p.Name, validation.DNS1123SubdomainMaxLength-len(v1alpha1.ParameterDomain)-1)
		}
	}
	spec := &p.Spec
	allow(c, "spec.injection", spec.Injection, v1alpha1.OptIn, v1alpha1.OptOut)
	allow(c, "spec.hostNetwork", spec.HostNetwork, v1alpha1.SkipPod, v1alpha1.InjectPod)
	allow(c, "spec.podsThatEnd", spec.PodsThatEnd, v1alpha1.SkipPod, v1alpha1.RefusePod, v1alpha1.InjectPod)
	allow(c, "spec.onConflict", spec.OnConflict, v1alpha1.RefuseConflict, v1alpha1.SkipConflict, v1alpha1.KeepConflict)
	allow(c, "spec.onSameName", spec.OnSameName, v1alpha1.RefuseSameName, v1alpha1.KeepSameName, v1alpha1.ReplaceSameName)
	allow(c, "spec.placement.initContainers", spec.Placement.InitContainers, v1alpha1.First, v1alpha1.Last)
	allow(c, "spec.placement.containers", spec.Placement.Containers, v1alpha1.First, v1alpha1.Last)
	if r := spec.Rollout; r != nil && (r.Percent < 0 || r.Percent > 100) {
		c.error("spec.rollout.percent", "", "%q is out of range: allowed is 0 to 100", strconv.Itoa(int(r.Percent)))
	}
	c.selector("spec.match.namespaceSelector", spec.Match.NamespaceSelector)
	c.selector("spec.match.objectSelector", spec.Match.ObjectSelector)
	seen := make(map[string]bool)
	for i, mc := range spec.Match.MatchConditions {
		path := fmt.Sprintf("spec.match.matchConditions[%d].name", i)
		switch {
		case mc.Name == "":
			c.error(path, "", "a name is required")
		case seen[mc.Name]:
			c.error(path, "", "%q is the name of another condition too", mc.Name)
		}
		seen[mc.Name] = true
	}
	c.checkPresets()
}

// allow checks a word. Nothing stands for the default.
func allow[T ~string](c *compiler, path string, word T, allowed ...T) {
	if word == "" || slices.Contains(allowed, word) {
		return
	}
	quoted := make([]string, len(allowed))
	plain := make([]string, len(allowed))
	for i, a := range allowed {
		quoted[i], plain[i] = strconv.Quote(string(a)), string(a)
	}
	last := len(quoted) - 1
	c.error(path, diagnostic.DidYouMean(string(word), plain...), "%q is not known: allowed are %s and %s", word, strings.Join(quoted[:last], ", "), quoted[last])
}

// checkRequired finds parameters that every pod must set though none has asked
// for the profile.
func (c *compiler) checkRequired(p *profile) {
	if !p.optOut || c.found.Err() != nil {
		return
	}
	nothing := func(string) (string, bool) { return "", false }
	_, invalid := p.scope.Resolve(nothing, nothing)
	parameters := make(map[string]int, len(c.profile.Spec.Parameters))
	for i := range c.profile.Spec.Parameters {
		parameters[c.profile.Spec.Parameters[i].Name] = i
	}
	for _, missing := range invalid {
		i := parameters[missing.Parameter]
		what := "is refused"
		if missing.Skip {
			what = "does not get the profile"
		}
		c.warn(fmt.Sprintf("spec.parameters[%d].default", i), "give it a default, or make the profile OptIn",
			"every pod that the profile selects and for which nobody sets %q %s", missing.Parameter, what)
	}
}

// checkPresets finds presets that nobody has. In a directory that is certain; in
// a cluster the ConfigMap may come later, and pods wait for it.
func (c *compiler) checkPresets() {
	for i, preset := range c.profile.Spec.Presets {
		if c.configMaps == nil {
			continue
		}
		if _, known := c.configMaps.ConfigMapData(preset.ConfigMap.Namespace, preset.ConfigMap.Name); !known {
			c.warn(fmt.Sprintf("spec.presets[%d].configMap", i), "put the ConfigMap beside the profile",
				"there is no ConfigMap %q in namespace %q: pods that ask for the profile are refused until there is, and others are created without it", preset.ConfigMap.Name, preset.ConfigMap.Namespace)
		}
	}
}

func (c *compiler) selector(path string, s *metav1.LabelSelector) {
	errs := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, field.NewPath(path))
	// Upstream walks a map.
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.ErrorBody(), b.ErrorBody()))
	})
	for _, err := range errs {
		body := err.ErrorBody()
		if strings.HasSuffix(err.Field, ".operator") {
			body += ": allowed are In, NotIn, Exists and DoesNotExist"
		}
		c.error(err.Field, "", "%s", strings.ToLower(body[:1])+body[1:])
	}
}

// typed is what a profile adds, as it would be in a plausible pod.
type typed struct {
	spec        corev1.PodSpec
	annotations map[string]string
	app         []corev1.Container
}

// clean are the levels of Pod Security at which what the profile adds cannot
// make a pod inadmissible. Of what depends on the pod nothing is known.
func (c *compiler) clean(evaluator *podsecurity.Evaluator, p *profile) podsecurity.Levels {
	if p.fixed == nil {
		return podsecurity.Levels{}
	}
	return evaluator.CleanAlone(&c.typed.spec, c.typed.annotations, c.typed.app...)
}

// decode reads a rendered part into the type that the API server has for it.
func decode(raw []byte, into any) error {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, into); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	return nil
}

// checkTemplate holds the template against the API server's rules, as far as
// they can be told without the pod: a mistake in a profile is shown to whoever
// wrote it, not to everybody whose pods fail.
func (c *compiler) checkTemplate(p *profile) {
	const path = "spec.template.spec"
	t := &c.typed.spec
	if p.spec != nil {
		if err := decode(p.spec.Sample(), t); err != nil {
			c.error(path, "", "%v", err)
			return
		}
		c.podFields(path, t)
		c.podSpec(path, t)
		c.claims = make(map[string]bool, len(t.ResourceClaims))
		for i := range t.ResourceClaims {
			c.claims[t.ResourceClaims[i].Name] = true
		}
	}
	c.blocks = make(map[string]bool, len(p.elements[volumes]))
	declared := make(map[string]string, len(p.elements[volumes]))
	for i := range p.elements[volumes] {
		at := fmt.Sprintf("%s.volumes[%d]", path, i)
		var v corev1.Volume
		if p.elements[volumes][i].tree == nil {
			declared[p.elements[volumes][i].name] = at
			continue
		}
		if err := decode(p.elements[volumes][i].tree.Sample(), &v); err != nil {
			c.error(at, "", "%v", err)
			continue
		}
		t.Volumes = append(t.Volumes, v)
		if _, twice := c.blocks[v.Name]; !twice {
			c.blocks[v.Name] = v.PersistentVolumeClaim != nil || v.Ephemeral != nil
		}
		c.name(at+".name", v.Name, declared)
		c.source(at, &v)
	}
	// Containers and init containers share one space of names and of ports.
	names := make(map[string]string)
	ports := new(takenPorts)
	for l := initContainers; l <= containers; l++ {
		for i := range p.elements[l] {
			e := &p.elements[l][i]
			at := fmt.Sprintf("%s.%s[%d]", path, l, i)
			var container corev1.Container
			if l == containers {
				p.plain = cmp.Or(p.plain, e.name)
				c.warn(at, "make it an init container with restartPolicy: Always",
					"container %q is not a native sidecar: it starts and ends in no order with the pod's own containers, and pods that must end do not get the profile", e.name)
			}
			if e.tree == nil {
				names[e.name] = at
				continue
			}
			if err := decode(e.tree.Sample(), &container); err != nil {
				c.error(at, "", "%v", err)
				continue
			}
			e.ports = declaredPorts(&container)
			mine := ports
			switch {
			case l == containers:
				t.Containers = append(t.Containers, container)
			case e.native:
				t.InitContainers = append(t.InitContainers, container)
				c.native(at, &container)
			default:
				t.InitContainers = append(t.InitContainers, container)
				c.plainInit(at, &container)
				mine = new(takenPorts)
			}
			c.container(at, &container, names, declared, mine)
		}
	}
	if p.metadata != nil {
		c.metadata(p.metadata.Sample())
	}
	for i := range p.app {
		at := fmt.Sprintf("spec.appContainers[%d]", i)
		var container corev1.Container
		if p.app[i].tree == nil {
			continue
		}
		if err := decode(p.app[i].tree.Sample(), &container); err != nil {
			c.error(at+".template", "", "%v", err)
			continue
		}
		c.typed.app = append(c.typed.app, container)
		c.appContainer(at, &p.app[i], &container, declared)
	}
	var known []string
	const mostHinted = 32 // each name is compared with that of each share
	if len(names) <= mostHinted {
		known = slices.Sorted(maps.Keys(names))
	}
	for i := range p.share {
		c.checkShare(fmt.Sprintf("spec.share[%d]", i), &p.share[i], names, known)
	}
	c.checkDistinctUsers(p.distinctUsers, t)
	p.systems = c.typed.systems()
	p.demands = c.typed.demands()
	if !c.says {
		c.error("spec.template", "", "the profile adds nothing: template or appContainers must say something")
	}
}

func declaredPorts(c *corev1.Container) portList {
	var ports portList
	for i := range c.Ports {
		ports = append(ports, newPort(&c.Ports[i], c.Name))
	}
	return ports
}

// podFields refuses fields that no profile can set for a pod that is created.
func (c *compiler) podFields(path string, t *corev1.PodSpec) {
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

// metadata checks labels and annotations.
func (c *compiler) metadata(sample []byte) {
	const path = "spec.template.metadata"
	var m v1alpha1.SidecarTemplateMetadata
	if err := decode(sample, &m); err != nil {
		c.error(path, "", "%v", err)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		for _, message := range validation.IsQualifiedName(key) {
			c.error(path+".labels["+key+"]", "", "%q: %s", key, message)
		}
		for _, message := range validation.IsValidLabelValue(m.Labels[key]) {
			c.error(path+".labels["+key+"]", "", "%q: %s", m.Labels[key], message)
		}
	}
	c.typed.annotations = m.Annotations
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		at := path + ".annotations[" + key + "]"
		for _, message := range validation.IsQualifiedName(strings.ToLower(key)) {
			c.error(at, "", "%q: %s", key, message)
		}
		if strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) {
			c.appArmorAnnotation(at, m.Annotations[key])
		}
		if reserved(key) {
			c.error(at, "", "%q is not for a profile to set", key)
		}
	}
}

// appContainer checks additions to the pod's own containers.
func (c *compiler) appContainer(at string, a *additions, container *corev1.Container, declared map[string]string) {
	if container.Name != "" {
		c.error(at+".template.name", "say in names which containers are meant", "the containers have names already")
	}
	except := sets.New(a.Except...)
	for i, name := range a.Names {
		if except.Has(name) {
			c.error(fmt.Sprintf("%s.names[%d]", at, i), "", "%q is among the exceptions too", name)
		}
	}
	at += ".template"
	c.ofOthers(at, a, container)
	if a.InitContainers {
		c.plainInit(at, container)
	}
	for i := range container.Ports {
		c.port(indexed(at+".ports", i), "", &container.Ports[i], new(takenPorts))
	}
	c.portNames(at, container)
	c.env(at, container)
	c.security(at, container)
	c.resources(at, container)
	c.words(at, container)
	c.probes(at, container)
	c.mounts(at, "what is added", container, declared)
}

// checkShare checks a share of containers with names, of which known are suggested.
func (c *compiler) checkShare(at string, s *v1alpha1.SidecarShare, names map[string]string, known []string) {
	if names[s.Container] == "" {
		c.error(at+".container", diagnostic.DidYouMean(s.Container, known...), "%q is not a container of the template", s.Container)
	}
	if !s.VolumeMounts && !s.VolumeDevices && len(s.Env) == 0 {
		c.error(at, "", "nothing is shared: volumeMounts, volumeDevices or env must say something")
	}
	if s.ReadOnly && !s.VolumeMounts {
		c.error(at+".readOnly", "", "says something about volumeMounts, and these are not shared")
	}
}

func (c *compiler) checkDistinctUsers(names []string, t *corev1.PodSpec) {
	hasUser := make(map[string]bool)
	for _, all := range [...][]corev1.Container{t.InitContainers, t.Containers} {
		for i := range all {
			if _, twice := hasUser[all[i].Name]; !twice {
				hasUser[all[i].Name] = all[i].SecurityContext != nil && all[i].SecurityContext.RunAsUser != nil
			}
		}
	}
	for i, name := range names {
		at := fmt.Sprintf("spec.distinctUsers[%d]", i)
		switch has, there := hasUser[name]; {
		case !there:
			c.error(at, "", "%q is not a container of the template", name)
		case !has:
			c.error(at, "", "container %q must have securityContext.runAsUser", name)
		}
	}
}

// name checks the name of a container or volume and notes it in taken, where
// the path of the first that has it stands.
func (c *compiler) name(path, name string, taken map[string]string) {
	if name == "" {
		c.error(path, "", "a name is required")
		return
	}
	for _, message := range validation.IsDNS1123Label(name) {
		c.error(path, "", "%q: %s", name, message)
	}
	if first, dup := taken[name]; dup {
		c.error(path, "", "%q is the name of %s too", name, first)
		return
	}
	taken[name] = strings.TrimSuffix(path, ".name")
}

func (c *compiler) native(at string, init *corev1.Container) {
	if init.StartupProbe == nil {
		c.warn(at, "add a startupProbe",
			"native sidecar %q has no startupProbe: the pod's own containers start without waiting until it is ready", init.Name)
	}
}

// plainInit refuses what the API server allows native sidecars only.
func (c *compiler) plainInit(at string, init *corev1.Container) {
	for _, only := range []struct {
		field string
		set   bool
	}{
		{"lifecycle", init.Lifecycle != nil},
		{"livenessProbe", init.LivenessProbe != nil},
		{"readinessProbe", init.ReadinessProbe != nil},
		{"startupProbe", init.StartupProbe != nil},
	} {
		if only.set {
			if init.Name == "" {
				c.error(at+"."+only.field, "make an entry of its own, without initContainers", "an init container runs to its end before others start, and may have no %s", only.field)
				continue
			}
			c.error(at+"."+only.field, "make it a native sidecar with restartPolicy: Always",
				"init container %q runs to its end before others start, and may have no %s", init.Name, only.field)
		}
	}
}

func (c *compiler) container(at string, container *corev1.Container, names, declared map[string]string, ports *takenPorts) {
	c.name(at+".name", container.Name, names)
	if strings.TrimSpace(container.Image) == "" {
		c.error(at+".image", "", "container %q needs an image", container.Name)
	} else if strings.TrimSpace(container.Image) != container.Image {
		c.broken(at+".image", "%q begins or ends with space", container.Image)
	}
	if r := container.RestartPolicy; r != nil {
		switch *r {
		case corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure:
		default:
			c.error(at+".restartPolicy", "", "%q is not known: allowed are %q, %q and %q", *r,
				corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)
		}
	}
	for i := range container.Ports {
		c.port(fmt.Sprintf("%s.ports[%d]", at, i), container.Name, &container.Ports[i], ports)
	}
	c.portNames(at, container)
	c.env(at, container)
	c.security(at, container)
	c.resources(at, container)
	c.words(at, container)
	c.probes(at, container)
	c.mounts(at, fmt.Sprintf("container %q", container.Name), container, declared)
}

func (c *compiler) mounts(at, owner string, container *corev1.Container, declared map[string]string) {
	mounted := make(map[string]bool, len(container.VolumeMounts))
	for i := range container.VolumeMounts {
		m := &container.VolumeMounts[i]
		path := fmt.Sprintf("%s.volumeMounts[%d]", at, i)
		c.volume(path+".name", m.Name, declared)
		switch {
		case m.MountPath == "":
			c.error(path+".mountPath", "", "a path is required")
		case mounted[m.MountPath]:
			c.broken(path+".mountPath", "%q is mounted twice in %s", m.MountPath, owner)
		}
		mounted[m.MountPath] = true
		c.mount(path, m, container, container.Name != "")
		if m.SubPath != "" && m.SubPathExpr != "" {
			c.error(path+".subPathExpr", "", "subPath and subPathExpr exclude each other")
		}
		for _, sub := range []struct{ field, path string }{{"subPath", m.SubPath}, {"subPathExpr", m.SubPathExpr}} {
			if strings.HasPrefix(sub.path, "/") || slices.Contains(strings.Split(sub.path, "/"), "..") {
				c.error(path+"."+sub.field, "", `%q must be a relative path without ".."`, sub.path)
			}
		}
	}
	for i := range container.VolumeDevices {
		c.volume(fmt.Sprintf("%s.volumeDevices[%d].name", at, i), container.VolumeDevices[i].Name, declared)
	}
	c.devices(at, container)
}

// volume requires a volume of the template itself. Whether a pod has one of its
// own under that name is nothing that a profile can rely on.
func (c *compiler) volume(path, name string, declared map[string]string) {
	if declared[name] == "" {
		c.error(path, "declare the volume in the template; if a pod has an equal one of the same name, that is used",
			"%q is not among the template's volumes", name)
	}
}

func (c *compiler) port(at, container string, p *corev1.ContainerPort, taken *takenPorts) {
	if p.ContainerPort < 1 || p.ContainerPort > 65535 {
		c.error(at+".containerPort", "", "%q is out of range: allowed is 1 to 65535", strconv.Itoa(int(p.ContainerPort)))
	}
	if p.HostPort < 0 || p.HostPort > 65535 {
		c.error(at+".hostPort", "", "%q is out of range: allowed is 1 to 65535, or nothing", strconv.Itoa(int(p.HostPort)))
	}
	switch p.Protocol {
	case "", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default:
		c.error(at+".protocol", "", "%q is not known: allowed are %q, %q and %q", p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	}
	port := newPort(p, container)
	port.path = at
	if other, field := taken.clash(&port); other != nil {
		c.error(at+"."+field, "", "%s is declared at %s too", port.text(field), other.path)
	}
	taken.add(&port)
}
