package baseline_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/baseline"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

func subject(t testing.TB, kind schema.GroupVersionKind, from baseline.Owner, object string) (*baseline.Subject, error) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	text, err := rawjson.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return baseline.NewSubject(kind, "shop", from, text)
}

func podKind() schema.GroupVersionKind { return schema.GroupVersionKind{Version: "v1", Kind: "Pod"} }

// TestOwner knows a pod by what made it, by names alone.
func TestOwner(t *testing.T) {
	t.Parallel()
	owned := func(version, kind, name, labels string) string {
		return fmt.Sprintf("{metadata: {name: p, labels: {%s}, ownerReferences: [{apiVersion: v1, kind: X, name: x}, {apiVersion: %s, kind: %s, name: %q, controller: true}]}}", labels, version, kind, name)
	}
	for _, tt := range []struct {
		name, pod string
		from      baseline.Owner
		want      string
	}{
		{name: "a pod", pod: "{metadata: {name: p}}", want: "shop/Pod/p"},
		{name: "a static pod", pod: owned("v1", "Node", "node-1", ""), want: "shop/Pod/p"},
		{name: "a Deployment's", pod: owned("apps/v1", "ReplicaSet", "web-5d4f7", "pod-template-hash: 5d4f7"), want: "shop/Deployment/web"},
		{name: "a Rollout's", pod: owned("apps/v1", "ReplicaSet", "web-5d4f7", "rollouts-pod-template-hash: 5d4f7"), want: "shop/Rollout/web"},
		{name: "a ReplicaSet's", pod: owned("apps/v1", "ReplicaSet", "web-5d4f7", ""), want: "shop/ReplicaSet/web-5d4f7"},
		{name: "a ReplicaSet's with another hash", pod: owned("apps/v1", "ReplicaSet", "web-5d4f7", "pod-template-hash: 4f7"), want: "shop/ReplicaSet/web-5d4f7"},
		{name: "a ReplicaSet's with a name that is a hash", pod: owned("apps/v1", "ReplicaSet", "-5d4f7", "pod-template-hash: 5d4f7"), want: "shop/ReplicaSet/-5d4f7"},
		{name: "a DaemonSet's", pod: owned("apps/v1", "DaemonSet", "log", "pod-template-hash: 5d4f7"), want: "shop/DaemonSet/log"},
		{name: "a CronJob's", pod: owned("batch/v1", "Job", "nightly-29912345", ""), want: "shop/CronJob/nightly"},
		{name: "a Job's", pod: owned("batch/v1", "Job", "nightly", ""), want: "shop/Job/nightly"},
		{name: "a Job's with a date", pod: owned("batch/v1", "Job", "nightly-20261128", ""), want: "shop/Job/nightly-20261128"},
		{name: "a Job's with a number", pod: owned("batch/v1", "Job", "nightly-1", ""), want: "shop/Job/nightly-1"},
		{name: "a Job's with a number alone", pod: owned("batch/v1", "Job", "-29912345", ""), want: "shop/Job/-29912345"},
		{name: "another group's Job", pod: owned("example.com/v1", "Job", "nightly-29912345", ""), want: "shop/Job/nightly-29912345"},
		{name: "a template", pod: "{metadata: {generateName: web-}}", from: baseline.Owner{Group: "apps", Kind: "Deployment", Name: "web"}, want: "shop/Deployment/web"},
		{name: "a template of a ReplicaSet", pod: "{metadata: {labels: {pod-template-hash: 5d4f7}}}", from: baseline.Owner{Group: "apps", Kind: "ReplicaSet", Name: "web-5d4f7"}, want: "shop/Deployment/web"},
		{name: "a template of a workload without a name", pod: "{metadata: {}}", from: baseline.Owner{Group: "batch", Kind: "Job"}, want: "its name is generated, and no workload makes it"},
		{name: "a pod without a name", pod: "{metadata: {generateName: x-}}", want: "its name is generated, and no workload makes it"},
		{name: "what is no pod", pod: "{metadata: 1}", want: "its name is generated, and no workload makes it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, err := subject(t, podKind(), tt.from, tt.pod)
			if _, unknown := errors.AsType[baseline.UnknownError](err); err != nil && (!unknown || err.Error() != tt.want) || err == nil && s.String() != tt.want {
				t.Errorf("got %v, %v", s, err)
			}
		})
	}
}

