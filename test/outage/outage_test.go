// Package outage_test stops webhooks of a real API server: what gatehouse drill says would fail, does, and what it does not say, does not.
package outage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

func TestMain(m *testing.M) { os.Exit(cluster.RunInNamespace(m)) }

// objects exist before any webhook. What is behind the Service guard/guard does not run.
const objects = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: everybody}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:authenticated"}]}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: blue}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: guard}}
---
{apiVersion: v1, kind: Service, metadata: {name: guard, namespace: guard}, spec: {selector: {app: guard}, ports: [{port: 443}]}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: guard, namespace: guard}, spec: {replicas: 0, selector: {matchLabels: {app: guard}}, template: {metadata: {labels: {app: guard}}, spec: {containers: [{name: guard, image: example.org/guard}]}}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: any, namespace: guard}}
---
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: any, namespace: guard}}
---
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: node-1, namespace: kube-node-lease}}
---
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: kube-scheduler, namespace: kube-system}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: any, namespace: kube-system}, addressType: IPv4, endpoints: []}
---
{apiVersion: v1, kind: Node, metadata: {name: node-1}}
---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: any, namespace: shop}, spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: any}}}`

// attempt is a request that drill names by its title.
type attempt struct {
	title, user   string
	groups        []string
	verb          string
	resource, sub string // GROUP/VERSION/RESOURCE
	object        string
}

// attempts are requests for titles of drill. The last ones are about an ordinary namespace, which no title names.
func attempts() []attempt {
	const (
		controllers = "system:serviceaccounts:kube-system"
		pod         = `{apiVersion: v1, kind: Pod, metadata: {namespace: %[1]s, generateName: "%[2]s-", labels: {app: %[2]s}}, spec: {containers: [{name: main, image: example.org/main:1}]}}`
		token       = `{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, metadata: {name: default, namespace: %s}, spec: {}}`
	)
	nodes := []string{"system:nodes"}
	return []attempt{
		{"create a pod of Deployment guard/guard", "system:serviceaccount:kube-system:replicaset-controller", []string{controllers}, "create", "/v1/pods", "", fmt.Sprintf(pod, "guard", "guard")},
		{"create a pod of any workload in kube-system", "system:serviceaccount:kube-system:replicaset-controller", []string{controllers}, "create", "/v1/pods", "", fmt.Sprintf(pod, "kube-system", "any")},
		{"issue the token for a pod of Deployment guard/guard", "system:node:node-1", nodes, "create", "/v1/serviceaccounts", "token", fmt.Sprintf(token, "guard")},
		{"issue the token for a pod of any workload in kube-system", "system:node:node-1", nodes, "create", "/v1/serviceaccounts", "token", fmt.Sprintf(token, "kube-system")},
		{"create the ReplicaSet of Deployment guard/guard", "system:serviceaccount:kube-system:deployment-controller", []string{controllers}, "create", "apps/v1/replicasets", "", `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: guard-1, namespace: guard, labels: {app: guard}}, spec: {selector: {matchLabels: {app: guard}}, template: {metadata: {labels: {app: guard}}, spec: {containers: [{name: a, image: a}]}}}}`},
		{"scale Deployment guard/guard", "kubernetes-admin", nil, "update", "apps/v1/deployments", "scale", `{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: guard, namespace: guard}, spec: {replicas: 0}}`},
		{"write the certificate in a Secret in guard", "system:serviceaccount:guard:default", []string{"system:serviceaccounts:guard"}, "update", "/v1/secrets", "", `{apiVersion: v1, kind: Secret, metadata: {name: any, namespace: guard}, stringData: {a: b}}`},
		{"renew a Lease in guard", "system:serviceaccount:guard:default", []string{"system:serviceaccounts:guard"}, "update", "coordination.k8s.io/v1/leases", "", `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: any, namespace: guard, labels: {a: b}}}`},
		{"write the addresses of a Service in kube-system", "system:serviceaccount:kube-system:endpointslice-controller", []string{controllers}, "update", "discovery.k8s.io/v1/endpointslices", "", `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: any, namespace: kube-system, labels: {a: b}}, addressType: IPv4, endpoints: []}`},
		{"register a node", "system:node:node-1", nodes, "create", "/v1/nodes", "", `{apiVersion: v1, kind: Node, metadata: {name: node-2}}`},
		{"write the status of a node", "system:node:node-1", nodes, "update", "/v1/nodes", "status", `{apiVersion: v1, kind: Node, metadata: {name: node-1, labels: {a: b}}}`},
		{"renew the Lease of a node", "system:node:node-1", nodes, "update", "coordination.k8s.io/v1/leases", "", `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: node-1, namespace: kube-node-lease, labels: {a: b}}}`},
		{"renew the Lease of kube-scheduler", "system:kube-scheduler", nil, "update", "coordination.k8s.io/v1/leases", "", `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: kube-scheduler, namespace: kube-system, labels: {a: b}}}`},
		{"review a token", "system:node:node-1", nodes, "create", "authentication.k8s.io/v1/tokenreviews", "", `{apiVersion: authentication.k8s.io/v1, kind: TokenReview, metadata: {}, spec: {token: x}}`},
		{"review the own access", "system:serviceaccount:default:default", nil, "create", "authorization.k8s.io/v1/selfsubjectaccessreviews", "", `{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectAccessReview, metadata: {}, spec: {resourceAttributes: {verb: get, resource: pods}}}`},
		{"add the ClusterRole objects of a new version", "system:apiserver", []string{"system:masters"}, "create", "rbac.authorization.k8s.io/v1/clusterroles", "", `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "system:any"}}`},
		// drill decides requests of the past by the same code: the suite compares them below.
		{"", "jane", nil, "create", "/v1/pods", "", fmt.Sprintf(pod, "shop", "any")},
		{"", "jane", nil, "update", "autoscaling/v1/horizontalpodautoscalers", "", `{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: any, namespace: shop}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: any}}}`},
	}
}

// world is a control plane, and a client for each user.
type world struct {
	*cluster.Cluster

	audit   string
	clients map[string]dynamic.Interface
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{audit: filepath.Join(dir, "audit.log"), clients: map[string]dynamic.Interface{}}
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(`{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata", "users": ["jane"]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Cluster = cluster.New(t, cluster.Options{APIServerFlags: []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + w.audit, "--audit-log-mode=blocking-strict",
		// Without NodeRestriction, which refuses most of what a test can ask for as a node.
		"--enable-admission-plugins=NamespaceLifecycle",
	}})
	for document := range strings.SplitSeq(objects, "\n---\n") {
		w.apply(t, document)
	}
	for _, namespace := range []string{"guard", "shop", "kube-system"} {
		w.apply(t, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: `+namespace+`}}`)
	}
	for _, a := range attempts() {
		if w.clients[a.user] == nil {
			config, err := w.ConfigFor(a.user, a.groups...)
			if err != nil {
				t.Fatal(err)
			}
			config.QPS = -1
			if w.clients[a.user], err = dynamic.NewForConfig(config); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w
}

// apply applies a document with kubectl.
func (w *world) apply(t *testing.T, document string) {
	t.Helper()
	command := w.Kubectl(t.Context(), "apply", "--server-side", "--force-conflicts", "-f", "-")
	command.Stdin = strings.NewReader(document)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, document)
	}
}

// try makes a request as a dry run, and reports whether a webhook has failed it.
func (w *world) try(ctx context.Context, a *attempt) (failed bool, err error) {
	var o unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(a.object), &o.Object); err != nil {
		return false, err
	}
	parts := strings.Split(a.resource, "/")
	namespaced := w.clients[a.user].Resource(schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]})
	client := dynamic.ResourceInterface(namespaced)
	if o.GetNamespace() != "" {
		client = namespaced.Namespace(o.GetNamespace())
	}
	var sub []string
	if a.sub != "" {
		sub = []string{a.sub}
	}
	all := []string{metav1.DryRunAll}
	if a.verb == "create" {
		_, err = client.Create(ctx, &o, metav1.CreateOptions{DryRun: all}, sub...)
	} else {
		var stored *unstructured.Unstructured
		if stored, err = client.Get(ctx, o.GetName(), metav1.GetOptions{}); err != nil {
			return false, err
		}
		o.SetResourceVersion(stored.GetResourceVersion())
		_, err = client.Update(ctx, &o, metav1.UpdateOptions{DryRun: all}, sub...)
	}
	switch {
	case err == nil:
		return false, nil
	case strings.Contains(err.Error(), "failed calling webhook"), apierrors.IsForbidden(err) && strings.Contains(err.Error(), "resulted in error"):
		return true, nil
	default:
		return false, err
	}
}

// drillReport is what the suite reads of gatehouse drill -o json.
type drillReport struct {
	Subjects []struct {
		Findings []struct{ Requests []string }
	}
	Outage *struct {
		Backends []struct{ Failed, Unknown int64 }
	}
	Unknown []string
}

// drill returns the report of gatehouse drill.
func (w *world) drill(t *testing.T, flags ...string) (r drillReport) {
	t.Helper()
	out, err := gatehouse.Run(t.Context(), append([]string{"drill", "--kubeconfig", w.Kubeconfig(), "-o", "json"}, flags...)...)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatal(err, out)
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPredictions registers webhooks with nothing behind them.
func TestPredictions(t *testing.T) {
	w := newWorld(t)
	rule := func(group, version, resource, operation string) string {
		return fmt.Sprintf(`rules: [{apiGroups: [%q], apiVersions: [%q], operations: [%q], resources: [%q]}]`, group, version, operation, resource)
	}
	const (
		pods    = `rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]`
		notGate = `namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [guard]}]}`
		notSys  = `namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kube-node-lease]}]}`
	)
	for _, c := range []struct{ name, fields string }{
		{"everything", rule("*", "*", "*/*", "*")},
		{"all but subresources", rule("*", "*", "*", "*")},
		{"but of the system", rule("*", "*", "*/*", "*") + ", " + notSys},
		{"but of its own namespace", rule("*", "*", "*/*", "*") + ", " + notGate},
		{"namespaced", `rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"], scope: Namespaced}]`},
		{"cluster-scoped", `rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"], scope: Cluster}]`},
		{"fails open", rule("*", "*", "*/*", "*") + ", failurePolicy: Ignore, timeoutSeconds: 1"},
		{"pods", pods},
		{"pods of a label", pods + `, objectSelector: {matchLabels: {app: guard}}`},
		{"namespaces of a label", pods + `, namespaceSelector: {matchLabels: {team: blue}}`},
		{"updates", rule("*", "*", "*", "UPDATE")},
		{"the status of nodes", rule("", "v1", "nodes/status", "UPDATE")},
		{"scale", rule("apps", "v1", "deployments/scale", "UPDATE")},
		{"tokens", rule("", "v1", "serviceaccounts/token", "CREATE")},
		{"reviews", rule("*", "*", "tokenreviews", "CREATE")},
		{"an equivalent version", rule("autoscaling", "v2", "horizontalpodautoscalers", "UPDATE")},
		{"an exact version", rule("autoscaling", "v2", "horizontalpodautoscalers", "UPDATE") + ", matchPolicy: Exact"},
		{"a condition on users", rule("*", "*", "*/*", "*") + `, matchConditions: [{name: people, expression: '!request.userInfo.username.startsWith("system:")'}]`},
		{"a condition on objects", pods + `, matchConditions: [{name: app, expression: object.metadata.labels.app == "any"}]`},
		{"a condition that fails", pods + `, matchConditions: [{name: team, expression: object.metadata.labels.team == "any"}]`},
		{"a condition that fails, open", pods + `, failurePolicy: Ignore, matchConditions: [{name: team, expression: object.metadata.labels.team == "any"}]`},
		{"a condition on a generated name", pods + `, matchConditions: [{name: name, expression: object.metadata.name.startsWith("any-")}]`},
		{"mutating, a condition on a generated name", pods + `, reinvocationPolicy: Never, matchConditions: [{name: name, expression: object.metadata.name.startsWith("any-")}]`},
		{"a condition on rights", pods + `, matchConditions: [{name: right, expression: 'authorizer.requestResource.check("nothing").allowed()'}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			log, err := os.Stat(w.audit)
			if err != nil {
				t.Fatal(err)
			}
			marker := strings.ReplaceAll(strings.ReplaceAll(c.name, " ", "-"), ",", "")
			kind := "ValidatingWebhookConfiguration"
			if strings.HasPrefix(c.name, "mutating") {
				kind = "MutatingWebhookConfiguration"
			}
			w.apply(t, fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: %s, metadata: {name: outage}, webhooks: [
  {name: guard.example.org, admissionReviewVersions: [v1], sideEffects: None, clientConfig: {service: {namespace: guard, name: guard}}, %s},
  {name: marker.example.org, admissionReviewVersions: [v1], sideEffects: None, clientConfig: {url: "https://127.0.0.1:1"}, objectSelector: {matchLabels: {marker: %s}},
   rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}]}`, kind, c.fields, marker))
			t.Cleanup(func() { // what ends the outage is never refused
				if out, err := w.Kubectl(context.WithoutCancel(t.Context()), "delete", kind, "outage").CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
			support.Eventually(t, "the registration", func() error {
				failed, err := w.try(t.Context(), &attempt{
					user: "kubernetes-admin", verb: "create", resource: "/v1/configmaps",
					object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: marker, namespace: default, labels: {marker: ` + marker + `}}}`,
				})
				if err == nil && !failed {
					err = errors.New("the webhook is not called yet")
				}
				return err
			})
			predicted := map[string]bool{}
			report := w.drill(t)
			for _, s := range report.Subjects {
				for _, f := range s.Findings {
					for _, title := range f.Requests {
						predicted[title] = true
					}
				}
			}
			if strings.HasSuffix(c.fields, "timeoutSeconds: 1") {
				clear(predicted) // what waits does not fail
			}
			people := int64(0)
			for _, a := range attempts() {
				failed, err := w.try(t.Context(), &a)
				if err != nil {
					t.Errorf("%s by %s: %v", a.title, a.user, err)
					continue
				}
				if a.title == "" && failed {
					people++
				}
				if a.title != "" && failed != predicted[a.title] {
					t.Errorf("%s: it fails is %t, and drill says %t", a.title, failed, predicted[a.title])
				}
			}
			w.compareLog(t, log.Size(), people, slices.Sorted(maps.Keys(predicted)))
		})
	}
}

// compareLog compares what drill says of the requests of jane in the audit log, from an offset on, with how many have failed.
func (w *world) compareLog(t *testing.T, offset, failed int64, predicted []string) {
	t.Helper()
	text, err := os.ReadFile(w.audit)
	if err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(part, text[offset:], 0o600); err != nil {
		t.Fatal(err)
	}
	r := w.drill(t, "--audit-log", part)
	var sure, unknown int64
	if r.Outage != nil {
		for _, b := range r.Outage.Backends {
			sure, unknown = sure+b.Failed, unknown+b.Unknown
		}
	}
	if len(r.Unknown) > 0 || failed < sure || failed > sure+unknown {
		t.Errorf("%d requests of the log have failed, and drill says %d, or %d more; unknown: %q; predicted: %q", failed, sure, unknown, r.Unknown, predicted)
	}
}
