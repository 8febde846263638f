package profile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podcheck"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

func objectName(p *Document) string { return "SidecarProfile/" + p.Name }

func errorAt(p *Document, path, message string) diagnostic.Diagnostic {
	return diagnostic.Diagnostic{Severity: diagnostic.Error, Source: p.Source, Object: objectName(p), Field: path, Message: message}
}

func (c *compiler) report(severity diagnostic.Severity, path, hint, message string) {
	c.diagnostics = append(c.diagnostics, diagnostic.Diagnostic{
		Severity: severity, Source: c.profile.Source, Object: objectName(c.profile), Field: path, Message: message, Hint: hint,
	})
}

func (c *compiler) error(path, hint, format string, args ...any) {
	c.report(diagnostic.Error, path, hint, fmt.Sprintf(format, args...))
}

func (c *compiler) warn(path, hint, format string, args ...any) {
	c.report(diagnostic.Warning, path, hint, fmt.Sprintf(format, args...))
}

func (c *compiler) checkProfile() {
	p := c.profile
	switch p.Name {
	case "":
		c.error("metadata.name", "", "a name is required")
	case "true", "false":
		c.error("metadata.name", "", "%q is reserved: it means all profiles or none in the annotation %s", p.Name, v1alpha1.InjectAnnotation)
	default:
		for _, message := range validation.IsDNS1123Subdomain(p.Name) {
			c.error("metadata.name", "", "%q: %s", p.Name, message)
		}
		if prefix := p.Name + "." + v1alpha1.ParameterDomain; len(prefix) > validation.DNS1123SubdomainMaxLength && len(p.Spec.Parameters) > 0 {
			c.error("metadata.name", "", "%q is too long: the name of a profile with parameters can have at most %d characters",
				p.Name, validation.DNS1123SubdomainMaxLength-len(v1alpha1.ParameterDomain)-1)
		}
	}
	spec, check := &p.Spec, podcheck.New(nil, c.report)
	podcheck.OneOf(check, "spec.injection", spec.Injection, v1alpha1.OptIn, v1alpha1.OptOut)
	podcheck.OneOf(check, "spec.hostNetwork", spec.HostNetwork, v1alpha1.SkipPod, v1alpha1.InjectPod)
	podcheck.OneOf(check, "spec.podsThatEnd", spec.PodsThatEnd, v1alpha1.SkipPod, v1alpha1.RefusePod, v1alpha1.InjectPod)
	podcheck.OneOf(check, "spec.onConflict", spec.OnConflict, v1alpha1.RefuseConflict, v1alpha1.SkipConflict, v1alpha1.KeepConflict)
	podcheck.OneOf(check, "spec.onSameName", spec.OnSameName, v1alpha1.RefuseSameName, v1alpha1.KeepSameName, v1alpha1.ReplaceSameName)
	podcheck.OneOf(check, "spec.placement.initContainers", spec.Placement.InitContainers, v1alpha1.First, v1alpha1.Last)
	podcheck.OneOf(check, "spec.placement.containers", spec.Placement.Containers, v1alpha1.First, v1alpha1.Last)
	if r := spec.Rollout; r != nil && (r.Percent < 0 || r.Percent > 100) {
		c.error("spec.rollout.percent", "", "%q is out of range: must be 0 to 100", strconv.Itoa(int(r.Percent)))
	}
	check.Selector("spec.match.namespaceSelector", spec.Match.NamespaceSelector)
	check.Selector("spec.match.objectSelector", spec.Match.ObjectSelector)
	seen := make(map[string]bool)
	for i, mc := range spec.Match.MatchConditions {
		path := fmt.Sprintf("spec.match.matchConditions[%d].name", i)
		switch {
		case mc.Name == "":
			c.error(path, "", "a name is required")
		case seen[mc.Name]:
			c.error(path, "", "%q is already the name of another condition", mc.Name)
		}
		seen[mc.Name] = true
	}
	c.checkPresets()
}

// checkRequired warns about required parameters of a profile that is applied unasked.
func (c *compiler) checkRequired(p *Profile) {
	if !p.OptOut || c.diagnostics.Err() != nil {
		return
	}
	nothing := func(string) (string, bool) { return "", false }
	_, invalid := p.Scope.Resolve(nothing, nothing)
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
			"a selected pod without a value for %q %s", missing.Parameter, what)
	}
}

// checkPresets warns about presets without a ConfigMap. In a cluster it may be created
// later.
func (c *compiler) checkPresets() {
	for i, preset := range c.profile.Spec.Presets {
		if c.configMaps == nil {
			continue
		}
		if _, known := c.configMaps.ConfigMapData(preset.ConfigMap.Namespace, preset.ConfigMap.Name); !known {
			c.warn(fmt.Sprintf("spec.presets[%d].configMap", i), "put the ConfigMap beside the profile",
				"there is no ConfigMap %q in namespace %q: until it exists, pods that request the profile are refused, and others are created without it", preset.ConfigMap.Name, preset.ConfigMap.Namespace)
		}
	}
}

// sample is what a profile adds, as it would be in a plausible pod.
type sample struct {
	spec corev1.PodSpec
	app  []corev1.Container
	// annotated are the names of containers that only annotations know.
	annotated []string
}

// decode reads a rendered part into the type that the API server has for it.
func decode(raw []byte, into any) error {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, into); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	return nil
}

