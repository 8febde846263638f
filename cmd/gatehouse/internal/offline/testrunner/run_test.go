package testrunner

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
)

// names is a configuration in which the names of ConfigMaps matter.
const names = `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: names}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: '!object.metadata.name.endsWith("7")', messageExpression: '"not " + object.metadata.name'}]
  validationActions: [Deny]
`

// load reads cases, and how to compile the configuration for them.
func load(t *testing.T, tests string) ([]*Case, func(Variant) (*webhooks.Snapshot, error)) {
	t.Helper()
	dir := write(t, map[string]string{"config/policy.yaml": names, "test.yaml": tests})
	c, err := config.Load(filepath.Join(dir, "config"))
	if err != nil {
		t.Fatal(err)
	}
	all, found := Load([]string{filepath.Join(dir, "test.yaml")}, false)
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return all, func(Variant) (*webhooks.Snapshot, error) {
		return webhooks.Compile(webhooks.Spec{Sidecar: c.Sidecar, Policy: c.Policy})
	}
}

// TestRunKeepsTheOrder runs many cases with many workers, and with one.
func TestRunKeepsTheOrder(t *testing.T) {
	t.Parallel()
	const many = 300
	var tests strings.Builder
	tests.WriteString(head + "metadata: {name: many}\ncases:\n")
	for i := range many {
		fmt.Fprintf(&tests, "- {name: c%d, object: {apiVersion: v1, kind: ConfigMap, metadata: {name: n%d}}, expect: {violations: [{message: not n%d}]}}\n", i, i, i)
	}
	all, compile := load(t, tests.String())
	show := func(workers int) string {
		runner := Runner{Resources: request.NewResources(nil), Compile: compile, Workers: workers}
		results, err := runner.Run(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for i := range results {
			r := &results[i]
			if want := strings.HasSuffix(r.Case.Name, "7"); r.Passed() != want {
				t.Errorf("%s has passed: %v", r.Case.Name, r.Passed())
			}
			fmt.Fprintf(&b, "%s %s\n%s", r.Case.Title(), r.Got.Verdict, text(r.Differences))
		}
		return b.String()
	}
	one, eight := show(1), show(8)
	if one != eight {
		t.Errorf("with one worker\n%s\nwith eight\n%s", one, eight)
	}
	if first, _, _ := strings.Cut(one, "\n"); first != "many/c0 Allowed" {
		t.Errorf("the first is %s", first)
	}
}

// TestRunHasNoHalfResults ends early in every way there is.
func TestRunHasNoHalfResults(t *testing.T) {
	t.Parallel()
	all, compile := load(t, good)
	ended, end := context.WithCancel(t.Context())
	end()
	runner := Runner{Resources: request.NewResources(nil), Compile: compile}
	if results, err := runner.Run(ended, all); !errors.Is(err, context.Canceled) || results != nil {
		t.Errorf("after the end: %v, %v", results, err)
	}
	broken := errors.New("broken")
	runner.Compile = func(Variant) (*webhooks.Snapshot, error) { return nil, broken }
	if results, err := runner.Run(t.Context(), all); !errors.Is(err, broken) || results != nil || !strings.Contains(err.Error(), "good/a") {
		t.Errorf("without a configuration: %v, %v", results, err)
	}
}

// TestLeftOut says which mutating policies tests leave out that list their policies.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	var mutating mutation.Spec
	for _, name := range []string{"labels", "images"} {
		p := mutation.Policy{}
		p.Name = name
		mutating.Policies = append(mutating.Policies, p)
	}
	for name, c := range map[string]struct {
		policies []string
		want     string
	}{
		"all apply":        {[]string{""}, ""},
		"one is left out":  {[]string{"", "policies: [p, labels]"}, "tests that list their policies leave out the mutating ones that they do not list (images): t1"},
		"all are left out": {[]string{"policies: [p]", "policies: []"}, "tests that list their policies leave out the mutating ones that they do not list (images, labels): t0, t1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{}
			for i, policies := range c.policies {
				files[fmt.Sprintf("%d.yaml", i)] = fmt.Sprintf("apiVersion: gatehouse.dev/v1alpha1\nkind: Test\nmetadata: {name: t%d}\n%s\n"+
					"cases: [{name: a, object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}, expect: {verdict: Allowed}}]\n", i, policies)
			}
			cases, found := Load([]string{write(t, files)}, false)
			if len(found) > 0 {
				t.Fatal(found)
			}
			if got := LeftOut(&mutating, cases); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
