// Package kyverno holds "gatehouse convert" against Kyverno itself: generated policies and objects near their edges are decided by
// Kyverno's engine and by the converted policies, and every verdict must be the same. It is a module of its own, because Kyverno needs
// hundreds of others.
package kyverno

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	kyvernov2 "github.com/kyverno/kyverno/api/kyverno/v2"
	"github.com/kyverno/kyverno/pkg/config"
	"github.com/kyverno/kyverno/pkg/engine"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	"github.com/kyverno/kyverno/pkg/engine/factories"
	"github.com/kyverno/kyverno/pkg/engine/jmespath"
	"github.com/kyverno/kyverno/pkg/engine/policycontext"
	imageverifycache "github.com/kyverno/kyverno/pkg/image/verification/cache"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	seed     = flag.Uint64("seed", 1, "seed of the generator")
	policies = flag.Int("policies", 300, "number of policies")
	show     = flag.Int("show", 5, "number of policies with other verdicts that are shown")
)

const program = "../../bin/gatehouse"

// oracle decides by Kyverno's engine.
type oracle struct {
	configuration config.Configuration
	jp            jmespath.Interface
	engine        engineapi.Engine
}

func newOracle() *oracle {
	o := &oracle{configuration: config.NewDefaultConfiguration(false)}
	o.jp = jmespath.New(o.configuration)
	cluster := false
	o.engine = engine.NewEngine(o.configuration, o.jp, nil, nil, imageverifycache.DisabledImageVerifyCache(),
		factories.DefaultContextLoaderFactory(nil), nil, &cluster)
	return o
}

// contextOf returns what the engine decides by.
func (o *oracle) contextOf(t *testing.T, request admissionv1.AdmissionRequest) *policycontext.PolicyContext {
	t.Helper()
	user := kyvernov2.RequestInfo{AdmissionUserInfo: request.UserInfo}
	kind := schema.GroupVersionKind{Group: request.Kind.Group, Version: request.Kind.Version, Kind: request.Kind.Kind}
	ctx, err := policycontext.NewPolicyContextFromAdmissionRequest(o.jp, request, user, kind, o.configuration)
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// denies reports whether a request is blocked, and whether that is because a rule cannot be evaluated.
func (o *oracle) denies(t *testing.T, policy *kyvernov1.ClusterPolicy, request admissionv1.AdmissionRequest) (denied, failed bool) {
	t.Helper()
	response := o.engine.Validate(context.Background(), o.contextOf(t, request).WithPolicy(policy))
	for _, r := range response.PolicyResponse.Rules {
		failed = failed || r.Status() == engineapi.RuleStatusError
		denied = denied || failed || r.Status() == engineapi.RuleStatusFail
	}
	return denied, failed
}

// resourceOf returns the resource of a kind.
func resourceOf(kind string) metav1.GroupVersionResource {
	switch kind {
	case "Pod":
		return metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	case "Deployment":
		return metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	default:
		return metav1.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}
	}
}

// requestOf returns the request of a case.
func requestOf(t *testing.T, c *testCase) admissionv1.AdmissionRequest {
	t.Helper()
	one := c.object
	if one == nil {
		one = c.old
	}
	kind, _ := one["kind"].(string)
	resource := resourceOf(kind)
	request := admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Operation(c.operation), Namespace: "default", Name: "web", Resource: resource,
		Kind:     metav1.GroupVersionKind{Group: resource.Group, Version: resource.Version, Kind: kind},
		UserInfo: authenticationv1.UserInfo{Username: "anna", Groups: []string{"dev", "system:authenticated"}},
	}
	request.RequestKind, request.RequestResource = &request.Kind, &request.Resource
	for of, to := range map[*map[string]any]*runtime.RawExtension{&c.object: &request.Object, &c.old: &request.OldObject} {
		if *of != nil {
			raw, err := json.Marshal(*of)
			if err != nil {
				t.Fatal(err)
			}
			to.Raw = raw
		}
	}
	return request
}

// testCase is a request about generated objects.
type testCase struct {
	operation   string
	object, old map[string]any
}