// checkTemplate checks the template against the rules of the API server, as far as
// they do not depend on the pod: a mistake in a profile is shown to its author, not to
// everybody whose pods fail.
func (c *compiler) checkTemplate(p *Profile) {
	const path = "spec.template.spec"
	c.check = podcheck.New(c.placeholders, c.report)
	t := &c.typed.spec
	if p.spec != nil {
		if err := decode(p.spec.Sample(), t); err != nil {
			c.error(path, "", "%v", err)
			return
		}
		c.check.PodSpec(path, t)
	}
	for i := range p.Elements[podtext.Volumes] {
		e, at := &p.Elements[podtext.Volumes][i], fmt.Sprintf("%s.volumes[%d]", path, i)
		var v corev1.Volume
		if e.tree == nil {
			c.check.Volumes[e.Name] = at
			continue
		}
		if err := decode(e.tree.Sample(), &v); err != nil {
			c.error(at, "", "%v", err)
			continue
		}
		t.Volumes = append(t.Volumes, v)
		c.check.Volume(at, &v)
	}
	// Containers and init containers share one space of names and of ports.
	for l := podtext.InitContainers; l <= podtext.Containers; l++ {
		for i := range p.Elements[l] {
			c.checkContainer(fmt.Sprintf("%s.%s[%d]", path, l, i), p, l, &p.Elements[l][i])
		}
	}
	if p.metadata != nil {
		c.checkMetadata(p.metadata.Sample())
	}
	for i := range p.Additions {
		at := fmt.Sprintf("spec.appContainers[%d]", i)
		var container corev1.Container
		if p.Additions[i].tree == nil {
			continue
		}
		if err := decode(p.Additions[i].tree.Sample(), &container); err != nil {
			c.error(at+".template", "", "%v", err)
			continue
		}
		c.typed.app = append(c.typed.app, container)
		c.checkAddition(at, &p.Additions[i], &container)
	}
	var known []string
	const mostHinted = 32 // each name is compared with that of each share
	if len(c.check.Containers) <= mostHinted {
		known = slices.Sorted(maps.Keys(c.check.Containers))
	}
	for i := range p.Shares {
		c.checkShare(fmt.Sprintf("spec.share[%d]", i), &p.Shares[i], known)
	}
	c.checkDistinctUsers(p.DistinctUsers, t)
	p.ExcludedSystems = c.typed.excludedSystems()
	p.Constraints = c.typed.constraints()
	if !c.addsAnything {
		c.error("spec.template", "", "the profile adds nothing: set template or appContainers")
	}
}

func (c *compiler) checkContainer(at string, p *Profile, l podtext.List, e *Element) {
	if l == podtext.Containers {
		p.AppContainer = cmp.Or(p.AppContainer, e.Name)
		c.warn(at, "make it an init container with restartPolicy: Always",
			"container %q is not a native sidecar: it starts and stops in no fixed order with the application containers, and pods of Jobs do not get the profile", e.Name)
	}
	if e.tree == nil {
		c.check.Containers[e.Name] = at
		return
	}
	var container corev1.Container
	if err := decode(e.tree.Sample(), &container); err != nil {
		c.error(at, "", "%v", err)
		return
	}
	e.ports = podcheck.DeclaredPorts(&container)
	of := podcheck.InitContainer
	if l == podtext.Containers {
		of = podcheck.AppContainer
		c.typed.spec.Containers = append(c.typed.spec.Containers, container)
	} else {
		if e.IsNative {
			of = podcheck.NativeSidecar
		}
		c.typed.spec.InitContainers = append(c.typed.spec.InitContainers, container)
	}
	c.check.Container(at, of, &container)
}

func (c *compiler) checkMetadata(sample []byte) {
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
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		at := path + ".annotations[" + key + "]"
		for _, message := range validation.IsQualifiedName(strings.ToLower(key)) {
			c.error(at, "", "%q: %s", key, message)
		}
		if name, is := strings.CutPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix); is && c.check.Containers[name] == "" {
			c.typed.annotated = append(c.typed.annotated, name)
		}
		if podtext.IsReservedAnnotation(key) {
			c.error(at, "", "a profile cannot set the annotation %q", key)
		}
	}
}

func (c *compiler) checkAddition(at string, a *Addition, container *corev1.Container) {
	if container.Name != "" {
		c.error(at+".template.name", "select containers with names", "a template of appContainers cannot set the name")
	}
	except := sets.New(a.Except...)
	for i, name := range a.Names {
		if except.Has(name) {
			c.error(fmt.Sprintf("%s.names[%d]", at, i), "", "%q is also in except", name)
		}
	}
	c.check.Addition(at+".template", a.InitContainers, container)
}

// checkShare checks a share. The known names are suggested for one that is not.
func (c *compiler) checkShare(at string, s *v1alpha1.SidecarShare, known []string) {
	if c.check.Containers[s.Container] == "" {
		c.error(at+".container", diagnostic.DidYouMean(s.Container, known...), "%q is not a container of the template", s.Container)
	}
	if !s.VolumeMounts && !s.VolumeDevices && len(s.Env) == 0 {
		c.error(at, "", "nothing is shared: set volumeMounts, volumeDevices or env")
	}
	if s.ReadOnly && !s.VolumeMounts {
		c.error(at+".readOnly", "", "has no effect without volumeMounts: true")
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
		case !there && c.check.Containers[name] != "": // the container has errors of its own
		case !there:
			c.error(at, "", "%q is not a container of the template", name)
		case !has:
			c.error(at, "", "container %q must have securityContext.runAsUser", name)
		}
	}
}