// TestSameTemplate has one entry for what controllers make of one template.
func TestSameTemplate(t *testing.T) {
	t.Parallel()
	reads := expression.ReadsOf([]string{"metadata", "labels"}, []string{"metadata", "annotations"}, []string{"spec"})
	set := func(version, kind, metadata, spec string) string {
		return fmt.Sprintf("{metadata: {%s, ownerReferences: [{apiVersion: %s, kind: %s, name: x, controller: true}]}, spec: {%s}}", metadata, version, kind, spec)
	}
	const containers = "containers: [{name: a, image: x}]"
	for _, tt := range []struct {
		name       string
		pods, same []string
	}{
		{name: "DaemonSet", same: []string{
			set("apps/v1", "DaemonSet", "name: x-a, labels: {a: b, controller-revision-hash: a1, pod-template-generation: '1'}",
				containers+", affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]}}}"),
			set("apps/v1", "DaemonSet", "name: x-b, labels: {a: b, controller-revision-hash: a2}",
				containers+", tolerations: [{key: node.kubernetes.io/disk-pressure, operator: Exists, effect: NoSchedule}], nodeName: n2"),
			"{metadata: {labels: {a: b}}, spec: {" + containers + "}}",
		}},
		{name: "StatefulSet", same: []string{
			set("apps/v1", "StatefulSet", "name: x-0, labels: {a: b, statefulset.kubernetes.io/pod-name: x-0, apps.kubernetes.io/pod-index: '0'}",
				containers+", hostname: x-0, subdomain: x, volumes: [{name: data, persistentVolumeClaim: {claimName: data-x-0}}]"),
			set("apps/v1", "StatefulSet", "name: x-1, labels: {a: b, statefulset.kubernetes.io/pod-name: x-1, apps.kubernetes.io/pod-index: '1'}",
				containers+", hostname: x-1, subdomain: x, volumes: [{name: data, persistentVolumeClaim: {claimName: data-x-1}}]"),
		}},
		{name: "Job", same: []string{
			set("batch/v1", "Job", "name: x-a, finalizers: [batch.kubernetes.io/job-tracking], labels: {job-name: x, controller-uid: u, batch.kubernetes.io/job-name: x, batch.kubernetes.io/controller-uid: u}", containers),
			"{metadata: {}, spec: {" + containers + "}}",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			group := map[string]string{"Job": "batch"}[tt.name]
			if group == "" {
				group = "apps"
			}
			var want string
			for i, pod := range tt.same {
				from := baseline.Owner{}
				if !strings.Contains(pod, "ownerReferences") {
					from = baseline.Owner{Group: group, Kind: tt.name, Name: "x"}
				}
				s, err := subject(t, podKind(), from, "{apiVersion: v1, kind: Pod, "+pod[1:])
				if err != nil {
					t.Fatal(err)
				}
				if got := s.Entry(baseline.RuleID{}, reads).String(); i == 0 {
					want = got
				} else if got != want {
					t.Errorf("%s has %s, want %s", pod, got, want)
				}
			}
		})
	}
}

// TestUnknownField has the values of fields that only a later version of Kubernetes has.
func TestUnknownField(t *testing.T) {
	t.Parallel()
	entry := func(spec string) baseline.Entry {
		s, err := subject(t, podKind(), baseline.Owner{}, "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a, image: x"+spec+"}]}}")
		if err != nil {
			t.Fatal(err)
		}
		return s.Entry(baseline.RuleID{}, expression.ReadsOf([]string{"spec", "containers", expression.EachElement, "future"}))
	}
	if entry(", future: {a: 1}") == entry(", future: {a: 2}") || entry("") == entry(", future: {a: 1}") {
		t.Error("a field that is not known does not count")
	}
}

// TestDigest has the digest that every version of Gatehouse must give: another one makes all baselines invalid.
func TestDigest(t *testing.T) {
	t.Parallel()
	s, err := subject(t, podKind(), baseline.Owner{}, "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {a: b}}, spec: {containers: [{name: a, image: x, resources: {limits: {cpu: 1000m}}}]}}")
	if err != nil {
		t.Fatal(err)
	}
	got := s.Entry(baseline.RuleID{RuleName: baseline.RuleName{Kind: "AdmissionPolicy", Policy: "p", Rule: "validations[0]"}, Source: []byte("object.spec == {}\n")}, expression.ReadsOf([]string{"metadata", "labels", "a"}, []string{"spec", "containers", expression.EachElement, "resources", "limits"})).String()
	if want := "shop/Pod/p@sha256:d295dc3ea48fdabb4a63bcc04ea4c73c44eeda47a55a98ebcead621eaa985e61"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzSubject reads whatever is in the places of fields, and finds the same each time.
func FuzzSubject(f *testing.F) {
	for _, text := range []string{
		`{}`, `[]`, `{"metadata":{"name":"a","labels":[],"annotations":1},"spec":{"volumes":{},"containers":[1,{"volumeMounts":[null]}]}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","ownerReferences":[1,{"controller":true,"kind":2}]},"spec":null,"status":{}}`,
		`{"metadata":{"name":"x-0","ownerReferences":[{"controller":true,"apiVersion":"apps/v1","kind":"StatefulSet","name":"x"}]},"spec":{"volumes":[{"persistentVolumeClaim":{"claimName":1}}],"tolerations":[1]}}`,
		`{"metadata":{"name":"x","ownerReferences":[{"controller":true,"apiVersion":"apps/v1","kind":"DaemonSet","name":"x"}]},"spec":{"affinity":[],"tolerations":[1,{"key":"node.kubernetes.io/x","operator":"Exists"}]}}`,
	} {
		f.Add([]byte(text))
	}
	reads := expression.ReadsOf([]string{"metadata", "labels"}, []string{"spec"})
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := rawjson.Parse(data)
		if err != nil {
			return
		}
		s, err := baseline.NewSubject(podKind(), "shop", baseline.Owner{}, text)
		if err != nil {
			return
		}
		again, err := baseline.NewSubject(podKind(), "shop", baseline.Owner{}, text)
		if err != nil || s.Entry(baseline.RuleID{}, reads) != again.Entry(baseline.RuleID{}, reads) || s.WhyUnbounded(reads, reads) != "" {
			t.Errorf("got %v, %v", again, err)
		}
	})
}
