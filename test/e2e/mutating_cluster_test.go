package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// mutatingDocuments returns a policy with one mutation, for the objects with a label in a namespace, and its binding.
func mutatingDocuments(name, namespace, group, resource, expression string) string {
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}
    resourceRules: [{apiGroups: [%[3]q], apiVersions: [v1], operations: [CREATE], resources: [%[4]s]}]
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: %[5]q}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
---
`, name, namespace, group, resource, expression)
}

// TestMutationOrder: of two policies that append to one value, the API server runs now this one first and now that one, and Gatehouse
// says so. Before Kubernetes 1.36 the API server has none.
func TestMutationOrder(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	if w.Minor(t) < mutatingSince {
		return
	}
	const name = "mutating-order"
	w.newNamespace(t, name, nil)
	policy := func(letter, more string) string {
		return mutatingDocuments(name+"-"+letter, name, "", "configmaps", fmt.Sprintf(`Object{data: {"order": object.data.?order.orValue("") + "%s"%s}}`, letter, more))
	}
	must(t, w.apply(t.Context(), policy("b", "")))
	// A change of a policy makes another order. The other order comes with a chance of one in eight at least: then that it does not come
	// in all changes has one below 1e-9.
	const changes = 160
	seen := map[string]int{}
	for change := 0; len(seen) < 2; change++ {
		if change == changes {
			t.Fatalf("after %d changes the results are %v", changes, seen)
		}
		must(t, w.apply(t.Context(), policy("a", fmt.Sprintf(`, "change": "%d"`, change))))
		var created *corev1.ConfigMap
		support.Eventually(t, "the change", func() (err error) {
			created, err = w.Client().CoreV1().ConfigMaps(name).Create(t.Context(), configMap("x", nil, "a=1"), dryRun)
			if err == nil && (created.Data["change"] != fmt.Sprint(change) || len(created.Data["order"]) != 2) {
				err = fmt.Errorf("it has %v", created.Data)
			}
			return err
		})
		seen[created.Data["order"]]++
	}
	if seen["ab"] == 0 || seen["ba"] == 0 {
		t.Errorf("the results are %v", seen)
	}
	file := filepath.Join(t.TempDir(), "configmap.yaml")
	must(t, os.WriteFile(file, []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: mutating-order}, data: {a: \"1\"}}\n"), 0o600))
	for _, command := range []string{"check", "mutate"} {
		output, err := gatehouse.Run(t.Context(), command, "--kubeconfig", w.Kubeconfig(), "--partial", "-f", file)
		if err == nil {
			t.Errorf("%s: %s", command, output)
			continue
		}
		for _, want := range []string{"exit status 2", "depends on the order", name + "-a", name + "-b"} {
			if said := output + err.Error(); !strings.Contains(said, want) {
				t.Errorf("%s says nothing of %q: %s", command, want, said)
			}
		}
	}
}

// TestMutatedCustomResource: a server changes custom resources by the definition that the cluster has, with the right to read that one
// alone.
func TestMutatedCustomResource(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	const (
		name       = "mutating-cluster"
		definition = "cogs.cluster.mutating.example.com"
	)
	w.newNamespace(t, name, nil)
	must(t, w.apply(t.Context(), `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: `+definition+`}
spec:
  group: cluster.mutating.example.com
  scope: Namespaced
  names: {kind: Cog, plural: cogs, singular: cog}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {
      teeth: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], properties: {name: {type: string}, size: {type: integer, default: 2}}}}}}}}}}
`))
	right := func(group, resource string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: []string{"get", "list", "watch"}}
	}
	rbac := w.Client().RbacV1()
	_, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{right("", "namespaces"), right("apiextensions.k8s.io", "customresourcedefinitions", definition)},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	must(t, err)
	access, err := w.ConfigFor(name)
	must(t, err)
	kubeconfig := w.path(name + ".kubeconfig")
	must(t, cluster.WriteKubeconfig(kubeconfig, access.Host, access.CAData, access.CertData, access.KeyData))
	config := t.TempDir()
	documents := mutatingDocuments(name, name, "cluster.mutating.example.com", "cogs", `Object{spec: Object.spec{teeth: [Object.spec.teeth{name: "b"}]}}`)
	must(t, os.WriteFile(filepath.Join(config, "documents.yaml"), []byte(documents), 0o600))
	w.servePoliciesIn(t, name, config, config, []string{"--kubeconfig", kubeconfig}, name)

	create := apiRequest{
		Request: "POST /apis/cluster.mutating.example.com/v1/namespaces/NAMESPACE/cogs",
		Body:    []byte(`{"apiVersion":"cluster.mutating.example.com/v1","kind":"Cog","metadata":{"generateName":"cog-"},"spec":{"teeth":[{"name":"a","size":1}]}}`),
	}
	support.Eventually(t, "the registration", func() error {
		result, _, _ := create.do(t, w, name, false)
		raw, err := result.Raw()
		if want := `"teeth":[{"name":"a","size":1},{"name":"b","size":2}]`; err == nil && !strings.Contains(string(raw), want) {
			err = fmt.Errorf("it is %s", raw)
		}
		return err
	})
}
