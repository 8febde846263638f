//go:build upgrade

package incluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// moreResources are custom resources of the kinds that workloadPolicies do not have, with fields that both releases know.
const moreResources = `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: labels, labels: {team: platform}}
spec:
  failurePolicy: Fail
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  matchConditions: [{name: labelled, expression: has(object.metadata.labels)}]
  variables: [{name: limit, expression: int(params.data.limit)}]
  validations: [{expression: size(object.metadata.labels) <= variables.limit, message: too many labels, reason: Forbidden}]
---
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicyBinding
metadata: {name: labels}
spec:
  policyName: labels
  paramRef: {name: labels, namespace: shop, parameterNotFoundAction: Allow}
  validationActions: [Warn]
---
apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: mall, namespace: gatehouse-system}
spec:
  policies: [{name: replicas, rules: ["validations[0]"]}]
  match: {namespaces: [mall]}
  reason: sales
  expiresAt: "2100-01-01T00:00:00Z"
---
apiVersion: gatehouse.dev/v1alpha1
kind: AccessToken
metadata: {name: robot}
spec:
  sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  user: {username: robot, groups: [robots]}
  expiresAt: "2099-01-01T00:00:00Z"
---
apiVersion: gatehouse.dev/v1alpha1
kind: TokenRevocation
metadata: {name: lost}
spec: {user: jane, issuedBefore: "2026-01-01T00:00:00Z", reason: lost laptop}
`

// namedPolicy has a field that the previous release does not know: the name of a validation.
const namedPolicy = `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: named}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [statefulsets]}]
  validationActions: [Deny]
  validations: [{name: few-replicas, expression: object.spec.replicas <= 5, message: too many replicas}]
`

// The chart of the previous release, with its program, becomes this one and the previous one again, while the API server calls it all
// the time: no call fails, and the custom resources that were written under either schema stay as they are.
func TestPreviousRelease(t *testing.T) {
	t.Parallel()
	_, err := support.Built("previous", "previous", "gatehouse")
	must(t, err)
	charts, err := filepath.Glob(filepath.Join("testdata", "previous", "gatehouse-*.tgz"))
	if err != nil || len(charts) != 1 {
		t.Fatalf("the charts of the previous release are %q, want one: %v", charts, err)
	}
	s := newSite(t, cluster.Options{})
	helm := func(command string, args ...string) {
		t.Helper()
		_, err := s.helm(t.Context(), t.TempDir(), append([]string{command, "gatehouse", "--namespace", system}, args...)...)
		must(t, err)
		s.rolledOut(t)
		s.waitForReplicas(t, 2)
	}
	helm("install", charts[0], "--create-namespace", "--set", "replicaCount=2,minReadySeconds=2,image.repository="+previousImage)
	s.createWorkloads(t)
	must(t, s.apply(t.Context(), moreResources))
	revisions, ca, before, pods := s.revisions(t), s.authority(t), s.customResources(t), s.made(t)
	if len(before) != 8 {
		t.Fatalf("there are %d custom resources, want 8: %q", len(before), slices.Sorted(maps.Keys(before)))
	}
	l := s.traffic(t)

	// unchanged checks what no upgrade may change. That every call has its result is the load's to check.
	failed := int64(0)
	unchanged := func(t *testing.T, want map[string]string) {
		t.Helper()
		waitForSuccesses(t, l.Load)
		if now := l.Failed(); now > failed {
			t.Errorf("%d of %d calls failed: %s", now-failed, l.Calls(), l.Why())
			failed = now
		}
		if s.authority(t) != ca {
			t.Error("the CA is another")
		}
		got := s.customResources(t)
		for name, object := range want {
			if got[name] != object {
				t.Errorf("%s is\n%s\nand was\n%s", name, got[name], object)
			}
		}
		if now := s.made(t); !slices.Equal(now, pods) {
			t.Errorf("pods are made\n%s\nand were\n%s", strings.Join(now, "\n"), strings.Join(pods, "\n"))
		}
	}

	t.Run("to this version", func(t *testing.T) {
		helm("upgrade", chart, "--reset-then-reuse-values", "--set", "image.repository=registry.example/gatehouse")
		if s.revisions(t) == revisions {
			t.Errorf("the definitions have the revisions of before, %s: this test is of no change of schema", revisions)
		}
		s.condition(t, "Ready", "True")
		unchanged(t, before)
		must(t, s.apply(t.Context(), namedPolicy))
		if object := s.customResources(t)["AdmissionPolicy/named"]; !strings.Contains(object, `"name":"few-replicas"`) {
			t.Errorf("the field of this version is not in %s", object)
		}
	})
	t.Run("back to the previous release", func(t *testing.T) {
		known := s.customResources(t)
		known["AdmissionPolicy/named"] = strings.Replace(known["AdmissionPolicy/named"], `,"name":"few-replicas"`, "", 1)
		helm("rollback", "1")
		if now := s.revisions(t); now != revisions {
			t.Errorf("the definitions have the revisions %s, want %s", now, revisions)
		}
		s.condition(t, "Ready", "True")
		unchanged(t, known)
	})
	t.Run("to this version again", func(t *testing.T) {
		known := s.customResources(t)
		helm("rollback", "2")
		s.condition(t, "Ready", "True")
		unchanged(t, known)
	})
	l.noneFailed(t, 5_000)
}

// revisions are those of the schemas of the custom resources.
func (s *site) revisions(t *testing.T) string {
	t.Helper()
	text, err := s.kubectl(t.Context(), "", "get", "customresourcedefinitions", "--output",
		`jsonpath={range .items[*]}{.metadata.name}={.metadata.annotations.gatehouse\.dev/schema-revision} {end}`)
	must(t, err)
	return text
}

// customResources are the objects of gatehouse.dev as the API server serves them, by kind and name: labels, annotations and what users
// wrote.
func (s *site) customResources(t *testing.T) map[string]string {
	t.Helper()
	text, err := s.kubectl(t.Context(), "", "get", "gatehouse", "--all-namespaces", "--output", "json")
	must(t, err)
	var list unstructured.UnstructuredList
	must(t, list.UnmarshalJSON([]byte(text)))
	found := map[string]string{}
	for i := range list.Items {
		object := &list.Items[i]
		content, err := json.Marshal([]any{object.GetUID(), object.GetGeneration(), object.GetLabels(), object.GetAnnotations(), object.Object["spec"]})
		must(t, err)
		found[fmt.Sprintf("%s/%s", object.GetKind(), object.GetName())] = string(content)
	}
	return found
}
