package compile

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support/dispatcher"
)

// audited is a violation in the audit log, of a rule of the source.
type audited struct {
	Policy, Message string
	ExpressionIndex int

	rule string
}

// audited returns what the API server's own dispatcher writes into the audit log about a request.
func (p *pair) audited(t testing.TB, native *dispatcher.Dispatcher, req admission.Request) (out []audited) {
	t.Helper()
	text := native.Dispatch(t, dispatcher.Ask(t, asServer(t, req))).Audit["validation.policy.admission.k8s.io/validation_failure"]
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	for i := range out {
		at := slices.IndexFunc(p.out.Documents, func(d Document) bool { return d.Policy != nil && d.Policy.Name == out[i].Policy })
		out[i].rule = p.out.Documents[at].Rules[out[i].ExpressionIndex]
	}
	return out
}

// TestPodSecurityUpstream has the API server's own code evaluate the checks as CEL for the newest of upstream's fixtures, as pods and as
// templates of workloads, as Go values: a standard is violated exactly if upstream's checks say so, and no evaluation fails.
func TestPodSecurityUpstream(t *testing.T) {
	t.Parallel()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{"baseline", "restricted"} {
		p := newPair(t, standardPolicy(t, level, "v1.37"))
		spec := p.out.Spec("1.36")
		spec.Objects = namespaces{}
		for i := range spec.Bindings { // all violations are audited, and only the first one is refused
			spec.Bindings[i].Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
		}
		native := dispatcher.New(t, spec, nil, registry())
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "test", "testdata", level, "v1.37", "*", "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatal(len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file) // #nosec G304 -- of a module
			if err != nil {
				t.Fatal(err)
			}
			var pod map[string]any
			if err := yaml.Unmarshal(text, &pod); err != nil {
				t.Fatal(err)
			}
			pod["metadata"].(map[string]any)["namespace"] = "shop"
			for _, req := range []admission.Request{
				ask(admissionv1.Create, podKind, "pods", pod, nil), ask(admissionv1.Update, podKind, "pods", pod, pod),
				ask(admissionv1.Create, deploymentKind, "deployments", deploymentOf(pod), nil), ask(admissionv1.Update, deploymentKind, "deployments", deploymentOf(pod), deploymentOf(pod)),
				ask(admissionv1.Create, cronJobKind, "cronjobs", cronJobOf(pod), nil),
			} {
				var want, got []string
				for _, one := range p.violated(p.ours, req) {
					want = append(want, strings.Fields(one)[1])
				}
				for _, one := range p.audited(t, native, req) {
					if got = append(got, one.rule); strings.Contains(one.Message, "resulted in error") {
						t.Errorf("%s: %s %s: %s", filepath.Base(file), req.Operation, req.Kind.Kind, one.Message)
					}
				}
				slices.Sort(got)
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s: %s %s: got %q, want %q", filepath.Base(file), req.Operation, req.Kind.Kind, got, want)
				}
			}
		}
	}
}
