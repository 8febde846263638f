package podsecurity_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
)

// TestChecksAreKnown fails when the library has a check, or a version of one,
// that the argument of CleanAlone was not made for. Then read the new check, and
// see of which kind it is, and which annotations it looks at: Decode reads those
// of Kubernetes' own.
func TestChecksAreKnown(t *testing.T) {
	t.Parallel()
	want := map[string][]string{
		"allowPrivilegeEscalation":   {"v1.8", "v1.25"},
		"appArmorProfile":            {"v1.0"},
		"capabilities_baseline":      {"v1.0"},
		"capabilities_restricted":    {"v1.22", "v1.25"},
		"hostNamespaces":             {"v1.0"},
		"hostPathVolumes":            {"v1.0"},
		"hostPorts":                  {"v1.0"},
		"hostProbesAndHostLifecycle": {"v1.34"},
		"privileged":                 {"v1.0"},
		"procMount":                  {"v1.0", "v1.35"},
		"procMount_restricted":       {"v1.35"},
		"restrictedVolumes":          {"v1.0"},
		"runAsNonRoot":               {"v1.0", "v1.35"},
		"runAsUser":                  {"v1.23", "v1.35"},
		"seLinuxOptions":             {"v1.0", "v1.31"},
		"seccompProfile_baseline":    {"v1.0", "v1.19"},
		"seccompProfile_restricted":  {"v1.19", "v1.25"},
		"sysctls":                    {"v1.0", "v1.27", "v1.29", "v1.32", "v1.37"},
		"windowsHostProcess":         {"v1.0"},
	}
	got := map[string][]string{}
	for _, check := range podsecuritypolicy.DefaultChecks() {
		for _, v := range check.Versions {
			got[string(check.ID)] = append(got[string(check.ID)], v.MinimumVersion.String())
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

// addition is what is added to pods in these tests.
type addition struct {
	name        string
	spec        string
	annotations map[string]string
	part        string
	// baseline and restricted are the levels that the addition is clean at: from
	// and to which version.
	baseline, restricted string
}

const (
	all  = "v1.19 to v1.37"
	none = "none"
)

// restrictedSidecar says all that the restricted standard asks for.
const restrictedSidecar = `{name: sidecar, image: "s:1", ports: [{containerPort: 80}], securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, runAsUser: 1337, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}, seccompProfile: {type: RuntimeDefault}}}`

func additions() []addition {
	return []addition{
		{name: "nothing", spec: `{}`, baseline: all, restricted: all},
		{name: "restricted", spec: `{containers: [` + restrictedSidecar + `]}`, baseline: all, restricted: all},
		{name: "init container", spec: `{initContainers: [` + restrictedSidecar + `]}`, baseline: all, restricted: all},
		{
			name: "volumes", baseline: all, restricted: all,
			spec: `{volumes: [{name: a, emptyDir: {}}, {name: b, projected: {}}, {name: c, csi: {driver: d}}], containers: [` + restrictedSidecar + `]}`,
		},
		{name: "plain", spec: `{containers: [{name: sidecar, image: "s:1"}]}`, baseline: all, restricted: none},
		{
			name: "no capabilities asked for yet", baseline: all, restricted: "v1.19 to v1.21",
			spec: `{containers: [{name: sidecar, securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, seccompProfile: {type: Localhost, localhostProfile: a}}}]}`,
		},
		{
			name: "leans on the pod", baseline: all, restricted: none,
			spec: `{securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, containers: [{name: sidecar, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}`,
		},
		{
			name: "completes the pod", baseline: all, restricted: all,
			spec: `{securityContext: {runAsNonRoot: true, runAsUser: 1000, fsGroup: 0, seccompProfile: {type: RuntimeDefault}, sysctls: [{name: kernel.shm_rmid_forced, value: "1"}]}, containers: [` + restrictedSidecar + `]}`,
		},
		{name: "the pod is root", spec: `{securityContext: {runAsUser: 0}}`, baseline: all, restricted: "v1.19 to v1.22"},
		{name: "the pod is privileged", spec: `{hostNetwork: true}`, baseline: none, restricted: none},
		{name: "new sysctl", spec: `{securityContext: {sysctls: [{name: net.ipv4.tcp_keepalive_time, value: "1"}]}}`, baseline: "v1.29 to v1.37", restricted: "v1.29 to v1.37"},
		{name: "no user namespace", spec: `{hostUsers: true}`, baseline: none, restricted: none},
		{name: "user namespace", spec: `{hostUsers: false, containers: [{name: sidecar, securityContext: {runAsUser: 0}}]}`, baseline: none, restricted: none},
		{name: "operating system", spec: `{os: {name: linux}}`, baseline: none, restricted: none},
		{
			name: "probe of another host", baseline: "v1.19 to v1.33", restricted: "v1.19 to v1.33",
			spec: `{containers: [{name: sidecar, livenessProbe: {httpGet: {host: a, port: 80}}, securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}}]}`,
		},
		{name: "hostPath", spec: `{volumes: [{name: a, hostPath: {path: /}}]}`, baseline: none, restricted: none},
		{name: "nfs", spec: `{volumes: [{name: a, nfs: {server: a, path: /}}]}`, baseline: all, restricted: none},
		{name: "volume without a source", spec: `{volumes: [{name: a}]}`, baseline: all, restricted: none},
		{name: "hostPort", spec: `{containers: [{name: a, ports: [{containerPort: 80, hostPort: 80}]}]}`, baseline: none, restricted: none},
		{name: "capability", spec: `{containers: [{name: a, securityContext: {capabilities: {add: [NET_ADMIN]}}}]}`, baseline: none, restricted: none},
		{name: "AppArmor", spec: `{}`, annotations: map[string]string{"container.apparmor.security.beta.kubernetes.io/web": "unconfined"}, baseline: none, restricted: none},
		{name: "AppArmor, runtime's", spec: `{}`, annotations: map[string]string{"container.apparmor.security.beta.kubernetes.io/web": "runtime/default"}, baseline: all, restricted: all},
		{name: "annotation of old", spec: `{}`, annotations: map[string]string{"container.seccomp.security.alpha.kubernetes.io/web": "unconfined"}, baseline: all, restricted: all},
		{name: "part without security", spec: `{}`, part: `{env: [{name: A, value: b}], volumeMounts: [{name: a, mountPath: /a}]}`, baseline: all, restricted: all},
		{name: "part that completes", spec: `{}`, part: `{securityContext: {runAsNonRoot: true, capabilities: {drop: [ALL]}}}`, baseline: all, restricted: all},
		{name: "part that is root", spec: `{}`, part: `{securityContext: {runAsUser: 0}}`, baseline: all, restricted: "v1.19 to v1.22"},
		{name: "part that may be root", spec: `{}`, part: `{securityContext: {runAsNonRoot: false}}`, baseline: all, restricted: none},
		{name: "part that drops less", spec: `{}`, part: `{securityContext: {capabilities: {drop: [NET_RAW]}}}`, baseline: all, restricted: "v1.19 to v1.21"},
		{name: "part that is privileged", spec: `{}`, part: `{securityContext: {privileged: true}}`, baseline: none, restricted: none},
		{name: "part with a port of the host", spec: `{containers: [` + restrictedSidecar + `]}`, part: `{ports: [{containerPort: 1, hostPort: 1}]}`, baseline: none, restricted: none},
	}
}

// parsed returns the template, and the parts.
func (a addition) parsed(t testing.TB) (*corev1.PodSpec, []corev1.Container) {
	t.Helper()
	spec := new(corev1.PodSpec)
	must(t, yaml.UnmarshalStrict([]byte(a.spec), spec))
	if a.part == "" {
		return spec, nil
	}
	part := new(corev1.Container)
	must(t, yaml.UnmarshalStrict([]byte(a.part), part))
	return spec, []corev1.Container{*part}
}

func TestCleanAlone(t *testing.T) {
	t.Parallel()
	e := evaluator(t)
	for _, a := range additions() {
		spec, parts := a.parsed(t)
		before := spec.DeepCopy()
		levels := e.CleanAlone(spec, a.annotations, parts...)
		if got := span(t, levels, "baseline"); got != a.baseline {
			t.Errorf("%s: baseline: got %s, want %s", a.name, got, a.baseline)
		}
		if got := span(t, levels, "restricted"); got != a.restricted {
			t.Errorf("%s: restricted: got %s, want %s", a.name, got, a.restricted)
		}
		if !reflect.DeepEqual(spec, before) {
			t.Errorf("%s: the template was changed", a.name)
		}
	}
}

// span returns the range of versions that is in the set.
func span(t *testing.T, levels podsecurity.Levels, name string) string {
	t.Helper()
	var in []int
	for minor := range 38 {
		if levels.Has(level(t, name, fmt.Sprintf("v1.%d", minor))) {
			in = append(in, minor)
		}
	}
	newest := slices.Contains(in, 37)
	for _, version := range []string{"v1.38", "v1.999", "latest"} {
		if levels.Has(level(t, name, version)) != newest {
			t.Errorf("%s is not as v1.37 is", version)
		}
	}
	if len(in) == 0 {
		return none
	}
	if len(in) != in[len(in)-1]-in[0]+1 {
		t.Errorf("not one range: %v", in)
	}
	return fmt.Sprintf("v1.%d to v1.%d", in[0], in[len(in)-1])
}

// onto returns the pod with the addition, merged in one of the ways that CleanAlone
// allows.
func onto(pod *corev1.Pod, spec *corev1.PodSpec, annotations map[string]string, parts []corev1.Container, how merging) *corev1.Pod {
	out, spec := pod.DeepCopy(), spec.DeepCopy()
	if how == podFirst || how == onlyEntries {
		out.Spec.Containers = append(out.Spec.Containers, spec.Containers...)
		out.Spec.InitContainers = append(out.Spec.InitContainers, spec.InitContainers...)
		out.Spec.Volumes = append(out.Spec.Volumes, spec.Volumes...)
	} else {
		out.Spec.Containers = append(spec.Containers, out.Spec.Containers...)
		out.Spec.InitContainers = append(spec.InitContainers, out.Spec.InitContainers...)
		out.Spec.Volumes = append(spec.Volumes, out.Spec.Volumes...)
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	maps.Copy(out.Annotations, annotations)
	if how == onlyEntries {
		return out
	}
	if spec.SecurityContext != nil {
		if out.Spec.SecurityContext == nil {
			out.Spec.SecurityContext = new(corev1.PodSecurityContext)
		}
		merge(out.Spec.SecurityContext, spec.SecurityContext, how == additionFirst)
	}
	for _, part := range parts {
		for _, list := range [][]corev1.Container{out.Spec.Containers, out.Spec.InitContainers} {
			for i := range list {
				merge(&list[i], &part, how == additionFirst)
			}
		}
	}
	return out
}

type merging int

const (
	// podFirst has the pod's list entries in front, and keeps its fields.
	podFirst merging = iota
	// additionFirst has the addition's in front, and replaces the pod's fields.
	additionFirst
	// onlyEntries leaves out all but containers, volumes and annotations.
	onlyEntries
)

// merge sets the fields of a struct that from has, as CleanAlone asks for it.
func merge[T any](to, from *T, replace bool) {
	mergeValues(reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem(), replace)
}

func mergeValues(to, from reflect.Value, replace bool) {
	switch {
	case from.IsZero():
	case to.Kind() == reflect.Struct:
		for i := range to.NumField() {
			mergeValues(to.Field(i), from.Field(i), replace)
		}
	case to.Kind() == reflect.Pointer && !to.IsNil() && to.Type().Elem().Kind() == reflect.Struct:
		mergeValues(to.Elem(), from.Elem(), replace)
	case to.Kind() == reflect.Slice:
		to.Set(reflect.AppendSlice(from.Slice3(0, from.Len(), from.Len()), to))
	case replace || to.IsZero():
		to.Set(from)
	}
}

// TestCleanAloneHolds holds the claim over every pod with which upstream tests
// its checks, in a user namespace and on Windows too, at every level and version:
// an addition that is clean alone adds no violation, and if it only adds, changes
// no text.
func TestCleanAloneHolds(t *testing.T) {
	t.Parallel()
	e := evaluator(t)
	pods := distinct(fixtures(t))
	for _, pod := range slices.Clone(pods) {
		inNamespace, windows := pod.DeepCopy(), pod.DeepCopy()
		inNamespace.Spec.HostUsers = new(bool)
		windows.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
		pods = append(pods, inNamespace, windows)
	}
	for _, a := range additions() {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			spec, parts := a.parsed(t)
			clean := e.CleanAlone(spec, a.annotations, parts...)
			var claimed []podsecurity.Level
			for _, name := range []string{"baseline", "restricted"} {
				for _, version := range versions() {
					if l := level(t, name, version); clean.Has(l) {
						claimed = append(claimed, l)
					}
				}
			}
			merges := spec.SecurityContext != nil || parts != nil
			for _, pod := range pods {
				var merged []*corev1.Pod
				for how := podFirst; how <= onlyEntries; how++ {
					merged = append(merged, onto(pod, spec, a.annotations, parts, how))
				}
				for _, l := range claimed {
					before := e.Violations(l, &pod.ObjectMeta, &pod.Spec)
					for _, with := range merged {
						after := e.Violations(l, &with.ObjectMeta, &with.Spec)
						if !merges && !slices.Equal(before, after) || !subset(after, before) {
							t.Fatalf("%s at %s: before %v, after %v", pod.Name, l, before, after)
						}
					}
				}
			}
		})
	}
}

// subset reports whether every check that fails afterwards failed before.
func subset(after, before []podsecurity.Violation) bool {
	return !slices.ContainsFunc(after, func(v podsecurity.Violation) bool {
		return !slices.ContainsFunc(before, func(o podsecurity.Violation) bool { return o.Check == v.Check })
	})
}

// TestOldVersionsAreNotSeparable shows why nothing is claimed before v1.19: two
// pods that are admitted, and together are not.
func TestOldVersionsAreNotSeparable(t *testing.T) {
	t.Parallel()
	e := evaluator(t)
	const key = "container.seccomp.security.alpha.kubernetes.io/"
	for _, tc := range []struct {
		name             string
		pods, additional map[string]string
	}{
		{"annotation of the pod", map[string]string{key + "sidecar": "unconfined"}, nil},
		{"annotation of the template", nil, map[string]string{key + "web": "unconfined"}},
	} {
		for _, version := range []string{"v1.18", "v1.19"} {
			l := level(t, "baseline", version)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tc.pods}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}}}
			spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "sidecar"}}}
			if got := e.Violations(l, &metav1.ObjectMeta{Annotations: tc.additional}, spec); len(got) > 0 {
				t.Errorf("%s at %s: not clean alone: %v", tc.name, l, got)
			}
			if got := e.Violations(l, &pod.ObjectMeta, &pod.Spec); len(got) > 0 {
				t.Errorf("%s at %s: not admitted: %v", tc.name, l, got)
			}
			with := onto(pod, spec, tc.additional, nil, podFirst)
			admitted := len(e.Violations(l, &with.ObjectMeta, &with.Spec)) == 0
			if claimed := e.CleanAlone(spec, tc.additional).Has(l); claimed != admitted || admitted != (version == "v1.19") {
				t.Errorf("%s at %s: claimed %t, admitted %t", tc.name, l, claimed, admitted)
			}
		}
	}
}

func BenchmarkEnforcing(b *testing.B) {
	e := evaluator(b)
	spec, _ := additions()[1].parsed(b)
	levels := e.CleanAlone(spec, nil)
	for name, version := range map[string]string{"look-up": "latest", "look-up, version": "v1.30"} {
		b.Run(name, func(b *testing.B) {
			labels := map[string]string{"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": version}
			for b.Loop() {
				if !levels.Has(podsecurity.OfNamespace(labels)) {
					b.Fatal("not clean")
				}
			}
		})
	}
	b.Run("whole pod", func(b *testing.B) {
		l := level(b, "restricted", "latest")
		for b.Loop() {
			if len(e.Violations(l, new(metav1.ObjectMeta), spec)) > 0 {
				b.Fatal("not clean")
			}
		}
	})
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			e.CleanAlone(spec, nil)
		}
	})
}
