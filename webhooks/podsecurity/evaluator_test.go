package podsecurity_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsecurityapi "k8s.io/pod-security-admission/api"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"

	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
)

// TestFixtures compares the answer to every pod with which upstream tests its checks with
// that of upstream's evaluator: for the whole pod, and for the part that Decode reads.
func TestFixtures(t *testing.T) {
	t.Parallel()
	e := evaluator(t)
	upstream, err := podsecuritypolicy.NewEvaluator(podsecuritypolicy.DefaultChecks(), nil)
	must(t, err)
	for _, f := range fixtures(t) {
		name, version, passes := f.standard()
		l := level(t, name, version)
		got := e.Violations(l, &f.pod.ObjectMeta, &f.pod.Spec)
		if (len(got) == 0) != passes {
			t.Errorf("%s: %v", f.file, got)
		}
		pod, err := podsecurity.Decode(f.raw)
		must(t, err)
		if part := e.Violations(l, &pod.Metadata, &pod.Spec); !slices.Equal(part, got) {
			t.Errorf("%s:\ngot  %q\nwant %q", f.file, part, got)
		}
		parsed, err := podsecurityapi.ParseVersion(version)
		must(t, err)
		standard := podsecurityapi.LevelVersion{Level: podsecurityapi.Level(name), Version: parsed}
		result := podsecuritypolicy.AggregateCheckResults(upstream.EvaluatePod(standard, &f.pod.ObjectMeta, &f.pod.Spec))
		want := fmt.Sprintf("violates PodSecurity %q: %s", standard.String(), result.ForbiddenDetail())
		if text := podsecurity.Describe(l, got...); text != want {
			t.Errorf("%s:\ngot  %s\nwant %s", f.file, text, want)
		}
		// A file that fails is named by the check that it is about, or one that
		// this replaces, and a number.
		file := f.file[strings.LastIndexByte(f.file, '/')+1:]
		about := func(v podsecurity.Violation) bool {
			check, _, _ := strings.Cut(strings.ToLower(v.Check), "_")
			return strings.HasPrefix(file, check) || strings.HasPrefix(file, "hostpathvolumes") && check == "restrictedvolumes"
		}
		if !passes && !slices.ContainsFunc(got, about) {
			t.Errorf("%s: got %q", f.file, got)
		}
	}
}

func TestViolations(t *testing.T) {
	t.Parallel()
	e := evaluator(t)
	spec := &corev1.PodSpec{
		HostNetwork: true, HostPID: true,
		SecurityContext: &corev1.PodSecurityContext{RunAsUser: new(int64)},
		Containers:      []corev1.Container{{Name: "web", Ports: []corev1.ContainerPort{{HostPort: 80}}}},
	}
	ports := podsecurity.Violation{Check: "hostPorts", Reason: "hostPort", Detail: `container "web" uses hostPort 80`}
	host := podsecurity.Violation{Check: "hostNamespaces", Reason: "host namespaces", Detail: "hostNetwork=true, hostPID=true"}
	for _, tc := range []struct {
		level podsecurity.Level
		want  []podsecurity.Violation
	}{
		{podsecurity.Level{}, nil},
		{level(t, "privileged", "v1.30"), nil},
		{level(t, "baseline", "latest"), []podsecurity.Violation{host, ports}},
		{level(t, "baseline", "v1.999"), []podsecurity.Violation{host, ports}},
		{level(t, "restricted", "v1.0"), []podsecurity.Violation{
			host, ports,
			{Check: "runAsNonRoot", Reason: "runAsNonRoot != true", Detail: `pod or container "web" must set securityContext.runAsNonRoot=true`},
		}},
	} {
		if got := e.Violations(tc.level, new(metav1.ObjectMeta), spec); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", tc.level, got, tc.want)
		}
	}
	if got, want := podsecurity.Describe(level(t, "baseline", ""), host, podsecurity.Violation{Reason: "bad luck"}),
		`violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true, hostPID=true), bad luck`; got != want {
		t.Errorf("got %s", got)
	}
}