// run runs the program, which must not end with an error, decodes its output, and returns the time of processors that it took.
func run(t *testing.T, into any, args ...string) time.Duration {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && (cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1) { // 1 is an answer
		t.Fatalf("%v: %v: %s", args, err, errs.String())
	}
	if into != nil {
		if err := json.Unmarshal(out.Bytes(), into); err != nil {
			t.Fatal(err)
		}
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

func writeJSON(t *testing.T, name string, values ...any) {
	t.Helper()
	var text bytes.Buffer
	for _, v := range values {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("---\n")
		text.Write(raw)
		text.WriteString("\n")
	}
	if err := os.WriteFile(name, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// result is what the report says of a policy.
type result struct {
	Policy, Status       string
	Outputs, Differences []string
	Problems             []struct{ Construct string }
}

// name returns the name of the policy.
func (r *result) name() string { return strings.TrimPrefix(r.Policy, "ClusterPolicy/") }

// generated are policies of the generator, by their names.
type generated map[string]*kyvernov1.ClusterPolicy

// convert converts generated policies, and returns them, what became of each, and the directory of the result.
func convert(t *testing.T, g *generator, n int) (generated, []result, string) {
	t.Helper()
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("build the program first: %v", err)
	}
	dir := t.TempDir()
	input, output := filepath.Join(dir, "policies.yaml"), filepath.Join(dir, "config")
	all := generated{}
	var documents []any
	for i := range n {
		name := fmt.Sprintf("p%d", i)
		of := g.policy(name)
		var policy kyvernov1.ClusterPolicy
		raw, err := json.Marshal(of)
		if err == nil {
			err = json.Unmarshal(raw, &policy)
		}
		if err != nil {
			t.Fatal(err)
		}
		all[name] = &policy
		documents = append(documents, of)
	}
	writeJSON(t, input, documents...)
	var report struct{ Results []result }
	run(t, &report, "convert", "-f", input, "-o", "json")
	run(t, nil, "convert", "-f", input, "-o", "dir", "--directory", output)
	return all, report.Results, output
}

// TestSameVerdicts has generated policies and requests decided by both.
func TestSameVerdicts(t *testing.T) {
	g := &generator{rand.New(rand.NewPCG(*seed, 0))}
	o := newOracle()
	originals, results, output := convert(t, g, *policies)
	objects := g.objects()
	var tests []any
	converted, verdicts, denials := 0, 0, 0
	for _, r := range results {
		if r.Status == "NotConverted" {
			t.Logf("%s: not converted: %v", r.Policy, r.Problems)
			continue
		}
		converted++
		var cases []any
		for i, c := range g.cases(objects) {
			verdict := "Allowed"
			denied, failed := o.denies(t, originals[r.name()], requestOf(t, &c))
			differences := strings.Join(r.Differences, "\n")
			if failed && strings.Contains(differences, "Kyverno refuses other operations too") ||
				c.operation == "DELETE" && strings.Contains(differences, "at a deletion, the variable") {
				continue // the report names the difference
			}
			if denied {
				verdict = "Denied"
				denials++
			}
			verdicts++
			one := map[string]any{
				"name": fmt.Sprint(i), "operation": c.operation, "inject": false, "expect": map[string]any{"verdict": verdict},
				"user": map[string]any{"username": "anna", "groups": []string{"dev"}},
			}
			if c.object != nil {
				one["object"] = c.object
			}
			if c.old != nil {
				one["oldObject"] = c.old
			}
			cases = append(cases, one)
		}
		tests = append(tests, map[string]any{
			"apiVersion": "gatehouse.dev/v1alpha1", "kind": "Test", "metadata": map[string]any{"name": r.name()}, "policies": r.Outputs[:1], "cases": cases,
		})
	}
	t.Logf("%d of %d policies converted, %d verdicts, of these %d denials", converted, len(originals), verdicts, denials)
	if converted < len(originals)*9/10 || denials == 0 || denials == verdicts {
		t.Error("the generator proves too little")
	}
	file := filepath.Join(t.TempDir(), "tests.yaml")
	writeJSON(t, file, tests...)
	var outcome struct {
		Cases []struct {
			Test, Name string
			Passed     bool
		}
	}
	run(t, &outcome, "test", "--config", output, file, "-o", "json")
	if len(outcome.Cases) != verdicts {
		t.Errorf("%d verdicts were compared, want %d", len(outcome.Cases), verdicts)
	}
	requests := map[string]any{}
	for _, test := range tests {
		of := test.(object)
		for _, c := range of["cases"].([]any) {
			requests[of["metadata"].(object)["name"].(string)+"/"+c.(object)["name"].(string)] = c
		}
	}
	shown := map[string]bool{}
	for _, c := range outcome.Cases {
		if c.Passed || shown[c.Test] {
			continue
		}
		if shown[c.Test] = true; len(shown) > *show {
			continue
		}
		original, _ := json.Marshal(originals[c.Test].Spec) // it was read from JSON, here and below
		request, _ := json.Marshal(requests[c.Test+"/"+c.Name])
		text, _ := os.ReadFile(filepath.Join(output, c.Test+".yaml")) // it is only shown
		t.Errorf("%s/%s: Kyverno's verdict is another one\n%s\n%s\n%s", c.Test, c.Name, original, text, request)
	}
	if len(shown) > *show {
		t.Errorf("%d policies have other verdicts", len(shown))
	}
}
